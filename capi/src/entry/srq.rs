//! Functions of shared receive queues.

use std::ffi::{c_int, c_uint};

use softroce::verbs::{SharedReceiveQueue, SrqConfig, SrqModify};

use crate::abi::{Handle, IbvContext, IbvPd, IbvSrq, In, Out, SrqAttr, SrqInitAttr, SrqInitAttrEx};
use crate::border::{Errno, handle_or_null, zero_or_errno};
use crate::objects::srq::Srq;

fn config(attr: &SrqAttr) -> SrqConfig {
    SrqConfig { max_wr: attr.max_wr, max_sge: attr.max_sge }
}

/// Returns the attributes of a queue.
fn srq_attr(verbs: &SharedReceiveQueue) -> Result<SrqAttr, Errno> {
    let found = verbs.query()?;
    Ok(SrqAttr { max_wr: found.max_wr, max_sge: found.max_sge, srq_limit: found.limit })
}

pub(crate) extern "C" fn create_srq(pd: Handle<IbvPd>, attr: Out<SrqInitAttr>) -> Handle<IbvSrq> {
    handle_or_null(|| {
        let given = attr.read()?;
        let verbs = pd.get()?.verbs.create_srq(&config(&given.attr))?;
        let granted = srq_attr(&verbs)?;
        let srq = Srq::create(pd, given.srq_context, verbs, None)?;
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
    handle_or_null(|| {
        let (given, _) = (attr.read()?, context.get()?);
        let has = |bits| given.comp_mask & bits == bits;
        if given.comp_mask & !(WITH_TYPE | WITH_PD | WITH_XRCD | WITH_CQ) != 0 {
            return Err(Errno::unsupported(format!(
                "comp_mask {:#x} has bits of unsupported features",
                given.comp_mask
            )));
        }
        if !has(WITH_PD) {
            return Err(Errno::invalid("the attributes have no protection domain"));
        }
        let pd = &given.pd.get()?.verbs;
        let (verbs, of_xrcd) = match if has(WITH_TYPE) { given.srq_type } else { BASIC } {
            BASIC => (pd.create_srq(&config(&given.attr))?, None),
            XRC if has(WITH_XRCD | WITH_CQ) => {
                let (domain, cq) = (given.xrcd.get()?, &given.cq.get()?.verbs);
                let srq = pd.create_xrc_srq(&config(&given.attr), &domain.verbs, cq)?;
                (srq, Some(domain.users.join()))
            }
            XRC => {
                return Err(Errno::invalid(
                    "the attributes have no XRC domain or no completion queue",
                ));
            }
            other => {
                return Err(Errno::unsupported(format!(
                    "shared receive queue type {other} is not basic or XRC"
                )));
            }
        };
        let granted = srq_attr(&verbs)?;
        let srq = Srq::create(given.pd, given.srq_context, verbs, of_xrcd)?;
        attr.write(SrqInitAttrEx { attr: granted, ..given });
        Ok(srq)
    })
}

/// `ibv_srq_attr_mask`.
const MAX_WR: c_int = 1;
const LIMIT: c_int = 2;

pub(crate) extern "C" fn modify_srq(srq: Handle<IbvSrq>, attr: In<SrqAttr>, mask: c_int) -> c_int {
    zero_or_errno(|| {
        let attr = attr.read()?;
        if mask & !(MAX_WR | LIMIT) != 0 {
            return Err(Errno::invalid(format!("attribute mask {mask:#x} has unknown bits")));
        }
        Ok(srq.get()?.verbs.modify(SrqModify {
            max_wr: (mask & MAX_WR != 0).then_some(attr.max_wr),
            limit: (mask & LIMIT != 0).then_some(attr.srq_limit),
        })?)
    })
}

pub(crate) extern "C" fn query_srq(srq: Handle<IbvSrq>, to: Out<SrqAttr>) -> c_int {
    zero_or_errno(|| {
        to.write(srq_attr(&srq.get()?.verbs)?);
        Ok(())
    })
}

/// Waits until the program has acknowledged all events. Fails while other objects use the queue.
pub(crate) extern "C" fn destroy_srq(srq: Handle<IbvSrq>) -> c_int {
    zero_or_errno(|| {
        let object = srq.get()?;
        while let Err((_, error)) = object.verbs.clone().destroy() {
            if !error.is_unacknowledged() {
                return Err(error.into());
            }
            object.verbs.wait_acknowledged(None)?;
        }
        object.unregister();
        srq.destroy();
        Ok(())
    })
}

pub(crate) extern "C" fn get_srq_num(srq: Handle<IbvSrq>, to: Out<u32>) -> c_int {
    zero_or_errno(|| {
        let verbs = &srq.get()?.verbs;
        if verbs.xrc_domain().is_none() {
            return Err(Errno::unsupported(
                "the shared receive queue is not of XRC, so it has no number",
            ));
        }
        to.write(verbs.srqn().value());
        Ok(())
    })
}
