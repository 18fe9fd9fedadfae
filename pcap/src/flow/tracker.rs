//! Follows the connections of a capture, packet by packet.

use softroce::ids::PKey;
use softroce::wire::Transport;
use softroce::wire::cm::Message;

use super::cm::Beginning;
use super::conversation::CmConversations;
use super::directions::Directions;
use super::{Direction, Event, Joined, RequestEvent, SeenPacket};

/// How much a [`Tracker`] remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Directions. When there are more, the half of them that was seen longest ago is forgotten.
    pub directions: usize,
    /// Request packets of one direction.
    pub window: usize,
    /// Request packets of all directions; more are treated as more directions are.
    pub packets: usize,
}

impl Default for Limits {
    /// What fits 176 MiB: a packet takes 64 bytes, twice that while the list of them grows, a
    /// direction with all the READs and atomics that it remembers 28 KiB.
    fn default() -> Self {
        Self { directions: 4096, window: 8192, packets: 1 << 19 }
    }
}

/// Follows all connections of a capture.
#[derive(Debug)]
pub struct Tracker {
    limits: Limits,
    directions: Directions,
    conversations: CmConversations,
    events: Vec<Event>,
}

impl Tracker {
    /// Remembers nothing yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            directions: Directions::new(limits.window),
            conversations: CmConversations::default(),
            events: Vec::new(),
        }
    }

    /// Takes a packet, and tells what is remarkable about it.
    pub fn packet(&mut self, seen: &SeenPacket<'_>) -> &[Event] {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        let opcode = seen.datagram.bth.opcode;
        if let Some(before) = self.other_transport(seen) {
            events.push(RequestEvent::OtherTransport { before }.into());
            if let Some(half) = self.directions.halves.get_mut(&seen.direction()) {
                half.requests.pass_over(seen.datagram.bth.psn);
            }
            self.events = events;
            return &self.events;
        }
        match opcode.transport() {
            Transport::Rc | Transport::Xrc if opcode.is_request() => {
                self.request(seen, &mut events)
            }
            Transport::Rc | Transport::Xrc => self.response(seen, &mut events),
            Transport::Uc => self.request(seen, &mut events),
            Transport::Ud => self.datagram(seen, &mut events),
            Transport::Rd | Transport::Cnp => {}
        }
        self.events = events;
        let Limits { directions, packets, .. } = self.limits;
        while self.directions.halves.len() > directions || self.directions.packets > packets {
            self.directions.forget_oldest();
        }
        &self.events
    }

    /// The other direction of a packet's connection, and how sure that is.
    pub fn other(&self, direction: &Direction) -> Option<(Direction, Joined)> {
        self.directions.halves.get(direction)?.other
    }

    /// The path MTU of a direction's requests in bytes, once the capture has shown it.
    pub fn path_mtu(&self, direction: &Direction) -> Option<usize> {
        self.directions.halves.get(direction)?.requests.mtu
    }

    /// Returns the conversations of connection managers.
    pub const fn conversations(&self) -> &CmConversations {
        &self.conversations
    }

    /// Directions and request packets remembered now.
    pub fn remembered(&self) -> (usize, usize) {
        (self.directions.halves.len(), self.directions.packets)
    }

    /// Directions forgotten so far, for want of room.
    pub const fn forgotten(&self) -> u64 {
        self.directions.forgotten
    }

    /// The transport of the connection that a request belongs to by its PSN and its sender's port,
    /// if its own is another.
    fn other_transport(&self, seen: &SeenPacket<'_>) -> Option<Transport> {
        let bth = &seen.datagram.bth;
        let half = self.directions.halves.get(&seen.direction())?;
        let before = half.requests.transport?;
        let is_other = before != bth.opcode.transport()
            && bth.opcode.is_request()
            && half.source_port == seen.source_port;
        (is_other && half.requests.is_near(bth.psn)).then_some(before)
    }

    fn request(&mut self, seen: &SeenPacket<'_>, out: &mut Vec<Event>) {
        let direction = seen.direction();
        let half = self.directions.touch(direction, seen);
        let half = match half.other {
            Some((other, _)) if half.requests.mtu.is_none() => {
                // Both sides have the same path MTU.
                let mtu = self.directions.halves.get(&other).and_then(|half| half.requests.mtu);
                let half = self.directions.touch(direction, seen);
                half.requests.mtu = mtu;
                half
            }
            _ => half,
        };
        let before = half.requests.records.len();
        let moved = half.source_port != seen.source_port;
        half.source_port = seen.source_port;
        half.is_over = false;
        let is_new = half.requests.request(seen, moved, out);
        let pkey = seen.datagram.bth.pkey;
        match half.pkey {
            Some(before) if !is_new && !moved && before.partition() != pkey.partition() => {
                out.push(RequestEvent::OtherPartition { before }.into());
            }
            _ => half.pkey = Some(pkey),
        }
        let after = half.requests.records.len();
        self.directions.packets = self.directions.packets + after - before;
        if is_new {
            self.directions.part(direction);
        }
    }

    fn response(&mut self, seen: &SeenPacket<'_>, out: &mut Vec<Event>) {
        let direction = seen.direction();
        self.directions.touch(direction, seen);
        let Some(other) = self.directions.assign(direction, seen, out) else { return };
        let Some(half) = self.directions.halves.get_mut(&other) else { return };
        half.last_seen = seen.number;
        // The checker has a rule of its own for P_Key 0.
        let partition = seen.datagram.bth.pkey.partition();
        let is_other = |before: &PKey| partition != 0 && partition != before.partition();
        if let Some(before) = half.pkey.filter(is_other) {
            out.push(RequestEvent::OtherPartition { before }.into());
        }
        let before = half.requests.records.len();
        half.requests.response(seen, out);
        let after = half.requests.records.len();
        self.directions.packets = self.directions.packets + after - before;
    }

    /// A datagram matters to connections when it is a connection manager's.
    fn datagram(&mut self, seen: &SeenPacket<'_>, out: &mut Vec<Event>) {
        let Some(Ok(message)) = Message::of(seen.datagram) else { return };
        let (_, beginnings) = self.conversations.message(seen, &message, out);
        let Some([there, here]) = beginnings else { return };
        self.begin(&there, seen);
        self.begin(&here, seen);
        self.directions.join(there.direction, here.direction, Joined::ByManagers);
    }

    fn begin(&mut self, beginning: &Beginning, seen: &SeenPacket<'_>) {
        let half = self.directions.touch(beginning.direction, seen);
        let before = half.requests.records.len();
        half.requests.begin(beginning);
        half.is_over = false;
        self.directions.packets -= before;
    }
}
