//! Analyzes the packets of a capture one by one.

use std::collections::HashMap;
use std::time::Duration;

use softroce::ids::Qpn;
use softroce::port;
use softroce::wire::cm::{Body, Message};
use softroce::wire::{Datagram, Operation, Transport};

use super::budget::FlowBudget;
use super::cm_exchange::Negotiations;
use super::composition::Composition;
use super::filter::Filter;
use super::flow::Flow;
use super::progress::{Step, StreamAnalyzer};
use crate::dissect::{Extent, Icrc, IcrcCounts, RocePacket, dissect};
use crate::file::Packet;
use crate::flow::ResponseEvent::OtherConnection;
use crate::flow::{
    self as tracking, CmConversation, Direction, Event, Joined, LoopbackFilter, SeenPacket,
    SequenceEvent, Tracker,
};

/// How much an [`Analyzer`] remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// For telling which packets belong together.
    pub tracker: tracking::Limits,
    /// Streams; a connection has one or two.
    pub streams: usize,
    /// Requests in flight of one stream, and of all.
    pub outstanding: (usize, usize),
    /// Points of one [`Trace`](super::Trace), and of all. When there are more of all, each may have half as many.
    pub points: (usize, usize),
}

impl Default for Limits {
    /// What fits 160 MiB: 80 of them for the tracker, 50 for 1024 streams with all their
    /// distributions, 10 for what is in flight, 16 for points.
    fn default() -> Self {
        Self {
            tracker: tracking::Limits { directions: 2048, window: 8192, packets: 1 << 18 },
            streams: 1024,
            outstanding: (8192, 1 << 17),
            points: (1 << 14, 1 << 19),
        }
    }
}

/// How many packets there were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Frames of the capture.
    pub packets: u64,
    /// Packets of RoCEv2. One that the capturing device sent to itself counts once.
    pub roce_packets: u64,
    /// Their ICRCs. Receivers drop those with a bad one, and so they are not followed.
    pub icrc: IcrcCounts,
    /// Bursts of which no ICRC shows where their packets end. They are not followed.
    pub unsplit: u64,
    /// Messages of the connection manager.
    pub management: u64,
    /// Of these, connections that were refused.
    pub rejected: u64,
    /// Congestion notifications for flows that were not captured.
    pub stray_cnps: u64,
    /// Other packets of flows beyond the limit, and answers to requests that were not captured.
    pub not_followed: u64,
}

/// What a capture shows.
#[derive(Debug)]
pub struct Analysis {
    /// How many packets there were.
    pub counts: Counts,
    /// Opcodes, messages of the connection managers, and traffic over time.
    pub composition: Composition,
    /// From the first frame to the last, in nanoseconds.
    pub duration: u64,
    /// When the first was captured, since the Unix epoch.
    pub start: Option<Duration>,
    /// What was found, those with the most bytes first.
    pub flows: Vec<Flow>,
    /// Conversations of connection managers, in the order of their requests.
    pub conversations: Vec<CmConversation>,
    /// Older conversations, beyond the limit.
    pub unlisted_conversations: u64,
}

/// Analyzes packets in the order in which they were captured.
///
/// ```
/// use softroce_pcap::analyze::{Analyzer, Filter, Limits};
///
/// let mut analyzer = Analyzer::new(Limits::default(), Filter::default());
/// // One byte: an IP packet of no kind.
/// analyzer.ip_packet(1, None, &[0x45]);
/// let analysis = analyzer.finish();
/// assert_eq!((analysis.counts.packets, analysis.flows.len()), (1, 0));
/// ```
#[derive(Debug)]
pub struct Analyzer {
    limits: Limits,
    filter: Filter,
    tracker: Tracker,
    negotiations: Negotiations,
    looped: LoopbackFilter,
    streams: Vec<StreamAnalyzer>,
    /// Index in `streams` of the newest of a direction; a UD direction has one for each sender.
    newest: HashMap<(Direction, Option<Qpn>), usize>,
    room: FlowBudget,
    counts: Counts,
    composition: Composition,
    start: Option<Duration>,
    /// Number of the packet that is analyzed.
    packet: u64,
    now: u64,
    events: Vec<Event>,
}

impl Analyzer {
    /// Has seen nothing.
    pub fn new(limits: Limits, filter: Filter) -> Self {
        let room = FlowBudget {
            outstanding: limits.outstanding.1,
            most_outstanding: limits.outstanding.0,
            cells: 0,
            most_cells: limits.points.0,
        };
        Self {
            limits,
            filter,
            tracker: Tracker::new(limits.tracker),
            negotiations: Negotiations::default(),
            looped: LoopbackFilter::default(),
            streams: Vec::new(),
            newest: HashMap::new(),
            room,
            counts: Counts::default(),
            composition: Composition::default(),
            start: None,
            packet: 0,
            now: 0,
            events: Vec::new(),
        }
    }

    /// Takes a frame of a capture.
    pub fn packet(&mut self, packet: &Packet<'_>) {
        let is_roce = match packet.ip {
            Ok(ip) => self.directed(packet.number, packet.time, packet.direction, ip),
            Err(_) => {
                self.counts.packets += 1;
                self.clock(packet.time);
                false
            }
        };
        let since_start = Duration::from_nanos(self.now);
        self.composition.intervals.add(since_start, packet.original_len.into(), is_roce);
    }

    /// Takes an IP packet; a capture may have cut it.
    pub fn ip_packet(&mut self, number: u64, time: Option<Duration>, ip: &[u8]) {
        self.directed(number, time, None, ip);
    }

    /// Takes an IP packet that the capturing host sent or received, if the capture tells. The received copy of a
    /// packet that the host sent to itself has no effect. Returns whether it is one of RoCEv2.
    fn directed(
        &mut self,
        number: u64,
        time: Option<Duration>,
        direction: Option<port::Direction>,
        ip: &[u8],
    ) -> bool {
        self.counts.packets += 1;
        self.packet = number;
        let since_start = self.clock(time);
        let in_time = self.filter.has_time(since_start);
        let Ok(Some(datagram)) = dissect(ip) else { return false };
        for roce in datagram.segments() {
            if self.looped.is_copy(direction, &roce) {
                continue;
            }
            self.counts.roce_packets += 1;
            if !self.is_sound(&roce) {
                continue;
            }
            let ends = [roce.ip.source.ip(), roce.ip.destination.ip()];
            if let (Ok(datagram), true) = (&roce.datagram, self.filter.has_address(ends)) {
                let seen = SeenPacket {
                    number,
                    time,
                    source: ends[0],
                    source_port: roce.ip.source.port(),
                    destination: ends[1],
                    id: roce.ip.ipv4.map(|ipv4| ipv4.id),
                    datagram,
                    // The checker, not this, compares repeated packets.
                    digest: None,
                };
                let is_marked = roce.ip.traffic_class & ECN_MASK == ECN_CE;
                self.roce(&seen, is_marked, in_time);
            }
        }
        true
    }

    /// Returns the figures after the last packet.
    pub fn finish(mut self) -> Analysis {
        let room = &mut self.room;
        let streams = self.streams.into_iter().map(|stream| stream.finish(room));
        let mut flows = Flow::of(streams.collect());
        flows.retain(|flow| self.filter.has_flow(flow));
        let start = self.start.and_then(|start| u64::try_from(start.as_nanos()).ok());
        let since_start = |of: &CmConversation| of.since(start.unwrap_or_default());
        let conversations = self.tracker.conversations();
        Analysis {
            counts: self.counts,
            composition: self.composition,
            duration: self.now,
            start: self.start,
            flows,
            conversations: conversations.iter().map(since_start).collect(),
            unlisted_conversations: conversations.forgotten(),
        }
    }

    /// Streams, requests in flight and points that are remembered now.
    pub fn remembered(&self) -> (usize, usize, usize) {
        let outstanding = self.limits.outstanding.1 - self.room.outstanding;
        (self.streams.len(), outstanding, self.room.cells)
    }

    /// The time since the first packet. A clock that goes back stands still here.
    fn clock(&mut self, time: Option<Duration>) -> Duration {
        let Some(time) = time else { return Duration::from_nanos(self.now) };
        let since_start = time.saturating_sub(*self.start.get_or_insert(time));
        let nanoseconds = u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX);
        self.now = self.now.max(nanoseconds);
        since_start
    }

    /// Whether the packet may be what its sender sent, and is one.
    fn is_sound(&mut self, roce: &RocePacket<'_>) -> bool {
        match roce.icrc {
            _ if roce.extent == Extent::Unsplit => {
                self.counts.icrc.unknown += 1;
                self.counts.unsplit += 1;
                return false;
            }
            Icrc::Good => self.counts.icrc.good += 1,
            Icrc::Bad { .. } if roce.is_flush_of_rxe() => self.counts.icrc.good += 1,
            Icrc::Cut | Icrc::Missing => self.counts.icrc.unknown += 1,
            Icrc::Bad { .. } => {
                self.counts.icrc.bad += 1;
                return false;
            }
        }
        true
    }

    fn roce(&mut self, seen: &SeenPacket<'_>, is_marked: bool, in_time: bool) {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        events.extend_from_slice(self.tracker.packet(seen));
        let management = Message::of(seen.datagram);
        if let Some(message) = &management {
            self.counts.management += 1;
            if let Ok(message) = message {
                self.manage(seen, message);
                if in_time {
                    self.composition.message(message);
                }
            }
        }
        if in_time {
            self.composition.packet(seen.datagram);
        }
        if in_time && management.is_none() {
            match self.stream_of(seen, &events) {
                Some(at) => self.step(at, seen, &events, is_marked),
                None if is_cnp(seen.datagram) => self.counts.stray_cnps += 1,
                None => self.counts.not_followed += 1,
            }
        }
        self.events = events;
    }

    /// Shows a packet to its stream.
    fn step(&mut self, at: usize, seen: &SeenPacket<'_>, events: &[Event], is_marked: bool) {
        let Self { streams, room, tracker, now, .. } = self;
        let Some(stream) = streams.get_mut(at) else { return };
        let step = Step { now: *now, seen, events };
        if stream.figures.mtu.is_none()
            && let Some(mtu) = tracker.path_mtu(&stream.figures.direction)
        {
            stream.learn_mtu(mtu);
        }
        if is_cnp(seen.datagram) {
            stream.notified(*now, room);
        } else if is_request(seen.datagram) {
            stream.request(&step, room);
        } else {
            stream.answer(&step, room);
        }
        if is_marked {
            stream.marked(*now, room);
        }
        if self.room.cells > self.limits.points.1 {
            self.thin();
        }
    }

    /// Returns the index of the stream of a packet: a new one for a request, if there is room.
    fn stream_of(&mut self, seen: &SeenPacket<'_>, events: &[Event]) -> Option<usize> {
        let direction = seen.direction();
        let transport = seen.datagram.bth.opcode.transport();
        if !is_request(seen.datagram) {
            // Later requests in this direction are of another connection too.
            if events.iter().any(|e| matches!(e, Event::Response(OtherConnection { .. }))) {
                self.newest.remove(&(direction, None));
            }
            let (asking, joined) = self.tracker.other(&direction)?;
            let at = *self.newest.get(&(asking, None))?;
            let stream = self.streams.get_mut(at)?;
            stream.figures.join(direction.qp, joined);
            return Some(at);
        }
        let from = seen.datagram.deth().map(|deth| deth.source_qp);
        let restarted =
            events.iter().any(|e| matches!(e, Event::Sequence(SequenceEvent::Restarted { .. })));
        let at = match self.newest.get(&(direction, from)) {
            Some(at) if !restarted => *at,
            _ => self.open(direction, from, transport)?,
        };
        let stream = &mut self.streams.get_mut(at)?.figures;
        stream.from = stream.from.or(from);
        if stream.joined.is_none()
            && let Some((other, joined)) = self.tracker.other(&direction)
        {
            stream.join(other.qp, joined);
        }
        Some(at)
    }

    /// Begins a stream, which takes the place of one of the same numbers.
    fn open(
        &mut self,
        direction: Direction,
        from: Option<Qpn>,
        transport: Transport,
    ) -> Option<usize> {
        let at = self.streams.len();
        if at >= self.limits.streams {
            return None;
        }
        self.streams.push(StreamAnalyzer::new(direction, transport, self.packet, self.now));
        self.newest.insert((direction, from), at);
        Some(at)
    }

    /// What the connection managers agree upon begins two streams.
    fn manage(&mut self, seen: &SeenPacket<'_>, message: &Message<'_>) {
        self.counts.rejected += u64::from(matches!(message.body, Body::Rej(_)));
        let Some(cm_exchange) = self.negotiations.message(seen, message, self.now) else { return };
        let (there, here) = (cm_exchange.there, cm_exchange.here);
        let transport = cm_exchange.transport;
        let cm_exchange = std::sync::Arc::new(cm_exchange);
        for (direction, other) in [(there, here), (here, there)] {
            let Some(at) = self.open(direction, None, transport) else { return };
            if let Some(stream) = self.streams.get_mut(at) {
                stream.figures.join(other.qp, Joined::ByManagers);
                stream.figures.cm_exchange = Some(cm_exchange.clone());
            }
        }
    }

    /// All traces together have too many points: each may have half as many from now on.
    fn thin(&mut self) {
        self.room.most_cells = (self.room.most_cells / 2).max(1);
        self.room.cells = 0;
        for trace in self.streams.iter_mut().flat_map(StreamAnalyzer::traces) {
            trace.thin(self.room.most_cells);
            self.room.cells += trace.cells().len();
        }
    }
}

/// Of the traffic class: what routers say of their queues (RFC 3168).
const ECN_MASK: u8 = 3;
const ECN_CE: u8 = 3;

/// Whether the packet goes from requester to responder.
fn is_request(datagram: &Datagram<'_>) -> bool {
    datagram.bth.opcode.is_request()
}

fn is_cnp(datagram: &Datagram<'_>) -> bool {
    datagram.bth.opcode.operation() == Operation::Cnp
}
