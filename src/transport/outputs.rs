//! What an engine has to tell: completions, asynchronous events, and its counters.

use std::collections::VecDeque;

use crate::ids::{CqId, Qpn, Srqn};
use crate::transport::work::Completion;

/// Something happened that no work request's completion tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_async_event")]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A completion queue was full when a completion came; its queue pairs fail.
    #[doc(alias = "IBV_EVENT_CQ_ERR")]
    CqErr(CqId),
    /// The queue pair failed for a reason of its own.
    #[doc(alias = "IBV_EVENT_QP_FATAL")]
    QpFatal(Qpn),
    /// The peer sent what is no valid request, and no receive request tells of it.
    #[doc(alias = "IBV_EVENT_QP_REQ_ERR")]
    QpReqErr(Qpn),
    /// The peer tried what it may not, and no receive request tells of it.
    #[doc(alias = "IBV_EVENT_QP_ACCESS_ERR")]
    QpAccessErr(Qpn),
    /// The first packet arrived while the queue pair was in RTR.
    #[doc(alias = "IBV_EVENT_COMM_EST")]
    CommEst(Qpn),
    /// An interface has got the device's address, or has lost it: the GID is one again, or is none.
    #[doc(alias = "IBV_EVENT_GID_CHANGE")]
    GidChange,
    /// The device's interface has the address and carries packets, which was not so before.
    #[doc(alias = "IBV_EVENT_PORT_ACTIVE")]
    PortActive,
    /// The device's interface carries no packets any more, or has lost the address.
    #[doc(alias = "IBV_EVENT_PORT_ERR")]
    PortErr,
    /// Everything started before SQD is complete.
    #[doc(alias = "IBV_EVENT_SQ_DRAINED")]
    SqDrained(Qpn),
    /// The shared receive queue has failed, for its completion queue has: queue pairs that it is named to
    /// fail too.
    #[doc(alias = "IBV_EVENT_SRQ_ERR")]
    SrqErr(Srqn),
    /// Fewer receive requests are left than the limit that `modify` has set, which is off now.
    #[doc(alias = "IBV_EVENT_SRQ_LIMIT_REACHED")]
    SrqLimitReached(Srqn),
    /// The queue pair has failed, and takes no more receive requests from its shared queue: the last
    /// that it had taken is complete.
    #[doc(alias = "IBV_EVENT_QP_LAST_WQE_REACHED")]
    QpLastWqeReached(Qpn),
}

/// Completions and events on their way out, in order.
///
/// Bounded by the queues: a work request completes once, a queue pair fails once, and a limit is
/// reached once for each time it is set.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    pub(crate) completions: VecDeque<(CqId, Completion)>,
    pub(crate) events: VecDeque<AsyncEvent>,
    pub(crate) shortage: Shortage,
}

/// How near UC and UD are to losing messages for want of receive requests.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// Receive requests taken since one was posted.
    taken: u32,
    /// Receive requests that were left when the last was taken.
    left: usize,
}

impl Shortage {
    /// A stream takes so many one after the other.
    const STREAM: u32 = 64;

    /// What a few batches of datagrams take.
    const FEW: usize = 512;

    /// One was taken, and so many are left.
    pub(crate) fn take(&mut self, left: usize) {
        self.taken = self.taken.saturating_add(1);
        self.left = left;
    }

    /// One was posted.
    pub(crate) fn post(&mut self) {
        self.taken = 0;
    }

    /// Whether a stream of messages uses up the last of them.
    pub(crate) fn is_near(&self) -> bool {
        self.taken >= Self::STREAM && self.left < Self::FEW
    }
}

/// Why a received packet went no further. Every drop is counted under one of these.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum DropReason {
    /// The bytes are no packet.
    Malformed,
    /// The transport version is not 0.
    TransportVersion,
    /// The opcode is not assigned.
    UnassignedOpcode,
    /// No such queue pair.
    UnknownQp,
    /// The opcode belongs to another transport than the queue pair's, or to the half that an XRC queue
    /// pair does not have.
    WrongTransport,
    /// The queue pair's state takes no such packet.
    QpState,
    /// It comes from, or goes to, an address that is not the connection's.
    WrongAddress,
    /// The partition keys do not match.
    PKeyMismatch,
    /// The ICRC is wrong.
    BadIcrc,
    /// A request ahead of the expected one, after the NAK for that gap. UC: the rest of a message of
    /// which a packet is missing.
    OutOfSequence,
    /// A repeated request whose answer is no longer remembered. UC: any repeated packet.
    StaleDuplicate,
    /// A response to nothing outstanding.
    Ghost,
    /// A READ response with others missing before it.
    ResponseAhead,
    /// UC and UD: no receive request for the message.
    NoReceive,
    /// UC and UD: the message is not allowed, or does not fit.
    Refused,
    /// UD: the queue key is not the queue pair's.
    QKeyMismatch,
    /// Sent to a multicast group that no queue pair here is attached to.
    NoMember,
}

impl DropReason {
    /// Every reason, in order.
    pub const ALL: [Self; 17] = [
        Self::Malformed,
        Self::TransportVersion,
        Self::UnassignedOpcode,
        Self::UnknownQp,
        Self::WrongTransport,
        Self::QpState,
        Self::WrongAddress,
        Self::PKeyMismatch,
        Self::BadIcrc,
        Self::OutOfSequence,
        Self::StaleDuplicate,
        Self::Ghost,
        Self::ResponseAhead,
        Self::NoReceive,
        Self::Refused,
        Self::QKeyMismatch,
        Self::NoMember,
    ];

    /// The name of its counter: `drop_bad_icrc`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "drop_malformed",
            Self::TransportVersion => "drop_transport_version",
            Self::UnassignedOpcode => "drop_unassigned_opcode",
            Self::UnknownQp => "drop_unknown_qp",
            Self::WrongTransport => "drop_wrong_transport",
            Self::QpState => "drop_qp_state",
            Self::WrongAddress => "drop_wrong_address",
            Self::PKeyMismatch => "drop_pkey_mismatch",
            Self::BadIcrc => "drop_bad_icrc",
            Self::OutOfSequence => "drop_out_of_sequence",
            Self::StaleDuplicate => "drop_stale_duplicate",
            Self::Ghost => "drop_ghost_response",
            Self::ResponseAhead => "drop_response_ahead",
            Self::NoReceive => "drop_no_receive",
            Self::Refused => "drop_refused",
            Self::QKeyMismatch => "drop_qkey_mismatch",
            Self::NoMember => "drop_no_member",
        }
    }
}

/// What an engine has counted since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Packets received, dropped ones included.
    pub rx_packets: u64,
    /// UDP payload bytes received.
    pub rx_bytes: u64,
    /// Packets built to be sent.
    pub tx_packets: u64,
    /// UDP payload bytes built to be sent.
    pub tx_bytes: u64,
    /// Request packets sent again.
    pub retransmitted: u64,
    /// ACK timeouts.
    pub timeouts: u64,
    /// Requests repeated by the peer.
    pub duplicate_requests: u64,
    /// Gaps in the peer's requests, each answered with one NAK.
    pub out_of_sequence: u64,
    /// NAKs for a gap received.
    pub sequence_naks: u64,
    /// READs and atomics asked again because their answer was lost.
    pub implied_naks: u64,
    /// RNR NAKs sent.
    pub rnr_naks_sent: u64,
    /// RNR NAKs received.
    pub rnr_naks_received: u64,
    /// Packets whose IPv4 identification had to be solved for.
    pub recovered_ids: u64,
    /// Bursts that a port refused for good.
    pub transmit_errors: u64,
    /// Packets received with the mark "congestion experienced".
    pub ecn_marked: u64,
    /// Congestion notification packets received; what was sent has met congestion.
    pub cnps_received: u64,
    drops: [u64; DropReason::ALL.len()],
}

impl Counters {
    /// Packets dropped for this reason.
    pub const fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// Every counter with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let named = [
            ("rx_packets", self.rx_packets),
            ("rx_bytes", self.rx_bytes),
            ("tx_packets", self.tx_packets),
            ("tx_bytes", self.tx_bytes),
            ("retransmitted", self.retransmitted),
            ("timeouts", self.timeouts),
            ("duplicate_requests", self.duplicate_requests),
            ("out_of_sequence", self.out_of_sequence),
            ("sequence_naks", self.sequence_naks),
            ("implied_naks", self.implied_naks),
            ("rnr_naks_sent", self.rnr_naks_sent),
            ("rnr_naks_received", self.rnr_naks_received),
            ("recovered_ids", self.recovered_ids),
            ("transmit_errors", self.transmit_errors),
            ("ecn_marked", self.ecn_marked),
            ("cnps_received", self.cnps_received),
        ];
        let drops = *self;
        named
            .into_iter()
            .chain(DropReason::ALL.into_iter().map(move |r| (r.name(), drops.dropped(r))))
    }

    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
    }
}
