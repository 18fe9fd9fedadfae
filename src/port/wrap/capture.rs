//! Middleware that shows each packet of a port to a [`Sink`], as it is on the wire.
//!
//! The capture builds the IP and UDP headers from what the port reports. Sent datagrams have the IPv4 identification
//! that the sender computed the ICRC for. For received ones, where the port does not see the IP header, the capture
//! finds it by the ICRC. Where a datagram came or went without ICRC through shared memory, the capture computes it. So the
//! ICRC of every captured packet is valid, unless the packet was corrupted. The UDP checksum is 0, as no socket reports
//! it.

use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError};

use super::layer::{Layer, Middleware};
use crate::net::{Burst, Ipv4Fields, Path, RxBuffer, RxMeta};
use crate::port::traits::{Control, Datapath, Port, TransmitError};
use crate::sync::Mutex;
use crate::time::Instant;
use crate::wire::encap::Headers;
use crate::wire::icrc::{self, Flow, Verdict};

/// Direction of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// The port has sent it.
    Sent,
    /// The port has received it.
    Received,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sent => "sent",
            Self::Received => "received",
        })
    }
}

/// Receiver of captured packets: a file writer, a checker, a test.
pub trait Sink: Send {
    /// Takes a packet as it was on the wire, from its first IP byte to the last byte of the ICRC.
    fn packet(&mut self, at: Instant, direction: Direction, ip_packet: &[u8]);

    /// Returns whether the sink takes no packets now. The capture does not build them then, but reports their
    /// [number](Self::skipped).
    fn is_full(&self) -> bool {
        false
    }

    /// Takes the number of packets that found the sink full.
    fn skipped(&mut self, packets: usize) {
        let _ = packets;
    }
}

impl<S: Sink + ?Sized> Sink for Box<S> {
    fn packet(&mut self, at: Instant, direction: Direction, ip_packet: &[u8]) {
        (**self).packet(at, direction, ip_packet);
    }

    fn is_full(&self) -> bool {
        (**self).is_full()
    }

    fn skipped(&mut self, packets: usize) {
        (**self).skipped(packets);
    }
}

/// A port that shows each packet to a [`Sink`].
pub type Capture<P, S> = Layer<P, Recorder<S>>;

impl<P: Port, S: Sink> Capture<P, S> {
    /// Wraps `port` and shows each packet from now on to `sink`.
    pub fn new(mut port: P, sink: S) -> Self {
        let recorder = Recorder::new(&mut port, sink);
        Self::over(port, recorder)
    }

    /// Closes the port and returns the sink.
    pub fn into_sink(self) -> S {
        self.into_middleware().sink
    }
}

impl<S: Sink> Middleware for Recorder<S> {
    fn transmit(
        &mut self,
        below: &mut impl Datapath,
        now: Instant,
        bursts: &[Burst],
    ) -> Result<usize, TransmitError> {
        let result = below.transmit(now, bursts);
        let taken = match result {
            Ok(taken) | Err(TransmitError { taken, .. }) => taken,
        };
        for burst in bursts.iter().take(taken) {
            self.sent(now, burst);
        }
        result
    }

    fn receive(
        &mut self,
        below: &mut impl Datapath,
        now: Instant,
        sink: &mut dyn FnMut(RxBuffer<'_>),
    ) -> io::Result<usize> {
        below.receive(now, &mut |rx| {
            self.received(now, &rx);
            sink(rx);
        })
    }
}

/// A sink that several ports share, for one packet at a time.
#[derive(Debug)]
pub struct Shared<S>(Arc<Mutex<S>>);

impl<S: Sink> Shared<S> {
    /// Shares `sink` between all clones.
    pub fn new(sink: S) -> Self {
        Self(Arc::new(Mutex::new(sink)))
    }
}

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Sink> Sink for Shared<S> {
    fn packet(&mut self, at: Instant, direction: Direction, ip_packet: &[u8]) {
        let mut sink = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sink.packet(at, direction, ip_packet);
    }
}

/// The [`Middleware`] of a [`Capture`]: rebuilds each packet and passes it to the sink.
#[derive(Debug)]
pub struct Recorder<S> {
    sink: S,
    /// The kernel splits bursts and numbers their datagrams. Otherwise each datagram is sent alone.
    splits_in_kernel: bool,
    packet: Vec<u8>,
}

impl<S: Sink> Recorder<S> {
    /// Returns the middleware for `port`, which reports all that a capture needs from now on.
    pub(super) fn new(port: &mut impl Control, sink: S) -> Self {
        port.report_ip_fields();
        port.keep_identifications();
        Self { sink, splits_in_kernel: port.info().gso, packet: Vec::new() }
    }

    /// Returns the sink.
    #[cfg(feature = "runtime")]
    pub(super) fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Shows the datagrams of a burst that was sent.
    fn sent(&mut self, at: Instant, burst: &Burst) {
        if self.sink.is_full() {
            return self.sink.skipped(burst.len());
        }
        let flow = Flow::of_path(&burst.path);
        for (index, datagram) in (0..).zip(burst.segments()) {
            let id = if self.splits_in_kernel { index } else { 0 };
            let ipv4 = Ipv4Fields { id, dont_fragment: true };
            self.build(&burst.path, ipv4, datagram);
            if index != id || icrc::is_omitted(datagram) {
                let start = self.packet.len() - datagram.len();
                flow.seal(id, &mut self.packet[start..]);
            }
            self.sink.packet(at, Direction::Sent, &self.packet);
        }
    }

    fn received(&mut self, at: Instant, rx: &RxBuffer<'_>) {
        if self.sink.is_full() {
            return self.sink.skipped(rx.segments().len());
        }
        let path = path(&rx.meta);
        let flow = Flow::of_path(&path);
        let first = rx.meta.ipv4.unwrap_or(Ipv4Fields { id: 0, dont_fragment: true });
        for (index, datagram) in (0..).zip(rx.segments()) {
            let is_exempt = icrc::is_exempt(&rx.meta, datagram);
            let expected = first.id.wrapping_add(index);
            let id = match flow.check(rx.meta.ipv4, index, datagram) {
                Verdict::Recovered { id } if !is_exempt => id,
                _ => expected,
            };
            self.build(&path, Ipv4Fields { id, ..first }, datagram);
            if is_exempt {
                let start = self.packet.len() - datagram.len();
                flow.seal(id, &mut self.packet[start..]);
            }
            self.sink.packet(at, Direction::Received, &self.packet);
        }
    }

    fn build(&mut self, path: &Path, ipv4: Ipv4Fields, datagram: &[u8]) {
        self.packet.clear();
        let headers = Headers { path: *path, flow_label: 0, ipv4 };
        headers.append(datagram.len(), &mut self.packet);
        self.packet.extend_from_slice(datagram);
    }
}

fn path(meta: &RxMeta) -> Path {
    Path {
        source: meta.source.ip(),
        destination: meta.destination,
        source_port: meta.source.port(),
        traffic_class: meta.traffic_class,
        hop_limit: meta.hop_limit,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::net::{BurstToken, ROCE_PORT, TransmitErrorKind};
    use crate::port::sim::{Conditions, HostConfig, Network};
    use crate::wire::encap::parse_ip;
    use crate::wire::icrc;

    #[derive(Default)]
    struct Tape(Vec<(Instant, Direction, Vec<u8>)>);

    impl Sink for Tape {
        fn packet(&mut self, at: Instant, direction: Direction, ip_packet: &[u8]) {
            self.0.push((at, direction, ip_packet.to_vec()));
        }
    }

    impl Tape {
        /// Returns the identification of each packet, and whether its ICRC is valid.
        fn verdicts(&self) -> Vec<(Option<u16>, bool)> {
            let verdict = |packet: &[u8]| {
                let (computed, found) = icrc::of_ip_packet(packet).unwrap();
                (parse_ip(packet).unwrap().ipv4.map(|fields| fields.id), computed == found)
            };
            self.0.iter().map(|(_, _, packet)| verdict(packet)).collect()
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Returns sealed segments; that with index `i` has identification `base + i`.
    fn burst(from: &str, to: &str, base: u16, lens: &[usize]) -> Burst {
        let path = Path {
            source: ip(from),
            destination: ip(to),
            source_port: 0xc123,
            traffic_class: 0x2a,
            hop_limit: 63,
        };
        let mut burst = Burst::new();
        burst.reset(path, BurstToken(0));
        for (id, len) in (base..).zip(lens) {
            let segment = burst.push(*len);
            segment.fill(1);
            Flow::of_path(&path).seal(id, segment);
        }
        burst
    }

    const NOW: Instant = Instant::from_nanos(77);

    #[test]
    fn both_ends_record_the_same_packets() {
        for (a, b) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let network = Network::new(0);
            let mut near = Capture::new(network.host(ip(a)), Tape::default());
            let mut far = Capture::new(network.host(ip(b)), Tape::default());
            assert_eq!(near.transmit(NOW, &[burst(a, b, 0, &[64, 64, 20])]), Ok(1));
            let mut passed = 0;
            assert_eq!(far.receive(NOW, &mut |rx| passed += rx.segments().len()).unwrap(), 1);
            assert_eq!(passed, 3);
            let (sent, received) = (near.into_sink(), far.into_sink());
            let ids = if ip(a).is_ipv4() { [Some(0), Some(1), Some(2)] } else { [None; 3] };
            assert_eq!(sent.verdicts(), ids.map(|id| (id, true)));
            let same = sent.0.into_iter().map(|(at, _, packet)| (at, Direction::Received, packet));
            assert_eq!(received.0, same.collect::<Vec<_>>());
            let packet = parse_ip(&received.0[0].2).unwrap();
            assert_eq!(packet.path(), burst(a, b, 0, &[64]).path);
            assert_eq!(packet.destination.port(), ROCE_PORT);
        }
    }

    /// The ends of a port through shared memory, which sees no IP header.
    #[test]
    fn omitted_icrcs_are_recorded_as_valid_ones() {
        for (a, b) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let network = Network::new(0);
            let config = HostConfig { omits_icrcs: true, ..HostConfig::default() };
            let host = |at| Capture::new(network.host_with(ip(at), config), Tape::default());
            let (mut near, mut far) = (host(a), host(b));
            let mut omitting = burst(a, b, 0, &[]).omitting_icrcs(true);
            for fill in [1, 2, 3] {
                let datagram = omitting.push(64);
                datagram.fill(fill);
                icrc::omit(datagram);
            }
            assert_eq!(near.transmit(NOW, &[omitting]), Ok(1));
            far.receive(NOW, &mut |_| ()).unwrap();
            let (sent, received) = (near.into_sink(), far.into_sink());
            let ids = if ip(a).is_ipv4() { [Some(0), Some(1), Some(2)] } else { [None; 3] };
            assert_eq!(sent.verdicts(), ids.map(|id| (id, true)));
            assert_eq!(received.verdicts(), sent.verdicts());
        }
    }

    #[test]
    fn identification_of_an_unknown_peer_is_found() {
        for sees_ip_header in [false, true] {
            let network = Network::new(0);
            let mut near = network.host(ip("10.0.0.1"));
            let config = HostConfig { gro: false, sees_ip_header, ..HostConfig::default() };
            let mut far = Capture::new(network.host_with(ip("10.0.0.2"), config), Tape::default());
            let base = if sees_ip_header { 0 } else { 0xbe00 };
            let burst = burst("10.0.0.1", "10.0.0.2", base, &[64, 64]);
            assert_eq!(near.transmit(NOW, &[burst]), Ok(1));
            far.receive(NOW, &mut |_| ()).unwrap();
            let expected = [(Some(base), true), (Some(base + 1), true)];
            assert_eq!(far.into_sink().verdicts(), expected);
        }
    }

    #[test]
    fn corrupted_packets_are_recorded_as_such() {
        let network = Network::new(0);
        let mut near = network.host(ip("10.0.0.1"));
        let mut far = Capture::new(network.host(ip("10.0.0.2")), Tape::default());
        network.set_conditions(Conditions { corrupt: 1.0, ..Conditions::default() });
        let burst = burst("10.0.0.1", "10.0.0.2", 0, &[64, 64]);
        assert_eq!(near.transmit(NOW, &[burst]), Ok(1));
        far.receive(NOW, &mut |_| ()).unwrap();
        assert_eq!(far.into_sink().verdicts(), [(Some(0), false), (Some(1), false)]);
    }

    #[test]
    fn capture_omits_refused_bursts() {
        let network = Network::new(0);
        let mut port = Capture::new(network.host(ip("10.0.0.1")), Tape::default());
        let bursts = [
            burst("10.0.0.1", "10.0.0.2", 0, &[64]),
            burst("10.0.0.9", "10.0.0.2", 0, &[64]),
            burst("10.0.0.1", "10.0.0.2", 0, &[64]),
        ];
        let error = TransmitError { taken: 1, kind: TransmitErrorKind::Other };
        assert_eq!(port.transmit(NOW, &bursts), Err(error));
        assert_eq!(port.into_sink().0.len(), 1);
    }
}
