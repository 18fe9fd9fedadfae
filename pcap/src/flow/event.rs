//! What tracking finds out about a packet.

use std::time::Duration;

use softroce::ids::{PKey, Qpn};
use softroce::psn::Psn;
use softroce::wire::{Opcode, Position, Reth, SequenceError, Transport};

/// Something about a packet that only its place in its connection shows. A packet may have any
/// number of them; one that is as it should be has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Packets that come again, or did not come.
    Sequence(SequenceEvent),
    /// Requests that are not what they should be.
    Request(RequestEvent),
    /// NAKs and RNR NAKs, and what goes against them.
    Nak(NakEvent),
    /// Acknowledgements and responses that are not what they should be, or are missing.
    Response(ResponseEvent),
    /// READ responses that are not what they should be, or are missing.
    ReadResponse(ReadResponse),
    /// Messages of the connection managers that do not fit one another.
    Cm(CmEvent),
}

/// Packets that come again, or did not come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SequenceEvent {
    /// A request with a PSN that was sent before.
    Retransmitted {
        /// The packet that had this PSN first, if the capture has it.
        original: Option<u64>,
        /// Why it was sent again.
        cause: Cause,
        /// The capture holds an acknowledgement of it: behind the point of capture that was lost,
        /// or came too late.
        acknowledged: bool,
        /// It has another IPv4 identification than the first: no copy that the network has made.
        anew: bool,
    },
    /// Requests that were not captured: `count` of them from `first` on.
    Hole {
        /// The first PSN that is missing.
        first: Psn,
        /// How many are.
        count: u32,
    },
    /// A PSN from elsewhere, or one that has another meaning now: another connection has the same
    /// numbers.
    Restarted {
        /// The PSN that would have come next.
        expected: Psn,
    },
    /// A retransmission before the time that an RNR NAK named.
    TooEarly {
        /// The packet with the RNR NAK.
        rnr: u64,
        /// How long the requester waited.
        waited: Duration,
        /// How long it had to.
        timer: Duration,
        /// It is no copy that the network has made.
        certain: bool,
    },
}

impl From<SequenceEvent> for Event {
    fn from(event: SequenceEvent) -> Self {
        Self::Sequence(event)
    }
}

/// Requests that are not what they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestEvent {
    /// An opcode that may not come here.
    Sequence(SequenceError),
    /// A request with a PSN of the answer to a READ.
    InsideRead {
        /// The READ's PSN.
        first: Psn,
        /// How many it takes.
        count: u32,
    },
    /// A READ that asks for the rest of an earlier one, and names other memory.
    ResumedElsewhere {
        /// What it should have named.
        expected: Reth,
    },
    /// A retransmission that is not what it repeats.
    Differs {
        /// The packet it repeats.
        original: u64,
        /// The opcode that had.
        opcode: Opcode,
        /// The payload bytes it had.
        len: usize,
    },
    /// A FLUSH sent again with address 0.
    FlushWithoutAddress {
        /// The packet it repeats.
        original: u64,
    },
    /// A FIRST or MIDDLE of another size than the path MTU.
    NotMtu {
        /// The path MTU, if the capture shows it.
        mtu: Option<usize>,
    },
    /// A LAST or ONLY larger than the path MTU.
    LongerThanMtu {
        /// The path MTU.
        mtu: usize,
    },
    /// The two sides use different path MTUs.
    OtherMtu {
        /// That of the other side.
        other: usize,
    },
    /// The packets of a WRITE hold more or less than its RETH says.
    WriteLength {
        /// What the RETH says.
        announced: u32,
        /// What came.
        sent: u64,
    },
    /// A message that takes a receive request, when the responder has told that there is none.
    BeyondCredits {
        /// Messages by which it is beyond the last that was allowed.
        by: u32,
    },
    /// A packet of another transport than those before it. It changes nothing else.
    OtherTransport {
        /// The transport of those before.
        before: Transport,
    },
    /// A packet of another partition than those before it.
    OtherPartition {
        /// The P_Key of those before.
        before: PKey,
    },
    /// The end of a message, sent again without a request to acknowledge it.
    AgainWithoutAckReq,
}

impl From<RequestEvent> for Event {
    fn from(event: RequestEvent) -> Self {
        Self::Request(event)
    }
}

/// NAKs and RNR NAKs, and what goes against them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NakEvent {
    /// A NAK that asks for a missing packet.
    SequenceNak {
        /// The request it asks for was captured: it was lost behind the point of capture.
        captured: Option<u64>,
    },
    /// A second NAK for one gap.
    SequenceNakAgain {
        /// The packet with the first.
        first: u64,
        /// Nothing in this direction is missing from the capture, and it comes too late for a copy
        /// that the network has made.
        certain: bool,
    },
    /// A NAK for a missing packet which is not missing: it met an RNR NAK.
    SequenceNakAfterRnr {
        /// The packet with the RNR NAK.
        rnr: u64,
    },
    /// A NAK or RNR NAK for what was acknowledged.
    NakOfAcknowledged {
        /// The newest that was acknowledged.
        newest: Psn,
        /// The MSN shows that the NAK is the later of the two.
        certain: bool,
    },
    /// An RNR NAK.
    RnrNak {
        /// What was refused for now.
        request: Option<(Opcode, u64)>,
    },
    /// An RNR NAK for a request that takes no receive request.
    RnrOfOther {
        /// What was refused.
        request: Opcode,
    },
    /// A NAK that ends the connection.
    Refused {
        /// What was refused.
        request: Option<(Opcode, u64)>,
    },
    /// A NAK about memory for a request that names none.
    AccessNakOfSend {
        /// What was refused.
        request: Opcode,
    },
    /// A request is answered after one before it was refused for good.
    AfterRefusal {
        /// The packet with the NAK.
        nak: u64,
        /// The PSN it refused.
        refused: Psn,
        /// The requests after the NAK show that there is no new connection with the same numbers.
        certain: bool,
    },
}

impl From<NakEvent> for Event {
    fn from(event: NakEvent) -> Self {
        Self::Nak(event)
    }
}

/// Acknowledgements and responses that are not what they should be, or are missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponseEvent {
    /// A response to a request that was not captured.
    Ahead {
        /// The PSN that the requester would have sent next.
        next: Psn,
    },
    /// An acknowledgement older than one that came before.
    Older {
        /// The newest that was acknowledged.
        newest: Psn,
        /// It answers a repeated request.
        after_duplicate: bool,
    },
    /// An MSN that does not fit the messages sent.
    Msn {
        /// The smallest that fits.
        low: u32,
        /// The largest.
        high: u32,
        /// It is above the largest, in a response that may have been sent again: it may count requests that the
        /// capture lacks.
        may_count_more: bool,
    },
    /// An answer to none of the requests that were captured between these hosts.
    Unasked,
    /// An answer of the wrong kind.
    WrongAnswer {
        /// What it answers.
        request: Opcode,
    },
    /// An acknowledgement of a later request than a READ or atomic without a captured answer.
    Unanswered {
        /// The READ or atomic.
        request: Opcode,
        /// Its PSN.
        psn: Psn,
    },
    /// A syndrome that is none of an ACK where only that may be.
    NotAnAck,
    /// An answer of another connection than those before: its queue pair is connected anew.
    OtherConnection {
        /// The queue pair that those before came from.
        before: Qpn,
    },
    /// The answer to a READ comes after the answer to a later request, and the READ was not
    /// repeated.
    Overtaken {
        /// The packet that was first.
        by: u64,
    },
    /// More READs and atomics were outstanding than the responder takes at once: until this answer
    /// to the oldest of them.
    TooManyOutstanding {
        /// How many.
        count: usize,
        /// The packet with the newest of them.
        newest: u64,
        /// How many may be.
        limit: usize,
    },
    /// An atomic answered a second time with another value.
    AtomicChanged {
        /// The packet with the first answer.
        first: u64,
        /// Its value.
        value: u64,
    },
}

impl From<ResponseEvent> for Event {
    fn from(event: ResponseEvent) -> Self {
        Self::Response(event)
    }
}

/// READ responses that are not what they should be, or are missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadResponse {
    /// The response has another position than its PSN has in the READ.
    Position {
        /// The position of its PSN.
        expected: Position,
    },
    /// The response has another length than its part of the READ.
    Length {
        /// The length of that part in bytes.
        expected: usize,
    },
    /// A READ that was resumed in its middle is answered with MIDDLE or LAST.
    ResumedWithoutFirst,
    /// Responses are missing from the capture.
    Hole {
        /// The PSN of the first.
        first: Psn,
        /// How many are missing.
        count: u32,
    },
    /// The response comes again, and the capture has no second request for it.
    Again,
    /// A repeated response has other data. The responder executes a repeated READ again, and its
    /// memory may have changed: this is no violation.
    Changed {
        /// The packet with the other data.
        first: u64,
    },
}

impl From<ReadResponse> for Event {
    fn from(event: ReadResponse) -> Self {
        Self::ReadResponse(event)
    }
}

/// Messages of the connection managers that do not fit one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CmEvent {
    /// An answer with another transaction than its question.
    Transaction {
        /// The packet with the question.
        packet: u64,
        /// The transaction of the question.
        expected: u64,
        /// That of the answer.
        found: u64,
    },
    /// The sender of a REP will issue more READs and atomics at once than the REQ allows.
    Depth {
        /// The packet with the REQ.
        packet: u64,
        /// What it allows.
        allowed: u8,
        /// What the REP says.
        found: u8,
    },
}

impl From<CmEvent> for Event {
    fn from(event: CmEvent) -> Self {
        Self::Cm(event)
    }
}

/// Why a request was sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A NAK asked for it.
    Nak {
        /// The packet with the NAK.
        packet: u64,
    },
    /// An RNR NAK put it off.
    Rnr {
        /// The packet with the RNR NAK.
        packet: u64,
    },
    /// A later request was answered and this READ or atomic was not.
    Implied {
        /// The packet with that answer.
        packet: u64,
    },
    /// Nothing was heard for so long.
    Timeout {
        /// Since the requester's last packet.
        waited: Duration,
    },
    /// The capture shows no reason. The network may have made two of one.
    Unknown,
}
