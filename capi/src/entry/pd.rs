//! Functions of protection domains, parent domains and thread domains.

use std::ffi::c_int;

use crate::abi::{Handle, IbvContext, IbvPd, IbvTd, In, ParentDomainInitAttr, TdInitAttr};
use crate::border::{Errno, number, pointer};
use crate::objects::pd::Pd;
use crate::objects::td::Td;

pub(crate) extern "C" fn alloc_pd(context: Handle<IbvContext>) -> Handle<IbvPd> {
    pointer(|| Ok(Pd::create(context, context.get()?.verbs.alloc_pd())))
}

pub(crate) extern "C" fn dealloc_pd(pd: Handle<IbvPd>) -> c_int {
    number(|| {
        let known = pd.get()?;
        known.ahs.check()?;
        known.verbs.clone().dealloc().map_err(|(_, error)| error)?;
        pd.destroy();
        Ok(())
    })
}

pub(crate) extern "C" fn alloc_td(
    context: Handle<IbvContext>,
    attr: In<TdInitAttr>,
) -> Handle<IbvTd> {
    pointer(|| {
        if attr.read()?.comp_mask != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let verbs = context.get()?.verbs.alloc_td();
        Ok(Handle::new(Td { c: IbvTd { context }, verbs }))
    })
}

pub(crate) extern "C" fn dealloc_td(td: Handle<IbvTd>) -> c_int {
    number(|| {
        let known = td.get()?;
        known.verbs.clone().dealloc().map_err(|(_, error)| error)?;
        td.destroy();
        Ok(())
    })
}

/// `IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS`, which are not needed, and `_PD_CONTEXT` for them.
const KNOWN_OF_PARENTS: u32 = 3;

pub(crate) extern "C" fn alloc_parent_domain(
    context: Handle<IbvContext>,
    attr: In<ParentDomainInitAttr>,
) -> Handle<IbvPd> {
    pointer(|| {
        let attr = attr.read()?;
        if attr.comp_mask & !KNOWN_OF_PARENTS != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let td = attr.td.optional()?.map(|td| &td.verbs);
        let verbs = &context.get()?.verbs;
        Ok(Pd::create(context, verbs.alloc_parent_domain(&attr.pd.get()?.verbs, td)?))
    })
}
