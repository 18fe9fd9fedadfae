//! Completion channels.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use softroce::verbs::CompletionChannel;

use crate::abi::{IbvCompChannel, UserData};
use crate::border::{Errno, Handle, Object, Out, minus_one, nothing, number, pointer};
use crate::entry::cq::Cq;
use crate::gate::lock;
use crate::objects::context::{Context, Objects};

/// `ibv_comp_channel`.
#[repr(C)]
pub(crate) struct Channel {
    pub(crate) c: IbvCompChannel,
    pub(crate) verbs: CompletionChannel,
    objects: Arc<Mutex<Objects>>,
}

impl Object for Channel {}

/// Makes a descriptor one that blocks, as programs expect it of a new one: whether they have changed
/// that tells us whether to wait.
pub(crate) fn block(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = flags(fd)?;
    fcntl(fd, FcntlArg::F_SETFL(flags.difference(OFlag::O_NONBLOCK))).map_err(system)?;
    Ok(())
}

/// How long to wait for what a descriptor announces: not at all if the program has made it one that
/// does not block, or for ever.
pub(crate) fn patience(fd: BorrowedFd<'_>) -> Result<Option<Duration>, Errno> {
    Ok(flags(fd)?.contains(OFlag::O_NONBLOCK).then_some(Duration::ZERO))
}

fn flags(fd: BorrowedFd<'_>) -> Result<OFlag, Errno> {
    fcntl(fd, FcntlArg::F_GETFL).map(OFlag::from_bits_retain).map_err(system)
}

fn system(error: nix::errno::Errno) -> Errno {
    Errno(error as c_int)
}

pub(crate) extern "C" fn create_comp_channel(context: Handle<Context>) -> Handle<Channel> {
    pointer(|| {
        let known = context.get()?;
        let verbs = known.verbs.create_channel()?;
        block(verbs.as_fd())?;
        let c = IbvCompChannel { context, fd: verbs.as_raw_fd(), refcnt: AtomicI32::new(0) };
        Ok(Handle::new(Channel { c, verbs, objects: Arc::clone(&known.objects) }))
    })
}

pub(crate) extern "C" fn destroy_comp_channel(channel: Handle<Channel>) -> c_int {
    number(|| {
        channel.get()?.verbs.clone().destroy().map_err(|(_, error)| error)?;
        channel.destroy();
        Ok(())
    })
}

pub(crate) extern "C" fn get_cq_event(
    channel: Handle<Channel>,
    cq: Out<Handle<Cq>>,
    cq_context: Out<UserData>,
) -> c_int {
    minus_one(|| {
        let channel = channel.get()?;
        let patience = patience(channel.verbs.as_fd())?;
        loop {
            let event = channel.verbs.wait_interruptible(patience)?;
            let found = lock(&channel.objects).cqs.get(&event.id().0).copied();
            // It may be about to be destroyed; then its event counts no more.
            let Some(found) = found else { continue };
            event.keep();
            cq.write(found);
            cq_context.write(found.get()?.c.cq_context.load(Ordering::Relaxed));
            return Ok(0);
        }
    })
}

pub(crate) extern "C" fn ack_cq_events(cq: Handle<Cq>, events: u32) {
    nothing(|| {
        cq.get()?.verbs.ack_events(events);
        Ok(())
    });
}
