//! Asynchronous events.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

use softroce::verbs::{AsyncEvent, QpState};

use crate::abi::{self, Handle, IbvContext, IbvCqEx, IbvQpEx, IbvSrq, In, Out};
use crate::border::{minus_one, nothing};
use crate::gate::lock;
use crate::objects::context::Objects;
use crate::objects::descriptor::wait_limit;

/// `ibv_event_type` of what the library tells of.
const CQ_ERR: c_uint = 0;
const QP_FATAL: c_uint = 1;
const QP_REQ_ERR: c_uint = 2;
const QP_ACCESS_ERR: c_uint = 3;
const COMM_EST: c_uint = 4;
const SQ_DRAINED: c_uint = 5;
const DEVICE_FATAL: c_uint = 8;
const PORT_ACTIVE: c_uint = 9;
const PORT_ERR: c_uint = 10;
const SRQ_ERR: c_uint = 14;
const SRQ_LIMIT_REACHED: c_uint = 15;
const QP_LAST_WQE_REACHED: c_uint = 16;
const GID_CHANGE: c_uint = 18;

/// The only port there is.
const PORT: u64 = 1;

/// The event in the form of C; `None` when what it tells of is about to be destroyed.
fn told(objects: &Objects, event: AsyncEvent) -> Option<abi::AsyncEvent> {
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
        // Of what C has no name for.
        _ => return None,
    };
    Some(abi::AsyncEvent { element, event_type })
}

pub(crate) extern "C" fn get_async_event(
    context: Handle<IbvContext>,
    to: Out<abi::AsyncEvent>,
) -> c_int {
    minus_one(|| {
        let context = context.get()?;
        let limit = wait_limit(context.verbs.event_fd()?)?;
        loop {
            let event = context.verbs.get_async_event_interruptible(limit)?;
            let Some(told) = told(&lock(&context.objects), *event) else { continue };
            event.keep();
            if let QP_FATAL | QP_REQ_ERR | QP_ACCESS_ERR = told.event_type {
                let qp = Handle::<IbvQpEx>::at(told.element).get()?;
                qp.c.base.state.store(QpState::Err as u32, Ordering::Relaxed);
            }
            to.write(told);
            return Ok(0);
        }
    })
}

pub(crate) extern "C" fn ack_async_event(event: In<abi::AsyncEvent>) {
    nothing(|| {
        let event = event.read()?;
        match event.event_type {
            CQ_ERR => Handle::<IbvCqEx>::at(event.element).get()?.verbs.ack_async_events(1),
            SRQ_ERR | SRQ_LIMIT_REACHED => {
                Handle::<IbvSrq>::at(event.element).get()?.verbs.ack_async_events(1);
            }
            QP_FATAL | QP_REQ_ERR | QP_ACCESS_ERR | COMM_EST | SQ_DRAINED | QP_LAST_WQE_REACHED => {
                Handle::<IbvQpEx>::at(event.element).get()?.ack_async_events(1)
            }
            _ => {}
        }
        Ok(())
    });
}
