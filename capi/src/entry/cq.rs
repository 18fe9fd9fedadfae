//! Functions of completion queues.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use softroce::verbs::{CqConfig, Moderation, WcFlags};

use super::cq_ex::READ;
use crate::abi::{
    CqInitAttrEx, Handle, IbvCompChannel, IbvContext, IbvCq, In, ModifyCqAttr, Out, UserData, Wc,
};
use crate::border::{Errno, handle_or_null, int_or_minus_one, size_from, zero_or_errno};
use crate::convert::completion::wc;
use crate::objects::cq::{Cq, CqFields};

/// Creates a queue.
fn create(
    context: Handle<IbvContext>,
    channel: Handle<IbvCompChannel>,
    cq_context: UserData,
    config: &CqConfig<'_>,
) -> Result<Handle<IbvCq>, Errno> {
    let verbs = context.get()?.verbs.create_cq_ex(config)?;
    let fields = CqFields { context, channel, cq_context, depth: config.depth, read: READ };
    Cq::create(&fields, verbs)
}

pub(crate) extern "C" fn create_cq(
    context: Handle<IbvContext>,
    cqe: c_int,
    cq_context: UserData,
    channel: Handle<IbvCompChannel>,
    comp_vector: c_int,
) -> Handle<IbvCq> {
    handle_or_null(|| {
        let config = CqConfig {
            channel: channel.optional()?.map(|channel| &channel.verbs),
            comp_vector: u32::try_from(comp_vector)
                .map_err(|_| Errno::invalid("the completion vector is negative"))?,
            ..CqConfig::new(size_from(cqe)?)
        };
        create(context, channel, cq_context, &config)
    })
}

/// `IBV_CQ_INIT_ATTR_MASK_FLAGS`.
const WITH_FLAGS: u32 = 1;
/// `IBV_CQ_INIT_ATTR_MASK_PD`.
const WITH_PD: u32 = 2;
/// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`.
const SINGLE_THREADED: u32 = 1;
/// `IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`.
const IGNORE_OVERRUN: u32 = 2;

pub(crate) extern "C" fn create_cq_ex(
    context: Handle<IbvContext>,
    attr: In<CqInitAttrEx>,
) -> Handle<IbvCq> {
    handle_or_null(|| {
        let attr = attr.read()?;
        let flags = if attr.comp_mask & WITH_FLAGS == 0 { 0 } else { attr.flags };
        let known = SINGLE_THREADED | IGNORE_OVERRUN;
        if attr.comp_mask & !(WITH_FLAGS | WITH_PD) != 0 || flags & !known != 0 {
            return Err(Errno::unsupported(format!(
                "comp_mask {:#x} or flags {flags:#x} have bits of unsupported features",
                attr.comp_mask
            )));
        }
        let parent = match attr.comp_mask & WITH_PD {
            0 => None,
            _ => Some(&attr.parent_domain.get()?.verbs),
        };
        let config = CqConfig {
            channel: attr.channel.optional()?.map(|channel| &channel.verbs),
            comp_vector: attr.comp_vector,
            wc_flags: WcFlags::from_bits(attr.wc_flags).ok_or_else(|| {
                Errno::unsupported(format!("wc_flags {:#x} have unknown bits", attr.wc_flags))
            })?,
            ignore_overrun: flags & IGNORE_OVERRUN != 0,
            single_threaded: flags & SINGLE_THREADED != 0,
            parent_domain: parent,
            ..CqConfig::new(size_from(attr.cqe)?)
        };
        create(context, attr.channel, attr.cq_context, &config)
    })
}

pub(crate) extern "C" fn resize_cq(cq: Handle<IbvCq>, cqe: c_int) -> c_int {
    zero_or_errno(|| {
        let cq = cq.get()?;
        cq.verbs.resize(size_from(cqe)?)?;
        cq.c.cqe.store(cqe, Ordering::Relaxed);
        Ok(())
    })
}

/// `IBV_CQ_ATTR_MODERATE`.
const MODERATE: u32 = 1;

pub(crate) extern "C" fn modify_cq(cq: Handle<IbvCq>, attr: In<ModifyCqAttr>) -> c_int {
    zero_or_errno(|| {
        let attr = attr.read()?;
        if attr.attr_mask != MODERATE {
            return Err(Errno::invalid(format!(
                "attr_mask is {:#x}: only IBV_CQ_ATTR_MODERATE (1) can be modified",
                attr.attr_mask
            )));
        }
        let moderation = Moderation { count: attr.cq_count, period: attr.cq_period };
        Ok(cq.get()?.verbs.modify(moderation)?)
    })
}

/// Waits until the program has acknowledged all events. Fails while other objects use the queue.
pub(crate) extern "C" fn destroy_cq(cq: Handle<IbvCq>) -> c_int {
    zero_or_errno(|| {
        let object = cq.get()?;
        while let Err((_, error)) = object.verbs.clone().destroy() {
            if !error.is_unacknowledged() {
                return Err(error.into());
            }
            object.verbs.wait_acknowledged(None)?;
        }
        object.unregister()?;
        cq.destroy();
        Ok(())
    })
}

pub(crate) extern "C" fn poll_cq(cq: Handle<IbvCq>, max: c_int, to: Out<Wc>) -> c_int {
    int_or_minus_one(|| {
        let count = cq.get()?.poll(size_from(max)?, |n, completion| to.write_at(n, wc(completion)));
        c_int::try_from(count).map_err(|_| Errno::invalid("the number of completions is too large"))
    })
}

pub(crate) extern "C" fn req_notify_cq(cq: Handle<IbvCq>, solicited_only: c_int) -> c_int {
    zero_or_errno(|| {
        cq.get()?.verbs.req_notify(solicited_only != 0);
        Ok(())
    })
}
