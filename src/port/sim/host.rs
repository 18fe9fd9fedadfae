//! What happens at a host: datagrams arrive, wait, are merged or dropped.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};

use crate::net::{Ipv4Fields, MAX_BURST_BYTES, MAX_BURST_SEGMENTS, Path, RxMeta};
use crate::time::Instant;

/// What kind of port a simulated host has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostConfig {
    /// Bytes that an IP packet may have.
    pub link_mtu: usize,
    /// Whether datagrams that arrive together are merged, as UDP GRO does.
    pub gro: bool,
    /// Whether received buffers tell the IPv4 fields under the ICRC. A UDP socket does not.
    pub sees_ip_header: bool,
    /// Bytes that may wait to be received, counted as the kernel counts them; what arrives on top
    /// is dropped and counted.
    pub receive_buffer: usize,
}

impl Default for HostConfig {
    /// A UDP socket on the loopback interface, with room for what a test may send.
    fn default() -> Self {
        Self { link_mtu: 65_536, gro: true, sees_ip_header: false, receive_buffer: 16 << 20 }
    }
}

/// A datagram under way.
pub(super) struct Flight {
    pub(super) arrival: Instant,
    /// Tells apart those that arrive together.
    pub(super) order: u64,
    pub(super) path: Path,
    pub(super) id: u16,
    pub(super) datagram: Bytes,
}

impl Ord for Flight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.arrival, self.order).cmp(&(other.arrival, other.order))
    }
}

impl PartialOrd for Flight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Flight {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Flight {}

/// The receiving side of a host, and whether its port is busy.
pub(super) struct Host {
    config: HostConfig,
    flights: BinaryHeap<Reverse<Flight>>,
    inbox: VecDeque<Arrived>,
    /// What the inbox takes of the receive buffer.
    waiting: usize,
    /// The port takes no bursts before.
    busy_until: Option<Instant>,
    drops: u64,
}

impl Host {
    pub(super) fn new(config: HostConfig) -> Self {
        Self {
            config,
            flights: BinaryHeap::new(),
            inbox: VecDeque::new(),
            waiting: 0,
            busy_until: None,
            drops: 0,
        }
    }

    /// A datagram is on its way here.
    pub(super) fn expect(&mut self, flight: Flight) {
        self.flights.push(Reverse(flight));
    }

    /// Puts what has arrived by `now` where it can be received.
    pub(super) fn advance(&mut self, now: Instant) {
        while let Some(Reverse(flight)) = self.flights.pop() {
            if flight.arrival > now {
                self.flights.push(Reverse(flight));
                return;
            }
            self.arrive(flight);
        }
    }

    /// The next buffer that can be received.
    pub(super) fn take(&mut self) -> Option<Arrived> {
        let buffer = self.inbox.pop_front()?;
        self.waiting -= buffer.cost;
        Some(buffer)
    }

    /// What has arrived by `now` and was not received, as it counts in the receive buffer.
    pub(super) fn waiting(&mut self, now: Instant) -> u64 {
        self.advance(now);
        self.waiting as u64
    }

    /// Makes its port busy.
    pub(super) fn refuse_until(&mut self, until: Instant) {
        self.busy_until = Some(until);
    }

    /// Whether its port is busy; forgets that it was.
    pub(super) fn is_busy(&mut self, now: Instant) -> bool {
        self.busy_until = self.busy_until.filter(|until| *until > now);
        self.busy_until.is_some()
    }

    /// When something arrives, has arrived, or can be sent again.
    pub(super) fn next_event(&self) -> Option<Instant> {
        let arrived = self.inbox.front().map(|buffer| buffer.arrival);
        let flight = self.flights.peek().map(|Reverse(flight)| flight.arrival);
        Instant::first(arrived, Instant::first(flight, self.busy_until))
    }

    /// Datagrams that found the receive buffer full.
    pub(super) fn drops(&self) -> u64 {
        self.drops
    }

    fn arrive(&mut self, flight: Flight) {
        let config = self.config;
        let len = flight.datagram.len();
        let merge = self.inbox.back_mut().filter(|last| config.gro && last.takes(&flight, config));
        let cost = if merge.is_some() { len } else { kernel_cost(len) };
        if self.waiting + cost > config.receive_buffer {
            self.drops += 1;
            return;
        }
        self.waiting += cost;
        if let Some(last) = merge {
            last.data.extend_from_slice(&flight.datagram);
            last.segments += 1;
            last.cost += cost;
            return;
        }
        self.inbox.push_back(Arrived {
            arrival: flight.arrival,
            path: flight.path,
            id: flight.id,
            segment_len: len,
            segments: 1,
            data: flight.datagram.into(),
            cost,
        });
    }
}

/// What a lone datagram takes of a receive buffer on Linux: a power of two for the bytes, the
/// headers and the bookkeeping behind them, and the `sk_buff`. 25 of 4112, 92 of 1040 and 256 of 80
/// bytes fit in 212,992.
fn kernel_cost(len: usize) -> usize {
    const SMALL: usize = 576;
    const SK_BUFF: usize = 256;
    let head = len + 384;
    SK_BUFF + if head <= SMALL { SMALL } else { head.next_power_of_two() }
}

/// A buffer that can be received.
#[derive(Debug)]
pub(super) struct Arrived {
    arrival: Instant,
    path: Path,
    id: u16,
    segments: usize,
    cost: usize,
    pub(super) segment_len: usize,
    pub(super) data: BytesMut,
}

impl Arrived {
    /// Whether GRO would merge a datagram with this buffer.
    fn takes(&self, flight: &Flight, config: HostConfig) -> bool {
        let len = flight.datagram.len();
        let follows = usize::from(flight.id) == usize::from(self.id) + self.segments;
        self.path == flight.path
            && self.arrival == flight.arrival
            && self.data.len() == self.segments * self.segment_len
            && len <= self.segment_len
            && len > 0
            && self.segments < MAX_BURST_SEGMENTS
            && self.data.len() + len <= MAX_BURST_BYTES
            && (follows || !config.sees_ip_header)
    }

    pub(super) fn meta(&self, sees_ip_header: bool) -> RxMeta {
        let fields = Ipv4Fields { id: self.id, dont_fragment: true };
        RxMeta {
            source: SocketAddr::new(self.path.source, self.path.source_port),
            destination: self.path.destination,
            traffic_class: self.path.traffic_class,
            hop_limit: self.path.hop_limit,
            ipv4: (sees_ip_header && self.path.source.is_ipv4()).then_some(fields),
        }
    }
}
