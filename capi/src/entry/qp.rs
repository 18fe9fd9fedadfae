//! Functions of queue pairs.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

use softroce::engine::CreateError;
use softroce::verbs::{Error, FlatAttr, Gid, QpConfig, QpType, Qpn, RateLimit, SendOps};

use super::qp_ex::WR;
use crate::abi::{
    Handle, IbvContext, IbvPd, IbvQpEx, In, Out, QP_INIT_ATTR_SHARED, QpAttr, QpInitAttr,
    QpInitAttrEx, QpOpenAttr, RateLimitAttr,
};
use crate::border::{Errno, number, or, pointer};
use crate::convert::qp_attr::{flat, told};
use crate::objects::qp::{End, Qp, QpParents};

/// The operations of `ibv_wr_start`. ATOMIC WRITE is none of them: no memory of C takes it, and a program that
/// asks for it means to have it at both ends.
fn send_ops(flags: u64) -> Result<SendOps, Errno> {
    let known = SendOps::from_bits(flags).filter(|ops| !ops.contains(SendOps::ATOMIC_WRITE));
    known.ok_or(Errno::UNSUPPORTED)
}

fn qp_type(found: c_uint) -> Result<QpType, Errno> {
    QpType::ALL.into_iter().find(|known| *known as c_uint == found).ok_or(Errno::UNSUPPORTED)
}

/// Creates a queue pair that sends.
fn create(
    of: &QpParents,
    attr: &QpInitAttr,
    send_ops: Option<SendOps>,
) -> Result<Handle<IbvQpEx>, Errno> {
    let qp_type = qp_type(attr.qp_type)?;
    let send_cq = &attr.send_cq.get()?.verbs;
    let config = QpConfig {
        qp_type,
        send_cq,
        // The sending end of XRC receives nothing.
        recv_cq: attr.recv_cq.optional()?.map_or(send_cq, |cq| &cq.verbs),
        srq: attr.srq.optional()?.map(|srq| &srq.verbs),
        cap: attr.cap.into(),
        sq_sig_all: attr.sq_sig_all != 0,
        send_ops,
    };
    if qp_type != QpType::XrcIni && attr.recv_cq.is_null() {
        return Err(Errno::INVALID);
    }
    let pair = of.pd.get()?.verbs.create_qp(&config)?;
    Qp::create(of, End::Pair(pair), send_ops.is_some(), WR)
}

pub(crate) extern "C" fn create_qp(pd: Handle<IbvPd>, attr: Out<QpInitAttr>) -> Handle<IbvQpEx> {
    pointer(|| {
        let given = attr.read()?;
        let of = QpParents {
            context: pd.get()?.c.context,
            pd,
            qp_context: given.qp_context,
            send_cq: given.send_cq,
            recv_cq: given.recv_cq,
            srq: given.srq,
            xrcd: Handle::NULL,
        };
        let qp = create(&of, &given, None)?;
        let cap = (*qp.get()?.cap()).into();
        attr.write_prefix(&QpInitAttr { cap, ..given }, QP_INIT_ATTR_SHARED);
        Ok(qp)
    })
}

/// `ibv_qp_init_attr_mask`.
const WITH_PD: u32 = 1;
const WITH_XRCD: u32 = 2;
const WITH_FLAGS: u32 = 4;
const WITH_SEND_OPS: u32 = 64;

/// `IBV_QP_CREATE_BLOCK_SELF_MCAST_LB`: what a queue pair sends to a group never comes back to it.
const BLOCK_SELF: u32 = 2;

pub(crate) extern "C" fn create_qp_ex(
    context: Handle<IbvContext>,
    attr: Out<QpInitAttrEx>,
) -> Handle<IbvQpEx> {
    pointer(|| {
        let given = attr.read()?;
        let has = |bit| given.comp_mask & bit != 0;
        let known = WITH_PD | WITH_XRCD | WITH_FLAGS | WITH_SEND_OPS;
        let flags = if has(WITH_FLAGS) { given.create_flags } else { 0 };
        if given.comp_mask & !known != 0 || flags & !BLOCK_SELF != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        if given.qp_type == QpType::XrcTgt as c_uint {
            if !has(WITH_XRCD) {
                return Err(Error::Create(CreateError::NoXrcd).into());
            }
            let target = given.xrcd.get()?.verbs.create_target()?;
            let of = QpParents::of_target(context, given.xrcd, given.qp_context);
            return Qp::create(&of, End::Target(target), false, WR);
        }
        let of = QpParents {
            context,
            pd: if has(WITH_PD) { given.pd } else { Handle::NULL },
            qp_context: given.qp_context,
            send_cq: given.send_cq,
            recv_cq: given.recv_cq,
            srq: given.srq,
            xrcd: Handle::NULL,
        };
        let send_ops = match has(WITH_SEND_OPS) {
            false => None,
            true => Some(send_ops(given.send_ops_flags)?),
        };
        let plain = QpInitAttr {
            qp_context: given.qp_context,
            send_cq: given.send_cq,
            recv_cq: given.recv_cq,
            srq: given.srq,
            cap: given.cap,
            qp_type: given.qp_type,
            sq_sig_all: given.sq_sig_all,
        };
        let qp = create(&of, &plain, send_ops)?;
        let cap = (*qp.get()?.cap()).into();
        attr.write_prefix(&QpInitAttrEx { cap, ..given }, QP_INIT_ATTR_SHARED);
        Ok(qp)
    })
}

/// `ibv_qp_open_attr_mask`.
const OPEN_NUM: u32 = 1;
const OPEN_XRCD: u32 = 2;
const OPEN_CONTEXT: u32 = 4;
const OPEN_TYPE: u32 = 8;

pub(crate) extern "C" fn open_qp(
    context: Handle<IbvContext>,
    attr: In<QpOpenAttr>,
) -> Handle<IbvQpEx> {
    pointer(|| {
        let attr = attr.read()?;
        let needed = OPEN_NUM | OPEN_XRCD | OPEN_TYPE;
        let is_known = attr.comp_mask & !(needed | OPEN_CONTEXT) == 0;
        if !is_known
            || attr.comp_mask & needed != needed
            || qp_type(attr.qp_type)? != QpType::XrcTgt
        {
            return Err(Errno::INVALID);
        }
        let target = attr.xrcd.get()?.verbs.open_target(Qpn::new(attr.qp_num))?;
        let qp_context = match attr.comp_mask & OPEN_CONTEXT {
            0 => std::ptr::null_mut(),
            _ => attr.qp_context,
        };
        let of = QpParents::of_target(context, attr.xrcd, qp_context);
        Qp::create(&of, End::Target(target), false, WR)
    })
}

/// Null for a queue pair that was not created for it.
pub(crate) extern "C" fn qp_to_qp_ex(qp: Handle<IbvQpEx>) -> Handle<IbvQpEx> {
    pointer(|| Ok(if qp.get()?.is_extended() { qp } else { Handle::NULL }))
}

/// Waits until its events are acknowledged, if nothing else keeps it.
pub(crate) extern "C" fn destroy_qp(qp: Handle<IbvQpEx>) -> c_int {
    number(|| {
        let known = qp.get()?;
        while let Err(error) = known.destroy() {
            if !error.is_unacknowledged() {
                return Err(error.into());
            }
            known.wait_acknowledged()?;
        }
        known.unregister();
        qp.destroy();
        Ok(())
    })
}

pub(crate) extern "C" fn modify_qp(qp: Handle<IbvQpEx>, attr: In<QpAttr>, mask: c_int) -> c_int {
    number(|| {
        let mask = mask.cast_unsigned();
        Ok(qp.get()?.modify(&flat(&attr.read()?, mask)?, mask)?)
    })
}

pub(crate) extern "C" fn query_qp(
    qp: Handle<IbvQpEx>,
    attr: Out<QpAttr>,
    _mask: c_int,
    init: Out<QpInitAttr>,
) -> c_int {
    number(|| {
        let qp = qp.get()?;
        let info = qp.query()?;
        let base = &qp.c.base;
        attr.write(told(&FlatAttr::of(&info)));
        init.write(QpInitAttr {
            qp_context: base.qp_context.load(Ordering::Relaxed),
            send_cq: base.send_cq,
            recv_cq: base.recv_cq,
            srq: base.srq,
            cap: info.init.cap.into(),
            qp_type: base.qp_type,
            sq_sig_all: info.init.sq_sig_all.into(),
        });
        Ok(())
    })
}

pub(crate) extern "C" fn modify_qp_rate_limit(
    qp: Handle<IbvQpEx>,
    attr: In<RateLimitAttr>,
) -> c_int {
    number(|| {
        let attr = attr.read()?;
        if attr.comp_mask != 0 {
            return Err(Errno::INVALID);
        }
        let limit = RateLimit { kbps: attr.rate_limit, max_burst: attr.max_burst_sz };
        Ok(qp.get()?.initiator()?.modify_rate_limit(limit)?)
    })
}

pub(crate) extern "C" fn attach_mcast(qp: Handle<IbvQpEx>, gid: In<[u8; 16]>, _lid: u16) -> c_int {
    number(|| Ok(qp.get()?.initiator()?.attach_mcast(Gid(gid.read()?))?))
}

pub(crate) extern "C" fn detach_mcast(qp: Handle<IbvQpEx>, gid: In<[u8; 16]>, _lid: u16) -> c_int {
    number(|| Ok(qp.get()?.initiator()?.detach_mcast(Gid(gid.read()?))?))
}

/// Enhanced connection establishment is a matter of vendors: there is nothing to be agreed on.
pub(crate) extern "C" fn ece(qp: Handle<IbvQpEx>, _ece: Out<u8>) -> c_int {
    or(Errno::UNSUPPORTED.0, || {
        qp.get()?;
        Err(Errno::UNSUPPORTED)
    })
}

/// Nothing is promised of the order in which bytes of a message appear, but that its last 8 do so after
/// all others.
pub(crate) extern "C" fn query_qp_data_in_order(
    qp: Handle<IbvQpEx>,
    _opcode: c_uint,
    _flags: u32,
) -> c_int {
    or(0, || qp.get().map(|_| 0))
}
