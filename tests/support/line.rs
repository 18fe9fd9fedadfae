//! Parser for packets as lines: the inverse of `softroce::wire::text`.

use std::collections::BTreeMap;

use softroce::ids::{PKey, QKey, Qpn, Rkey};
use softroce::psn::Psn;
use softroce::time::RnrTimer;
use softroce::wire::feth::{Placement, Selectivity};
use softroce::wire::packet::{ICRC_LEN, padding};
use softroce::wire::text::PacketLine;
use softroce::wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Builder, Datagram, Deth, FlushEth, Ieth, ImmDt, NakCode,
    Opcode, Operation, Position, Reth, Suffix, Syndrome, Transport, XrcEth,
};

/// Returns the datagram that a line describes, without ICRC.
///
/// The line is as [`Line`] writes it: `SEND_ONLY psn=5 ackreq len=64`, or in the long form with the
/// transport first; without one it is RC. Without `qp=` it goes to `dest_qp`. The payload is
/// [`pattern`](super::pattern)`(psn, len)`.
pub fn datagram(line: &str, dest_qp: Qpn) -> Vec<u8> {
    datagram_of(Transport::Rc, line, dest_qp)
}

/// Returns the datagram of a line, with this transport if the line names none.
pub fn datagram_of(transport: Transport, line: &str, dest_qp: Qpn) -> Vec<u8> {
    let fields = Fields::of(transport, line);
    let bytes = fields.build(dest_qp);
    let parsed = Datagram::parse(&bytes).unwrap();
    let written = match fields.is_long {
        true => format!("{:#}", PacketLine(&parsed)),
        false => PacketLine(&parsed).to_string(),
    };
    assert_eq!(written, line, "this is how the line is written");
    bytes
}

/// A parsed line.
struct Fields<'a> {
    line: &'a str,
    is_long: bool,
    opcode: Opcode,
    /// Syndrome of the AETH, from the name.
    syndrome: Option<Syndrome>,
    /// Pairs `name=value`; a flag has no value.
    values: BTreeMap<&'a str, &'a str>,
}

impl<'a> Fields<'a> {
    fn of(usual: Transport, line: &'a str) -> Self {
        let mut words = line.split_whitespace().peekable();
        let transport =
            [Transport::Uc, Transport::Rd, Transport::Ud, Transport::Xrc, Transport::Rc]
                .into_iter()
                .find(|transport| words.next_if(|word| *word == transport.name()).is_some());
        let name = words.next().unwrap_or_default();
        let (opcode, syndrome) = opcode(transport.unwrap_or(usual), name)
            .unwrap_or_else(|| panic!("{line:?}: {name:?} is no packet"));
        let values = words.map(|word| word.split_once('=').unwrap_or((word, ""))).collect();
        Self { line, is_long: transport.is_some(), opcode, syndrome, values }
    }

    fn build(&self, dest_qp: Qpn) -> Vec<u8> {
        let len = self.number("len").unwrap_or(0) as usize;
        let pad = self.number("pad").map_or(padding(len), |pad| pad as usize);
        let bth = Bth {
            opcode: self.opcode,
            solicited: self.values.contains_key("solicited"),
            pad: pad as u8,
            pkey: self.number("pkey").map_or(PKey::DEFAULT, |pkey| PKey(pkey as u16)),
            fecn: self.values.contains_key("fecn"),
            becn: self.values.contains_key("becn"),
            dest_qp: self.number("qp").map_or(dest_qp, |qp| Qpn::new(qp as u32)),
            ack_req: self.values.contains_key("ackreq"),
            psn: Psn::new(self.need("psn") as u32),
            ..Bth::default()
        };
        let mut bytes = vec![0; self.opcode.header_len() + len + pad + ICRC_LEN];
        let mut builder = Builder::new(&bth, &mut bytes).unwrap();
        self.headers(&mut builder);
        let payload = super::pattern(u64::from(bth.psn.value()), len);
        builder.payload_mut().copy_from_slice(&payload);
        bytes
    }

    fn headers(&self, builder: &mut Builder<'_>) {
        let layout = self.opcode.layout();
        let rkey = || Rkey(self.need("rkey") as u32);
        if layout.reth.is_some() {
            let (addr, length) = (self.need("va"), self.need("dmalen") as u32);
            builder.reth(&Reth { addr, rkey: rkey(), length });
        }
        if layout.atomic_eth.is_some() {
            let swap = self.number("add").unwrap_or_else(|| self.need("swap"));
            let compare = self.number("expect").unwrap_or(0);
            let atomic = AtomicEth { addr: self.need("va"), rkey: rkey(), swap, compare };
            builder.atomic_eth(&atomic);
        }
        if layout.aeth.is_some() {
            builder.aeth(&Aeth { syndrome: self.syndrome(), msn: self.need("msn") as u32 });
        }
        if layout.atomic_ack_eth.is_some() {
            builder.atomic_ack_eth(&AtomicAckEth { original: self.need("value") });
        }
        if layout.imm.is_some() {
            builder.imm(&ImmDt(self.need("imm") as u32));
        }
        if layout.ieth.is_some() {
            builder.ieth(&Ieth(Rkey(self.need("inv") as u32)));
        }
        if layout.deth.is_some() {
            let qkey = QKey(self.need("qkey") as u32);
            builder.deth(&Deth { qkey, source_qp: Qpn::new(self.need("srcqp") as u32) });
        }
        if layout.feth.is_some() {
            let placement = Placement::from_bits_retain(self.need("placement") as u8);
            let selectivity = Selectivity::from_code(self.need("selectivity") as u8);
            builder.feth(&FlushEth { placement, selectivity });
        }
        if layout.xrceth.is_some() {
            builder.xrceth(&XrcEth { srqn: self.need("srqn") as u32 });
        }
    }

    fn syndrome(&self) -> Syndrome {
        if let Some(byte) = self.number("syndrome") {
            return Syndrome::from_byte(byte as u8);
        }
        if let Some(timer) = self.values.get("timer") {
            return Syndrome::Rnr { timer: rnr_timer(timer) };
        }
        let credits = self.number("credits").map(|credits| credits as u8);
        let ack = Syndrome::Ack { credits: credits.unwrap_or(Aeth::UNLIMITED_CREDITS) };
        self.syndrome.unwrap_or(ack)
    }

    fn need(&self, name: &str) -> u64 {
        self.number(name).unwrap_or_else(|| panic!("{:?} lacks {name}=", self.line))
    }

    fn number(&self, name: &str) -> Option<u64> {
        let text = self.values.get(name)?;
        let parsed = match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => text.parse(),
        };
        Some(parsed.unwrap_or_else(|error| panic!("{:?}: {name}={text}: {error}", self.line)))
    }
}

/// Returns the opcode of a name, and the syndrome if the name determines it.
fn opcode(transport: Transport, name: &str) -> Option<(Opcode, Option<Syndrome>)> {
    // Transports without acknowledgements use those of RC.
    let of = |operation| {
        let over = |transport| Opcode::find(transport, operation, Position::Only, Suffix::None);
        over(transport).or_else(|| over(Transport::Rc))
    };
    let nak = |code| Some((of(Operation::Acknowledge)?, Some(Syndrome::Nak(code))));
    match name {
        "ACK" | "RNR_NAK" => Some((of(Operation::Acknowledge)?, None)),
        "CNP" => Some((Opcode::Cnp, None)),
        "ATOMIC_ACK" => Some((of(Operation::AtomicAcknowledge)?, None)),
        "NAK_PSN" => nak(NakCode::PsnSequence),
        "NAK_INV" => nak(NakCode::InvalidRequest),
        "NAK_ACCESS" => nak(NakCode::RemoteAccess),
        "NAK_OP" => nak(NakCode::RemoteOperational),
        "NAK_RD" => nak(NakCode::InvalidRdRequest),
        _ => match name.strip_prefix("NAK_") {
            Some(code) => nak(NakCode::Reserved(code.parse().ok()?)),
            None => Opcode::ALL
                .iter()
                .find(|opcode| opcode.transport() == transport && opcode.name() == name)
                .map(|opcode| (*opcode, None)),
        },
    }
}

/// Parses a timer such as `0.64ms`.
fn rnr_timer(text: &str) -> RnrTimer {
    let written = |timer: &RnrTimer| {
        let us = timer.wait().as_micros();
        format!("{}.{:02}ms", us / 1000, us % 1000 / 10)
    };
    (0..32)
        .filter_map(RnrTimer::new)
        .find(|timer| written(timer) == text)
        .unwrap_or_else(|| panic!("{text} is no RNR timer"))
}
