//! Functions of completion channels.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::abi::{ChannelHead, Handle, IbvCompChannel, IbvContext, IbvCq, Out, UserData};
use crate::border::{handle_or_null, int_or_minus_one, without_result, zero_or_errno};
use crate::objects::channel::Channel;
use crate::objects::descriptor;

pub(crate) extern "C" fn create_comp_channel(
    context: Handle<IbvContext>,
) -> Handle<IbvCompChannel> {
    handle_or_null(|| {
        let object = context.get()?;
        let verbs = object.verbs.create_channel()?;
        descriptor::set_blocking(verbs.as_fd())?;
        let c = ChannelHead { context, fd: verbs.as_raw_fd(), refcnt: AtomicI32::new(0) };
        Ok(Handle::new(Channel { c, verbs, objects: Arc::clone(&object.objects) }))
    })
}

pub(crate) extern "C" fn destroy_comp_channel(channel: Handle<IbvCompChannel>) -> c_int {
    zero_or_errno(|| {
        channel.get()?.verbs.clone().destroy().map_err(|(_, error)| error)?;
        channel.destroy();
        Ok(())
    })
}

pub(crate) extern "C" fn get_cq_event(
    channel: Handle<IbvCompChannel>,
    cq: Out<Handle<IbvCq>>,
    cq_context: Out<UserData>,
) -> c_int {
    int_or_minus_one(|| {
        let channel = channel.get()?;
        let limit = descriptor::wait_limit(channel.verbs.as_fd())?;
        loop {
            let event = channel.verbs.wait_interruptible(limit)?;
            // An event of a queue that is being destroyed is dropped.
            let Some(found) = channel.cq(event.id().0) else { continue };
            event.keep();
            cq.write(found);
            cq_context.write(found.get()?.c.cq_context.load(Ordering::Relaxed));
            return Ok(0);
        }
    })
}

pub(crate) extern "C" fn ack_cq_events(cq: Handle<IbvCq>, events: u32) {
    without_result(|| {
        cq.get()?.verbs.ack_events(events);
        Ok(())
    });
}
