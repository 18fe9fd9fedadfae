//! Queue pairs.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use softroce::engine::{AttrMask, CreateError};
use softroce::verbs::{
    Error, FlatAttr, Gid, QpConfig, QpInfo, QpType, Qpn, QueuePair, RateLimit, SendOps, XrcTarget,
};

use crate::abi::{
    Handle, IbvContext, IbvCqEx, IbvPd, IbvQp, IbvQpEx, IbvSrq, IbvXrcd, In, Out,
    QP_INIT_ATTR_SHARED, QpAttr, QpInitAttr, QpInitAttrEx, QpOpenAttr, RateLimitAttr, UserData,
};
use crate::border::{Errno, Head, number, or, pointer};
use crate::convert::qp_attr::{flat, told};
use crate::entry::pd::next_handle;
use crate::entry::qp_ex::{self, Requests};
use crate::gate::lock;
use crate::objects::context::Objects;
use crate::objects::users::User;

/// `ibv_qp`, which always is an `ibv_qp_ex`.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) c: IbvQpEx,
    end: End,
    qp_type: QpType,
    cap: softroce::verbs::QpCap,
    /// Of `ibv_wr_start`.
    pub(crate) requests: Requests,
    /// Whether it was created for `ibv_wr_start`.
    is_extended: bool,
    _of_xrcd: Option<User>,
    objects: Arc<Mutex<Objects>>,
}

impl Head for IbvQpEx {
    type Object = Qp;
}

/// What it is.
enum End {
    Pair(QueuePair),
    Target(XrcTarget),
}

impl Qp {
    /// The queue pair, which a target of XRC is not.
    pub(crate) fn initiator(&self) -> Result<&QueuePair, Errno> {
        match &self.end {
            End::Pair(pair) => Ok(pair),
            End::Target(_) => Err(Errno::INVALID),
        }
    }

    pub(crate) fn qp_type(&self) -> QpType {
        self.qp_type
    }

    /// The capacities that were granted.
    pub(crate) fn cap(&self) -> &softroce::verbs::QpCap {
        &self.cap
    }

    pub(crate) fn ack_async_events(&self, events: u32) {
        match &self.end {
            End::Pair(pair) => pair.ack_async_events(events),
            End::Target(target) => target.ack_async_events(events),
        }
    }
}

impl End {
    fn wait_acknowledged(&self) -> Result<(), Error> {
        match self {
            Self::Pair(pair) => pair.wait_acknowledged(None),
            Self::Target(target) => target.wait_acknowledged(None),
        }
    }

    fn check_destroy(&self) -> Result<(), Error> {
        match self {
            Self::Pair(pair) => pair.clone().destroy().map_err(|(_, error)| error),
            Self::Target(target) => target.clone().destroy().map_err(|(_, error)| error),
        }
    }

    fn query(&self) -> Result<QpInfo, Error> {
        match self {
            Self::Pair(pair) => pair.query(),
            Self::Target(target) => target.query(),
        }
    }

    fn qpn(&self) -> Qpn {
        match self {
            Self::Pair(pair) => pair.qpn(),
            Self::Target(target) => target.qpn(),
        }
    }
}

/// The operations of `ibv_wr_start`. ATOMIC WRITE is none of them: no memory of C takes it, and a program that
/// asks for it means to have it at both ends.
fn send_ops(flags: u64) -> Result<SendOps, Errno> {
    let known = SendOps::from_bits(flags).filter(|ops| !ops.contains(SendOps::ATOMIC_WRITE));
    known.ok_or(Errno::UNSUPPORTED)
}

/// What C has in the structure of a queue pair beside what follows from it.
struct Belongings {
    context: Handle<IbvContext>,
    pd: Handle<IbvPd>,
    qp_context: UserData,
    send_cq: Handle<IbvCqEx>,
    recv_cq: Handle<IbvCqEx>,
    srq: Handle<IbvSrq>,
    xrcd: Handle<IbvXrcd>,
}

fn make(of: &Belongings, end: End, is_extended: bool) -> Result<Handle<IbvQpEx>, Errno> {
    let objects = Arc::clone(&of.context.get()?.objects);
    let of_xrcd = of.xrcd.optional()?.map(|domain| domain.users.join());
    let (qpn, info) = (end.qpn(), end.query()?);
    let (qp_type, cap) = (info.init.qp_type, info.init.cap);
    let base = IbvQp {
        context: of.context,
        qp_context: AtomicPtr::new(of.qp_context),
        pd: of.pd,
        send_cq: of.send_cq,
        recv_cq: of.recv_cq,
        srq: of.srq,
        handle: next_handle(),
        qp_num: qpn.value(),
        state: AtomicU32::new(info.state as u32),
        qp_type: qp_type as c_uint,
        mutex: Default::default(),
        cond: Default::default(),
        events_completed: AtomicU32::new(0),
    };
    let c = IbvQpEx {
        base,
        comp_mask: 0,
        wr_id: AtomicU64::new(0),
        wr_flags: AtomicU32::new(0),
        wr: qp_ex::WR,
    };
    let requests = Requests::default();
    let table = Arc::clone(&objects);
    let qp =
        Handle::new(Qp { c, end, qp_type, cap, requests, is_extended, _of_xrcd: of_xrcd, objects });
    lock(&table).qps.insert(qpn, qp);
    Ok(qp)
}

fn qp_type(found: c_uint) -> Result<QpType, Errno> {
    QpType::ALL.into_iter().find(|known| *known as c_uint == found).ok_or(Errno::UNSUPPORTED)
}

/// Creates a queue pair that sends.
fn create(
    of: &Belongings,
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
    make(of, End::Pair(pair), send_ops.is_some())
}

pub(crate) extern "C" fn create_qp(pd: Handle<IbvPd>, attr: Out<QpInitAttr>) -> Handle<IbvQpEx> {
    pointer(|| {
        let given = attr.read()?;
        let of = Belongings {
            context: pd.get()?.c.context,
            pd,
            qp_context: given.qp_context,
            send_cq: given.send_cq,
            recv_cq: given.recv_cq,
            srq: given.srq,
            xrcd: Handle::NULL,
        };
        let qp = create(&of, &given, None)?;
        let cap = qp.get()?.end.query()?.init.cap.into();
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
            let of = of_target(context, given.xrcd, given.qp_context);
            return make(&of, End::Target(target), false);
        }
        let of = Belongings {
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
        let cap = qp.get()?.end.query()?.init.cap.into();
        attr.write_prefix(&QpInitAttrEx { cap, ..given }, QP_INIT_ATTR_SHARED);
        Ok(qp)
    })
}

/// A target of XRC has none of what other queue pairs have.
fn of_target(
    context: Handle<IbvContext>,
    xrcd: Handle<IbvXrcd>,
    qp_context: UserData,
) -> Belongings {
    Belongings {
        context,
        pd: Handle::NULL,
        qp_context,
        send_cq: Handle::NULL,
        recv_cq: Handle::NULL,
        srq: Handle::NULL,
        xrcd,
    }
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
        make(&of_target(context, attr.xrcd, qp_context), End::Target(target), false)
    })
}

/// Null for a queue pair that was not created for it.
pub(crate) extern "C" fn qp_to_qp_ex(qp: Handle<IbvQpEx>) -> Handle<IbvQpEx> {
    pointer(|| Ok(if qp.get()?.is_extended { qp } else { Handle::NULL }))
}

/// Waits until its events are acknowledged, if nothing else keeps it.
pub(crate) extern "C" fn destroy_qp(qp: Handle<IbvQpEx>) -> c_int {
    number(|| {
        let known = qp.get()?;
        while let Err(error) = known.end.check_destroy() {
            if !error.is_unacknowledged() {
                return Err(error.into());
            }
            known.end.wait_acknowledged()?;
        }
        lock(&known.objects).qps.remove(&known.end.qpn());
        qp.destroy();
        Ok(())
    })
}

/// Attributes of the end that a queue pair is not. Programs give both to either end of XRC, and the kernel leaves out
/// what is none of its.
fn ignored(qp_type: QpType) -> AttrMask {
    match qp_type {
        QpType::XrcIni => AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER,
        QpType::XrcTgt => AttrMask::MAX_QP_RD_ATOMIC | AttrMask::RETRY_CNT | AttrMask::RNR_RETRY,
        QpType::Rc | QpType::Uc | QpType::Ud => AttrMask::empty(),
    }
}

pub(crate) extern "C" fn modify_qp(qp: Handle<IbvQpEx>, attr: In<QpAttr>, mask: c_int) -> c_int {
    number(|| {
        let qp = qp.get()?;
        let mask = mask.cast_unsigned() & !ignored(qp.qp_type).bits();
        let attr = flat(&attr.read()?, mask)?;
        match &qp.end {
            End::Pair(pair) => pair.modify_masked(&attr, mask)?,
            End::Target(target) => target.modify_masked(&attr, mask)?,
        }
        let state = qp.end.query()?.state;
        qp.c.base.state.store(state as u32, Ordering::Relaxed);
        Ok(())
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
        let info = qp.end.query()?;
        let base = &qp.c.base;
        base.state.store(info.state as u32, Ordering::Relaxed);
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
