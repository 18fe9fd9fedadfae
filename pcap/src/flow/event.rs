//! Events: facts about a packet that follow from its connection.

use std::net::IpAddr;
use std::time::Duration;

use softroce::cm::{RejectReason, SidrStatus};
use softroce::ids::{PKey, Qpn};
use softroce::psn::Psn;
use softroce::wire::{Opcode, Position, Reth, SequenceError, Transport};

/// A fact about a packet that follows from its connection. A packet may have any number of events; a regular one has
/// none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Retransmissions, and missing requests.
    Sequence(SequenceEvent),
    /// Irregular requests.
    Request(RequestEvent),
    /// NAKs and RNR NAKs, and packets that contradict them.
    Nak(NakEvent),
    /// Irregular or missing acknowledgements and responses.
    Response(ResponseEvent),
    /// Irregular or missing READ responses.
    ReadResponse(ReadResponse),
    /// Messages of the connection managers.
    Cm(CmEvent),
}

/// Retransmissions, and missing requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SequenceEvent {
    /// A request with a PSN that was sent before.
    Retransmitted {
        /// First packet with this PSN, if the capture has it.
        original: Option<u64>,
        /// Cause of the retransmission.
        cause: Cause,
        /// The capture has an acknowledgement of the request, which was lost behind the point of capture or arrived
        /// too late.
        acknowledged: bool,
        /// The IPv4 identification or AckReq differs from the first, so the network has not duplicated the packet.
        anew: bool,
        /// The packet is the first that is retransmitted for this cause. Those behind it may have arrived, and follow
        /// because a requester goes back.
        begins_row: bool,
    },
    /// Requests that were not captured: `count` of them from `first` on.
    Hole {
        /// First missing PSN.
        first: Psn,
        /// Number of missing PSNs.
        count: u32,
    },
    /// A PSN out of range, or one that has another meaning now: another connection has the same numbers.
    Restarted {
        /// PSN that was expected next.
        expected: Psn,
    },
    /// A retransmission before the time that an RNR NAK named.
    TooEarly {
        /// Packet with the RNR NAK.
        rnr: u64,
        /// Time that the requester waited.
        waited: Duration,
        /// Time that the RNR NAK named.
        timer: Duration,
        /// The network has not duplicated the packet.
        certain: bool,
    },
}

impl From<SequenceEvent> for Event {
    fn from(event: SequenceEvent) -> Self {
        Self::Sequence(event)
    }
}

/// Irregular requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestEvent {
    /// An opcode that is not allowed at this place.
    Sequence(SequenceError),
    /// A request with a PSN of a READ response.
    InsideRead {
        /// PSN of the READ.
        first: Psn,
        /// Number of PSNs of the READ.
        count: u32,
    },
    /// A READ of the rest of an earlier one that names other memory.
    ResumedElsewhere {
        /// The expected RETH.
        expected: Reth,
    },
    /// A retransmission that differs from the original.
    Differs {
        /// Packet with the original.
        original: u64,
        /// Opcode of the original.
        opcode: Opcode,
        /// Payload length of the original.
        len: usize,
    },
    /// A retransmitted FLUSH with address 0.
    FlushWithoutAddress {
        /// Packet with the original.
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
        /// Path MTU of the other side.
        other: usize,
    },
    /// The packets of a WRITE add up to another length than its RETH says.
    WriteLength {
        /// Length in the RETH.
        announced: u32,
        /// Length of the packets.
        sent: u64,
    },
    /// A message that consumes a receive request, beyond the credits of the responder.
    BeyondCredits {
        /// Number of messages beyond the last allowed one.
        by: u32,
    },
    /// A packet of another transport service than those before. It causes no other event.
    OtherTransport {
        /// Transport service of the packets before.
        before: Transport,
    },
    /// A packet of another partition than those before.
    OtherPartition {
        /// P_Key of the packets before.
        before: PKey,
    },
    /// The last packet of a message, retransmitted without AckReq.
    AgainWithoutAckReq,
}

impl From<RequestEvent> for Event {
    fn from(event: RequestEvent) -> Self {
        Self::Request(event)
    }
}

/// NAKs and RNR NAKs, and packets that contradict them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NakEvent {
    /// A NAK for a missing packet.
    SequenceNak {
        /// Packet with the missing request, if the capture has it: it was lost behind the point of capture.
        captured: Option<u64>,
    },
    /// A second NAK for one gap.
    SequenceNakAgain {
        /// Packet with the first NAK.
        first: u64,
        /// No request is missing from the capture, and the NAK arrives too late for a copy made by the network.
        certain: bool,
    },
    /// A NAK for a packet that is not missing: the responder had sent an RNR NAK for it.
    SequenceNakAfterRnr {
        /// Packet with the RNR NAK.
        rnr: u64,
    },
    /// A NAK or RNR NAK for an acknowledged PSN.
    NakOfAcknowledged {
        /// Newest acknowledged PSN.
        newest: Psn,
        /// The MSN shows that the NAK was sent after the acknowledgement.
        certain: bool,
    },
    /// An RNR NAK.
    RnrNak {
        /// Request that the responder did not execute.
        request: Option<(Opcode, u64)>,
    },
    /// An RNR NAK for a request that consumes no receive request.
    RnrOfOther {
        /// Opcode of the request.
        request: Opcode,
    },
    /// A NAK that ends the connection.
    Refused {
        /// Request that the responder refused.
        request: Option<(Opcode, u64)>,
    },
    /// A NAK about memory for a request that names none.
    AccessNakOfSend {
        /// Opcode of the request.
        request: Opcode,
    },
    /// A response to a request after a NAK that ended the connection.
    AfterRefusal {
        /// Packet with the NAK.
        nak: u64,
        /// PSN of the NAK.
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

/// Irregular or missing acknowledgements and responses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponseEvent {
    /// A response to a request that was not captured.
    Ahead {
        /// PSN that the requester would have sent next.
        next: Psn,
    },
    /// An acknowledgement older than an earlier one.
    Older {
        /// Newest acknowledged PSN.
        newest: Psn,
        /// It is the response to a duplicate request.
        after_duplicate: bool,
    },
    /// An MSN that does not match the messages sent.
    Msn {
        /// Smallest matching MSN.
        low: u32,
        /// Largest matching MSN.
        high: u32,
        /// The MSN is above the largest, in a response that may be a repeated one: it may count requests missing from
        /// the capture.
        may_count_more: bool,
    },
    /// A response to no captured request between these hosts.
    Unasked,
    /// A response of the wrong kind.
    WrongAnswer {
        /// Opcode of the request.
        request: Opcode,
    },
    /// An acknowledgement of a request after a READ or atomic without a captured response.
    Unanswered {
        /// Opcode of the READ or atomic.
        request: Opcode,
        /// PSN of the READ or atomic.
        psn: Psn,
    },
    /// A syndrome other than an ACK where only an ACK is allowed.
    NotAnAck,
    /// A response of another connection than those before: the queue pair was connected again.
    OtherConnection {
        /// Queue pair of the responses before.
        before: Qpn,
    },
    /// The response to a READ follows the response to a later request, and the READ was not repeated.
    Overtaken {
        /// Packet with the response that came first.
        by: u64,
    },
    /// More READs and atomics were outstanding than the responder accepts, until this response to the oldest.
    TooManyOutstanding {
        /// Number of outstanding READs and atomics.
        count: usize,
        /// Packet with the newest of them.
        newest: u64,
        /// Number that the responder accepts.
        limit: usize,
    },
    /// A second response to an atomic, with another value.
    AtomicChanged {
        /// Packet with the first response.
        first: u64,
        /// Value in the first response.
        value: u64,
    },
}

impl From<ResponseEvent> for Event {
    fn from(event: ResponseEvent) -> Self {
        Self::Response(event)
    }
}

/// Irregular or missing READ responses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadResponse {
    /// The response has another position than its PSN has in the READ.
    Position {
        /// Position of the PSN.
        expected: Position,
    },
    /// The response has another length than its part of the READ.
    Length {
        /// Length of that part in bytes.
        expected: usize,
    },
    /// The response to a READ that was resumed in its middle is a MIDDLE or LAST.
    ResumedWithoutFirst,
    /// Responses are missing from the capture.
    Hole {
        /// First missing PSN.
        first: Psn,
        /// Number of missing PSNs.
        count: u32,
    },
    /// A repeated response, without a second request in the capture.
    Again,
    /// A repeated response with other data. The responder executes a repeated READ again, and memory may have
    /// changed: this is no violation.
    Changed {
        /// Packet with the first data.
        first: u64,
    },
}

impl From<ReadResponse> for Event {
    fn from(event: ReadResponse) -> Self {
        Self::ReadResponse(event)
    }
}

/// Messages of the connection managers: contradictions, rejections, delays and repetitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CmEvent {
    /// A message that was sent before.
    Repeated {
        /// Name of the message.
        name: &'static str,
        /// Packet with the first copy.
        packet: u64,
        /// Time since then.
        after: Duration,
        /// The contents are the same.
        is_equal: bool,
    },
    /// A REJ.
    Rejected {
        /// Packet with the rejected message.
        packet: u64,
        /// Reason.
        reason: RejectReason,
    },
    /// An MRA, which asks for time.
    Delayed {
        /// Packet with the message that will be answered later.
        packet: u64,
        /// Time until the answer, as an exponent of 4.096 µs.
        service_timeout: u8,
    },
    /// A SIDR_REP without a queue pair.
    Unresolved {
        /// Packet with the SIDR_REQ.
        packet: u64,
        /// Status.
        status: SidrStatus,
    },
    /// A second REP to a REQ, with another communication ID.
    SecondReply {
        /// Packet with the first REP.
        packet: u64,
    },
    /// A DREQ that names another queue pair than the connection has.
    OtherQp {
        /// Queue pair of the receiver.
        expected: Qpn,
        /// Queue pair in the DREQ.
        found: Qpn,
    },
    /// A REQ with other addresses than those of its IP header.
    OtherAddresses {
        /// Address of the sender in the REQ.
        source: IpAddr,
        /// Address of the receiver in the REQ.
        destination: IpAddr,
    },
    /// Addresses in the private data of a REQ in another form than rdma_cm's.
    IpHeader {
        /// Version of the form.
        version: u8,
        /// IP version.
        ip_version: u8,
    },
    /// A response with another transaction ID than its request.
    Transaction {
        /// Packet with the request.
        packet: u64,
        /// Transaction ID of the request.
        expected: u64,
        /// Transaction ID of the response.
        found: u64,
    },
    /// The REP announces more READs and atomics at once than the REQ allows.
    Depth {
        /// Packet with the REQ.
        packet: u64,
        /// Number that the REQ allows.
        allowed: u8,
        /// Number in the REP.
        found: u8,
    },
}

impl From<CmEvent> for Event {
    fn from(event: CmEvent) -> Self {
        Self::Cm(event)
    }
}

/// Cause of a retransmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A NAK for a missing packet.
    Nak {
        /// Packet with the NAK.
        packet: u64,
    },
    /// An RNR NAK.
    Rnr {
        /// Packet with the RNR NAK.
        packet: u64,
    },
    /// A later request was acknowledged, and this READ or atomic has no response.
    Implied {
        /// Packet with that acknowledgement.
        packet: u64,
    },
    /// The ACK timer of the requester expired.
    Timeout {
        /// Time since the requester's last packet; if it sends other requests meanwhile, since the last transmission of this
        /// one, or since the acknowledgement of those before it.
        waited: Duration,
    },
    /// The capture shows no cause; the network may have duplicated the packet.
    Unknown,
}
