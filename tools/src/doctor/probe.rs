//! Packets that are sent to see what becomes of them, and a port for them.
//!
//! They are UD SENDs in every byte, so that whatever looks into RoCE packets on the way finds nothing
//! odd. No queue pair is behind them: the port shows of each packet what an engine would not.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use softroce::ids::{Mtu, QKey, Qpn};
use softroce::net::{
    Burst, BurstToken, Path, ROCE_PORT, RxBuffer, TransmitErrorKind, datagram_source_port,
};
use softroce::port::capture::Capture;
use softroce::port::impair::{Impair, Impairments};
use softroce::port::udp::UdpPort;
use softroce::port::{Control, Datapath, Port, PortInfo, wait_readable};
use softroce::runtime::now;
use softroce::wire::encap::{IPV4_LEN, IPV6_LEN, UDP_LEN};
use softroce::wire::icrc::{Flow, Verdict};
use softroce::wire::packet::{Builder, datagram_len, padding};
use softroce::wire::{Bth, Datagram, Deth, Opcode};

use crate::device::Recording;

/// TTL that probes leave with.
pub(super) const HOP_LIMIT: u8 = 64;

/// The queue pair at the other end, and the key it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Target {
    pub(super) qpn: Qpn,
    pub(super) qkey: QKey,
}

/// What probes are sent to; a number that no table gives out first.
pub(super) const PROBED: Target = Target { qpn: Qpn::new(0xd0_c702), qkey: QKey(0x0d0c_7002) };

/// What a probe says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Probe {
    /// Of the visit.
    pub(super) token: u64,
    pub(super) number: u32,
    /// Its place in a burst.
    pub(super) place: u16,
    pub(super) is_echo: bool,
}

impl Probe {
    const LEN: usize = 24;
    const MAGIC: [u8; 8] = *b"softroce";

    /// A payload of `len` bytes, or as long as it must be.
    fn payload(&self, len: usize) -> Vec<u8> {
        let mut payload = Vec::with_capacity(len);
        payload.extend(Self::MAGIC);
        payload.extend(self.token.to_be_bytes());
        payload.extend(self.number.to_be_bytes());
        payload.extend(self.place.to_be_bytes());
        payload.extend([u8::from(self.is_echo), 0]);
        // What follows must not all be alike, or damage could hide in it.
        payload.extend((Self::LEN..len).map(|at| at.to_le_bytes()[0]));
        payload
    }

    fn parse(payload: &[u8]) -> Option<Self> {
        let (magic, rest) = payload.split_first_chunk::<8>()?;
        let (token, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (place, rest) = rest.split_first_chunk()?;
        let is_echo = *rest.first()? == 1;
        (*magic == Self::MAGIC).then(|| Self {
            token: u64::from_be_bytes(*token),
            number: u32::from_be_bytes(*number),
            place: u16::from_be_bytes(*place),
            is_echo,
        })
    }
}

/// What was seen of a packet where it arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) number: u32,
    pub(super) place: u16,
    pub(super) icrc: Icrc,
    pub(super) source: SocketAddr,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
}

/// What the ICRC says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Icrc {
    /// It holds for the packet as it was sent.
    Good,
    /// It holds for another IPv4 identification than the sender's stack gives.
    Identification(u16),
    Bad,
}

impl Icrc {
    /// The verdict on segment `segment` of a buffer that was sent as segment `place` of a burst.
    fn of(verdict: Verdict, segment: u16, place: u16) -> Self {
        let id = match verdict {
            Verdict::Bad => return Self::Bad,
            Verdict::Good => segment,
            Verdict::Recovered { id } => id,
        };
        if id == place { Self::Good } else { Self::Identification(id) }
    }
}

/// A packet that has arrived.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) deth: Deth,
    pub(super) payload: Vec<u8>,
    pub(super) verdict: Verdict,
    segment: u16,
    source: SocketAddr,
    traffic_class: u8,
    hop_limit: u8,
    /// Bytes of the IP packet.
    pub(super) ip_bytes: usize,
}

impl Arrival {
    /// The probe that it is, if it is one, and what was seen of it.
    pub(super) fn probe(&self) -> Option<(Probe, Seen)> {
        let probe = Probe::parse(&self.payload)?;
        let seen = Seen {
            number: probe.number,
            place: probe.place,
            icrc: match (self.verdict, self.source) {
                // Over IPv6 there is no identification.
                (Verdict::Good, SocketAddr::V6(_)) => Icrc::Good,
                (verdict, _) => Icrc::of(verdict, self.segment, probe.place),
            },
            source: self.source,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
        };
        Some((probe, seen))
    }
}

/// Probes to be sent at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shot {
    pub(super) probe: Probe,
    /// Bytes of each IP packet.
    pub(super) ip_bytes: usize,
    /// How many, in one burst.
    pub(super) count: u16,
    pub(super) traffic_class: u8,
}

impl Shot {
    /// One packet that nobody is to answer.
    pub(super) const fn lone(ip_bytes: usize) -> Self {
        let probe = Probe { token: 0, number: 0, place: 0, is_echo: false };
        Self { probe, ip_bytes, count: 1, traffic_class: 0 }
    }
}

/// Bytes of the longest IP packet that a queue pair with this MTU may send.
pub(super) const fn longest(mtu: Mtu) -> usize {
    mtu.bytes() + Mtu::OVERHEAD
}

/// Sends and receives packets without an engine.
pub(super) struct Prober {
    port: Box<dyn Port>,
    source_port: u16,
}

impl Prober {
    /// Puts around `port` what the options ask for.
    pub(super) fn new(
        port: UdpPort,
        recording: Option<&Recording>,
        impairments: Option<&Impairments>,
    ) -> Self {
        let mut port: Box<dyn Port> = Box::new(port);
        if let Some(recording) = recording {
            port = Box::new(Capture::new(port, recording.sink()));
        }
        if let Some(impairments) = impairments {
            port = Box::new(Impair::new(port, impairments));
        }
        port.report_ip_fields();
        let source_port = port.source_port(port.info().ip, datagram_source_port(PROBED.qpn));
        Self { port, source_port }
    }

    pub(super) fn info(&self) -> PortInfo {
        self.port.info()
    }

    /// Sends probes in one burst.
    pub(super) fn shoot(&mut self, to: IpAddr, shot: &Shot) -> Result<(), TransmitErrorKind> {
        let overhead = ip_header(to) + UDP_LEN + datagram_len(Opcode::UdSendOnly, 0);
        let len = shot.ip_bytes.saturating_sub(overhead);
        let payloads: Vec<_> =
            (0..shot.count).map(|place| Probe { place, ..shot.probe }.payload(len)).collect();
        self.send(to, PROBED, &payloads, shot.traffic_class)
    }

    /// Sends UD packets with these payloads, of one length, in one burst.
    pub(super) fn send(
        &mut self,
        to: IpAddr,
        target: Target,
        payloads: &[Vec<u8>],
        traffic_class: u8,
    ) -> Result<(), TransmitErrorKind> {
        let path = Path {
            source: self.port.info().ip,
            destination: to,
            source_port: self.source_port,
            traffic_class,
            hop_limit: HOP_LIMIT,
        };
        let mut burst = Burst::new();
        burst.reset(path, BurstToken(0));
        for (id, payload) in (0..).zip(payloads) {
            let len = datagram_len(Opcode::UdSendOnly, payload.len());
            if burst.has_room(len) {
                write(&path, target, id, payload, burst.push(len));
            }
        }
        match self.port.transmit(now(), std::slice::from_ref(&burst)) {
            // A port without room has lost it, as a switch would have.
            Ok(_) => Ok(()),
            Err(refused) => Err(refused.kind),
        }
    }

    /// What arrives; waits for it, and for something to read from `also`, for as long as `at_most`.
    pub(super) fn receive(
        &mut self,
        at_most: Duration,
        also: Option<BorrowedFd<'_>>,
    ) -> anyhow::Result<Vec<Arrival>> {
        let found = self.take()?;
        if !found.is_empty() {
            return Ok(found);
        }
        let due = self.port.poll_timeout().map_or(at_most, |at| at.since(now()));
        {
            let mut descriptors = self.port.descriptors();
            descriptors.extend(also);
            wait_readable(&descriptors, Some(at_most.min(due)))?;
        }
        self.take()
    }

    fn take(&mut self) -> anyhow::Result<Vec<Arrival>> {
        // What it holds back may be due. There is no burst to be refused.
        let _ = self.port.transmit(now(), &[]);
        let mut found = Vec::new();
        self.port.receive(now(), &mut |rx| arrivals(&rx, &mut found)).context("receiving")?;
        Ok(found)
    }
}

const fn ip_header(ip: IpAddr) -> usize {
    match ip {
        IpAddr::V4(_) => IPV4_LEN,
        IpAddr::V6(_) => IPV6_LEN,
    }
}

/// Writes a packet that leaves with identification `id` to `bytes`, which are as many as it has.
fn write(path: &Path, target: Target, id: u16, payload: &[u8], bytes: &mut [u8]) {
    let pad = padding(payload.len()).to_le_bytes()[0];
    let bth = Bth { opcode: Opcode::UdSendOnly, dest_qp: target.qpn, pad, ..Bth::default() };
    let source_qp = target.qpn;
    // There is room for all of it.
    if let Ok(mut builder) = Builder::new(&bth, bytes) {
        builder.deth(&Deth { qkey: target.qkey, source_qp });
        builder.payload_mut().copy_from_slice(payload);
    }
    flow(path).seal(id, bytes);
}

fn flow(path: &Path) -> Flow {
    let source = SocketAddr::new(path.source, path.source_port);
    Flow::new(source, SocketAddr::new(path.destination, ROCE_PORT))
}

/// A UD packet as one datagram to send from anywhere.
pub(super) fn datagram(from: SocketAddr, to: IpAddr, target: Target, payload: &[u8]) -> Vec<u8> {
    let path = Path {
        source: from.ip(),
        destination: to,
        source_port: from.port(),
        traffic_class: 0,
        hop_limit: HOP_LIMIT,
    };
    let mut bytes = vec![0; datagram_len(Opcode::UdSendOnly, payload.len())];
    write(&path, target, 0, payload, &mut bytes);
    bytes
}

/// The UD packets of a buffer. Of other packets nothing is said: they are for somebody else.
fn arrivals(rx: &RxBuffer<'_>, found: &mut Vec<Arrival>) {
    let meta = &rx.meta;
    let flow = Flow::new(meta.source, SocketAddr::new(meta.destination, ROCE_PORT));
    for (segment, bytes) in (0..).zip(rx.segments()) {
        let Ok(datagram) = Datagram::parse(bytes) else { continue };
        let Some(deth) = datagram.deth() else { continue };
        found.push(Arrival {
            deth,
            payload: datagram.payload.to_vec(),
            verdict: flow.check(meta.ipv4, segment, bytes),
            segment,
            source: meta.source,
            traffic_class: meta.traffic_class,
            hop_limit: meta.hop_limit,
            ip_bytes: ip_header(meta.destination) + UDP_LEN + bytes.len(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_says_what_it_was_told_to() {
        let probe = Probe { token: 0x0123_4567_89ab_cdef, number: 7, place: 3, is_echo: true };
        for len in [0, 24, 1000] {
            let payload = probe.payload(len);
            assert_eq!((payload.len(), Probe::parse(&payload)), (len.max(24), Some(probe)));
        }
        assert_eq!(Probe::parse(&[0; 24]), None);
        assert_eq!(Probe::parse(&Probe::MAGIC), None);
    }

    #[test]
    fn a_verdict_counts_for_the_place_in_the_burst() {
        let recovered = |id| Verdict::Recovered { id };
        // Merged again, or one by one, as it was sent.
        assert_eq!(Icrc::of(Verdict::Good, 3, 3), Icrc::Good);
        assert_eq!(Icrc::of(recovered(3), 0, 3), Icrc::Good);
        // Cut by somebody who numbers otherwise.
        assert_eq!(Icrc::of(Verdict::Good, 0, 3), Icrc::Identification(0));
        assert_eq!(Icrc::of(recovered(0xbeef), 0, 0), Icrc::Identification(0xbeef));
        assert_eq!(Icrc::of(Verdict::Bad, 0, 0), Icrc::Bad);
    }
}
