//! Completion queues.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use softroce::verbs::{Completion, CompletionQueue, CqConfig, IpVersion, Moderation, WcFlags};

use crate::abi::{
    CqInitAttrEx, Handle, IbvCompChannel, IbvContext, IbvCqEx, In, ModifyCqAttr, Out, UserData,
    WC_GRH, WC_WITH_IMM, WC_WITH_INV, Wc,
};
use crate::border::{Errno, Head, minus_one, number, pointer};
use crate::entry::cq_ex::{self, Looking};
use crate::entry::pd::next_handle;
use crate::gate::lock;
use crate::objects::context::Objects;

/// `ibv_cq`, which always is an `ibv_cq_ex`.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) c: IbvCqEx,
    pub(crate) verbs: CompletionQueue,
    pub(crate) looking: Looking,
    /// Where completions are on their way to the program's array.
    batch: Mutex<Vec<Completion>>,
    objects: Arc<Mutex<Objects>>,
}

impl Head for IbvCqEx {
    type Object = Cq;
}

fn make(
    context: Handle<IbvContext>,
    channel: Handle<IbvCompChannel>,
    cq_context: UserData,
    config: &CqConfig<'_>,
) -> Result<Handle<IbvCqEx>, Errno> {
    let known = context.get()?;
    let verbs = known.verbs.create_cq_ex(config)?;
    let id = verbs.id().0;
    let cq = Handle::new(Cq {
        c: IbvCqEx {
            context,
            channel,
            cq_context: AtomicPtr::new(cq_context),
            handle: next_handle(),
            cqe: AtomicI32::new(c_int::try_from(config.depth).unwrap_or(c_int::MAX)),
            mutex: Default::default(),
            cond: Default::default(),
            comp_events_completed: AtomicU32::new(0),
            async_events_completed: AtomicU32::new(0),
            comp_mask: 0,
            status: AtomicU32::new(0),
            wr_id: AtomicU64::new(0),
            read: cq_ex::READ,
        },
        verbs,
        looking: Looking::default(),
        batch: Mutex::default(),
        objects: Arc::clone(&known.objects),
    });
    lock(&known.objects).cqs.insert(id, cq);
    if let Some(channel) = channel.optional()? {
        channel.c.refcnt.fetch_add(1, Ordering::Relaxed);
    }
    Ok(cq)
}

/// A number of completions.
fn depth(cqe: c_int) -> Result<usize, Errno> {
    usize::try_from(cqe).map_err(|_| Errno::INVALID)
}

pub(crate) extern "C" fn create_cq(
    context: Handle<IbvContext>,
    cqe: c_int,
    cq_context: UserData,
    channel: Handle<IbvCompChannel>,
    comp_vector: c_int,
) -> Handle<IbvCqEx> {
    pointer(|| {
        let config = CqConfig {
            channel: channel.optional()?.map(|channel| &channel.verbs),
            comp_vector: u32::try_from(comp_vector).map_err(|_| Errno::INVALID)?,
            ..CqConfig::new(depth(cqe)?)
        };
        make(context, channel, cq_context, &config)
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
) -> Handle<IbvCqEx> {
    pointer(|| {
        let attr = attr.read()?;
        let flags = if attr.comp_mask & WITH_FLAGS == 0 { 0 } else { attr.flags };
        let known = SINGLE_THREADED | IGNORE_OVERRUN;
        if attr.comp_mask & !(WITH_FLAGS | WITH_PD) != 0 || flags & !known != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let parent = match attr.comp_mask & WITH_PD {
            0 => None,
            _ => Some(&attr.parent_domain.get()?.verbs),
        };
        let config = CqConfig {
            channel: attr.channel.optional()?.map(|channel| &channel.verbs),
            comp_vector: attr.comp_vector,
            wc_flags: WcFlags::from_bits(attr.wc_flags).ok_or(Errno::UNSUPPORTED)?,
            ignore_overrun: flags & IGNORE_OVERRUN != 0,
            single_threaded: flags & SINGLE_THREADED != 0,
            parent_domain: parent,
            ..CqConfig::new(usize::try_from(attr.cqe).map_err(|_| Errno::INVALID)?)
        };
        make(context, attr.channel, attr.cq_context, &config)
    })
}

pub(crate) extern "C" fn resize_cq(cq: Handle<IbvCqEx>, cqe: c_int) -> c_int {
    number(|| {
        let cq = cq.get()?;
        cq.verbs.resize(depth(cqe)?)?;
        cq.c.cqe.store(cqe, Ordering::Relaxed);
        Ok(())
    })
}

/// `IBV_CQ_ATTR_MODERATE`.
const MODERATE: u32 = 1;

pub(crate) extern "C" fn modify_cq(cq: Handle<IbvCqEx>, attr: In<ModifyCqAttr>) -> c_int {
    number(|| {
        let attr = attr.read()?;
        if attr.attr_mask != MODERATE {
            return Err(Errno::INVALID);
        }
        let moderation = Moderation { count: attr.cq_count, period: attr.cq_period };
        Ok(cq.get()?.verbs.modify(moderation)?)
    })
}

/// Waits until its events are acknowledged, if nothing else keeps it.
pub(crate) extern "C" fn destroy_cq(cq: Handle<IbvCqEx>) -> c_int {
    number(|| {
        let known = cq.get()?;
        while let Err((_, error)) = known.verbs.clone().destroy() {
            if !error.is_unacknowledged() {
                return Err(error.into());
            }
            known.verbs.wait_acknowledged(None)?;
        }
        lock(&known.objects).cqs.remove(&known.verbs.id().0);
        if let Some(channel) = known.c.channel.optional()? {
            channel.c.refcnt.fetch_sub(1, Ordering::Relaxed);
        }
        cq.destroy();
        Ok(())
    })
}

/// Immediate data in the order of the network, or the key that was invalidated.
pub(crate) fn imm_or_key(completion: &Completion) -> u32 {
    let key = completion.invalidated.map(|key| key.0);
    completion.imm.map(u32::to_be).or(key).unwrap_or(0)
}

/// What is with a completion.
pub(crate) fn wc_flags(completion: &Completion) -> u32 {
    let flag = |is_there: bool, flag: u32| if is_there { flag } else { 0 };
    flag(completion.source_qp.is_some(), WC_GRH)
        | flag(completion.imm.is_some(), WC_WITH_IMM)
        | flag(completion.invalidated.is_some(), WC_WITH_INV)
}

/// The service level of a completion. It is something of InfiniBand; on Ethernet ConnectX has in its place which
/// headers a datagram came with, and UCX relies on it: UDP (8) over IPv6 (1) or IPv4 (2).
pub(crate) fn service_level(completion: &Completion) -> u8 {
    match completion.ip_version {
        None => 0,
        Some(IpVersion::V6) => 8 | 1,
        Some(IpVersion::V4) => 8 | 2,
    }
}

fn wc(completion: &Completion) -> Wc {
    Wc {
        wr_id: completion.wr_id,
        status: completion.status as u32,
        opcode: completion.opcode as u32,
        vendor_err: 0,
        byte_len: completion.byte_len,
        imm_or_key: imm_or_key(completion),
        qp_num: completion.qpn.value(),
        src_qp: completion.source_qp.map_or(0, |qpn| qpn.value()),
        wc_flags: wc_flags(completion),
        pkey_index: 0,
        slid: 0,
        sl: service_level(completion),
        dlid_path_bits: 0,
    }
}

pub(crate) extern "C" fn poll_cq(cq: Handle<IbvCqEx>, max: c_int, to: Out<Wc>) -> c_int {
    minus_one(|| {
        let cq = cq.get()?;
        let max = depth(max)?;
        // Whoever polls at the same time has a list of his own.
        let (mut held, mut own);
        let batch = match cq.batch.try_lock() {
            Ok(guard) => {
                held = guard;
                &mut *held
            }
            Err(_) => {
                own = Vec::new();
                &mut own
            }
        };
        let count = cq.verbs.poll(batch, max);
        for (n, completion) in batch.drain(..).enumerate() {
            to.write_at(n, wc(&completion));
        }
        c_int::try_from(count).map_err(|_| Errno::INVALID)
    })
}

pub(crate) extern "C" fn req_notify_cq(cq: Handle<IbvCqEx>, solicited_only: c_int) -> c_int {
    number(|| {
        cq.get()?.verbs.req_notify(solicited_only != 0);
        Ok(())
    })
}
