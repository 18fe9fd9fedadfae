//! Joins the two copies of each packet, in the order of sending.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use super::Alignment;
use super::fingerprint::Fingerprint;
use super::segment::ip_packet;
use super::survey::nanoseconds;
use crate::dissect::{Icrc, RocePacket, dissect};
use crate::file::Packet;

/// Bytes of packets that wait for their copy. When there are more, the oldest waits no longer.
pub const MAX_PENDING_BYTES: usize = 64 << 20;
/// Bytes that a pending packet takes besides its own.
const ENTRY_BYTES: usize = 512;
/// Pairs of hosts with counts of their own.
const MAX_PATHS: usize = 1024;

/// Way of a packet between two captures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Both captures have it.
    Arrived,
    /// Both captures have it, and the ICRC was right at the sender only.
    Damaged,
    /// The sender's capture alone has it.
    Lost,
    /// The receiver's capture alone has it: the sender's lacks it.
    MissedAtSender,
    /// The receiver's capture has it once more than the sender's.
    Duplicated,
    /// One capture does not cover its time or its hosts.
    Unknown,
}

/// Numbers of a packet in two captures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sighting {
    /// Number of the packet in each capture.
    pub numbers: [Option<u64>; 2],
    /// Way between the captures.
    pub fate: Fate,
}

/// A packet of one or of both captures.
#[derive(Clone, Debug)]
pub struct MergedPacket {
    /// Number in the merged capture, from 1.
    pub number: u64,
    /// Time at the sender's end, in the clock of the first capture, since the Unix epoch.
    pub time: Duration,
    /// Numbers in both captures.
    pub sighting: Sighting,
    /// The IP packet; of two copies the longer one.
    pub ip: Vec<u8>,
    /// Bytes of the whole IP packet.
    pub original_len: u32,
}

/// Number of packets from one host to another, by their way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathCounts {
    /// In both captures.
    pub arrived: u64,
    /// Of these, damaged on the way.
    pub damaged: u64,
    /// In the sender's capture alone.
    pub lost: u64,
    /// In the receiver's capture alone.
    pub missed_at_sender: u64,
    /// Copies made on the way.
    pub duplicated: u64,
    /// At times that one of the captures does not cover.
    pub not_covered: u64,
}

/// Merges two captures.
#[derive(Debug)]
pub struct Merger {
    alignment: Alignment,
    /// By the time of sending, and by a number that distinguishes equal times.
    pending: BTreeMap<(i64, u64), Pending>,
    /// Keys of pending packets by their fingerprint.
    by_fingerprint: HashMap<u64, Vec<(i64, u64)>>,
    pending_bytes: usize,
    added: u64,
    /// Newest time of each capture, in the clock of the first; `i64::MAX` at its end.
    read_up_to: [i64; 2],
    released: u64,
    paths: BTreeMap<(IpAddr, IpAddr), PathCounts>,
}

/// A packet that waits for its copy.
#[derive(Debug)]
struct Pending {
    fingerprint: u64,
    source: IpAddr,
    destination: IpAddr,
    /// Number, time and ICRC in each capture.
    copies: [Option<Captured>; 2],
    ip: Vec<u8>,
    original_len: u32,
    is_duplicate: bool,
}

/// A packet in one capture.
#[derive(Clone, Copy, Debug)]
struct Captured {
    number: u64,
    is_bad: bool,
}

impl Merger {
    /// Creates a merger without packets.
    pub fn new(alignment: Alignment) -> Self {
        Self {
            alignment,
            pending: BTreeMap::new(),
            by_fingerprint: HashMap::new(),
            pending_bytes: 0,
            added: 0,
            read_up_to: [i64::MIN; 2],
            released: 0,
            paths: BTreeMap::new(),
        }
    }

    /// Returns the capture, 0 or 1, to read next; `None` when both have ended.
    pub fn wants(&self) -> Option<usize> {
        let [first, second] = self.read_up_to;
        match (first, second) {
            (i64::MAX, i64::MAX) => None,
            _ => Some(usize::from(second < first)),
        }
    }

    /// Adds the next frame of a capture.
    pub fn packet(&mut self, capture: usize, packet: &Packet<'_>) {
        let Some(time) = packet.time.and_then(nanoseconds) else { return };
        let time = self.alignment.time(capture, time);
        if let Some(newest) = self.read_up_to.get_mut(capture) {
            *newest = time.max(*newest).min(i64::MAX - 1);
        }
        let Ok(ip) = packet.ip else { return };
        let Ok(Some(whole)) = dissect(ip) else { return };
        for roce in whole.segments() {
            self.add(capture, packet.number, time, ip, &roce);
        }
    }

    /// Ends a capture.
    pub fn end(&mut self, capture: usize) {
        if let Some(newest) = self.read_up_to.get_mut(capture) {
            *newest = i64::MAX;
        }
    }

    /// Returns the next packet that waits no longer.
    pub fn next_packet(&mut self) -> Option<MergedPacket> {
        let [first, second] = self.read_up_to;
        let wait = self.alignment.wait() + self.alignment.shortest();
        let (time, _) = *self.pending.first_key_value()?.0;
        let is_due = time.saturating_add(wait) < first.min(second);
        let is_whole = first == i64::MAX && second == i64::MAX;
        if !is_due && !is_whole && self.pending_bytes <= MAX_PENDING_BYTES {
            return None;
        }
        let (key, pending) = self.pending.pop_first()?;
        self.pending_bytes -= pending.ip.len() + ENTRY_BYTES;
        if let Some(keys) = self.by_fingerprint.get_mut(&pending.fingerprint) {
            keys.retain(|of| *of != key);
            if keys.is_empty() {
                self.by_fingerprint.remove(&pending.fingerprint);
            }
        }
        let fate = self.fate(time, &pending);
        self.count(&pending, fate);
        self.released += 1;
        Some(MergedPacket {
            number: self.released,
            time: Duration::from_nanos(time.max(0).unsigned_abs()),
            sighting: Sighting {
                numbers: pending.copies.map(|copy| copy.map(|copy| copy.number)),
                fate,
            },
            ip: pending.ip,
            original_len: pending.original_len,
        })
    }

    /// Returns how the captures relate.
    pub const fn alignment(&self) -> &Alignment {
        &self.alignment
    }

    /// Returns the number of packets from each host to each other, in the order of their addresses.
    pub fn paths(&self) -> impl Iterator<Item = ((IpAddr, IpAddr), &PathCounts)> {
        self.paths.iter().map(|(path, counts)| (*path, counts))
    }

    fn add(&mut self, capture: usize, number: u64, time: i64, ip: &[u8], roce: &RocePacket<'_>) {
        let is_bad = matches!(roce.icrc, Icrc::Bad { .. }) && !roce.is_flush_of_rxe();
        let copy = Captured { number, is_bad };
        let Some(fingerprint) = Fingerprint::of(roce) else { return };
        let Fingerprint { path, source, destination, .. } = fingerprint;
        let is_sender = self.alignment.end_of(source) == Some(capture);
        let is_receiver = self.alignment.end_of(source) == Some(1 - capture);
        // A packet is at its receiver later.
        let delay = if is_receiver { self.alignment.shortest() } else { 0 };
        let sent = time.saturating_sub(delay);
        let mut is_duplicate = false;
        if is_sender || is_receiver {
            match self.copy_of(capture, path, sent) {
                Some(key) => {
                    self.join(key, capture, copy, ip, roce);
                    if is_sender {
                        self.move_to(key, sent);
                    }
                    return;
                }
                None => is_duplicate = is_receiver && self.by_fingerprint.contains_key(&path),
            }
        }
        self.added += 1;
        let key = (sent, self.added);
        let mut copies = [None; 2];
        if let Some(place) = copies.get_mut(capture) {
            *place = Some(copy);
        }
        let ip = ip_packet(ip, roce);
        self.pending_bytes += ip.len() + ENTRY_BYTES;
        self.by_fingerprint.entry(path).or_default().push(key);
        let pending = Pending {
            fingerprint: path,
            source,
            destination,
            copies,
            original_len: original_len(&ip, roce),
            ip,
            is_duplicate,
        };
        self.pending.insert(key, pending);
    }

    /// Returns the key of the pending packet that is the copy of one in a capture: the nearest in time without a copy.
    fn copy_of(&self, capture: usize, fingerprint: u64, sent: i64) -> Option<(i64, u64)> {
        let keys = self.by_fingerprint.get(&fingerprint)?;
        let is_free = |key: &(i64, u64)| {
            let of_capture = |of: &Pending| of.copies.get(capture).is_some_and(Option::is_none);
            self.pending.get(key).is_some_and(of_capture)
        };
        let near = |key: &(i64, u64)| key.0.abs_diff(sent);
        let nearest = keys.iter().copied().filter(is_free).min_by_key(near)?;
        (near(&nearest) <= self.alignment.wait().unsigned_abs()).then_some(nearest)
    }

    fn join(
        &mut self,
        key: (i64, u64),
        capture: usize,
        copy: Captured,
        ip: &[u8],
        roce: &RocePacket<'_>,
    ) {
        let Some(pending) = self.pending.get_mut(&key) else { return };
        let is_sender = self.alignment.end_of(pending.source) == Some(capture);
        if let Some(place) = pending.copies.get_mut(capture) {
            *place = Some(copy);
        }
        // The sender's copy is not damaged; else the longer one is.
        let is_better =
            if copy.is_bad { false } else { roce.ip.payload.len() > pending_len(pending) };
        let other_is_bad =
            pending.copies.get(1 - capture).is_some_and(|of| of.is_some_and(|of| of.is_bad));
        if is_better || (is_sender && other_is_bad) {
            let better = ip_packet(ip, roce);
            self.pending_bytes = self.pending_bytes + better.len() - pending.ip.len();
            pending.ip = better;
        }
    }

    /// Moves a pending packet to the time at which its sender's capture has it.
    fn move_to(&mut self, key: (i64, u64), sent: i64) {
        let Some(pending) = self.pending.remove(&key) else { return };
        let moved = (sent, key.1);
        let keys = self.by_fingerprint.get_mut(&pending.fingerprint);
        if let Some(place) = keys.and_then(|keys| keys.iter_mut().find(|of| **of == key)) {
            *place = moved;
        }
        self.pending.insert(moved, pending);
    }

    fn fate(&self, time: i64, pending: &Pending) -> Fate {
        let ends = [pending.source, pending.destination].map(|host| self.alignment.end_of(host));
        let [Some(sender), Some(receiver)] = ends else { return Fate::Unknown };
        let copy = |end: usize| pending.copies.get(end).copied().flatten();
        match (copy(sender), copy(1 - sender)) {
            _ if sender == receiver => Fate::Unknown,
            (Some(sent), Some(arrived)) if arrived.is_bad && !sent.is_bad => Fate::Damaged,
            (Some(_), Some(_)) => Fate::Arrived,
            (None, Some(_)) if pending.is_duplicate => Fate::Duplicated,
            _ if !self.alignment.covers(time) => Fate::Unknown,
            (Some(_), None) => Fate::Lost,
            (None, _) => Fate::MissedAtSender,
        }
    }

    fn count(&mut self, pending: &Pending, fate: Fate) {
        let path = (pending.source, pending.destination);
        if self.paths.len() >= MAX_PATHS && !self.paths.contains_key(&path) {
            return;
        }
        let counts = self.paths.entry(path).or_default();
        let counter = match fate {
            Fate::Arrived => &mut counts.arrived,
            Fate::Damaged => {
                counts.damaged += 1;
                &mut counts.arrived
            }
            Fate::Lost => &mut counts.lost,
            Fate::MissedAtSender => &mut counts.missed_at_sender,
            Fate::Duplicated => &mut counts.duplicated,
            Fate::Unknown => &mut counts.not_covered,
        };
        *counter += 1;
    }
}

/// Returns the captured bytes of the UDP payload of a pending packet.
fn pending_len(pending: &Pending) -> usize {
    match dissect(&pending.ip) {
        Ok(Some(roce)) => roce.ip.payload.len(),
        _ => 0,
    }
}

/// Returns the length of the whole IP packet, of which the capture may have less.
fn original_len(ip: &[u8], roce: &RocePacket<'_>) -> u32 {
    let missing = roce.udp_len.saturating_sub(roce.ip.payload.len());
    u32::try_from(ip.len().saturating_add(missing)).unwrap_or(u32::MAX)
}
