//! Events.

use softroce::cm::Offer;
use softroce::verbs::AddressVector;
use softroce::verbs::cm::{Ece, EventKind, MulticastGroup};

use super::qp_attr::kernel_address;
use crate::abi::{ArgumentEvent, CmEce, ConnEvent, ConnParam, PRIVATE_DATA_ROOM, UdParam};

/// `rdma_cm_event_type`.
const ADDR_RESOLVED: u32 = 0;
const ADDR_ERROR: u32 = 1;
const ROUTE_RESOLVED: u32 = 2;
const ROUTE_ERROR: u32 = 3;
const CONNECT_REQUEST: u32 = 4;
const CONNECT_RESPONSE: u32 = 5;
const UNREACHABLE: u32 = 7;
const REJECTED: u32 = 8;
const ESTABLISHED: u32 = 9;
const DISCONNECTED: u32 = 10;
const DEVICE_REMOVAL: u32 = 11;
const MULTICAST_JOIN: u32 = 12;
const TIMEWAIT_EXIT: u32 = 15;

/// Events that a program may write into its channel: `RDMA_CM_EVENT_USER` and `RDMA_CM_EVENT_INTERNAL`.
pub(crate) const WRITTEN: std::ops::RangeInclusive<u32> = 18..=19;

/// Length of private data in a rejection, in an answer of a UD service, and in requests with addresses.
const REJECT_DATA_LEN: u8 = 148;

/// Status of a time-out.
const TIMED_OUT: i32 = -nix::libc::ETIMEDOUT;

/// Number of a multicast queue pair.
const MULTICAST_QPN: u32 = 0xff_ffff;

/// Parameters of an event.
pub(crate) enum Param {
    /// Of ids that have no datagrams.
    Conn(Box<ConnEvent>),
    /// Of ids for datagrams.
    Ud(Box<UdParam>),
    /// Of events that the program has written.
    Argument(Box<ArgumentEvent>),
}

/// An event in the form of C.
pub(crate) struct CmEvent {
    /// `rdma_cm_event_type`.
    pub(crate) number: u32,
    pub(crate) status: i32,
    pub(crate) param: Param,
    pub(crate) ece: CmEce,
}

/// Returns private data with zeros behind, and its length.
fn private_data(data: &[u8]) -> ([u8; PRIVATE_DATA_ROOM], u8) {
    let mut room = [0; PRIVATE_DATA_ROOM];
    // The messages have less than 256 bytes.
    let len = u8::try_from(data.len()).unwrap_or(u8::MAX);
    if let Some((to, from)) = room.get_mut(..len.into()).zip(data.get(..len.into())) {
        to.copy_from_slice(from);
    }
    (room, len)
}

/// Returns parameters of a connection: the offer of the peer, if the event has one.
fn conn(offer: Option<&Offer>, retry_count: u8, data: &[u8]) -> Param {
    let (private_data, private_data_len) = private_data(data);
    let param = ConnParam {
        qp_num: offer.map_or(0, |offer| offer.remote_qpn.value()),
        qkey: 0,
        private_data,
        private_data_len,
        srq: offer.is_some_and(|offer| offer.srq).into(),
        responder_resources: offer.map_or(0, |offer| offer.responder_resources),
        initiator_depth: offer.map_or(0, |offer| offer.initiator_depth),
        flow_control: offer.is_some_and(|offer| offer.flow_control).into(),
        retry_count,
        rnr_retry_count: offer.map_or(0, |offer| offer.rnr_retry_count),
        valid: 0,
    };
    Param::Conn(Box::new(ConnEvent { param, reserved: [0; 8] }))
}

/// Returns parameters of datagrams: the queue pair of the peer or group, its key and its address.
fn ud(qp_num: u32, qkey: u32, address: Option<&AddressVector>, data: &[u8]) -> Param {
    let (private_data, private_data_len) = private_data(data);
    let ah_attr = kernel_address(address);
    let reserved = [0; 7];
    Param::Ud(Box::new(UdParam { qp_num, qkey, ah_attr, private_data, private_data_len, reserved }))
}

/// Returns the event in the form of C. `is_ud` is whether the id has datagrams.
pub(crate) fn event(kind: &EventKind, is_ud: bool) -> CmEvent {
    let nothing = || if is_ud { ud(0, 0, None, &[]) } else { conn(None, 0, &[]) };
    let with = |number, status, param| CmEvent {
        number,
        status,
        param,
        ece: CmEce { vendor_id: 0, attr_mod: 0 },
    };
    let plain = |number| with(number, 0, nothing());
    match kind {
        EventKind::AddrResolved => plain(ADDR_RESOLVED),
        EventKind::AddrError { errno } => with(ADDR_ERROR, -errno, nothing()),
        EventKind::RouteResolved => plain(ROUTE_RESOLVED),
        EventKind::RouteError { errno } => with(ROUTE_ERROR, -errno, nothing()),
        EventKind::ConnectRequest(request) => {
            let offer = &request.offer;
            let param = conn(Some(offer), request.retry_count, &request.private_data);
            CmEvent { ece: ece(offer.ece), ..with(CONNECT_REQUEST, 0, param) }
        }
        EventKind::ServiceRequest(request) => {
            with(CONNECT_REQUEST, 0, ud(0, 0, None, &request.private_data))
        }
        EventKind::ConnectResponse(reply) => {
            let param = conn(Some(&reply.offer), 0, &reply.private_data);
            CmEvent { ece: ece(reply.offer.ece), ..with(CONNECT_RESPONSE, 0, param) }
        }
        EventKind::Unreachable => with(UNREACHABLE, TIMED_OUT, nothing()),
        EventKind::Rejected { reason, private_data } => {
            let data = private_data.get(..REJECT_DATA_LEN.into()).unwrap_or(private_data);
            with(REJECTED, i32::from(reason.0), conn(None, 0, data))
        }
        EventKind::Established => plain(ESTABLISHED),
        EventKind::ServiceReply { reply, address } if reply.status.0 == 0 => {
            let (qpn, qkey) = (reply.qpn.value(), reply.qkey.0);
            let param = ud(qpn, qkey, Some(address), &reply.private_data);
            CmEvent { ece: ece(reply.ece), ..with(ESTABLISHED, 0, param) }
        }
        EventKind::ServiceReply { reply, .. } => {
            let param = ud(0, 0, None, &reply.private_data);
            with(UNREACHABLE, i32::from(reply.status.0), param)
        }
        EventKind::Disconnected { answered: true } => plain(DISCONNECTED),
        EventKind::Disconnected { answered: false } => with(DISCONNECTED, TIMED_OUT, nothing()),
        EventKind::MulticastJoined(MulticastGroup { address, qkey, .. }) => {
            with(MULTICAST_JOIN, 0, ud(MULTICAST_QPN, qkey.0, Some(address), &[]))
        }
        EventKind::TimewaitExit => plain(TIMEWAIT_EXIT),
        EventKind::User { event, status, argument } => {
            let low = u32::try_from(argument & u64::from(u32::MAX)).unwrap_or_default();
            let high = u32::try_from(argument >> u32::BITS).unwrap_or_default();
            let param = ArgumentEvent { argument: [low, high], reserved: [0; 74] };
            with(*event, *status, Param::Argument(Box::new(param)))
        }
        // The library may add events; a device that fails is the one that C must know.
        _ => plain(DEVICE_REMOVAL),
    }
}

fn ece(ece: Ece) -> CmEce {
    CmEce { vendor_id: ece.vendor, attr_mod: ece.options }
}
