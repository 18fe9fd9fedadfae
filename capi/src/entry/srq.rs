//! Shared receive queues and XRC domains.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicPtr, AtomicU32};
use std::sync::{Arc, Mutex};

use softroce::verbs::{SharedReceiveQueue, SrqConfig, SrqModify, XrcDomain, XrcdOptions};

use crate::abi::{
    Handle, IbvContext, IbvPd, IbvSrq, IbvXrcd, In, Out, SrqAttr, SrqInitAttr, SrqInitAttrEx,
    UserData, XrcdInitAttr,
};
use crate::border::{Errno, Head, descriptor, number, pointer};
use crate::entry::pd::next_handle;
use crate::gate::lock;
use crate::objects::context::Objects;
use crate::objects::users::{User, Users};

/// `ibv_srq`.
#[repr(C)]
pub(crate) struct Srq {
    c: IbvSrq,
    pub(crate) verbs: SharedReceiveQueue,
    max_sge: u32,
    _of_xrcd: Option<User>,
    objects: Arc<Mutex<Objects>>,
}

impl Head for IbvSrq {
    type Object = Srq;
}

impl Srq {
    /// Maximum number of pieces of a receive request.
    pub(crate) fn max_sge(&self) -> u32 {
        self.max_sge
    }
}

/// `ibv_xrcd`.
#[repr(C)]
pub(crate) struct Xrcd {
    c: IbvXrcd,
    pub(crate) verbs: XrcDomain,
    /// Its queues, and targets that were made or opened through it.
    pub(crate) users: Users,
}

impl Head for IbvXrcd {
    type Object = Xrcd;
}

fn make(
    pd: Handle<IbvPd>,
    srq_context: UserData,
    verbs: SharedReceiveQueue,
    of_xrcd: Option<User>,
) -> Result<Handle<IbvSrq>, Errno> {
    let context = pd.get()?.c.context;
    let objects = Arc::clone(&context.get()?.objects);
    let max_sge = verbs.query()?.max_sge;
    let (srqn, table) = (verbs.srqn(), Arc::clone(&objects));
    let c = IbvSrq {
        context,
        srq_context: AtomicPtr::new(srq_context),
        pd,
        handle: next_handle(),
        mutex: Default::default(),
        cond: Default::default(),
        events_completed: AtomicU32::new(0),
    };
    let srq = Handle::new(Srq { c, verbs, max_sge, _of_xrcd: of_xrcd, objects });
    lock(&table).srqs.insert(srqn, srq);
    Ok(srq)
}

fn config(attr: &SrqAttr) -> SrqConfig {
    SrqConfig { max_wr: attr.max_wr, max_sge: attr.max_sge }
}

/// What the queue has.
fn told(verbs: &SharedReceiveQueue) -> Result<SrqAttr, Errno> {
    let found = verbs.query()?;
    Ok(SrqAttr { max_wr: found.max_wr, max_sge: found.max_sge, srq_limit: found.limit })
}

pub(crate) extern "C" fn create_srq(pd: Handle<IbvPd>, attr: Out<SrqInitAttr>) -> Handle<IbvSrq> {
    pointer(|| {
        let given = attr.read()?;
        let verbs = pd.get()?.verbs.create_srq(&config(&given.attr))?;
        let granted = told(&verbs)?;
        let srq = make(pd, given.srq_context, verbs, None)?;
        attr.write(SrqInitAttr { attr: granted, ..given });
        Ok(srq)
    })
}

/// `ibv_srq_init_attr_mask`.
const WITH_TYPE: u32 = 1;
const WITH_PD: u32 = 2;
const WITH_XRCD: u32 = 4;
const WITH_CQ: u32 = 8;

/// `ibv_srq_type`.
const BASIC: c_uint = 0;
const XRC: c_uint = 1;

pub(crate) extern "C" fn create_srq_ex(
    context: Handle<IbvContext>,
    attr: Out<SrqInitAttrEx>,
) -> Handle<IbvSrq> {
    pointer(|| {
        let (given, _) = (attr.read()?, context.get()?);
        let has = |bits| given.comp_mask & bits == bits;
        if given.comp_mask & !(WITH_TYPE | WITH_PD | WITH_XRCD | WITH_CQ) != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        if !has(WITH_PD) {
            return Err(Errno::INVALID);
        }
        let pd = &given.pd.get()?.verbs;
        let (verbs, of_xrcd) = match if has(WITH_TYPE) { given.srq_type } else { BASIC } {
            BASIC => (pd.create_srq(&config(&given.attr))?, None),
            XRC if has(WITH_XRCD | WITH_CQ) => {
                let (domain, cq) = (given.xrcd.get()?, &given.cq.get()?.verbs);
                let srq = pd.create_xrc_srq(&config(&given.attr), &domain.verbs, cq)?;
                (srq, Some(domain.users.join()))
            }
            XRC => return Err(Errno::INVALID),
            _ => return Err(Errno::UNSUPPORTED),
        };
        let granted = told(&verbs)?;
        let srq = make(given.pd, given.srq_context, verbs, of_xrcd)?;
        attr.write(SrqInitAttrEx { attr: granted, ..given });
        Ok(srq)
    })
}

/// `ibv_srq_attr_mask`.
const MAX_WR: c_int = 1;
const LIMIT: c_int = 2;

pub(crate) extern "C" fn modify_srq(srq: Handle<IbvSrq>, attr: In<SrqAttr>, mask: c_int) -> c_int {
    number(|| {
        let attr = attr.read()?;
        if mask & !(MAX_WR | LIMIT) != 0 {
            return Err(Errno::INVALID);
        }
        Ok(srq.get()?.verbs.modify(SrqModify {
            max_wr: (mask & MAX_WR != 0).then_some(attr.max_wr),
            limit: (mask & LIMIT != 0).then_some(attr.srq_limit),
        })?)
    })
}

pub(crate) extern "C" fn query_srq(srq: Handle<IbvSrq>, to: Out<SrqAttr>) -> c_int {
    number(|| {
        to.write(told(&srq.get()?.verbs)?);
        Ok(())
    })
}

/// Waits until its events are acknowledged, if nothing else keeps it.
pub(crate) extern "C" fn destroy_srq(srq: Handle<IbvSrq>) -> c_int {
    number(|| {
        let known = srq.get()?;
        while let Err((_, error)) = known.verbs.clone().destroy() {
            if !error.is_unacknowledged() {
                return Err(error.into());
            }
            known.verbs.wait_acknowledged(None)?;
        }
        lock(&known.objects).srqs.remove(&known.verbs.srqn());
        debug_assert!(!known.c.pd.is_null());
        srq.destroy();
        Ok(())
    })
}

pub(crate) extern "C" fn get_srq_num(srq: Handle<IbvSrq>, to: Out<u32>) -> c_int {
    number(|| {
        let verbs = &srq.get()?.verbs;
        if verbs.xrc_domain().is_none() {
            return Err(Errno::UNSUPPORTED);
        }
        to.write(verbs.srqn().value());
        Ok(())
    })
}

/// `IBV_XRCD_INIT_ATTR_FD` and `_OFLAGS`, which are both needed.
const XRCD_NEEDED: u32 = 3;
/// `O_CREAT` and `O_EXCL`.
const CREATE: c_int = 0o100;
const EXCLUSIVE: c_int = 0o200;

pub(crate) extern "C" fn open_xrcd(
    context: Handle<IbvContext>,
    attr: In<XrcdInitAttr>,
) -> Handle<IbvXrcd> {
    pointer(|| {
        let attr = attr.read()?;
        if attr.comp_mask != XRCD_NEEDED {
            return Err(Errno::INVALID);
        }
        let verbs = context.get()?.verbs.open_xrcd(&XrcdOptions {
            file: descriptor(attr.fd),
            create: attr.oflags & CREATE != 0,
            exclusive: attr.oflags & EXCLUSIVE != 0,
        })?;
        Ok(Handle::new(Xrcd { c: IbvXrcd { context }, verbs, users: Users::default() }))
    })
}

pub(crate) extern "C" fn close_xrcd(xrcd: Handle<IbvXrcd>) -> c_int {
    number(|| {
        let known = xrcd.get()?;
        debug_assert!(!known.c.context.is_null());
        known.users.check()?;
        xrcd.destroy();
        Ok(())
    })
}
