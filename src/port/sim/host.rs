//! Hosts of the simulated network: datagrams arrive, are merged and queued, or dropped.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};

use crate::net::{Ipv4Fields, MAX_BURST_BYTES, MAX_BURST_SEGMENTS, Path, RxMeta};
use crate::time::Instant;

/// Properties of the port of a simulated host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostConfig {
    /// MTU of the link.
    pub link_mtu: usize,
    /// Whether datagrams that arrive together are merged, as UDP GRO does.
    pub gro: bool,
    /// Whether received buffers report the IPv4 fields under the ICRC. UDP sockets do not.
    pub sees_ip_header: bool,
    /// Size of the receive buffer, in bytes as the kernel counts them. Datagrams that exceed it are dropped and
    /// counted.
    pub receive_buffer: usize,
    /// Whether datagrams may come and go without ICRCs, as through shared memory. Damage to such a datagram is not
    /// noticed.
    pub omits_icrcs: bool,
}

impl Default for HostConfig {
    /// Returns the properties of a UDP socket on the loopback interface with a large receive buffer.
    fn default() -> Self {
        Self {
            link_mtu: 65_536,
            gro: true,
            sees_ip_header: false,
            receive_buffer: 16 << 20,
            omits_icrcs: false,
        }
    }
}

/// A datagram in datagram.
pub(super) struct InFlightDatagram {
    pub(super) arrival: Instant,
    /// Orders datagrams that arrive at the same time.
    pub(super) order: u64,
    pub(super) path: Path,
    pub(super) id: u16,
    pub(super) payload: Bytes,
}

impl Ord for InFlightDatagram {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.arrival, self.order).cmp(&(other.arrival, other.order))
    }
}

impl PartialOrd for InFlightDatagram {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for InFlightDatagram {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for InFlightDatagram {}

/// The receiving side of a host, and whether its port is busy.
pub(super) struct Host {
    config: HostConfig,
    in_flight: BinaryHeap<Reverse<InFlightDatagram>>,
    rx_queue: VecDeque<QueuedBuffer>,
    /// Bytes of the receive buffer in use.
    rx_queue_bytes: usize,
    /// Time until which the port takes no bursts.
    busy_until: Option<Instant>,
    drops: u64,
}

impl Host {
    pub(super) fn new(config: HostConfig) -> Self {
        Self {
            config,
            in_flight: BinaryHeap::new(),
            rx_queue: VecDeque::new(),
            rx_queue_bytes: 0,
            busy_until: None,
            drops: 0,
        }
    }

    /// Adds a datagram in datagram to this host.
    pub(super) fn deliver(&mut self, datagram: InFlightDatagram) {
        self.in_flight.push(Reverse(datagram));
    }

    /// Moves datagrams that have arrived by `now` to the receive queue.
    pub(super) fn advance(&mut self, now: Instant) {
        while let Some(Reverse(datagram)) = self.in_flight.pop() {
            if datagram.arrival > now {
                self.in_flight.push(Reverse(datagram));
                return;
            }
            self.arrive(datagram);
        }
    }

    /// Removes the next buffer from the receive queue.
    pub(super) fn take(&mut self) -> Option<QueuedBuffer> {
        let buffer = self.rx_queue.pop_front()?;
        self.rx_queue_bytes -= buffer.charge;
        Some(buffer)
    }

    /// Returns the bytes of the receive buffer in use at `now`.
    pub(super) fn rx_queue_bytes(&mut self, now: Instant) -> u64 {
        self.advance(now);
        self.rx_queue_bytes as u64
    }

    /// Makes the port busy.
    pub(super) fn set_busy_until(&mut self, until: Instant) {
        self.busy_until = Some(until);
    }

    /// Returns whether the port is busy.
    pub(super) fn is_busy(&mut self, now: Instant) -> bool {
        self.busy_until = self.busy_until.filter(|until| *until > now);
        self.busy_until.is_some()
    }

    /// Returns the time of the next arrival, of the oldest queued buffer, or at which the port is no longer busy.
    pub(super) fn next_event(&self) -> Option<Instant> {
        let arrived = self.rx_queue.front().map(|buffer| buffer.arrival);
        let datagram = self.in_flight.peek().map(|Reverse(datagram)| datagram.arrival);
        Instant::first(arrived, Instant::first(datagram, self.busy_until))
    }

    /// Returns the number of datagrams dropped for lack of space.
    pub(super) fn drops(&self) -> u64 {
        self.drops
    }

    fn arrive(&mut self, datagram: InFlightDatagram) {
        let config = self.config;
        let len = datagram.payload.len();
        let merge = self
            .rx_queue
            .back_mut()
            .filter(|last| config.gro && last.merges_with(&datagram, config));
        let charge = if merge.is_some() { len } else { truesize(len) };
        if self.rx_queue_bytes + charge > config.receive_buffer {
            self.drops += 1;
            return;
        }
        self.rx_queue_bytes += charge;
        if let Some(last) = merge {
            last.data.extend_from_slice(&datagram.payload);
            last.segments += 1;
            last.charge += charge;
            return;
        }
        self.rx_queue.push_back(QueuedBuffer {
            arrival: datagram.arrival,
            path: datagram.path,
            id: datagram.id,
            segment_len: len,
            segments: 1,
            data: datagram.payload.into(),
            charge,
        });
    }
}

/// Returns the charge of a single datagram to a receive buffer on Linux (`truesize`): the bytes, headers and
/// `skb_shared_info` rounded up to a power of two, and the `sk_buff`. 25 of 4112, 92 of 1040 and 256 of 80 bytes fit in
/// 212,992.
fn truesize(len: usize) -> usize {
    const SMALL: usize = 576;
    const SK_BUFF: usize = 256;
    let head = len + 384;
    SK_BUFF + if head <= SMALL { SMALL } else { head.next_power_of_two() }
}

/// A buffer in the receive queue.
#[derive(Debug)]
pub(super) struct QueuedBuffer {
    arrival: Instant,
    path: Path,
    id: u16,
    segments: usize,
    charge: usize,
    pub(super) segment_len: usize,
    pub(super) data: BytesMut,
}

impl QueuedBuffer {
    /// Returns whether GRO would merge a datagram with this buffer.
    fn merges_with(&self, datagram: &InFlightDatagram, config: HostConfig) -> bool {
        let len = datagram.payload.len();
        let follows = usize::from(datagram.id) == usize::from(self.id) + self.segments;
        self.path == datagram.path
            && self.arrival == datagram.arrival
            && self.data.len() == self.segments * self.segment_len
            && len <= self.segment_len
            && len > 0
            && self.segments < MAX_BURST_SEGMENTS
            && self.data.len() + len <= MAX_BURST_BYTES
            && (follows || !config.sees_ip_header)
    }

    pub(super) fn meta(&self, config: &HostConfig) -> RxMeta {
        let HostConfig { sees_ip_header, omits_icrcs, .. } = *config;
        let fields = Ipv4Fields { id: self.id, dont_fragment: true };
        RxMeta {
            source: SocketAddr::new(self.path.source, self.path.source_port),
            destination: self.path.destination,
            traffic_class: self.path.traffic_class,
            hop_limit: self.path.hop_limit,
            ipv4: (sees_ip_header && self.path.source.is_ipv4()).then_some(fields),
            may_omit_icrc: omits_icrcs,
        }
    }
}
