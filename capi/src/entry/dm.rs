//! Functions of device memory.

use std::ffi::{c_int, c_uint};

use smallvec::SmallVec;

use crate::abi::{AllocDmAttr, DmHead, Handle, IbvContext, IbvDm, IbvMr, IbvPd, In, Out};
use crate::border::{Errno, handle_or_null, size_from, zero_or_errno};
use crate::convert::memory::access;
use crate::objects::dm::Dm;
use crate::objects::mr::Mr;
use crate::objects::number::next_handle;
use crate::objects::users::Users;

pub(crate) extern "C" fn alloc_dm(
    context: Handle<IbvContext>,
    attr: In<AllocDmAttr>,
) -> Handle<IbvDm> {
    handle_or_null(|| {
        let attr = attr.read()?;
        if attr.comp_mask != 0 {
            return Err(Errno::unsupported(
                "comp_mask is not 0: no extension of ibv_alloc_dm_attr exists",
            ));
        }
        let verbs = context.get()?.verbs.alloc_dm(attr.length, attr.log_align_req)?;
        let handle = next_handle();
        let c = DmHead { context, memcpy_to_dm, memcpy_from_dm, comp_mask: 0, handle };
        Ok(Handle::new(Dm { c, verbs, regions: Users::default() }))
    })
}

pub(crate) extern "C" fn free_dm(dm: Handle<IbvDm>) -> c_int {
    zero_or_errno(|| {
        let object = dm.get()?;
        object.regions.check()?;
        dm.destroy();
        Ok(())
    })
}

pub(crate) extern "C" fn reg_dm_mr(
    pd: Handle<IbvPd>,
    dm: Handle<IbvDm>,
    offset: u64,
    len: usize,
    flags: c_uint,
) -> Handle<IbvMr> {
    handle_or_null(|| {
        let offset = size_from(offset)?;
        let dm = dm.get()?;
        let verbs = pd.get()?.verbs.reg_dm_mr(&dm.verbs, offset, len, access(flags)?)?;
        Mr::create(pd, std::ptr::null_mut(), len, verbs, Some(dm.regions.join()))
    })
}

/// Returns an offset in device memory. Offset and length must be multiples of 4 bytes, as adapters require:
/// programs find that out here.
fn word_offset(offset: u64, len: usize) -> Result<usize, Errno> {
    let offset = size_from(offset)?;
    let whole = offset.is_multiple_of(4) && len.is_multiple_of(4);
    whole.then_some(offset).ok_or_else(|| {
        Errno::invalid(format!(
            "offset {offset} and length {len} in device memory are not both multiples of 4"
        ))
    })
}

extern "C" fn memcpy_to_dm(dm: Handle<IbvDm>, offset: u64, from: In<u8>, len: usize) -> c_int {
    zero_or_errno(|| {
        let offset = word_offset(offset, len)?;
        let mut bytes = SmallVec::<[u8; 64]>::new();
        from.copy_to(len, &mut bytes)?;
        dm.get()?
            .verbs
            .memcpy_to_dm(offset, &bytes)
            .map_err(|error| Errno::invalid(error.to_string()))
    })
}

extern "C" fn memcpy_from_dm(to: Out<u8>, dm: Handle<IbvDm>, offset: u64, len: usize) -> c_int {
    zero_or_errno(|| {
        let offset = word_offset(offset, len)?;
        let dm = &dm.get()?.verbs;
        if len > dm.len() {
            return Err(Errno::invalid(format!(
                "length {len} is beyond the device memory of {} bytes",
                dm.len()
            )));
        }
        let mut bytes = vec![0; len];
        dm.memcpy_from_dm(offset, &mut bytes).map_err(|error| Errno::invalid(error.to_string()))?;
        to.fill(&bytes);
        Ok(())
    })
}
