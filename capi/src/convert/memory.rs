//! Access to memory: rights, scatter/gather elements, and bindings of windows.

use std::ffi::c_uint;

use softroce::verbs::{self, Access, BindInfo, Lkey};

use crate::abi::{MwBindInfo, Sge};
use crate::border::Errno;

/// The rights that C asks for. Flags that may be ignored are, if they are not known.
pub(crate) fn access(flags: c_uint) -> Result<Access, Errno> {
    let known = flags & !(Access::OPTIONAL.bits() & !Access::all().bits());
    Access::from_bits(known).ok_or(Errno::INVALID)
}

/// A piece of memory.
pub(crate) fn sge(piece: Sge) -> verbs::Sge {
    verbs::Sge { addr: piece.addr, length: piece.length, lkey: Lkey(piece.lkey) }
}

/// What a window is to open. Of no bytes it opens nothing.
pub(crate) fn bind_info(info: &MwBindInfo) -> Result<BindInfo, Errno> {
    if info.length == 0 {
        return Ok(BindInfo::NOTHING);
    }
    let lkey = info.mr.get()?.lkey();
    // Programs ask for what the host itself may do too, which no window has to do with.
    let access = access(info.access)?.difference(Access::LOCAL_WRITE);
    Ok(BindInfo { lkey, addr: info.addr, length: info.length, access })
}
