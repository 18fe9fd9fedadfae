//! Functions of XRC domains.

use std::ffi::c_int;

use softroce::verbs::XrcdOptions;

use crate::abi::{Handle, IbvContext, IbvXrcd, In, XrcdHead, XrcdInitAttr};
use crate::border::{Errno, descriptor, handle_or_null, zero_or_errno};
use crate::objects::users::Users;
use crate::objects::xrcd::Xrcd;

/// `IBV_XRCD_INIT_ATTR_FD` and `_OFLAGS`. Both are required.
const XRCD_NEEDED: u32 = 3;
/// `O_CREAT` and `O_EXCL`.
const CREATE: c_int = 0o100;
const EXCLUSIVE: c_int = 0o200;

pub(crate) extern "C" fn open_xrcd(
    context: Handle<IbvContext>,
    attr: In<XrcdInitAttr>,
) -> Handle<IbvXrcd> {
    handle_or_null(|| {
        let attr = attr.read()?;
        if attr.comp_mask != XRCD_NEEDED {
            return Err(Errno::invalid(format!(
                "comp_mask is {:#x}: a file descriptor and open flags are needed (3)",
                attr.comp_mask
            )));
        }
        let verbs = context.get()?.verbs.open_xrcd(&XrcdOptions {
            file: descriptor(attr.fd),
            create: attr.oflags & CREATE != 0,
            exclusive: attr.oflags & EXCLUSIVE != 0,
        })?;
        Ok(Handle::new(Xrcd { c: XrcdHead { context }, verbs, users: Users::default() }))
    })
}

pub(crate) extern "C" fn close_xrcd(xrcd: Handle<IbvXrcd>) -> c_int {
    zero_or_errno(|| {
        let object = xrcd.get()?;
        object.users.check()?;
        xrcd.destroy();
        Ok(())
    })
}
