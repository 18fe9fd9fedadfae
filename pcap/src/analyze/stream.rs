//! The requests from one queue pair to another, with their answers: the figures.

use std::collections::BTreeMap;
use std::sync::Arc;

use softroce::ids::Qpn;
use softroce::wire::Transport;

use super::cm_exchange::CmExchange;
use super::figures::{Messages, Missing, Retransmissions, Waits};
use super::kind::{Kind, Line, Nak, Phase};
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
    /// The requesting queue pair, if the capture shows it.
    pub from: Option<Qpn>,
    /// The transport service.
    pub transport: Transport,
    /// How the requests and the answers were found to belong together.
    pub joined: Option<Joined>,
    /// The agreement of the connection managers, if it was captured.
    pub cm_exchange: Option<Arc<CmExchange>>,
    /// The path MTU in bytes, if the capture shows it.
    pub mtu: Option<usize>,
    /// Number of the first packet in the capture.
    pub first_packet: u64,
    /// When its first packet came.
    pub first: u64,
    /// When its last did.
    pub last: u64,
    /// Packets and bytes.
    pub traffic: Traffic,
    /// Messages by what they do.
    pub operations: BTreeMap<Kind, Messages>,
    /// Packets in flight.
    pub in_flight: InFlight,
    /// Refusals, losses and retransmissions.
    pub recovery: Recovery,
    /// How its time was spent, by [`Phase::ALL`]; all zero for an unacknowledged service.
    pub spent: [u64; Phase::ALL.len()],
    /// The same and more as series over time.
    pub over_time: OverTime,
}

/// Packets and bytes of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Request packets, also those that came again.
    pub requests: u64,
    /// Answers.
    pub answers: u64,
    /// Bytes of payload, each counted once: of requests, and of the answers to READs.
    pub bytes: u64,
    /// Of these, the bytes that arrived according to the answers; all of an unacknowledged service.
    pub delivered: u64,
    /// Requests that others have overtaken.
    pub out_of_order: u64,
    /// Requests that the network duplicated, or that came twice in a row without identification.
    pub duplicates: u64,
    /// Congestion notifications to the requester.
    pub cnps: u64,
    /// Packets, in either direction, that a router has marked (ECN, congestion experienced).
    pub ecn_marked: u64,
}

/// Packets of a stream in flight: how many, and for how long.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    /// Bytes in flight while there are any, weighted by time: payload without acknowledgement, and
    /// READ answers that were requested.
    pub bytes: Distribution,
    /// The same in packets, as PSNs count them.
    pub packets: Distribution,
    /// Time from a request that is answered by an acknowledgement alone to that acknowledgement.
    pub ack_rtt: Distribution,
}

/// Refusals, losses and retransmissions of a stream.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// Request packets that came again.
    pub again: Retransmissions,
    /// NAKs by their code, without RNR NAKs.
    pub naks: BTreeMap<Nak, u64>,
    /// Waiting that RNR NAKs asked for.
    pub rnr: Waits,
    /// Waiting that a timer ended.
    pub timeouts: Waits,
    /// Packets that were lost, or not captured.
    pub missing: Missing,
    /// Requests that were not acknowledged at the end.
    pub unacknowledged: u64,
    /// The NAK that ended the connection, and its time.
    pub refused: Option<(Nak, u64)>,
}

/// Figures of a stream as series over time.
#[derive(Debug)]
pub struct OverTime {
    /// Points, by [`Line::ALL`].
    pub traces: [Trace; Line::ALL.len()],
    /// Bytes of payload, of requests and of the answers to READs, repeated ones included.
    pub carried: Bins,
    /// Bytes delivered.
    pub delivered: Bins,
    /// The most bytes in flight.
    pub in_flight: Bins,
}

impl OverTime {
    fn new(now: u64) -> Self {
        let traces = std::array::from_fn(|_| Trace::default());
        let (carried, delivered) = (Bins::sums(now), Bins::sums(now));
        Self { traces, carried, delivered, in_flight: Bins::highest(now) }
    }

    /// Begins the bins anew at `now`; traces have no beginning.
    pub(super) fn begin(&mut self, now: u64) {
        self.carried = Bins::sums(now);
        self.delivered = Bins::sums(now);
        self.in_flight = Bins::highest(now);
    }
}

impl Stream {
    pub(super) fn new(direction: Direction, transport: Transport, packet: u64, now: u64) -> Self {
        Self {
            direction,
            from: None,
            transport,
            joined: None,
            cm_exchange: None,
            mtu: None,
            first_packet: packet,
            first: now,
            last: now,
            traffic: Traffic::default(),
            operations: BTreeMap::new(),
            in_flight: InFlight::default(),
            recovery: Recovery::default(),
            spent: [0; Phase::ALL.len()],
            over_time: OverTime::new(now),
        }
    }

    /// From its first packet to its last, in nanoseconds.
    pub const fn duration(&self) -> u64 {
        self.last.saturating_sub(self.first)
    }

    /// Its time that went into this.
    pub const fn spent(&self, phase: Phase) -> u64 {
        self.spent[phase as usize]
    }

    /// What arrived over time, as far as can be told: see [`Traffic::delivered`].
    pub const fn arrived_over_time(&self) -> &Bins {
        if self.traffic.answers > 0 || !self.is_reliable() {
            &self.over_time.delivered
        } else {
            &self.over_time.carried
        }
    }

    /// The points of this kind.
    pub const fn trace(&self, line: Line) -> &Trace {
        &self.over_time.traces[line as usize]
    }

    /// Whether its requests are acknowledged.
    pub const fn is_reliable(&self) -> bool {
        matches!(self.transport, Transport::Rc | Transport::Xrc)
    }
}
