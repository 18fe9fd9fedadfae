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
mod record;
mod requests;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use softroce::ids::{Mtu, Qpn};
use softroce::net;
use softroce::psn::Psn;
use softroce::wire::cm::{Body, CommId, Message, Rep, Req};
use softroce::wire::{Datagram, Transport};

use requests::Requests;

pub use event::{Answering, Asking, Cause, Event, Refusal, Repetition};

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
    /// What fits 160 MiB: a packet takes 64 bytes, twice that while the list of them grows, a
    /// direction with all the READs and atomics that it remembers 24 KiB.
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
    /// A checksum of extension headers and payload; `None` when some of it was not captured.
    pub digest: Option<u32>,
}

/// One direction: all packets from one address to one queue pair of another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Direction {
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
    /// The receiver's queue pair.
    pub qp: Qpn,
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
    /// Connections that are being made.
    offers: VecDeque<Offer>,
    packets: usize,
    forgotten: u64,
    events: Vec<Event>,
}

/// What is known of a direction.
#[derive(Debug)]
struct Half {
    requests: Requests,
    other: Option<(Direction, Joined)>,
    source_port: u16,
    last_seen: u64,
    /// Answers that could not be assigned; the search is repeated ever more rarely.
    unassigned: u32,
}

/// What a REQ says.
#[derive(Clone, Copy, Debug)]
struct Offer {
    from: IpAddr,
    to: IpAddr,
    id: CommId,
    qp: Qpn,
    /// The PSN that the other side shall begin with.
    psn: Psn,
    mtu: Option<Mtu>,
}

/// Connections being made that are remembered.
const OFFERS: usize = 1024;
/// Directions that are looked at to find the one that an answer belongs to.
const CANDIDATES: usize = 256;

impl Tracker {
    /// Remembers nothing yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            directions: HashMap::new(),
            between: HashMap::new(),
            offers: VecDeque::new(),
            packets: 0,
            forgotten: 0,
            events: Vec::new(),
        }
    }

    /// Takes a packet, and tells what is remarkable about it.
    pub fn packet(&mut self, seen: &Seen<'_>) -> &[Event] {
        self.events.clear();
        let opcode = seen.datagram.bth.opcode;
        match opcode.transport() {
            Transport::Rc | Transport::Xrc if opcode.is_request() => self.request(seen),
            Transport::Rc | Transport::Xrc => self.response(seen),
            Transport::Uc => self.request(seen),
            Transport::Ud => self.datagram(seen),
            Transport::Rd | Transport::Cnp => {}
        }
        &self.events
    }

    /// The other direction of a packet's connection, and how sure that is.
    pub fn other(&self, direction: &Direction) -> Option<(Direction, Joined)> {
        self.directions.get(direction)?.other
    }

    /// Directions and request packets remembered now.
    pub fn remembered(&self) -> (usize, usize) {
        (self.directions.len(), self.packets)
    }

    /// Directions forgotten so far, for want of room.
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn request(&mut self, seen: &Seen<'_>) {
        let direction = seen.direction();
        self.touch(direction, seen);
        let other_mtu = self.mtu_of_other(&direction);
        let Some(half) = self.directions.get_mut(&direction) else { return };
        let before = half.requests.records.len();
        half.requests.mtu = half.requests.mtu.or(other_mtu);
        half.requests.request(seen, &mut self.events);
        self.packets = self.packets + half.requests.records.len() - before;
        while self.packets > self.limits.packets {
            self.forget();
        }
    }

    /// Both sides have the same path MTU, if they are one connection beyond doubt.
    fn mtu_of_other(&self, direction: &Direction) -> Option<usize> {
        let (other, _) = self.directions.get(direction)?.other?;
        self.directions.get(&other)?.requests.mtu
    }

    fn response(&mut self, seen: &Seen<'_>) {
        let direction = seen.direction();
        self.touch(direction, seen);
        let Some(other) = self.assign(direction, seen) else { return };
        let Some(half) = self.directions.get_mut(&other) else { return };
        half.last_seen = seen.number;
        half.requests.response(seen, &mut self.events);
    }

    /// The direction whose requests a packet in `direction` answers.
    fn assign(&mut self, direction: Direction, seen: &Seen<'_>) -> Option<Direction> {
        let half = self.directions.get(&direction)?;
        if let Some((other, _)) = half.other {
            return Some(other);
        }
        // One in 1, 2, 4, 8, … searches, so that a stranger's answers cost little.
        let search = half.unassigned.is_power_of_two() || half.unassigned == 0;
        let found = if search { self.search(direction, seen) } else { None };
        let half = self.directions.get_mut(&direction)?;
        match found {
            Some((other, joined)) => {
                half.other = Some((other, joined));
                self.directions.get_mut(&other)?.other = Some((direction, joined));
                Some(other)
            }
            None => {
                half.unassigned = half.unassigned.saturating_add(1);
                None
            }
        }
    }

    /// The one direction that asked what `seen` answers, if it is only one.
    fn search(&self, direction: Direction, seen: &Seen<'_>) -> Option<(Direction, Joined)> {
        let back = self.between.get(&(direction.destination, direction.source))?;
        let psn = seen.datagram.bth.psn;
        let mut fitting = back.iter().rev().take(CANDIDATES).filter_map(|candidate| {
            let half = self.directions.get(candidate)?;
            let free = half.other.is_none() && *candidate != direction;
            let fits = half.requests.may_answer(psn) || half.requests.next == Some(psn);
            let port = net::source_port(0, direction.qp, candidate.qp);
            (free && fits)
                .then_some((*candidate, port == half.source_port || port == seen.source_port))
        });
        let first = fitting.next()?;
        let Some(second) = fitting.next() else {
            let joined = if first.1 { Joined::ByPorts } else { Joined::ByPsn };
            return Some((first.0, joined));
        };
        let mut by_port = [first, second].into_iter().chain(fitting).filter(|found| found.1);
        let only = by_port.next()?;
        by_port.next().is_none().then_some((only.0, Joined::ByPorts))
    }

    /// A datagram matters to connections when it is a connection manager's.
    fn datagram(&mut self, seen: &Seen<'_>) {
        match Message::of(seen.datagram) {
            Some(Ok(Message { body: Body::Req(req), .. })) => self.offer(seen, &req),
            Some(Ok(Message { body: Body::Rep(rep), .. })) => self.accept(seen, &rep),
            _ => {}
        }
    }

    fn offer(&mut self, seen: &Seen<'_>, req: &Req) {
        self.offers.push_back(Offer {
            from: seen.source,
            to: seen.destination,
            id: req.local_id,
            qp: req.qpn,
            psn: req.starting_psn,
            mtu: req.path_mtu,
        });
        if self.offers.len() > OFFERS {
            self.offers.pop_front();
        }
    }

    /// A REP: with its REQ it tells both queue pairs and where their PSNs begin.
    fn accept(&mut self, seen: &Seen<'_>, rep: &Rep) {
        let (from, back) = (seen.destination, seen.source);
        let of =
            |offer: &Offer| offer.from == from && offer.to == back && offer.id == rep.remote_id;
        let Some(at) = self.offers.iter().position(of) else { return };
        let Some(offer) = self.offers.remove(at) else { return };
        let there = Direction { source: from, destination: back, qp: rep.qpn };
        let here = Direction { source: back, destination: from, qp: offer.qp };
        let ways = [(there, here, rep.starting_psn), (here, there, offer.psn)];
        for (direction, other, first) in ways {
            self.begin(direction, other, first, offer.mtu, seen);
        }
    }

    fn begin(
        &mut self,
        direction: Direction,
        other: Direction,
        first: Psn,
        mtu: Option<Mtu>,
        seen: &Seen<'_>,
    ) {
        self.touch(direction, seen);
        let Some(half) = self.directions.get_mut(&direction) else { return };
        self.packets -= half.requests.records.len();
        half.requests.begin(first, mtu);
        half.other = Some((other, Joined::ByManagers));
    }

    /// Notes that a direction is there.
    fn touch(&mut self, direction: Direction, seen: &Seen<'_>) {
        if let Some(half) = self.directions.get_mut(&direction) {
            half.last_seen = seen.number;
            return;
        }
        if self.directions.len() >= self.limits.directions {
            self.forget();
        }
        let half = Half {
            requests: Requests::new(self.limits.window),
            other: None,
            source_port: seen.source_port,
            last_seen: seen.number,
            unassigned: 0,
        };
        self.directions.insert(direction, half);
        let pair = (direction.source, direction.destination);
        self.between.entry(pair).or_default().push(direction);
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
