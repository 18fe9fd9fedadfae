//! Probe packets, and a port for them.
//!
//! Probes are valid UD SENDs, so devices on the path treat them as RoCE packets. They use no queue pair: the port
//! returns attributes of each packet that an engine would not.

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

/// TTL of sent probes.
pub(super) const HOP_LIMIT: u8 = 64;

/// A destination queue pair and its Q_Key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Target {
    pub(super) qpn: Qpn,
    pub(super) qkey: QKey,
}

/// Destination of probes; queue pair tables do not assign this number first.
pub(super) const PROBE_TARGET: Target =
    Target { qpn: Qpn::new(0xd0_c702), qkey: QKey(0x0d0c_7002) };

/// The general services interface, and its Q_Key (IBTA vol 1, §13.4.2 and §10.2.5).
pub(super) const GSI: Target = Target { qpn: Qpn::GSI, qkey: QKey(0x8001_0000) };

/// Content of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Probe {
    /// Identifier of the session.
    pub(super) token: u64,
    pub(super) number: u32,
    /// Position in a burst.
    pub(super) place: u16,
    pub(super) is_echo: bool,
}

impl Probe {
    const LEN: usize = 24;
    const MAGIC: [u8; 8] = *b"softroce";

    /// Returns a payload of `len` bytes, or of the minimum length.
    fn payload(&self, len: usize) -> Vec<u8> {
        let mut payload = Vec::with_capacity(len);
        payload.extend(Self::MAGIC);
        payload.extend(self.token.to_be_bytes());
        payload.extend(self.number.to_be_bytes());
        payload.extend(self.place.to_be_bytes());
        payload.extend([u8::from(self.is_echo), 0]);
        // Different bytes, so that damage cannot go unnoticed.
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

/// Attributes of a probe where it arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct ReceivedProbe {
    pub(super) number: u32,
    pub(super) place: u16,
    pub(super) icrc: Icrc,
    pub(super) source: SocketAddr,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
}

/// Verdict on an ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Icrc {
    /// The ICRC matches the packet as sent.
    Good,
    /// The ICRC matches with another IPv4 identification than the sender gives.
    Identification(u16),
    Bad,
}

impl Icrc {
    /// Returns the verdict on segment `segment` of a buffer that was sent as segment `place` of a burst.
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
pub(super) struct ReceivedPacket {
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

impl ReceivedPacket {
    /// Returns the probe in the packet, and its attributes; `None` for other packets.
    pub(super) fn probe(&self) -> Option<(Probe, ReceivedProbe)> {
        let probe = Probe::parse(&self.payload)?;
        let seen = ReceivedProbe {
            number: probe.number,
            place: probe.place,
            icrc: match (self.verdict, self.source) {
                // IPv6 has no identification.
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

/// Probes to send at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeBurst {
    pub(super) probe: Probe,
    /// Bytes of each IP packet.
    pub(super) ip_bytes: usize,
    /// Number of probes in the burst.
    pub(super) count: u16,
    pub(super) traffic_class: u8,
}

impl ProbeBurst {
    /// Returns a single probe without an echo.
    pub(super) const fn lone(ip_bytes: usize) -> Self {
        let probe = Probe { token: 0, number: 0, place: 0, is_echo: false };
        Self { probe, ip_bytes, count: 1, traffic_class: 0 }
    }
}

/// Returns the length of the longest IP packet for a path MTU.
pub(super) const fn longest(mtu: Mtu) -> usize {
    mtu.bytes() + Mtu::OVERHEAD
}

/// Sends and receives packets without an engine.
pub(super) struct Prober {
    port: Box<dyn Port>,
    source_port: u16,
}

impl Prober {
    /// Wraps `port` as the options ask for.
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
        let source_port = port.source_port(port.info().ip, datagram_source_port(PROBE_TARGET.qpn));
        Self { port, source_port }
    }

    pub(super) fn info(&self) -> PortInfo {
        self.port.info()
    }

    /// Sends probes in one burst.
    pub(super) fn send_probes(
        &mut self,
        to: IpAddr,
        shot: &ProbeBurst,
    ) -> Result<(), TransmitErrorKind> {
        let overhead = ip_header(to) + UDP_LEN + datagram_len(Opcode::UdSendOnly, 0);
        let len = shot.ip_bytes.saturating_sub(overhead);
        let payloads: Vec<_> =
            (0..shot.count).map(|place| Probe { place, ..shot.probe }.payload(len)).collect();
        self.send(to, PROBE_TARGET, &payloads, shot.traffic_class)
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
            // A full port has lost the packet, as a switch would have.
            Ok(_) => Ok(()),
            Err(refused) => Err(refused.kind),
        }
    }

    /// Returns packets that arrive within `at_most`; returns early when `also` becomes readable.
    pub(super) fn receive(
        &mut self,
        at_most: Duration,
        also: Option<BorrowedFd<'_>>,
    ) -> anyhow::Result<Vec<ReceivedPacket>> {
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

    fn take(&mut self) -> anyhow::Result<Vec<ReceivedPacket>> {
        // Packets that the port holds back may be due. Without a burst nothing can be refused.
        let _ = self.port.transmit(now(), &[]);
        let mut found = Vec::new();
        self.port
            .receive(now(), &mut |rx| received_packets(&rx, &mut found))
            .context("receiving")?;
        Ok(found)
    }
}

const fn ip_header(ip: IpAddr) -> usize {
    match ip {
        IpAddr::V4(_) => IPV4_LEN,
        IpAddr::V6(_) => IPV6_LEN,
    }
}

/// Writes a packet that leaves with identification `id` to `bytes`, which has its exact length.
fn write(path: &Path, target: Target, id: u16, payload: &[u8], bytes: &mut [u8]) {
    let pad = padding(payload.len()).to_le_bytes()[0];
    let bth = Bth { opcode: Opcode::UdSendOnly, dest_qp: target.qpn, pad, ..Bth::default() };
    let source_qp = target.qpn;
    // The buffer has room for all of it.
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

/// Returns a UD packet as a datagram that any socket can send.
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

/// Collects the UD packets of a buffer; other packets are ignored.
fn received_packets(rx: &RxBuffer<'_>, found: &mut Vec<ReceivedPacket>) {
    let meta = &rx.meta;
    let flow = Flow::new(meta.source, SocketAddr::new(meta.destination, ROCE_PORT));
    for (segment, bytes) in (0..).zip(rx.segments()) {
        let Ok(datagram) = Datagram::parse(bytes) else { continue };
        let Some(deth) = datagram.deth() else { continue };
        found.push(ReceivedPacket {
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
    fn probes_are_parsed() {
        let probe = Probe { token: 0x0123_4567_89ab_cdef, number: 7, place: 3, is_echo: true };
        for len in [0, 24, 1000] {
            let payload = probe.payload(len);
            assert_eq!((payload.len(), Probe::parse(&payload)), (len.max(24), Some(probe)));
        }
        assert_eq!(Probe::parse(&[0; 24]), None);
        assert_eq!(Probe::parse(&Probe::MAGIC), None);
    }

    #[test]
    fn verdict_depends_on_the_position_in_the_burst() {
        let recovered = |id| Verdict::Recovered { id };
        // Merged again or one by one, as sent.
        assert_eq!(Icrc::of(Verdict::Good, 3, 3), Icrc::Good);
        assert_eq!(Icrc::of(recovered(3), 0, 3), Icrc::Good);
        // Segmented by a device with another numbering.
        assert_eq!(Icrc::of(Verdict::Good, 0, 3), Icrc::Identification(0));
        assert_eq!(Icrc::of(recovered(0xbeef), 0, 0), Icrc::Identification(0xbeef));
        assert_eq!(Icrc::of(Verdict::Bad, 0, 0), Icrc::Bad);
    }
}
