//! State of one connection.

use std::net::IpAddr;
use std::time::Duration;

use crate::engine::{MadPath, QpType};
use crate::ids::Qpn;
use crate::psn::Psn;
use crate::time::{AckTimeout, Instant};
use crate::wire::Mad;
use crate::wire::cm::{CommId, Guid, Ids};

use super::retransmit::Retransmission;
use super::state::State;
use super::types::{CmPath, ConnId};

/// Largest CM timeout that a peer can set, as an exponent of 4.096 µs: 65 seconds, which Linux sets in an MRA.
pub(super) const MAX_CM_TIMEOUT: u8 = 24;

/// Returns the time that a CM timeout stands for, in Linux' rounding: `2^(n-8)` milliseconds, at least one.
pub(super) fn timeout(exponent: u8) -> Duration {
    Duration::from_millis(1 << exponent.min(MAX_CM_TIMEOUT).saturating_sub(8))
}

/// Returns the ACK timeout of a path, as an exponent: the packet life time doubled, plus the peer's ACK delay
/// (`cm_ack_timeout` of Linux).
pub(super) fn ack_timeout(delay: u8, life_time: u8) -> AckTimeout {
    let twice = life_time.saturating_add(1);
    let exponent = if twice >= delay {
        twice.saturating_add(u8::from(delay >= twice - 1))
    } else {
        delay.saturating_add(u8::from(twice >= delay - 1))
    };
    AckTimeout::new(exponent.min(31)).unwrap_or_default()
}

/// Side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Sends the REQ.
    Active,
    /// Receives the REQ.
    Passive {
        /// Listener that the REQ arrived for.
        listener: ConnId,
        /// Whether the consumer has the request event.
        is_reported: bool,
    },
}

/// The peer of a connection, from its REQ or REP on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Peer {
    pub(super) guid: Guid,
    pub(super) comm_id: CommId,
    pub(super) qpn: Qpn,
    /// First PSN of own requests.
    pub(super) psn: Psn,
}

/// Attributes of the own queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Local {
    pub(super) qpn: Qpn,
    /// First PSN of the peer's requests.
    pub(super) psn: Psn,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    /// ACK timeout, also the time in TIMEWAIT.
    pub(super) ack_timeout: AckTimeout,
    /// Whether the consumer has set the ACK timeout.
    pub(super) is_timeout_set: bool,
}

/// State of one connection.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) id: ConnId,
    pub(super) state: State,
    pub(super) role: Role,
    pub(super) qp_type: QpType,
    pub(super) path: CmPath,
    pub(super) local: Local,
    pub(super) peer: Option<Peer>,
    /// Transaction ID of the REQ, and from the peer's DREQ on of that.
    pub(super) transaction_id: u64,
    /// Interval and number of retransmissions of the next message.
    pub(super) interval: Duration,
    pub(super) retries: u8,
    /// The message that is sent again until the peer answers.
    pub(super) retransmission: Option<Retransmission>,
    /// Time of the next retransmission, or of the end of TIMEWAIT.
    pub(super) deadline: Option<Instant>,
    /// Whether the consumer has destroyed the id.
    pub(super) is_destroyed: bool,
    /// Whether the consumer has the event `Disconnected` or `Rejected`.
    pub(super) is_ended: bool,
}

impl Conn {
    /// Returns the path of messages to the peer.
    pub(super) fn mad_path(&self) -> MadPath {
        mad_path(&self.path)
    }

    /// Returns the communication IDs of a message to the peer.
    pub(super) fn ids(&self) -> Ids {
        let remote_id = self.peer.map(|peer| peer.comm_id).unwrap_or_default();
        Ids { local_id: self.id.0, remote_id }
    }

    /// Returns whether a message with these IDs, from this address, is from the peer.
    pub(super) fn is_from_peer(&self, remote: CommId, address: IpAddr) -> bool {
        self.peer.is_some_and(|peer| peer.comm_id == remote) && self.knows_address(address)
    }

    /// Returns whether a message from this address may be from the peer.
    pub(super) fn knows_address(&self, address: IpAddr) -> bool {
        address == self.path.destination.ip()
    }

    /// Returns whether the state is one before the connection is established.
    pub(super) fn is_connecting(&self) -> bool {
        matches!(
            self.state,
            State::ReqSent
                | State::MraReqRcvd
                | State::ReqRcvd
                | State::RepSent
                | State::MraRepRcvd
                | State::RepRcvd
        )
    }

    /// Returns whether the consumer has not destroyed the id.
    pub(super) fn is_observed(&self) -> bool {
        !self.is_destroyed
    }

    /// Repeats a message from now on, and returns the time of the next transmission.
    pub(super) fn repeat(
        &mut self,
        now: Instant,
        bytes: Box<[u8; Mad::DATAGRAM_LEN]>,
        with_early: bool,
    ) -> Instant {
        let times = (self.interval, self.retries);
        let retransmission = Retransmission::new(now, bytes, times, with_early);
        self.retransmission.insert(retransmission).deadline()
    }
}

/// Returns the path of messages of the connection manager on a path.
pub(super) fn mad_path(path: &CmPath) -> MadPath {
    MadPath {
        source: path.source.ip(),
        destination: path.destination.ip(),
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        pkey: path.pkey,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_round_as_in_linux() {
        assert_eq!(timeout(0), Duration::from_millis(1));
        assert_eq!(timeout(16), Duration::from_millis(256));
        assert_eq!(timeout(20), Duration::from_millis(4096));
        assert_eq!(timeout(24), Duration::from_millis(65_536));
        assert_eq!(timeout(31), timeout(24), "the limit");
    }

    #[test]
    fn ack_timeouts_are_those_of_linux() {
        let of = |delay, life| ack_timeout(delay, life).exponent();
        assert_eq!([of(0, 16), of(15, 16), of(0, 18), of(15, 18)], [17, 17, 19, 19]);
        assert_eq!([of(16, 16), of(17, 16), of(18, 16), of(30, 31)], [18, 18, 19, 31]);
        assert_eq!([of(255, 255), of(0, 0)], [31, 2]);
    }
}
