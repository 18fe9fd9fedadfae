//! Functions of protection domains, parent domains and thread domains.

use std::ffi::c_int;

use crate::abi::{Handle, IbvContext, IbvPd, IbvTd, In, ParentDomainInitAttr, TdHead, TdInitAttr};
use crate::border::{Errno, handle_or_null, zero_or_errno};
use crate::objects::pd::Pd;
use crate::objects::td::Td;

pub(crate) extern "C" fn alloc_pd(context: Handle<IbvContext>) -> Handle<IbvPd> {
    handle_or_null(|| Ok(Pd::create(context, context.get()?.verbs.alloc_pd())))
}

pub(crate) extern "C" fn dealloc_pd(pd: Handle<IbvPd>) -> c_int {
    zero_or_errno(|| {
        let object = pd.get()?;
        object.ahs.check()?;
        object.verbs.clone().dealloc().map_err(|(_, error)| error)?;
        pd.destroy();
        Ok(())
    })
}

pub(crate) extern "C" fn alloc_td(
    context: Handle<IbvContext>,
    attr: In<TdInitAttr>,
) -> Handle<IbvTd> {
    handle_or_null(|| {
        if attr.read()?.comp_mask != 0 {
            return Err(Errno::unsupported(
                "comp_mask is not 0: no extension of ibv_td_init_attr exists",
            ));
        }
        let verbs = context.get()?.verbs.alloc_td();
        Ok(Handle::new(Td { c: TdHead { context }, verbs }))
    })
}

pub(crate) extern "C" fn dealloc_td(td: Handle<IbvTd>) -> c_int {
    zero_or_errno(|| {
        let object = td.get()?;
        object.verbs.clone().dealloc().map_err(|(_, error)| error)?;
        td.destroy();
        Ok(())
    })
}

/// `IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS` and `_PD_CONTEXT`: the allocators are not called.
const PARENT_DOMAIN_MASK: u32 = 3;

pub(crate) extern "C" fn alloc_parent_domain(
    context: Handle<IbvContext>,
    attr: In<ParentDomainInitAttr>,
) -> Handle<IbvPd> {
    handle_or_null(|| {
        let attr = attr.read()?;
        if attr.comp_mask & !PARENT_DOMAIN_MASK != 0 {
            return Err(Errno::unsupported(format!(
                "comp_mask {:#x} has unknown bits",
                attr.comp_mask
            )));
        }
        let td = attr.td.optional()?.map(|td| &td.verbs);
        let verbs = &context.get()?.verbs;
        Ok(Pd::create(context, verbs.alloc_parent_domain(&attr.pd.get()?.verbs, td)?))
    })
}
