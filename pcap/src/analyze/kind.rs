//! Kinds by which figures are told apart: of messages, NAKs, uses of time, and lines of a chart.

use softroce::wire::{NakCode, Opcode, Operation};

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

/// Uses of a requester's time. The time between two packets of a stream counts as the use that the
/// second packet ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
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

impl Phase {
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
            Self::Repeating => "retransmitting",
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
