//! Functions of asynchronous events.

use std::ffi::c_int;

use softroce::verbs::QpState;

use crate::abi::{self, Handle, IbvContext, IbvCq, IbvQp, IbvSrq, In, Out};
use crate::border::{int_or_minus_one, without_result};
use crate::convert::event::{
    COMM_EST, CQ_ERR, QP_ACCESS_ERR, QP_FATAL, QP_LAST_WQE_REACHED, QP_REQ_ERR, SQ_DRAINED,
    SRQ_ERR, SRQ_LIMIT_REACHED, async_event,
};
use crate::gate::lock;
use crate::objects::descriptor::wait_limit;

pub(crate) extern "C" fn get_async_event(
    context: Handle<IbvContext>,
    to: Out<abi::AsyncEvent>,
) -> c_int {
    int_or_minus_one(|| {
        let context = context.get()?;
        let limit = wait_limit(context.verbs.event_fd()?)?;
        loop {
            let event = context.verbs.get_async_event_interruptible(limit)?;
            let Some(found) = async_event(&lock(&context.objects), *event) else { continue };
            event.keep();
            if let QP_FATAL | QP_REQ_ERR | QP_ACCESS_ERR = found.event_type {
                Handle::<IbvQp>::at(found.element).get()?.show_state(QpState::Err);
            }
            to.write(found);
            return Ok(0);
        }
    })
}

pub(crate) extern "C" fn ack_async_event(event: In<abi::AsyncEvent>) {
    without_result(|| {
        let event = event.read()?;
        match event.event_type {
            CQ_ERR => Handle::<IbvCq>::at(event.element).get()?.verbs.ack_async_events(1),
            SRQ_ERR | SRQ_LIMIT_REACHED => {
                Handle::<IbvSrq>::at(event.element).get()?.verbs.ack_async_events(1);
            }
            QP_FATAL | QP_REQ_ERR | QP_ACCESS_ERR | COMM_EST | SQ_DRAINED | QP_LAST_WQE_REACHED => {
                Handle::<IbvQp>::at(event.element).get()?.ack_async_events(1)
            }
            _ => {}
        }
        Ok(())
    });
}
