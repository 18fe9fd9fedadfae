//! Packets as one line of text, for traces, tests and `roce dump`.
//!
//! ```text
//! SEND_ONLY psn=5 ackreq len=64
//! RNR_NAK psn=5 msn=0 timer=0.64ms
//! WRITE_ONLY_IMM psn=6 ackreq solicited va=0x1000 rkey=0x00000100 dmalen=3 imm=0x00000007 len=3
//! ACK psn=6 msn=2
//! READ_REQUEST psn=7 ackreq va=0x1000 rkey=0x00000100 dmalen=4096
//! READ_RESPONSE_FIRST psn=7 msn=3 len=1024
//! COMPARE_SWAP psn=11 ackreq va=0x1000 rkey=0x00000100 expect=0x1 swap=0x2
//! ATOMIC_ACK psn=11 msn=4 value=0x1
//! NAK_PSN psn=12 msn=4
//! ```
//!
//! The line omits usual values: the default partition, [unlimited credits](Aeth::UNLIMITED_CREDITS), padding that
//! follows from the length, and MigReq.

use std::fmt;

use crate::ids::PKey;
use crate::time::RnrTimer;

use super::packet::padding;
use super::{Aeth, Datagram, NakCode, Operation, Syndrome};

/// Formats a packet as one line.
///
/// `{}` is for traffic between two queue pairs. `{:#}` is for traffic among many: it starts with the transport and
/// adds the destination queue pair.
///
/// ```
/// # use softroce::wire::{Bth, Builder, Datagram, text::PacketLine};
/// # let bytes = &mut [0; 12 + 64 + 4];
/// # Builder::new(&Bth { ack_req: true, ..Bth::default() }, bytes)?;
/// let datagram = Datagram::parse(bytes)?;
/// assert_eq!(format!("{}", PacketLine(&datagram)), "SEND_ONLY psn=0 ackreq len=64");
/// assert_eq!(format!("{:#}", PacketLine(&datagram)), "RC SEND_ONLY qp=0x000000 psn=0 ackreq len=64");
/// # Ok::<(), softroce::wire::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PacketLine<'a>(pub &'a Datagram<'a>);

impl fmt::Display for PacketLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() && self.0.info.operation != Operation::Cnp {
            write!(f, "{} ", self.0.info.transport)?;
        }
        self.name(f)?;
        self.bth(f)?;
        self.addressing(f)?;
        self.operands(f)?;
        self.payload(f)
    }
}

impl PacketLine<'_> {
    /// Writes the name of the opcode, or the type of an acknowledgement.
    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let opcode = self.0.bth.opcode;
        match (opcode.operation(), self.0.aeth().map(|aeth| aeth.syndrome)) {
            (Operation::Acknowledge, Some(Syndrome::Ack { .. })) => f.write_str("ACK"),
            (Operation::Acknowledge, Some(Syndrome::Rnr { .. })) => f.write_str("RNR_NAK"),
            (Operation::Acknowledge, Some(Syndrome::Nak(code))) => match code {
                NakCode::PsnSequence => f.write_str("NAK_PSN"),
                NakCode::InvalidRequest => f.write_str("NAK_INV"),
                NakCode::RemoteAccess => f.write_str("NAK_ACCESS"),
                NakCode::RemoteOperational => f.write_str("NAK_OP"),
                NakCode::InvalidRdRequest => f.write_str("NAK_RD"),
                NakCode::Reserved(code) => write!(f, "NAK_{code}"),
            },
            (Operation::AtomicAcknowledge, _) => f.write_str("ATOMIC_ACK"),
            _ => f.write_str(opcode.name()),
        }
    }

    fn bth(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bth = &self.0.bth;
        if f.alternate() {
            write!(f, " qp={}", bth.dest_qp)?;
        }
        write!(f, " psn={}", bth.psn)?;
        let flags = [
            (bth.ack_req, "ackreq"),
            (bth.solicited, "solicited"),
            (bth.fecn, "fecn"),
            (bth.becn, "becn"),
        ];
        for (_, name) in flags.into_iter().filter(|(set, _)| *set) {
            write!(f, " {name}")?;
        }
        if bth.pkey != PKey::DEFAULT {
            write!(f, " pkey={}", bth.pkey)?;
        }
        Ok(())
    }

    /// Writes the headers that identify receiver or sender.
    fn addressing(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rdeth) = self.0.rdeth() {
            write!(f, " eec=0x{:06x}", rdeth.ee_context)?;
        }
        if let Some(deth) = self.0.deth() {
            write!(f, " qkey={} srcqp={}", deth.qkey, deth.source_qp)?;
        }
        if let Some(xrceth) = self.0.xrceth() {
            write!(f, " srqn=0x{:06x}", xrceth.srqn)?;
        }
        Ok(())
    }

    /// Writes the headers with the operands or results of an operation.
    fn operands(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(aeth) = self.0.aeth() {
            self.aeth(aeth, f)?;
        }
        if let Some(feth) = self.0.feth() {
            write!(f, " placement={:#x}", feth.placement.bits())?;
            write!(f, " selectivity={}", feth.selectivity.code())?;
        }
        if let Some(reth) = self.0.reth() {
            write!(f, " va={:#x} rkey={} dmalen={}", reth.addr, reth.rkey, reth.length)?;
        }
        if let Some(eth) = self.0.atomic_eth() {
            write!(f, " va={:#x} rkey={}", eth.addr, eth.rkey)?;
            if self.0.info.operation == Operation::FetchAdd {
                write!(f, " add={:#x}", eth.swap)?;
            } else {
                write!(f, " expect={:#x} swap={:#x}", eth.compare, eth.swap)?;
            }
        }
        if let Some(eth) = self.0.atomic_ack_eth() {
            write!(f, " value={:#x}", eth.original)?;
        }
        if let Some(imm) = self.0.imm() {
            write!(f, " imm=0x{:08x}", imm.0)?;
        }
        if let Some(ieth) = self.0.ieth() {
            write!(f, " inv={}", ieth.0)?;
        }
        Ok(())
    }

    fn aeth(&self, aeth: Aeth, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " msn={}", aeth.msn)?;
        let is_acknowledge = self.0.info.operation == Operation::Acknowledge;
        match aeth.syndrome {
            Syndrome::Ack { credits: Aeth::UNLIMITED_CREDITS } => Ok(()),
            Syndrome::Ack { credits } => write!(f, " credits={credits}"),
            Syndrome::Rnr { timer } if is_acknowledge => write!(f, " timer={}", Timer(timer)),
            Syndrome::Nak(_) if is_acknowledge => Ok(()),
            // A READ response or atomic response has no other place for it.
            syndrome => write!(f, " syndrome=0x{:02x}", syndrome.byte()),
        }
    }

    /// Writes the length of the payload, if there can be one or there is one.
    fn payload(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.0.payload_len;
        let carries = match self.0.info.operation {
            Operation::Send
            | Operation::Write
            | Operation::ReadResponse
            | Operation::AtomicWrite => true,
            Operation::ReadRequest
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::CompareSwap
            | Operation::FetchAdd
            | Operation::Resync
            | Operation::Flush
            | Operation::Cnp => false,
        };
        if carries || len != 0 {
            write!(f, " len={len}")?;
        }
        if usize::from(self.0.bth.pad) != padding(len) {
            write!(f, " pad={}", self.0.bth.pad)?;
        }
        Ok(())
    }
}

/// Formats an RNR timer in milliseconds: `0.64ms`. Two decimals represent every value of the table exactly.
struct Timer(RnrTimer);

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.0.wait().as_micros();
        write!(f, "{}.{:02}ms", us / 1000, us % 1000 / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{QKey, Qpn, Rkey};
    use crate::psn::Psn;
    use crate::wire::feth::{Placement, Selectivity};
    use crate::wire::packet::datagram_len;
    use crate::wire::{
        AtomicAckEth, AtomicEth, Bth, Builder, Deth, FlushEth, Ieth, ImmDt, Opcode, Reth, XrcEth,
    };

    const RETH: Reth = Reth { addr: 0x1000, rkey: Rkey(0x100), length: 4096 };

    fn bth(opcode: Opcode) -> Bth {
        Bth { opcode, psn: Psn::new(5), dest_qp: Qpn::new(0x12), ..Bth::default() }
    }

    /// Returns the short and the long line of a packet with `len` bytes of payload.
    fn lines(bth: Bth, len: usize, fill: impl FnOnce(&mut Builder<'_>)) -> (String, String) {
        let bth = Bth { pad: u8::try_from(padding(len)).unwrap(), ..bth };
        let mut bytes = vec![0; datagram_len(bth.opcode, len)];
        fill(&mut Builder::new(&bth, &mut bytes).unwrap());
        let datagram = Datagram::parse(&bytes).unwrap();
        (PacketLine(&datagram).to_string(), format!("{:#}", PacketLine(&datagram)))
    }

    fn line(bth: Bth, len: usize, fill: impl FnOnce(&mut Builder<'_>)) -> String {
        lines(bth, len, fill).0
    }

    fn answer(syndrome: u8) -> String {
        line(bth(Opcode::RcAcknowledge), 0, |b| {
            b.aeth(&Aeth { syndrome: Syndrome::from_byte(syndrome), msn: 1 });
        })
    }

    #[test]
    fn sends() {
        let flags = Bth { ack_req: true, solicited: true, ..bth(Opcode::RcSendOnly) };
        assert_eq!(line(flags, 64, |_| ()), "SEND_ONLY psn=5 ackreq solicited len=64");
        assert_eq!(line(bth(Opcode::UcSendMiddle), 256, |_| ()), "SEND_MIDDLE psn=5 len=256");
        let inv = line(bth(Opcode::RcSendOnlyInv), 0, |b| {
            b.ieth(&Ieth(Rkey(0x1a2b)));
        });
        assert_eq!(inv, "SEND_ONLY_INV psn=5 inv=0x00001a2b len=0");
        let limited = Bth { pkey: PKey(0x7fff), ..bth(Opcode::RcSendOnly) };
        assert_eq!(line(limited, 0, |_| ()), "SEND_ONLY psn=5 pkey=0x7fff len=0");
    }

    #[test]
    fn long_form_has_transport_and_queue_pair() {
        let (_, ud) = lines(bth(Opcode::UdSendOnlyImm), 1, |b| {
            b.deth(&Deth { qkey: QKey(0x1111_1111), source_qp: Qpn::new(0x13) }).imm(&ImmDt(7));
        });
        let expected = "UD SEND_ONLY_IMM qp=0x000012 psn=5 qkey=0x11111111 srcqp=0x000013 \
                        imm=0x00000007 len=1";
        assert_eq!(ud, expected);
        let (_, xrc) = lines(bth(Opcode::XrcSendOnly), 8, |b| {
            b.xrceth(&XrcEth { srqn: 0x456 });
        });
        assert_eq!(xrc, "XRC SEND_ONLY qp=0x000012 psn=5 srqn=0x000456 len=8");
        let (_, cnp) = lines(Bth { becn: true, ..bth(Opcode::Cnp) }, 0, |_| ());
        assert_eq!(cnp, "CNP qp=0x000012 psn=5 becn");
    }

    #[test]
    fn remote_memory() {
        let write = line(bth(Opcode::RcWriteOnlyImm), 3, |b| {
            b.reth(&Reth { length: 3, ..RETH }).imm(&ImmDt(0xdead_beef));
        });
        let expected =
            "WRITE_ONLY_IMM psn=5 va=0x1000 rkey=0x00000100 dmalen=3 imm=0xdeadbeef len=3";
        assert_eq!(write, expected);
        let read = line(Bth { ack_req: true, ..bth(Opcode::RcReadRequest) }, 0, |b| {
            b.reth(&RETH);
        });
        assert_eq!(read, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=0x00000100 dmalen=4096");
        let flush = line(bth(Opcode::RcFlush), 0, |b| {
            let placement = Placement::PERSISTENCE;
            b.reth(&RETH).feth(&FlushEth { placement, selectivity: Selectivity::Region });
        });
        let expected =
            "FLUSH psn=5 placement=0x2 selectivity=1 va=0x1000 rkey=0x00000100 dmalen=4096";
        assert_eq!(flush, expected);
    }

    #[test]
    fn atomics() {
        let eth = AtomicEth { addr: 0x1000, rkey: Rkey(0x100), swap: 2, compare: 1 };
        let swap = line(bth(Opcode::RcCompareSwap), 0, |b| {
            b.atomic_eth(&eth);
        });
        assert_eq!(swap, "COMPARE_SWAP psn=5 va=0x1000 rkey=0x00000100 expect=0x1 swap=0x2");
        let add = line(bth(Opcode::RcFetchAdd), 0, |b| {
            b.atomic_eth(&eth);
        });
        assert_eq!(add, "FETCH_ADD psn=5 va=0x1000 rkey=0x00000100 add=0x2");
        let ack = line(bth(Opcode::RcAtomicAcknowledge), 0, |b| {
            let syndrome = Syndrome::Ack { credits: Aeth::UNLIMITED_CREDITS };
            b.aeth(&Aeth { syndrome, msn: 9 }).atomic_ack_eth(&AtomicAckEth { original: 0x33 });
        });
        assert_eq!(ack, "ATOMIC_ACK psn=5 msn=9 value=0x33");
    }

    #[test]
    fn acknowledgements() {
        assert_eq!(answer(0x1f), "ACK psn=5 msn=1");
        assert_eq!(answer(0x05), "ACK psn=5 msn=1 credits=5");
        assert_eq!(answer(0x2c), "RNR_NAK psn=5 msn=1 timer=0.64ms");
        assert_eq!(answer(0x20), "RNR_NAK psn=5 msn=1 timer=655.36ms");
        assert_eq!(answer(0x21), "RNR_NAK psn=5 msn=1 timer=0.01ms");
        assert_eq!(answer(0x60), "NAK_PSN psn=5 msn=1");
        assert_eq!(answer(0x61), "NAK_INV psn=5 msn=1");
        assert_eq!(answer(0x62), "NAK_ACCESS psn=5 msn=1");
        assert_eq!(answer(0x63), "NAK_OP psn=5 msn=1");
        assert_eq!(answer(0x64), "NAK_RD psn=5 msn=1");
        assert_eq!(answer(0x65), "NAK_5 psn=5 msn=1");
        assert_eq!(answer(0x80), "ACKNOWLEDGE psn=5 msn=1 syndrome=0x80");
        let strange = line(bth(Opcode::RcReadResponseOnly), 4, |b| {
            b.aeth(&Aeth { syndrome: Syndrome::Nak(NakCode::RemoteAccess), msn: 1 });
        });
        assert_eq!(strange, "READ_RESPONSE_ONLY psn=5 msn=1 syndrome=0x62 len=4");
    }

    #[test]
    fn padding_is_shown_when_it_does_not_follow_from_the_length() {
        let mut bytes = [0; 12 + 8 + 4];
        Builder::new(&Bth { pad: 3, ..bth(Opcode::RcSendOnly) }, &mut bytes).unwrap();
        let line = |bytes: &[u8]| PacketLine(&Datagram::parse(bytes).unwrap()).to_string();
        assert_eq!(line(&bytes), "SEND_ONLY psn=5 len=5");
        bytes[1] &= !0x30;
        assert_eq!(line(&bytes), "SEND_ONLY psn=5 len=8");
        bytes[1] |= 0x10;
        assert_eq!(line(&bytes), "SEND_ONLY psn=5 len=7");
        bytes[1] |= 0x20;
        assert_eq!(line(&bytes[..20]), "SEND_ONLY psn=5 len=1");
        assert_eq!(line(&bytes[..23]), "SEND_ONLY psn=5 len=4 pad=3");
    }
}
