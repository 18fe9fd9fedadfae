//! A builder of packets. Its default values break no rule.

use std::net::IpAddr;

use softroce::ids::{QKey, Qpn, Rkey};
use softroce::net::{Ipv4Fields, Path};
use softroce::psn::Psn;
use softroce::time::RnrTimer;
use softroce::wire::encap::Headers;
use softroce::wire::icrc::Flow;
use softroce::wire::packet::padding;
use softroce::wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Builder, Deth, NakCode, Opcode, Opcode::*, Reth, Syndrome,
};

/// A packet to build. The hosts are 10.0.0.1 with queue pair 0x11, which requests, and 10.0.0.2 with 0x12, which
/// responds.
#[derive(Clone)]
pub(crate) struct P {
    pub(crate) bth: Bth,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) source_port: u16,
    pub(crate) id: u16,
    pub(crate) df: bool,
    pub(crate) len: usize,
    pub(crate) fill: u8,
    pub(crate) pad_byte: u8,
    pub(crate) reserved: u8,
    pub(crate) reth: Reth,
    pub(crate) aeth: Aeth,
    pub(crate) atomic: AtomicEth,
    pub(crate) old: u64,
    pub(crate) deth: Deth,
    pub(crate) spoil: bool,
    /// Microseconds since the packet before.
    pub(crate) after: u64,
    /// Number of captured bytes.
    pub(crate) cut: Option<usize>,
    pub(crate) bytes: Option<Vec<u8>>,
}

pub(crate) fn p(opcode: Opcode, psn: u32) -> P {
    let asks = opcode.is_request() || opcode == Cnp;
    let hosts: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
    let (source, destination) = if asks { (hosts[0], hosts[1]) } else { (hosts[1], hosts[0]) };
    let dest_qp = Qpn::new(if asks { 0x12 } else { 0x11 });
    P {
        bth: Bth { opcode, psn: Psn::new(psn), dest_qp, ..Bth::default() },
        source,
        destination,
        source_port: 0xc132,
        id: 0,
        df: true,
        len: 0,
        fill: 0x5a,
        pad_byte: 0,
        reserved: 0,
        reth: Reth { addr: 0x1000, rkey: Rkey(7), length: 0 },
        aeth: Aeth { syndrome: Syndrome::Ack { credits: 31 }, msn: 0 },
        atomic: AtomicEth { addr: 0x1000, rkey: Rkey(7), swap: 1, compare: 0 },
        old: 0,
        deth: Deth { qkey: QKey(0x8001_0000), source_qp: Qpn::new(1) },
        spoil: false,
        after: 10,
        cut: None,
        bytes: None,
    }
}

pub(crate) fn ack(psn: u32, msn: u32) -> P {
    let mut ack = p(RcAcknowledge, psn);
    ack.aeth.msn = msn;
    ack
}

pub(crate) fn nak(psn: u32, msn: u32, code: NakCode) -> P {
    ack(psn, msn).with(|p| p.aeth.syndrome = Syndrome::Nak(code))
}

pub(crate) fn rnr(psn: u32, msn: u32) -> P {
    // 1.28 ms.
    let timer = RnrTimer::new(14).unwrap();
    ack(psn, msn).with(|p| p.aeth.syndrome = Syndrome::Rnr { timer })
}

/// Returns a READ of `len` bytes.
pub(crate) fn read(psn: u32, len: u32) -> P {
    p(RcReadRequest, psn).dma(0x1000, len).asking()
}

pub(crate) fn data(opcode: Opcode, psn: u32, msn: u32, len: usize) -> P {
    p(opcode, psn).len(len).with(|p| p.aeth.msn = msn)
}

pub(crate) fn mad(body: &[(usize, &[u8])], from: IpAddr, to: IpAddr) -> P {
    let mut bytes = vec![0; 256];
    bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
    for (at, value) in body {
        bytes[*at..*at + value.len()].copy_from_slice(value);
    }
    p(UdSendOnly, 0).len(256).with(|p| {
        p.bth.dest_qp = Qpn::new(1);
        p.bytes = Some(bytes);
        (p.source, p.destination) = (from, to);
    })
}

impl P {
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(crate) fn len(self, len: usize) -> Self {
        self.with(|p| p.len = len)
    }

    pub(crate) fn asking(self) -> Self {
        self.with(|p| p.bth.ack_req = true)
    }

    pub(crate) fn dma(self, addr: u64, length: u32) -> Self {
        self.with(|p| p.reth = Reth { addr, length, ..p.reth })
    }

    pub(crate) fn after(self, us: u64) -> Self {
        self.with(|p| p.after = us)
    }

    /// Returns the IP packet.
    pub(crate) fn build(&self) -> Vec<u8> {
        let mut bth = self.bth;
        if bth.pad == 0 {
            bth.pad = u8::try_from(padding(self.len)).unwrap();
        }
        let headers = bth.opcode.header_len();
        let total = headers + self.len + usize::from(bth.pad) + 4;
        let mut datagram = vec![0; total];
        let mut builder = Builder::new(&bth, &mut datagram).unwrap();
        let layout = bth.opcode.layout();
        builder.payload_mut().fill(self.fill);
        if let Some(bytes) = &self.bytes {
            builder.payload_mut().copy_from_slice(bytes);
        }
        if layout.reth.is_some() {
            builder.reth(&self.reth);
        }
        if layout.aeth.is_some() {
            builder.aeth(&self.aeth);
        }
        if layout.atomic_eth.is_some() {
            builder.atomic_eth(&self.atomic);
        }
        if layout.deth.is_some() {
            builder.deth(&self.deth);
        }
        let old = AtomicAckEth { original: self.old };
        if layout.atomic_ack_eth.is_some() {
            builder.atomic_ack_eth(&old);
        }
        datagram[total - 4 - usize::from(bth.pad)..total - 4].fill(self.pad_byte);
        datagram[4] |= self.reserved;
        let source = (self.source, self.source_port).into();
        let flow = Flow::new(source, (self.destination, 4791).into());
        let fields = Ipv4Fields { id: self.id, dont_fragment: self.df };
        let icrc = flow.compute(fields, &datagram[..total - 4]);
        datagram[total - 4..].copy_from_slice(&icrc.to_le_bytes());
        datagram[total - 1] ^= u8::from(self.spoil);
        let path = Path {
            source: self.source,
            destination: self.destination,
            source_port: self.source_port,
            traffic_class: 0,
            hop_limit: 64,
        };
        let mut packet = Vec::new();
        Headers { path, flow_label: 0, ipv4: fields }.append(total, &mut packet);
        packet.extend(datagram);
        packet
    }
}

/// Returns a packet of a SEND or WRITE; the last one requests an acknowledgement.
pub(crate) fn send(opcode: Opcode, psn: u32, len: usize) -> P {
    let packet = p(opcode, psn).len(len);
    if opcode.position().is_end() { packet.asking() } else { packet }
}
