//! Functions that query the device and its port.

use std::ffi::{c_int, c_uint};

use nix::errno::Errno as System;
use softroce::verbs::{Gid, PKey};

use crate::abi::{self, DeviceAttr, DeviceAttrEx, Handle, IbvContext, In, Out, PortAttr, ValuesEx};
use crate::border::{Errno, int_or_minus_one, size_from, zero_or_errno};
use crate::convert::device_attr::{device_attr, device_attr_ex, gid_entry, port_attr};

/// The number of the port. There is one.
const PORT: u32 = 1;

pub(crate) extern "C" fn query_device(context: Handle<IbvContext>, to: Out<DeviceAttr>) -> c_int {
    zero_or_errno(|| {
        to.write(device_attr(&context.get()?.verbs.device_info()?));
        Ok(())
    })
}

pub(crate) extern "C" fn query_device_ex(
    context: Handle<IbvContext>,
    input: In<u32>,
    to: Out<DeviceAttrEx>,
    size: usize,
) -> c_int {
    zero_or_errno(|| {
        // The mask of the input has no bits yet. A smaller size than that of the first fields is of another
        // structure.
        if input.optional().unwrap_or(0) != 0 || size < size_of::<DeviceAttr>() + 8 {
            return Err(Errno::invalid(
                "the structure of the program is smaller than ibv_device_attr_ex, or has an extension",
            ));
        }
        let info = context.get()?.verbs.device_info()?;
        to.write_prefix(&device_attr_ex(&info), size);
        Ok(())
    })
}

fn check_port(port: impl Into<u32>) -> Result<(), Errno> {
    match port.into() {
        PORT => Ok(()),
        port => Err(Errno::invalid(format!("port {port} does not exist: the device has port 1"))),
    }
}

pub(crate) extern "C" fn query_port_sized(
    context: Handle<IbvContext>,
    port: u8,
    to: Out<PortAttr>,
    size: usize,
) -> c_int {
    zero_or_errno(|| {
        check_port(port)?;
        to.write_prefix(&port_attr(&context.get()?.verbs.device_info()?), size);
        Ok(())
    })
}

/// Fills the structure of old programs, which is shorter.
pub(crate) extern "C" fn query_port(
    context: Handle<IbvContext>,
    port: u8,
    to: Out<PortAttr>,
) -> c_int {
    query_port_sized(context, port, to, abi::OLD_PORT_ATTR_BYTES)
}

pub(crate) extern "C" fn query_gid(
    context: Handle<IbvContext>,
    port: u8,
    at: c_int,
    to: Out<[u8; 16]>,
) -> c_int {
    int_or_minus_one(|| {
        check_port(port)?;
        to.write(context.get()?.verbs.query_gid(size_from(at)?)?.0);
        Ok(0)
    })
}

/// Returns the type of a GID. The function is private to libibverbs, but `ibv_devinfo` calls it.
pub(crate) extern "C" fn query_gid_type(
    context: Handle<IbvContext>,
    port: u8,
    at: c_uint,
    to: Out<u32>,
) -> c_int {
    int_or_minus_one(|| {
        check_port(port)?;
        let at = size_from(at)?;
        let _: Gid = context.get()?.verbs.query_gid(at)?;
        to.write(abi::GID_TYPE_SYSFS_ROCE_V2);
        Ok(0)
    })
}

/// Fails when the program has another structure for entries.
fn check_entry(flags: u32, size: usize) -> Result<(), Errno> {
    if flags != 0 || size != size_of::<abi::GidEntry>() {
        return Err(Errno::invalid(format!(
            "flags are {flags:#x} and the size of an entry is {size}: expected 0 and {}",
            size_of::<abi::GidEntry>()
        )));
    }
    Ok(())
}

pub(crate) extern "C" fn query_gid_ex(
    context: Handle<IbvContext>,
    port: u32,
    at: u32,
    to: Out<abi::GidEntry>,
    flags: u32,
    size: usize,
) -> c_int {
    zero_or_errno(|| {
        check_port(port)?;
        check_entry(flags, size)?;
        let at = size_from(at)?;
        let found = context.get()?.verbs.query_gid_ex(at)?;
        to.write(gid_entry(&found));
        Ok(())
    })
}

/// Returns the number of entries, or the negative error number.
pub(crate) extern "C" fn query_gid_table(
    context: Handle<IbvContext>,
    to: Out<abi::GidEntry>,
    max: usize,
    flags: u32,
    size: usize,
) -> isize {
    let mut found = 0;
    let answer = zero_or_errno(|| {
        check_entry(flags, size)?;
        let table = context.get()?.verbs.query_gid_table()?;
        if table.len() > max {
            return Err(Errno::invalid(format!(
                "the GID table has {} entries, and there is room for {max}",
                table.len()
            )));
        }
        for (n, gid) in table.iter().enumerate() {
            to.write_at(n, gid_entry(gid));
        }
        found = isize::try_from(table.len()).unwrap_or(isize::MAX);
        Ok(())
    });
    if answer == 0 { found } else { isize::try_from(-answer).unwrap_or(-1) }
}

/// Returns a key in network byte order.
pub(crate) extern "C" fn query_pkey(
    context: Handle<IbvContext>,
    port: u8,
    at: c_int,
    to: Out<u16>,
) -> c_int {
    int_or_minus_one(|| {
        check_port(port)?;
        to.write(context.get()?.verbs.query_pkey(size_from(at)?)?.0.to_be());
        Ok(0)
    })
}

pub(crate) extern "C" fn get_pkey_index(context: Handle<IbvContext>, port: u8, pkey: u16) -> c_int {
    int_or_minus_one(|| {
        check_port(port)?;
        let found = context.get()?.verbs.pkey_index(PKey(u16::from_be(pkey)));
        found.map(c_int::from).ok_or_else(|| {
            let pkey = u16::from_be(pkey);
            Errno::new(System::ENOENT, format!("P_Key {pkey:#06x} is not in the table"))
        })
    })
}

/// `IBV_VALUES_MASK_RAW_CLOCK`.
const RAW_CLOCK: u32 = 1;

pub(crate) extern "C" fn query_rt_values(context: Handle<IbvContext>, to: Out<ValuesEx>) -> c_int {
    zero_or_errno(|| {
        let asked = to.read()?;
        if asked.comp_mask & !RAW_CLOCK != 0 {
            return Err(Errno::invalid(format!(
                "comp_mask {:#x} has unknown bits",
                asked.comp_mask
            )));
        }
        let now = context.get()?.verbs.query_rt_values().raw_clock.as_nanos();
        let part = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        to.write(ValuesEx {
            comp_mask: asked.comp_mask,
            seconds: part(now / 1_000_000_000),
            nanoseconds: part(now % 1_000_000_000),
        });
        Ok(())
    })
}
