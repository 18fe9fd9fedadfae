//! Paths, requests, replies and events of the connection manager.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::engine::QpType;
use crate::ids::{Gid, Mtu, PKey, QKey, Qpn};
use crate::net::IpVersion;
use crate::psn::Psn;
use crate::time::AckTimeout;
use crate::wire::cm::{CommId, Guid, IpHeader, ServiceId};

use super::reason::RejectReason;

/// Number of an id in its agent: of a listener, a connection or a service request. It is also the local communication
/// ID in messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub CommId);

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:08x}", self.0.0)
    }
}

/// Path between two devices, as a REQ describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmPath {
    /// Own address, one of the device's GIDs.
    pub source: Gid,
    /// Address of the peer, of the same IP version.
    pub destination: Gid,
    /// Flow label of 20 bits, which determines the UDP source port of the connection. With 0, the queue pair numbers
    /// determine it.
    pub flow_label: u32,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// Service level, 0 to 15.
    pub service_level: u8,
    /// Path MTU.
    pub mtu: Mtu,
    /// Partition key.
    pub pkey: PKey,
    /// Packet life time, as an exponent of 4.096 µs. It is not sent, but timeouts include it.
    pub life_time: u8,
}

impl CmPath {
    /// Packet life time of a RoCE path, as in Linux.
    pub const LIFE_TIME: u8 = 16;

    /// Hop limit of a RoCE path, the default of hosts.
    pub const HOP_LIMIT: u8 = 64;

    /// Returns a path in the default partition, with flow label, traffic class and service level 0.
    pub fn between(source: IpAddr, destination: IpAddr, mtu: Mtu) -> Self {
        Self {
            source: source.into(),
            destination: destination.into(),
            flow_label: 0,
            traffic_class: 0,
            hop_limit: Self::HOP_LIMIT,
            service_level: 0,
            mtu,
            pkey: PKey::DEFAULT,
            life_time: Self::LIFE_TIME,
        }
    }
}

/// Vendor and options of the enhanced connection establishment (`ibv_ece`), which the agent carries unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[doc(alias = "ibv_ece")]
pub struct Ece {
    /// Vendor, 24 bits.
    pub vendor: u32,
    /// Options, which the vendor defines.
    pub options: u32,
}

/// Configuration of an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    /// GUID of the device, unique in the fabric and not 0.
    pub guid: Guid,
    /// The GID table of the device.
    pub gids: Vec<Gid>,
    /// The P_Key table of the device.
    pub pkeys: Vec<PKey>,
    /// The largest path MTU that the device accepts.
    pub active_mtu: Mtu,
    /// Whether REQ, REP, DREQ and SIDR_REQ are sent again after 0.5 s, 1 s and 2 s, before the intervals of Linux.
    pub early_retransmissions: bool,
    /// Maximum number of ids, those in TIMEWAIT and of peers included.
    pub max_ids: usize,
}

impl AgentConfig {
    /// Returns the configuration of a device with one address and defaults otherwise.
    pub fn new(guid: Guid, address: IpAddr) -> Self {
        Self {
            guid,
            gids: vec![address.into()],
            pkeys: vec![PKey::DEFAULT],
            active_mtu: Mtu::Mtu4096,
            early_retransmissions: true,
            max_ids: 1 << 17,
        }
    }
}

/// Parameters of [`Agent::listen`](super::Agent::listen).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listen {
    /// Maximum number of requests that wait for accept or reject. Further ones are dropped, so that the peer repeats
    /// them.
    pub backlog: usize,
    /// Address of the device to which requests must be sent; `None` for any.
    pub destination: Option<Gid>,
    /// Type of the queue pairs. [`QpType::Ud`] listens for service requests (SIDR), [`QpType::XrcTgt`] for XRC.
    pub qp_type: QpType,
    /// Whether a listener without a destination accepts only requests of this IP version (`RDMA_OPTION_ID_AFONLY`).
    pub af_only: Option<IpVersion>,
    /// Value that the request events contain.
    pub token: u64,
}

/// Parameters of [`Agent::connect`](super::Agent::connect).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connect {
    /// Path to the peer.
    pub path: CmPath,
    /// Service of the peer.
    pub service: ServiceId,
    /// Addresses before the private data, for services of rdma_cm.
    pub ip: Option<IpHeader>,
    /// Own queue pair.
    pub qpn: Qpn,
    /// Type of the queue pair: RC, UC or an XRC initiator.
    pub qp_type: QpType,
    /// Whether the queue pair uses a shared receive queue.
    pub srq: bool,
    /// Private data: up to 92 bytes, with `ip` up to 56.
    pub private_data: Vec<u8>,
    /// READs and atomics of the peer that may be outstanding here.
    pub responder_resources: u8,
    /// READs and atomics that may be outstanding at the peer.
    pub initiator_depth: u8,
    /// Retries without a response, 0 to 7.
    pub retry_count: u8,
    /// Retries after an RNR NAK, 0 to 6; 7 is unlimited.
    pub rnr_retry_count: u8,
    /// Whether acknowledgements contain credits.
    pub flow_control: bool,
    /// ECE of the queue pair.
    pub ece: Ece,
    /// ACK timeout instead of the one of the path.
    pub ack_timeout: Option<AckTimeout>,
}

/// Parameters of [`Agent::accept`](super::Agent::accept).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accept {
    /// Own queue pair.
    pub qpn: Qpn,
    /// Whether the queue pair uses a shared receive queue.
    pub srq: bool,
    /// Private data, up to 196 bytes.
    pub private_data: Vec<u8>,
    /// READs and atomics of the peer that may be outstanding here.
    pub responder_resources: u8,
    /// READs and atomics that may be outstanding at the peer.
    pub initiator_depth: u8,
    /// Retries of the peer after an RNR NAK, 0 to 6; 7 is unlimited.
    pub rnr_retry_count: u8,
    /// Whether acknowledgements contain credits.
    pub flow_control: bool,
    /// ECE of the queue pair.
    pub ece: Ece,
}

impl Accept {
    /// Returns the answer to a request that offers as many READs and atomics in both directions as the request and
    /// the device permit. `max_rd_atomic` is the maximum of the device.
    pub fn of(request: &Request, qpn: Qpn, max_rd_atomic: u8) -> Self {
        Self {
            qpn,
            srq: false,
            private_data: Vec::new(),
            responder_resources: request.offer.responder_resources.min(max_rd_atomic),
            initiator_depth: request.offer.initiator_depth.min(max_rd_atomic),
            rnr_retry_count: 7,
            flow_control: request.offer.flow_control,
            ece: Ece::default(),
        }
    }
}

/// Parameters of [`Agent::reject`](super::Agent::reject).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reject {
    /// Reason.
    pub reason: RejectReason,
    /// Additional information that belongs to the reason, up to 72 bytes.
    pub info: Vec<u8>,
    /// Private data, up to 148 bytes.
    pub private_data: Vec<u8>,
}

impl Reject {
    /// Returns the rejection by the consumer, with reason 28.
    pub fn consumer(private_data: &[u8]) -> Self {
        let reason = RejectReason::CONSUMER;
        Self { reason, info: Vec::new(), private_data: private_data.to_vec() }
    }
}

/// Parameters of [`Agent::resolve_service`](super::Agent::resolve_service).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SidrRequest {
    /// Path to the peer.
    pub path: CmPath,
    /// Service of the peer.
    pub service: ServiceId,
    /// Addresses before the private data, for services of rdma_cm.
    pub ip: Option<IpHeader>,
    /// Private data: up to 216 bytes, with `ip` up to 180.
    pub private_data: Vec<u8>,
    /// Maximum number of retransmissions, and time until each. Linux: 15 and 4.096 s.
    pub retries: u8,
    /// Time until a retransmission.
    pub timeout: Duration,
}

/// Parameters of [`Agent::reply_service`](super::Agent::reply_service).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SidrReply {
    /// Outcome.
    pub status: SidrStatus,
    /// Queue pair of the service.
    pub qpn: Qpn,
    /// Queue key of the service.
    pub qkey: QKey,
    /// ECE of the queue pair.
    pub ece: Ece,
    /// Private data, up to 136 bytes.
    pub private_data: Vec<u8>,
}

/// Outcome of a service request (IBTA vol 1, §12.11.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// The reply contains a queue pair.
    pub const SUCCESS: Self = Self(0);
    /// No such service.
    pub const NO_SERVICE: Self = Self(1);
    /// The consumer rejects the request.
    pub const REJECTED: Self = Self(2);
    /// The service has no queue pair.
    pub const NO_QP: Self = Self(3);
    /// Another port or address has the service.
    pub const REDIRECTED: Self = Self(4);
    /// The version of the message is not supported.
    pub const UNSUPPORTED_VERSION: Self = Self(5);

    /// Returns the status in words.
    pub const fn text(self) -> &'static str {
        match self.0 {
            0 => "success",
            1 => "no such service",
            2 => "rejected by the consumer",
            3 => "no queue pair",
            4 => "redirected",
            5 => "unsupported version",
            _ => "a status that is not assigned",
        }
    }
}

impl fmt::Display for SidrStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text(), self.0)
    }
}

/// A REQ that arrived for a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Listener.
    pub listener: ConnId,
    /// Value of the listener's [`Listen::token`].
    pub token: u64,
    /// Requested service.
    pub service: ServiceId,
    /// Addresses of rdma_cm, if the service has them.
    pub ip: Option<IpHeader>,
    /// Path to the peer: the source is an address of this device.
    pub path: CmPath,
    /// Type of the own queue pair: RC, UC or an XRC target.
    pub qp_type: QpType,
    /// Retries without a response.
    pub retry_count: u8,
    /// Parameters of the peer.
    pub offer: Offer,
    /// Private data of the consumer, in its full length: 92 bytes, or 56 behind the addresses.
    pub private_data: Vec<u8>,
}

/// Parameters of the peer in a REQ or REP, as this side uses them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Queue pair of the peer.
    pub remote_qpn: Qpn,
    /// First PSN of this side's requests.
    pub starting_psn: Psn,
    /// READs and atomics that the peer wants to have outstanding here: the initiator depth of the message.
    pub responder_resources: u8,
    /// READs and atomics that the peer accepts: the responder resources of the message.
    pub initiator_depth: u8,
    /// Retries after an RNR NAK, which the peer asks for.
    pub rnr_retry_count: u8,
    /// Whether acknowledgements contain credits.
    pub flow_control: bool,
    /// Whether the peer uses a shared receive queue.
    pub srq: bool,
    /// ECE of the peer.
    pub ece: Ece,
}

/// A REP that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// Parameters of the peer.
    pub offer: Offer,
    /// Private data, 196 bytes.
    pub private_data: Vec<u8>,
}

/// A SIDR_REQ that arrived for a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceRequest {
    /// Listener.
    pub listener: ConnId,
    /// Value of the listener's [`Listen::token`].
    pub token: u64,
    /// Requested service.
    pub service: ServiceId,
    /// Addresses of rdma_cm, if the service has them.
    pub ip: Option<IpHeader>,
    /// Path to the peer: the source is an address of this device.
    pub path: CmPath,
    /// Private data of the consumer, in its full length: 216 bytes, or 180 behind the addresses.
    pub private_data: Vec<u8>,
}

/// A SIDR_REP that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceReply {
    /// Outcome.
    pub status: SidrStatus,
    /// Path to the peer.
    pub path: CmPath,
    /// Queue pair of the service.
    pub qpn: Qpn,
    /// Queue key of the service.
    pub qkey: QKey,
    /// ECE of the peer.
    pub ece: Ece,
    /// Additional information of the status, as many bytes as the reply says, up to 72.
    pub info: Vec<u8>,
    /// Private data, 136 bytes.
    pub private_data: Vec<u8>,
}

/// Event of an id.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A REQ arrived for a listener. The event's id is new and belongs to the request; the consumer accepts, rejects
    /// or destroys it.
    Request(Box<Request>),
    /// A REP arrived. The consumer calls [`establish`](super::Agent::establish), rejects or destroys the id.
    Reply(Box<Reply>),
    /// The passive side is connected: an RTU or the first packet arrived.
    Established,
    /// The peer rejected the connection.
    Rejected {
        /// Reason.
        reason: RejectReason,
        /// Additional information, as many bytes as the message says, up to 72.
        info: Vec<u8>,
        /// Private data, 148 bytes.
        private_data: Vec<u8>,
    },
    /// The peer did not answer a REQ, REP or SIDR_REQ.
    Unreachable {
        /// Number of times that the message was sent.
        sent: u32,
    },
    /// The connection has ended. Each connection has this event at most once.
    Disconnected {
        /// Whether the peer answered, or asked for it: false if it answered no DREQ.
        answered: bool,
    },
    /// TIMEWAIT is over, after `Disconnected`: packets of the connection no longer arrive.
    TimewaitExit,
    /// A SIDR_REQ arrived for a listener. The event's id is new; the consumer replies or destroys it.
    ServiceRequest(Box<ServiceRequest>),
    /// A SIDR_REP arrived.
    ServiceReply(Box<ServiceReply>),
}
