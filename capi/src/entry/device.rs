//! Functions of the device list and of the device in it.

use std::ffi::c_int;

use crate::abi::{DeviceList, Handle, IbvDevice, In, Out, Text};
use crate::border::{Errno, handle_or_null, value_or};
use crate::objects::device::Device;

pub(crate) extern "C" fn get_device_list(count: Out<c_int>) -> Handle<DeviceList> {
    handle_or_null(|| {
        count.write(1);
        Ok(Handle::new(DeviceList([Device::only(), Handle::NULL])))
    })
}

pub(crate) extern "C" fn free_device_list(list: Handle<DeviceList>) {
    list.destroy();
}

pub(crate) extern "C" fn get_device_name(device: Handle<IbvDevice>) -> Text {
    Text(value_or(std::ptr::null(), || Ok(device.get()?.c.name.as_ptr().cast())))
}

/// Returns the GUID in network byte order.
pub(crate) extern "C" fn get_device_guid(device: Handle<IbvDevice>) -> u64 {
    value_or(0, || {
        device.get()?;
        Device::known_guid();
        Ok(u64::from_ne_bytes(Device::guid()))
    })
}

/// Returns -1: the device has no index, because the kernel does not list it. With another number a program would ask
/// the kernel about one of its adapters.
pub(crate) extern "C" fn get_device_index(_: Handle<IbvDevice>) -> c_int {
    -1
}

/// Returns where the kernel would list devices.
pub(crate) extern "C" fn get_sysfs_path() -> Text {
    Text(c"/sys".as_ptr())
}

/// Reads a file of the kernel, without the newline at its end. Returns the number of bytes.
pub(crate) extern "C" fn read_sysfs_file(
    directory: In<std::ffi::c_char>,
    file: In<std::ffi::c_char>,
    to: Out<u8>,
    size: usize,
) -> c_int {
    value_or(-1, || {
        let path = std::path::Path::new(&directory.text()?).join(file.text()?);
        let mut text = std::fs::read(path)?;
        text.truncate(size);
        if text.last() == Some(&b'\n') {
            text.pop();
        }
        to.fill(&text);
        if text.len() < size {
            to.write_at(text.len(), 0);
        }
        c_int::try_from(text.len()).map_err(|_| Errno::invalid("the file is too long"))
    })
}
