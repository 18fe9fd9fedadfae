//! Connections in a capture: which packets belong together, and what each of them does there.
//!
//! A packet names only the queue pair it goes to. So what is known at first are *directions*, and a
//! connection is two of them:
//!
//! ```text
//!   A ──── to B, queue pair b: requests of A, answers to B ────▶ B
//!   A ◀─── to A, queue pair a: requests of B, answers to A ───── B
//! ```
//!
//! They are joined when one of them holds an answer to what the other asked ([`Joined`] says how sure
//! that is), or by the messages of the connection managers. From then on each packet is held against
//! what came before it, and what is worth telling becomes an [`Event`]. What follows from it is not
//! decided here: [`check`](crate::check) makes findings of it.
//!
//! What is remembered is bounded ([`Limits`]). What is forgotten is not judged.

mod answers;
mod event;
mod join;
mod managers;
mod read;
mod record;
mod requests;

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use softroce::ids::{PKey, Qpn};
use softroce::wire::cm::Message;
use softroce::wire::{Datagram, Transport};

use managers::{Beginning, Managers};
use requests::Requests;

pub use event::{Answering, Asking, Cause, Event, Managing, Refusal, Repetition};

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

/// A packet whose ICRC is not known to be bad.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its number in the capture.
    pub number: u64,
    /// When it was captured.
    pub time: Option<Duration>,
    /// Its sender.
    pub source: IpAddr,
    /// The sender's UDP port.
    pub source_port: u16,
    /// Its receiver.
    pub destination: IpAddr,
    /// The IPv4 identification, which a copy that the network makes has in common with its original.
    pub id: Option<u16>,
    /// What it says.
    pub datagram: &'a Datagram<'a>,
    /// A checksum of extension headers but AETH, and payload; `None` when some of it was not captured.
    pub digest: Option<u32>,
}

/// One direction: all packets from one address to one queue pair of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Direction {
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
    /// The receiver's queue pair.
    pub qp: Qpn,
}

impl Hash for Direction {
    /// Of fewer bytes than a derived one, which is felt at a million packets a second.
    fn hash<H: Hasher>(&self, state: &mut H) {
        for ip in [self.source, self.destination] {
            match ip {
                IpAddr::V4(ip) => state.write_u32(ip.to_bits()),
                IpAddr::V6(ip) => state.write_u128(ip.to_bits()),
            }
        }
        state.write_u32(self.qp.value());
    }
}

/// How sure it is that two directions are one connection, the surest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Joined {
    /// The connection managers said so.
    ByManagers,
    /// PSNs fit, and the UDP source port is the one that follows from both queue pair numbers.
    ByPorts,
    /// PSNs fit, and those of no other connection between the two addresses do.
    ByPsn,
}

/// Follows all connections of a capture.
#[derive(Debug)]
pub struct Tracker {
    limits: Limits,
    directions: HashMap<Direction, Half>,
    /// The directions from one address to another.
    between: HashMap<(IpAddr, IpAddr), Vec<Direction>>,
    managers: Managers,
    packets: usize,
    forgotten: u64,
    events: Vec<Event>,
}

/// What is known of a direction.
#[derive(Debug)]
struct Half {
    requests: Requests,
    other: Option<(Direction, Joined)>,
    /// Another direction has taken its place, and nothing was asked since.
    is_over: bool,
    /// The sender's, as this connection began.
    source_port: u16,
    last_seen: u64,
    /// The partition of the packets.
    pkey: Option<PKey>,
    /// Answers that could not be assigned; the search is repeated ever more rarely.
    unassigned: u32,
}

impl Tracker {
    /// Remembers nothing yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            directions: HashMap::new(),
            between: HashMap::new(),
            managers: Managers::default(),
            packets: 0,
            forgotten: 0,
            events: Vec::new(),
        }
    }

    /// Takes a packet, and tells what is remarkable about it.
    pub fn packet(&mut self, seen: &Seen<'_>) -> &[Event] {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        let opcode = seen.datagram.bth.opcode;
        if let Some(before) = self.other_transport(seen) {
            events.push(Asking::OtherTransport { before }.into());
            if let Some(half) = self.directions.get_mut(&seen.direction()) {
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
        while self.directions.len() > directions || self.packets > packets {
            self.forget();
        }
        &self.events
    }

    /// The other direction of a packet's connection, and how sure that is.
    pub fn other(&self, direction: &Direction) -> Option<(Direction, Joined)> {
        self.directions.get(direction)?.other
    }

    /// The path MTU of a direction's requests in bytes, once the capture has shown it.
    pub fn path_mtu(&self, direction: &Direction) -> Option<usize> {
        self.directions.get(direction)?.requests.mtu
    }

    /// Directions and request packets remembered now.
    pub fn remembered(&self) -> (usize, usize) {
        (self.directions.len(), self.packets)
    }

    /// Directions forgotten so far, for want of room.
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The transport of the connection that a request belongs to by its PSN and its sender's port,
    /// if its own is another.
    fn other_transport(&self, seen: &Seen<'_>) -> Option<Transport> {
        let bth = &seen.datagram.bth;
        let half = self.directions.get(&seen.direction())?;
        let before = half.requests.transport?;
        let is_other = before != bth.opcode.transport()
            && bth.opcode.is_request()
            && half.source_port == seen.source_port;
        (is_other && half.requests.is_near(bth.psn)).then_some(before)
    }

    fn request(&mut self, seen: &Seen<'_>, out: &mut Vec<Event>) {
        let direction = seen.direction();
        let half = self.touch(direction, seen);
        let half = match half.other {
            Some((other, _)) if half.requests.mtu.is_none() => {
                // Both sides have the same path MTU.
                let mtu = self.directions.get(&other).and_then(|half| half.requests.mtu);
                let half = self.touch(direction, seen);
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
            Some(before) if !is_new && !moved && (before.0 ^ pkey.0) & 0x7fff != 0 => {
                out.push(Asking::OtherPartition { before }.into());
            }
            _ => half.pkey = Some(pkey),
        }
        let after = half.requests.records.len();
        self.packets = self.packets + after - before;
        if is_new {
            self.part(direction);
        }
    }

    fn response(&mut self, seen: &Seen<'_>, out: &mut Vec<Event>) {
        let direction = seen.direction();
        self.touch(direction, seen);
        let Some(other) = self.assign(direction, seen, out) else { return };
        let Some(half) = self.directions.get_mut(&other) else { return };
        half.last_seen = seen.number;
        let before = half.requests.records.len();
        half.requests.response(seen, out);
        let after = half.requests.records.len();
        self.packets = self.packets + after - before;
    }

    /// A datagram matters to connections when it is a connection manager's.
    fn datagram(&mut self, seen: &Seen<'_>, out: &mut Vec<Event>) {
        let Some(Ok(message)) = Message::of(seen.datagram) else { return };
        let begun = self.managers.message(seen, &message, out);
        let Some([there, here]) = begun else { return };
        self.begin(&there, seen);
        self.begin(&here, seen);
        self.join(there.direction, here.direction, Joined::ByManagers);
    }

    fn begin(&mut self, beginning: &Beginning, seen: &Seen<'_>) {
        let half = self.touch(beginning.direction, seen);
        let before = half.requests.records.len();
        half.requests.begin(beginning);
        half.is_over = false;
        self.packets -= before;
    }

    /// What is known of a direction, which is seen now.
    fn touch(&mut self, direction: Direction, seen: &Seen<'_>) -> &mut Half {
        let between = &mut self.between;
        let half = self.directions.entry(direction).or_insert_with(|| {
            let pair = (direction.source, direction.destination);
            between.entry(pair).or_default().push(direction);
            Half {
                requests: Requests::new(self.limits.window),
                other: None,
                is_over: false,
                source_port: seen.source_port,
                last_seen: seen.number,
                pkey: None,
                unassigned: 0,
            }
        });
        half.last_seen = seen.number;
        half
    }

    /// Forgets the half of all directions that was seen longest ago.
    fn forget(&mut self) {
        let mut ages: Vec<_> = self.directions.values().map(|half| half.last_seen).collect();
        ages.sort_unstable();
        let Some(&middle) = ages.get(ages.len() / 2) else { return };
        let before = self.directions.len();
        self.directions.retain(|_, half| half.last_seen > middle);
        self.forgotten += u64::try_from(before - self.directions.len()).unwrap_or_default();
        self.packets = self.directions.values().map(|half| half.requests.records.len()).sum();
        let directions = &self.directions;
        self.between.retain(|_, list| {
            list.retain(|direction| directions.contains_key(direction));
            !list.is_empty()
        });
        let alone = |half: &Half| half.other.is_some_and(|(o, _)| !directions.contains_key(&o));
        let alone = directions.iter().filter(|(_, half)| alone(half)).map(|(key, _)| *key);
        for direction in alone.collect::<Vec<_>>() {
            if let Some(half) = self.directions.get_mut(&direction) {
                half.other = None;
            }
        }
    }
}

impl Seen<'_> {
    /// The direction it goes in.
    pub fn direction(&self) -> Direction {
        let qp = self.datagram.bth.dest_qp;
        Direction { source: self.source, destination: self.destination, qp }
    }
}
