//! Asynchronous events.

use std::ffi::c_uint;

use softroce::verbs::AsyncEvent;

use crate::abi::{self, Handle};
use crate::objects::context::Objects;

/// `ibv_event_type` of the events of the library.
pub(crate) const CQ_ERR: c_uint = 0;
pub(crate) const QP_FATAL: c_uint = 1;
pub(crate) const QP_REQ_ERR: c_uint = 2;
pub(crate) const QP_ACCESS_ERR: c_uint = 3;
pub(crate) const COMM_EST: c_uint = 4;
pub(crate) const SQ_DRAINED: c_uint = 5;
pub(crate) const DEVICE_FATAL: c_uint = 8;
pub(crate) const PORT_ACTIVE: c_uint = 9;
pub(crate) const PORT_ERR: c_uint = 10;
pub(crate) const SRQ_ERR: c_uint = 14;
pub(crate) const SRQ_LIMIT_REACHED: c_uint = 15;
pub(crate) const QP_LAST_WQE_REACHED: c_uint = 16;
pub(crate) const GID_CHANGE: c_uint = 18;

/// The number of the port. There is one.
const PORT: u64 = 1;

/// Returns the event in the form of C, or `None` while its object is being destroyed.
pub(crate) fn async_event(objects: &Objects, event: AsyncEvent) -> Option<abi::AsyncEvent> {
    let qp = |qpn| objects.qps.get(&qpn).copied().map(Handle::address);
    let srq = |srqn| objects.srqs.get(&srqn).copied().map(Handle::address);
    let (element, event_type) = match event {
        AsyncEvent::CqErr(cq) => (objects.cqs.get(&cq.0).copied()?.address(), CQ_ERR),
        AsyncEvent::QpFatal(qpn) => (qp(qpn)?, QP_FATAL),
        AsyncEvent::QpReqErr(qpn) => (qp(qpn)?, QP_REQ_ERR),
        AsyncEvent::QpAccessErr(qpn) => (qp(qpn)?, QP_ACCESS_ERR),
        AsyncEvent::CommEst(qpn) => (qp(qpn)?, COMM_EST),
        AsyncEvent::SqDrained(qpn) => (qp(qpn)?, SQ_DRAINED),
        AsyncEvent::QpLastWqeReached(qpn) => (qp(qpn)?, QP_LAST_WQE_REACHED),
        AsyncEvent::SrqErr(srqn) => (srq(srqn)?, SRQ_ERR),
        AsyncEvent::SrqLimitReached(srqn) => (srq(srqn)?, SRQ_LIMIT_REACHED),
        AsyncEvent::GidChange => (PORT, GID_CHANGE),
        AsyncEvent::PortActive => (PORT, PORT_ACTIVE),
        AsyncEvent::PortErr => (PORT, PORT_ERR),
        AsyncEvent::DeviceFatal => (0, DEVICE_FATAL),
        // C has no names for other events.
        _ => return None,
    };
    Some(abi::AsyncEvent { element, event_type })
}
