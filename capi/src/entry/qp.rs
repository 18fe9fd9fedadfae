//! Functions of queue pairs.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

use softroce::engine::CreateError;
use softroce::verbs::{Error, FlatAttr, Gid, QpConfig, QpType, Qpn, RateLimit, SendOps};

use super::qp_ex::WR;
use crate::abi::{
    Handle, IbvContext, IbvPd, IbvQp, In, Out, QP_INIT_ATTR_SHARED, QpAttr, QpInitAttr,
    QpInitAttrEx, QpOpenAttr, RateLimitAttr,
};
use crate::border::{Errno, handle_or_null, value_or, zero_or_errno};
use crate::convert::qp_attr::{flat, qp_attr};
use crate::objects::qp::{End, Qp, QpParents};

/// Returns operations for `ibv_wr_start`, except ATOMIC WRITE: memory of a C program does not support it, and
/// a program that asks for it needs it at both ends.
fn send_ops(flags: u64) -> Result<SendOps, Errno> {
    let known = SendOps::from_bits(flags).filter(|ops| !ops.contains(SendOps::ATOMIC_WRITE));
    known.ok_or_else(|| {
        Errno::unsupported(format!(
            "send_ops_flags {flags:#x} have unknown operations, or ATOMIC WRITE, which memory of a C program lacks"
        ))
    })
}

/// Returns the type with a number of `ibv_qp_type`.
fn qp_type(number: c_uint) -> Result<QpType, Errno> {
    QpType::ALL.into_iter().find(|known| *known as c_uint == number).ok_or_else(|| {
        Errno::unsupported(format!("queue pair type {number} is not one of RC, UC, UD and XRC"))
    })
}

/// Creates a queue pair that sends.
fn create(
    of: &QpParents,
    attr: &QpInitAttr,
    send_ops: Option<SendOps>,
) -> Result<Handle<IbvQp>, Errno> {
    let qp_type = qp_type(attr.qp_type)?;
    let send_cq = &attr.send_cq.get()?.verbs;
    let config = QpConfig {
        qp_type,
        send_cq,
        // The sending end of XRC has no receive queue.
        recv_cq: attr.recv_cq.optional()?.map_or(send_cq, |cq| &cq.verbs),
        srq: attr.srq.optional()?.map(|srq| &srq.verbs),
        cap: attr.cap.into(),
        sq_sig_all: attr.sq_sig_all != 0,
        send_ops,
    };
    if qp_type != QpType::XrcIni && attr.recv_cq.is_null() {
        return Err(Errno::invalid(
            "the queue pair has no completion queue for receives (recv_cq is NULL)",
        ));
    }
    let pair = of.pd.get()?.verbs.create_qp(&config)?;
    Qp::create(of, End::Pair(pair), send_ops.is_some(), WR)
}

pub(crate) extern "C" fn create_qp(pd: Handle<IbvPd>, attr: Out<QpInitAttr>) -> Handle<IbvQp> {
    handle_or_null(|| {
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

/// `IBV_QP_CREATE_BLOCK_SELF_MCAST_LB`. A queue pair never receives its own multicast packets.
const BLOCK_SELF: u32 = 2;

pub(crate) extern "C" fn create_qp_ex(
    context: Handle<IbvContext>,
    attr: Out<QpInitAttrEx>,
) -> Handle<IbvQp> {
    handle_or_null(|| {
        let given = attr.read()?;
        let has = |bit| given.comp_mask & bit != 0;
        let known = WITH_PD | WITH_XRCD | WITH_FLAGS | WITH_SEND_OPS;
        let flags = if has(WITH_FLAGS) { given.create_flags } else { 0 };
        if given.comp_mask & !known != 0 || flags & !BLOCK_SELF != 0 {
            return Err(Errno::unsupported(format!(
                "comp_mask {:#x} or create_flags {flags:#x} have bits of unsupported features",
                given.comp_mask
            )));
        }
        if given.qp_type == QpType::XrcTgt as c_uint {
            if !has(WITH_XRCD) {
                return Err(Error::Create(CreateError::NoXrcd).into());
            }
            let target = given.xrcd.get()?.verbs.create_target()?;
            // An XRC target needs no protection domain. `librdmacm` gives one, and takes it back from the queue pair.
            let pd = if has(WITH_PD) { given.pd } else { Handle::NULL };
            let of =
                QpParents { pd, ..QpParents::of_target(context, given.xrcd, given.qp_context) };
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
) -> Handle<IbvQp> {
    handle_or_null(|| {
        let attr = attr.read()?;
        let needed = OPEN_NUM | OPEN_XRCD | OPEN_TYPE;
        let is_known = attr.comp_mask & !(needed | OPEN_CONTEXT) == 0;
        if !is_known
            || attr.comp_mask & needed != needed
            || qp_type(attr.qp_type)? != QpType::XrcTgt
        {
            return Err(Errno::invalid(
                "attributes need a number, an XRC domain and the type XRC target, and no more",
            ));
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

/// Returns null for a queue pair that was not created for `ibv_wr_start`.
pub(crate) extern "C" fn qp_to_qp_ex(qp: Handle<IbvQp>) -> Handle<IbvQp> {
    handle_or_null(|| Ok(if qp.get()?.is_extended() { qp } else { Handle::NULL }))
}

/// Waits until the program has acknowledged all events. Fails while other objects use the queue pair.
pub(crate) extern "C" fn destroy_qp(qp: Handle<IbvQp>) -> c_int {
    zero_or_errno(|| {
        let object = qp.get()?;
        while let Err(error) = object.destroy() {
            if !error.is_unacknowledged() {
                return Err(error.into());
            }
            object.wait_acknowledged()?;
        }
        object.unregister();
        qp.destroy();
        Ok(())
    })
}

pub(crate) extern "C" fn modify_qp(qp: Handle<IbvQp>, attr: In<QpAttr>, mask: c_int) -> c_int {
    zero_or_errno(|| {
        let mask = mask.cast_unsigned();
        Ok(qp.get()?.modify(&flat(&attr.read()?, mask)?, mask)?)
    })
}

pub(crate) extern "C" fn query_qp(
    qp: Handle<IbvQp>,
    attr: Out<QpAttr>,
    _mask: c_int,
    init: Out<QpInitAttr>,
) -> c_int {
    zero_or_errno(|| {
        let qp = qp.get()?;
        let info = qp.query()?;
        let base = &qp.c.base;
        attr.write(qp_attr(&FlatAttr::of(&info)));
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

pub(crate) extern "C" fn modify_qp_rate_limit(qp: Handle<IbvQp>, attr: In<RateLimitAttr>) -> c_int {
    zero_or_errno(|| {
        let attr = attr.read()?;
        if attr.comp_mask != 0 {
            return Err(Errno::invalid(
                "comp_mask is not 0: no extension of ibv_qp_rate_limit_attr exists",
            ));
        }
        let limit = RateLimit { kbps: attr.rate_limit, max_burst: attr.max_burst_sz };
        Ok(qp.get()?.initiator()?.modify_rate_limit(limit)?)
    })
}

pub(crate) extern "C" fn attach_mcast(qp: Handle<IbvQp>, gid: In<[u8; 16]>, _lid: u16) -> c_int {
    zero_or_errno(|| Ok(qp.get()?.initiator()?.attach_mcast(Gid(gid.read()?))?))
}

pub(crate) extern "C" fn detach_mcast(qp: Handle<IbvQp>, gid: In<[u8; 16]>, _lid: u16) -> c_int {
    zero_or_errno(|| Ok(qp.get()?.initiator()?.detach_mcast(Gid(gid.read()?))?))
}

/// Fails: enhanced connection establishment negotiates options of vendors, and there are none.
pub(crate) extern "C" fn ece(qp: Handle<IbvQp>, _ece: Out<u8>) -> c_int {
    zero_or_errno(|| {
        qp.get()?;
        Err(Errno::unsupported(
            "enhanced connection establishment has options of vendors, and this device has none",
        ))
    })
}

/// Returns no guarantees: bytes of a message may become visible in any order, except that its last 8 follow
/// all others.
pub(crate) extern "C" fn query_qp_data_in_order(
    qp: Handle<IbvQp>,
    _opcode: c_uint,
    _flags: u32,
) -> c_int {
    value_or(0, || qp.get().map(|_| 0))
}
