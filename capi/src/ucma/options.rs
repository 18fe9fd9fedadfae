//! Options of ids.

use nix::errno::Errno as System;
use softroce::cm::CmPath;
use softroce::verbs::AckTimeout;
use softroce::verbs::cm::Id;

use crate::abi::{PATH_FLAGS, PathData, SetOption};
use crate::border::{Errno, user};
use crate::convert::cm::path::path;

use super::command::Command;
use super::ids::id;

/// Maximum length of an option, in bytes.
const MAX_LEN: usize = 4 << 20;

/// Level and name of an option (`RDMA_OPTION_…`).
const TOS: (u32, u32) = (0, 0);
const REUSE_ADDRESS: (u32, u32) = (0, 1);
const FAMILY_ONLY: (u32, u32) = (0, 2);
const ACK_TIMEOUT: (u32, u32) = (0, 3);
const IB_PATH: (u32, u32) = (1, 1);

pub(super) fn set(command: &Command) -> Result<(), Errno> {
    let SetOption { value, id: number, level, name, len } = command.body()?;
    let id = id(command, number)?;
    let len = usize::try_from(len).ok().filter(|len| *len <= MAX_LEN);
    let len =
        len.ok_or_else(|| Errno::invalid(format!("an option is longer than {MAX_LEN} bytes")))?;
    let [first, ..] = user::read_prefix::<u64>(value, len)?.to_ne_bytes();
    match (level, name) {
        TOS if len == 1 => id.set_traffic_class(first),
        ACK_TIMEOUT if len == 1 => {
            let too_long = || Errno::invalid(format!("ACK timeout {first} is more than 31"));
            id.set_ack_timeout(AckTimeout::new(first).ok_or_else(too_long)?)?;
        }
        REUSE_ADDRESS if len == size_of::<u32>() => {
            id.set_reuse_address(user::read::<u32>(value)? != 0)?;
        }
        FAMILY_ONLY if len == size_of::<u32>() => {
            id.set_family_only(user::read::<u32>(value)? != 0)?;
        }
        IB_PATH => set_path(&id, value, len)?,
        TOS | ACK_TIMEOUT | REUSE_ADDRESS | FAMILY_ONLY => {
            let text = format!("option {name} of level {level} does not have {len} bytes");
            return Err(Errno::invalid(text));
        }
        _ => {
            let text = format!("option {name} of level {level} is unknown");
            return Err(Errno::new(System::ENOSYS, text));
        }
    }
    Ok(())
}

/// Sets the first path that has the flags of one for connections.
fn set_path(id: &Id, value: u64, len: usize) -> Result<(), Errno> {
    let size = size_of::<PathData>();
    if !len.is_multiple_of(size) {
        let text = format!("paths of {len} bytes, and each has {size}");
        return Err(Errno::invalid(text));
    }
    for at in (0..len).step_by(size) {
        let data: PathData = user::read(value.wrapping_add(at as u64))?;
        if data.flags == PATH_FLAGS {
            let chosen: CmPath =
                path(&data.path).ok_or_else(|| Errno::invalid("a path that is not one of RoCE"))?;
            return Ok(id.set_path(chosen)?);
        }
    }
    Err(Errno::invalid("no path has the flags of one for connections"))
}
