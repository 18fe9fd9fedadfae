//! Options of connections.

use std::net::SocketAddr;
use std::time::Duration;

use crate::cm::PortSpace;
use crate::mem::Access;
use crate::time::RnrTimer;

/// Options of [`connect`](super::connect).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect<'a> {
    /// Private data for the listener, up to 56 bytes.
    pub private_data: &'a [u8],
    /// Port space of the service.
    pub port_space: PortSpace,
    /// Own address and port; `None` for the address that the route has, and a free port.
    pub source: Option<SocketAddr>,
    /// READs and atomics of the peer that may be outstanding here.
    pub responder_resources: u8,
    /// READs and atomics that may be outstanding at the peer.
    pub initiator_depth: u8,
    /// Number of retries after timeouts, 0 to 7.
    pub retry_count: u8,
    /// Number of retries of the peer after RNR NAKs, 0 to 6; 7 for any number.
    pub rnr_retry_count: u8,
    /// Time that the peer waits after an RNR NAK.
    pub min_rnr_timer: RnrTimer,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// Accesses to local memory that the peer may make, where the region allows them too.
    pub access: Access,
    /// Longest wait of [`connect`](super::connect) for the peer's answer; `None` for no limit. Without an answer at all,
    /// [`Error::Unreachable`](super::Error::Unreachable) follows after 78 s.
    pub timeout: Option<Duration>,
}

impl Default for Connect<'_> {
    fn default() -> Self {
        let Accept {
            private_data,
            responder_resources,
            initiator_depth,
            rnr_retry_count,
            min_rnr_timer,
            access,
        } = Accept::default();
        Self {
            private_data,
            port_space: PortSpace::Tcp,
            source: None,
            responder_resources,
            initiator_depth,
            retry_count: 7,
            rnr_retry_count,
            min_rnr_timer,
            traffic_class: 0,
            access,
            timeout: None,
        }
    }
}

/// Options of [`Incoming::accept`](super::Incoming::accept).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accept<'a> {
    /// Private data for the peer, up to 196 bytes.
    pub private_data: &'a [u8],
    /// READs and atomics of the peer that may be outstanding here, at most as many as it requests.
    pub responder_resources: u8,
    /// READs and atomics that may be outstanding at the peer, at most as many as it offers.
    pub initiator_depth: u8,
    /// Number of retries of the peer after RNR NAKs, 0 to 6; 7 for any number.
    pub rnr_retry_count: u8,
    /// Time that the peer waits after an RNR NAK.
    pub min_rnr_timer: RnrTimer,
    /// Accesses to local memory that the peer may make, where the region allows them too.
    pub access: Access,
}

impl Default for Accept<'_> {
    fn default() -> Self {
        Self {
            private_data: &[],
            responder_resources: 16,
            initiator_depth: 16,
            rnr_retry_count: 7,
            // 0.64 ms.
            min_rnr_timer: RnrTimer::new(12).unwrap_or_default(),
            access: Access::REMOTE_WRITE
                | Access::REMOTE_READ
                | Access::REMOTE_ATOMIC
                | Access::FLUSH_GLOBAL
                | Access::FLUSH_PERSISTENT,
        }
    }
}
