//! Functions of memory regions.

use std::ffi::{c_int, c_uint};

use softroce::verbs::{Access, Advice, MemoryRegion, ProtectionDomain, Rereg};

use crate::abi::{Handle, IbvMr, IbvPd, In, Out, Sge};
use crate::border::{Errno, handle_or_null, memory, size_from, value_or, zero_or_errno};
use crate::convert::memory::{access, sge};
use crate::objects::mr::Mr;

/// Maximum number of bytes of one prefetch.
const MAX_PREFETCH_BYTES: usize = 1 << 30;

/// Fails when memory is missing or read-only, as a device fails that pins it.
fn check_there(pd: &ProtectionDomain, mr: &MemoryRegion) -> Result<(), Errno> {
    let writes = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let advice = match mr.access().intersects(writes) {
        true => Advice::PrefetchWrite,
        false => Advice::Prefetch,
    };
    let mut at = 0;
    while at < mr.len() {
        let end = mr.len().min(at + MAX_PREFETCH_BYTES);
        pd.advise_mr(advice, true, &[mr.sge(at..end)])?;
        at = end;
    }
    Ok(())
}

/// Registers memory of the program, at `iova` if there is one.
fn register(
    pd: Handle<IbvPd>,
    start: Out<u8>,
    len: usize,
    iova: Option<u64>,
    flags: c_uint,
) -> Result<Handle<IbvMr>, Errno> {
    let domain = &pd.get()?.verbs;
    let access = access(flags)?;
    let host = memory(start, len)?;
    let mr = match iova {
        Some(iova) if !access.contains(Access::ZERO_BASED) => {
            domain.reg_mr_iova(host, iova, access)?
        }
        _ => domain.reg_mr(host, access)?,
    };
    if !access.contains(Access::ON_DEMAND) {
        check_there(domain, &mr)?;
    }
    Mr::create(pd, start.as_ptr().cast(), len, mr, None)
}

pub(crate) extern "C" fn reg_mr(
    pd: Handle<IbvPd>,
    start: Out<u8>,
    len: usize,
    flags: c_uint,
) -> Handle<IbvMr> {
    handle_or_null(|| register(pd, start, len, None, flags))
}

pub(crate) extern "C" fn reg_mr_iova(
    pd: Handle<IbvPd>,
    start: Out<u8>,
    len: usize,
    iova: u64,
    flags: c_uint,
) -> Handle<IbvMr> {
    handle_or_null(|| register(pd, start, len, Some(iova), flags))
}

pub(crate) extern "C" fn dereg_mr(mr: Handle<IbvMr>) -> c_int {
    zero_or_errno(|| {
        mr.get()?.deregister()?;
        mr.destroy();
        Ok(())
    })
}

/// The changes of `ibv_rereg_mr`: `IBV_REREG_MR_CHANGE_TRANSLATION`, `_PD` and `_ACCESS`.
const TRANSLATION: c_int = 1;
const DOMAIN: c_int = 2;
const ACCESS: c_int = 4;

/// `IBV_REREG_MR_ERR_INPUT`: the arguments are invalid.
const REREG_INPUT: c_int = -1;
/// `IBV_REREG_MR_ERR_CMD`: the change failed, and the region is as before.
const REREG_CMD: c_int = -4;

pub(crate) extern "C" fn rereg_mr(
    mr: Handle<IbvMr>,
    flags: c_int,
    pd: Handle<IbvPd>,
    start: Out<u8>,
    len: usize,
    new_access: c_int,
) -> c_int {
    let mut answer = REREG_INPUT;
    value_or((), || {
        let object = mr.get()?;
        let changes = flags & (TRANSLATION | DOMAIN | ACCESS);
        let is_memory = !start.is_null() && len > 0;
        if changes == 0 || changes != flags || (flags & TRANSLATION != 0 && !is_memory) {
            return Err(Errno::invalid(format!(
                "flags {flags:#x} name no change, or an unknown one, or new memory that is NULL or empty"
            )));
        }
        let other = if flags & DOMAIN != 0 { Some(pd.get()?) } else { None };
        let access = match flags & ACCESS {
            0 => None,
            _ => Some(access(new_access.cast_unsigned())?),
        };
        answer = REREG_CMD;
        let memory = match flags & TRANSLATION {
            0 => None,
            _ => Some((memory(start, len)?, None)),
        };
        let change = Rereg { memory, pd: other.map(|pd| &pd.verbs), access };
        object.rereg(change)?;
        if flags & TRANSLATION != 0 {
            object.set_memory(start.as_ptr().cast(), len);
        }
        if flags & DOMAIN != 0 {
            object.set_pd(pd);
        }
        answer = 0;
        Ok(())
    });
    answer
}

pub(crate) extern "C" fn alloc_null_mr(pd: Handle<IbvPd>) -> Handle<IbvMr> {
    handle_or_null(|| {
        let verbs = pd.get()?.verbs.alloc_null_mr()?;
        Mr::create(pd, std::ptr::null_mut(), usize::MAX, verbs, None)
    })
}

/// `IBV_ADVISE_MR_FLAG_FLUSH`.
const ADVISE_FLUSH: u32 = 1;

pub(crate) extern "C" fn advise_mr(
    pd: Handle<IbvPd>,
    advice: c_uint,
    flags: u32,
    list: In<Sge>,
    count: u32,
) -> c_int {
    zero_or_errno(|| {
        let advice = match advice {
            0 => Advice::Prefetch,
            1 => Advice::PrefetchWrite,
            2 => Advice::PrefetchNoFault,
            other => return Err(Errno::unsupported(format!("advice {other} is unknown"))),
        };
        if flags & !ADVISE_FLUSH != 0 || count == 0 {
            return Err(Errno::invalid(format!(
                "flags {flags:#x} have unknown bits, or the list is empty"
            )));
        }
        let count = size_from(count)?;
        let sges: Vec<_> = list.array(count)?.map(sge).collect();
        Ok(pd.get()?.verbs.advise_mr(advice, flags & ADVISE_FLUSH != 0, &sges)?)
    })
}
