//! What one queue pair asks of another, and what it is answered: the measures.

use std::collections::BTreeMap;
use std::sync::Arc;

use softroce::ids::Qpn;
use softroce::wire::{NakCode, Opcode, Operation, Transport};

use super::agreement::Agreement;
use super::progress::Progress;
use super::series::{Bins, Distribution, Trace};
use crate::flow::{Direction, Joined};

/// The requests in one direction, with the answers to them.
///
/// Times are in nanoseconds since the capture began. They are those of the place where it was made:
/// near the responder a latency is the responder's share of it.
#[derive(Debug)]
pub struct Stream {
    /// The requests' addresses, and the queue pair they go to.
    pub direction: Direction,
    /// The queue pair that asks, if the capture tells.
    pub from: Option<Qpn>,
    /// The transport service.
    pub transport: Transport,
    /// How the requests and the answers were found to belong together.
    pub joined: Option<Joined>,
    /// What the connection managers said of it.
    pub agreement: Option<Arc<Agreement>>,
    /// The path MTU in bytes, if the capture shows it.
    pub mtu: Option<usize>,
    /// When its first packet came.
    pub first: u64,
    /// When its last did.
    pub last: u64,
    /// Request packets, also those that came again.
    pub requests: u64,
    /// Answers.
    pub answers: u64,
    /// Bytes of payload, each counted once: of requests, and of the answers to READs.
    pub bytes: u64,
    /// Of these, what the answers show to have arrived; where nobody answers, all.
    pub delivered: u64,
    /// Messages by what they do.
    pub operations: BTreeMap<Kind, Messages>,
    /// From a request that asked for nothing but an acknowledgement to that.
    pub ack_rtt: Distribution,
    /// Bytes in flight while something was, weighted by time: payload that is not acknowledged, and
    /// READ answers that were asked for.
    pub in_flight: Distribution,
    /// The same in packets, as PSNs count them.
    pub in_flight_packets: Distribution,
    /// Request packets that came again.
    pub again: Again,
    /// NAKs by their code, RNR NAKs not among them.
    pub naks: BTreeMap<Nak, u64>,
    /// Waiting that RNR NAKs asked for.
    pub rnr: Waits,
    /// Waiting that a timer ended.
    pub timeouts: Waits,
    /// What got lost, or was not captured.
    pub missing: Missing,
    /// Requests that others have overtaken.
    pub out_of_order: u64,
    /// Requests of which the network has made two, or that came twice in a row from who numbers no datagram.
    pub duplicates: u64,
    /// Congestion notifications to the requester.
    pub cnps: u64,
    /// Packets, in either direction, that a router has marked (ECN, congestion experienced).
    pub ecn_marked: u64,
    /// How its time was spent, by [`Doing::ALL`]; nothing where nobody answers.
    pub spent: [u64; Doing::ALL.len()],
    /// Requests that were not acknowledged at the end.
    pub unacknowledged: u64,
    /// The NAK that ended it, and when it came.
    pub refused: Option<(Nak, u64)>,
    /// Points over time, by [`Line::ALL`].
    pub traces: [Trace; Line::ALL.len()],
    /// Bytes of payload over time, of requests and of the answers to READs, repeated ones included.
    pub carried_over_time: Bins,
    /// Bytes delivered over time.
    pub delivered_over_time: Bins,
    /// The most bytes in flight over time.
    pub in_flight_over_time: Bins,
    pub(super) progress: Progress,
}

/// Messages that do the same.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    /// How many began and ended.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many carried immediate data.
    pub with_immediate: u64,
    /// How many have this size, for the first [`Messages::SIZES`] sizes that there are.
    pub sizes: BTreeMap<u64, u64>,
    /// How many have another size, or one that the capture does not show.
    pub other_sizes: u64,
    /// From the first packet to the acknowledgement of the last, or to the end of the answer.
    pub latency: Distribution,
}

impl Messages {
    /// Sizes that are counted one by one.
    pub const SIZES: usize = 16;

    /// Adds others that do the same.
    pub fn merge(&mut self, other: &Self) {
        let Self { messages, bytes, with_immediate, sizes, other_sizes, latency } = other;
        self.messages += messages;
        self.bytes = self.bytes.saturating_add(*bytes);
        self.with_immediate += with_immediate;
        self.other_sizes += other_sizes;
        sizes.iter().for_each(|(size, count)| self.count_size(*size, *count));
        self.latency.merge(latency);
    }

    pub(super) fn count(&mut self, size: Option<u64>, immediate: bool) {
        self.messages += 1;
        self.with_immediate += u64::from(immediate);
        let Some(size) = size else {
            self.other_sizes += 1;
            return;
        };
        self.bytes = self.bytes.saturating_add(size);
        self.count_size(size, 1);
    }

    fn count_size(&mut self, size: u64, times: u64) {
        let room = self.sizes.len() < Self::SIZES;
        match self.sizes.get_mut(&size) {
            Some(count) => *count += times,
            None if room => drop(self.sizes.insert(size, times)),
            None => self.other_sizes += times,
        }
    }
}

/// Request packets that came again, by why; see [`Cause`](crate::flow::Cause).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Again {
    /// A NAK asked for them.
    pub by_nak: u64,
    /// An RNR NAK put them off.
    pub by_rnr: u64,
    /// A timer ran out.
    pub by_timeout: u64,
    /// A later answer came, and not that of a READ or atomic.
    pub implied: u64,
    /// The capture does not show why.
    pub unexplained: u64,
    /// Of all these, what had been acknowledged already.
    pub spurious: u64,
    /// Bytes of payload that came again.
    pub bytes: u64,
    /// Answers to READs that came again.
    pub responses: u64,
}

impl Again {
    /// Request packets, whatever the cause.
    pub const fn total(&self) -> u64 {
        self.by_nak + self.by_rnr + self.by_timeout + self.implied + self.unexplained
    }
}

/// Times in which a requester waited for the same reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waits {
    /// How many reasons there were.
    pub count: u64,
    /// How many of the waits ended.
    pub ended: u64,
    /// How long those were together, in nanoseconds.
    pub total: u64,
    /// The longest of them.
    pub longest: u64,
}

impl Waits {
    pub(super) fn end(&mut self, waited: u64) {
        self.ended += 1;
        self.total = self.total.saturating_add(waited);
        self.longest = self.longest.max(waited);
    }
}

/// Packets that are not in the capture, or did not get where they were to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Missing {
    /// Requests whose PSN was skipped when its turn came.
    pub holes: u64,
    /// Of these, what came later: overtaken, or sent again.
    pub filled: u64,
    /// NAKs for a request that the capture has: it was lost behind the point of capture.
    pub lost_behind: u64,
    /// NAKs for one that it has not.
    pub lost_before: u64,
    /// Answers to READs that were skipped.
    pub responses: u64,
}

impl Missing {
    /// Requests that were never captured.
    pub const fn never(&self) -> u64 {
        self.holes.saturating_sub(self.filled)
    }
}

/// What a message does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A message into a receive request.
    Send,
    /// Into memory.
    Write,
    /// Out of memory.
    Read,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// Makes earlier WRITEs visible.
    Flush,
    /// Eight bytes at once.
    AtomicWrite,
}

impl Kind {
    /// What requests of this opcode do; `None` for what is no request.
    pub const fn of(opcode: Opcode) -> Option<Self> {
        Some(match opcode.operation() {
            Operation::Send => Self::Send,
            Operation::Write => Self::Write,
            Operation::ReadRequest => Self::Read,
            Operation::CompareSwap => Self::CompareSwap,
            Operation::FetchAdd => Self::FetchAdd,
            Operation::Flush => Self::Flush,
            Operation::AtomicWrite => Self::AtomicWrite,
            _ => return None,
        })
    }

    /// As the specification has it: `COMPARE_SWAP`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "SEND",
            Self::Write => "WRITE",
            Self::Read => "READ",
            Self::CompareSwap => "COMPARE_SWAP",
            Self::FetchAdd => "FETCH_ADD",
            Self::Flush => "FLUSH",
            Self::AtomicWrite => "ATOMIC_WRITE",
        }
    }
}

/// What a NAK says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Nak {
    /// A packet is missing.
    Sequence,
    /// The request is against the rules, or not supported.
    InvalidRequest,
    /// Key, range or permission is wrong.
    RemoteAccess,
    /// The responder could not do it.
    RemoteOperational,
    /// A code that does not belong here.
    Other,
}

impl Nak {
    pub(super) const fn of(code: NakCode) -> Self {
        match code {
            NakCode::PsnSequence => Self::Sequence,
            NakCode::InvalidRequest => Self::InvalidRequest,
            NakCode::RemoteAccess => Self::RemoteAccess,
            NakCode::RemoteOperational => Self::RemoteOperational,
            NakCode::InvalidRdRequest | NakCode::Reserved(_) => Self::Other,
        }
    }

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequence => "sequence",
            Self::InvalidRequest => "invalid request",
            Self::RemoteAccess => "remote access",
            Self::RemoteOperational => "remote operational",
            Self::Other => "other",
        }
    }
}

/// What a requester's time goes into. The time between two packets of a stream is put down to the
/// second: what it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    /// New requests went out, while others were under way.
    Sending,
    /// Answers to READs came in.
    Receiving,
    /// Something was under way, and its answer ended the wait.
    Waiting,
    /// Nothing was under way: a new request ended that.
    Idle,
    /// Requests went out again.
    Repeating,
    /// A timer had to run out.
    Timeout,
    /// An RNR NAK was heeded.
    Rnr,
}

impl Doing {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Sending,
        Self::Receiving,
        Self::Waiting,
        Self::Idle,
        Self::Repeating,
        Self::Timeout,
        Self::Rnr,
    ];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sending => "sending",
            Self::Receiving => "receiving",
            Self::Waiting => "waiting for answers",
            Self::Idle => "nothing under way",
            Self::Repeating => "sending again",
            Self::Timeout => "timeouts",
            Self::Rnr => "receiver not ready",
        }
    }
}

/// Which points a trace has. The first ones have PSNs as values, unwrapped: each time they wrap,
/// 2^24 is added. They begin in the second turn, so that what is older than the first has a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    /// Requests sent the first time.
    Sent,
    /// READ requests, from the first to the last PSN of their answer.
    Read,
    /// Sent again for a NAK, or for an answer that was not whole.
    AgainNak,
    /// Sent again after a timeout.
    AgainTimeout,
    /// Sent again after an RNR NAK.
    AgainRnr,
    /// Sent again for no reason that was captured.
    AgainOther,
    /// Overtaken, or copies that the network has made.
    Astray,
    /// The PSN before which everything is acknowledged.
    Acknowledged,
    /// Answers to READs.
    Response,
    /// NAKs.
    Nak,
    /// RNR NAKs.
    Rnr,
    /// Congestion notifications, at the newest PSN.
    Cnp,
    /// Packets marked by a router, at the newest PSN.
    Marked,
    /// Waits that a timeout ended, each from its beginning to its end in nanoseconds.
    WaitTimeout,
    /// Waits that an RNR NAK asked for.
    WaitRnr,
    /// Nanoseconds from a message's first packet to its end.
    Latency,
    /// Nanoseconds from a request to its acknowledgement.
    AckRtt,
    /// Bytes in flight.
    InFlight,
}

impl Line {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 18] = [
        Self::Sent,
        Self::Read,
        Self::AgainNak,
        Self::AgainTimeout,
        Self::AgainRnr,
        Self::AgainOther,
        Self::Astray,
        Self::Acknowledged,
        Self::Response,
        Self::Nak,
        Self::Rnr,
        Self::Cnp,
        Self::Marked,
        Self::WaitTimeout,
        Self::WaitRnr,
        Self::Latency,
        Self::AckRtt,
        Self::InFlight,
    ];

    /// In lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Read => "read",
            Self::AgainNak => "again_nak",
            Self::AgainTimeout => "again_timeout",
            Self::AgainRnr => "again_rnr",
            Self::AgainOther => "again_other",
            Self::Astray => "astray",
            Self::Acknowledged => "acknowledged",
            Self::Response => "response",
            Self::Nak => "nak",
            Self::Rnr => "rnr",
            Self::Cnp => "cnp",
            Self::Marked => "marked",
            Self::WaitTimeout => "wait_timeout",
            Self::WaitRnr => "wait_rnr",
            Self::Latency => "latency",
            Self::AckRtt => "ack_rtt",
            Self::InFlight => "in_flight",
        }
    }
}

impl Stream {
    pub(super) fn new(direction: Direction, transport: Transport, now: u64) -> Self {
        Self {
            direction,
            from: None,
            transport,
            joined: None,
            agreement: None,
            mtu: None,
            first: now,
            last: now,
            requests: 0,
            answers: 0,
            bytes: 0,
            delivered: 0,
            operations: BTreeMap::new(),
            ack_rtt: Distribution::default(),
            in_flight: Distribution::default(),
            in_flight_packets: Distribution::default(),
            again: Again::default(),
            naks: BTreeMap::new(),
            rnr: Waits::default(),
            timeouts: Waits::default(),
            missing: Missing::default(),
            out_of_order: 0,
            duplicates: 0,
            cnps: 0,
            ecn_marked: 0,
            spent: [0; Doing::ALL.len()],
            unacknowledged: 0,
            refused: None,
            traces: std::array::from_fn(|_| Trace::default()),
            carried_over_time: Bins::sums(now),
            delivered_over_time: Bins::sums(now),
            in_flight_over_time: Bins::highest(now),
            progress: Progress::new(now),
        }
    }

    /// From its first packet to its last, in nanoseconds.
    pub const fn duration(&self) -> u64 {
        self.last.saturating_sub(self.first)
    }

    /// Its time that went into this.
    pub const fn spent(&self, doing: Doing) -> u64 {
        self.spent[doing as usize]
    }

    /// What arrived over time, as far as can be told: see [`Stream::delivered`].
    pub const fn arrived_over_time(&self) -> &Bins {
        if self.answers > 0 || !self.is_reliable() {
            &self.delivered_over_time
        } else {
            &self.carried_over_time
        }
    }

    /// The points of this kind.
    pub const fn trace(&self, line: Line) -> &Trace {
        &self.traces[line as usize]
    }

    /// Whether its requests are acknowledged.
    pub const fn is_reliable(&self) -> bool {
        matches!(self.transport, Transport::Rc | Transport::Xrc)
    }
}
