//! Access to memory: rights, scatter/gather elements, and bindings of windows.

use std::ffi::c_uint;

use softroce::verbs::{self, Access, BindInfo, Lkey};

use crate::abi::{MwBindInfo, Sge};
use crate::border::Errno;

/// Returns access rights. Unknown flags are ignored in the range for optional flags.
///
/// # Errors
///
/// `EINVAL` for other unknown flags.
pub(crate) fn access(flags: c_uint) -> Result<Access, Errno> {
    let known = flags & !(Access::OPTIONAL.bits() & !Access::all().bits());
    Access::from_bits(known)
        .ok_or_else(|| Errno::invalid(format!("access flags {flags:#x} have unknown bits")))
}

/// Returns a scatter/gather element.
pub(crate) fn sge(sge: Sge) -> verbs::Sge {
    verbs::Sge { addr: sge.addr, length: sge.length, lkey: Lkey(sge.lkey) }
}

/// Returns the memory to which a window gives access. A length of 0 is no access.
///
/// # Errors
///
/// `EINVAL` for unknown rights, or when the region is null or destroyed.
pub(crate) fn bind_info(info: &MwBindInfo) -> Result<BindInfo, Errno> {
    if info.length == 0 {
        return Ok(BindInfo::NOTHING);
    }
    let lkey = info.mr.get()?.lkey();
    // Programs also ask for local rights, which windows do not have.
    let access = access(info.access)?.difference(Access::LOCAL_WRITE);
    Ok(BindInfo { lkey, addr: info.addr, length: info.length, access })
}
