//! Events of ids, and parameters of connections.

use crate::cm::{Ece, RejectReason, Reply, Request, ServiceReply, ServiceRequest};
use crate::ids::{QKey, Qpn};
use crate::net::AddressVector;

/// Type and parameters of an event (`enum rdma_cm_event_type`).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[doc(alias = "rdma_cm_event_type")]
pub enum EventKind {
    /// [`Id::resolve_addr`](super::Id::resolve_addr) has succeeded.
    AddrResolved,
    /// [`Id::resolve_addr`](super::Id::resolve_addr) has failed.
    AddrError {
        /// Error number, positive.
        errno: i32,
    },
    /// [`Id::resolve_route`](super::Id::resolve_route) has succeeded, or the program has set the path.
    RouteResolved,
    /// [`Id::resolve_route`](super::Id::resolve_route) has failed.
    RouteError {
        /// Error number, positive.
        errno: i32,
    },
    /// A peer requests a connection from a listener. The event's id is new.
    ConnectRequest(Box<Request>),
    /// A peer asks for the queue pair of a UD listener. The event's id is new.
    ServiceRequest(Box<ServiceRequest>),
    /// The peer has accepted. The program takes its queue pair to RTS and calls
    /// [`Id::establish`](super::Id::establish).
    ConnectResponse(Box<Reply>),
    /// The peer did not answer.
    Unreachable,
    /// The peer rejected the connection.
    Rejected {
        /// Reason.
        reason: RejectReason,
        /// Private data, 148 bytes.
        private_data: Vec<u8>,
    },
    /// The passive side is connected.
    Established,
    /// The peer has answered a service request; the status says how.
    ServiceReply {
        /// The answer.
        reply: Box<ServiceReply>,
        /// Address of the service.
        address: AddressVector,
    },
    /// The connection has ended.
    Disconnected {
        /// Whether the peer requested or confirmed it.
        answered: bool,
    },
    /// The device has failed. Each id with a device gets this once, and the program destroys the id.
    DeviceRemoval,
    /// The id has joined a multicast group.
    MulticastJoined(MulticastGroup),
    /// The time after a disconnection is over in which packets of the connection may arrive.
    TimewaitExit,
    /// An event that the program has written.
    User {
        /// Number of the event.
        event: u32,
        /// Status.
        status: i32,
        /// Argument.
        argument: u64,
    },
}

/// Number of a joined group in its id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MulticastId(pub u32);

/// A multicast group that an id has joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MulticastGroup {
    /// Its number.
    pub id: MulticastId,
    /// Address for datagrams to the group, to queue pair [`Qpn::MULTICAST`].
    pub address: AddressVector,
    /// Queue key of the group.
    pub qkey: QKey,
}

/// Parameters of a connection (`struct rdma_conn_param`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[doc(alias = "rdma_conn_param")]
pub struct ConnectParam<'a> {
    /// Private data: 56 bytes with connect, 196 with accept, 180 and 136 with UD.
    pub private_data: &'a [u8],
    /// Number of the queue pair.
    pub qpn: Qpn,
    /// Queue key, with UD; `None` for the default.
    pub qkey: Option<QKey>,
    /// Whether the queue pair has a shared receive queue.
    pub srq: bool,
    /// READs and atomics of the peer that may be outstanding here.
    pub responder_resources: u8,
    /// READs and atomics that may be outstanding at the peer.
    pub initiator_depth: u8,
    /// Whether acknowledgements contain credits.
    pub flow_control: bool,
    /// Retries without a response, 0 to 7.
    pub retry_count: u8,
    /// Retries after an RNR NAK, 0 to 6; 7 is unlimited.
    pub rnr_retry_count: u8,
    /// Options of the enhanced connection establishment.
    pub ece: Ece,
}
