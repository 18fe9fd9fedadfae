//! The device list, which has one.

use std::ffi::c_int;
use std::net::IpAddr;
use std::sync::atomic::AtomicU8;
use std::sync::{Mutex, MutexGuard, OnceLock};

use softroce::runtime::Environment;

use crate::abi::{IbvDevice, Text};
use crate::border::{Errno, Handle, In, Object, Out, or, pointer};
use crate::gate::lock;

/// `ibv_device`. Providers see a larger structure there, and look at a pointer behind this one: it must
/// be one, and not to functions of theirs.
#[repr(C)]
pub(crate) struct Device {
    pub(crate) c: IbvDevice,
    providers: &'static [usize; 32],
    zeros: [usize; 32],
}

impl Object for Device {
    const IS_FOR_CHILDREN: bool = true;
}

/// Where it was opened last: what its GUID is made of.
static IP: Mutex<Option<IpAddr>> = Mutex::new(None);

/// What is not done while a process forks.
pub(crate) type Held = MutexGuard<'static, Option<IpAddr>>;

pub(crate) fn hold() -> Held {
    lock(&IP)
}

/// `IBV_NODE_CA`.
const NODE_CA: c_int = 1;

impl Device {
    /// The one there is. It stays, as programs expect of the devices of a list.
    pub(crate) fn only() -> Handle<Self> {
        static ONLY: OnceLock<Handle<Device>> = OnceLock::new();
        *ONLY.get_or_init(|| {
            // What is wrong with the environment is told when the device is opened.
            let name = Environment::read().ok().and_then(|found| found.name);
            let name = name.as_deref().unwrap_or("softroce0");
            Handle::new(Self {
                c: IbvDevice {
                    dummies: [0; 2],
                    node_type: NODE_CA,
                    transport_type: 0,
                    name: chars(name),
                    dev_name: chars("uverbs0"),
                    dev_path: chars("/sys/class/infiniband_verbs/uverbs0"),
                    ibdev_path: chars(&format!("/sys/class/infiniband/{name}")),
                },
                providers: &[0; 32],
                zeros: [0; 32],
            })
        })
    }

    /// It is open at this address.
    pub(crate) fn opened_at(ip: IpAddr) {
        *lock(&IP) = Some(ip);
    }

    /// The node GUID: of IPv4 the EUI-64 of the locally administered MAC address that has the four
    /// bytes at its end, of IPv6 the interface identifier. Before it is opened, of the address that it
    /// will have if nobody else takes that.
    pub(crate) fn guid() -> [u8; 8] {
        let ip = *lock(&IP);
        let ip = ip.or_else(|| Environment::read().ok()?.ips.first().copied());
        match ip.unwrap_or(IpAddr::from([127, 0, 0, 1])) {
            IpAddr::V4(ip) => {
                let [a, b, c, d] = ip.octets();
                [0, 0, a, 0xff, 0xfe, b, c, d]
            }
            IpAddr::V6(ip) => {
                let [.., s, t, u, v, w, x, y, z] = ip.octets();
                [s, t, u, v, w, x, y, z]
            }
        }
    }
}

/// A text with a zero behind it; what is too long is cut off.
fn chars<const N: usize>(text: &str) -> [AtomicU8; N] {
    let mut bytes = text.bytes().take(N - 1);
    std::array::from_fn(|_| AtomicU8::new(bytes.next().unwrap_or(0)))
}

/// What `ibv_get_device_list` answers: the device, and null.
#[repr(C)]
pub(crate) struct DeviceList([Handle<Device>; 2]);

impl Object for DeviceList {
    const IS_FOR_CHILDREN: bool = true;
}

pub(crate) extern "C" fn get_device_list(count: Out<c_int>) -> Handle<DeviceList> {
    pointer(|| {
        count.write(1);
        Ok(Handle::new(DeviceList([Device::only(), Handle::NULL])))
    })
}

pub(crate) extern "C" fn free_device_list(list: Handle<DeviceList>) {
    list.destroy();
}

pub(crate) extern "C" fn get_device_name(device: Handle<Device>) -> Text {
    Text(or(std::ptr::null(), || Ok(device.get()?.c.name.as_ptr().cast())))
}

/// The bytes are in the order of the network.
pub(crate) extern "C" fn get_device_guid(device: Handle<Device>) -> u64 {
    or(0, || {
        let device = device.get()?;
        debug_assert!(device.providers.iter().chain(&device.zeros).all(|word| *word == 0));
        Ok(u64::from_ne_bytes(Device::guid()))
    })
}

pub(crate) extern "C" fn get_device_index(device: Handle<Device>) -> c_int {
    or(-1, || device.get().map(|_| 0))
}

/// Where the kernel would tell of devices.
pub(crate) extern "C" fn get_sysfs_path() -> Text {
    Text(c"/sys".as_ptr())
}

/// Reads a file of the kernel: its bytes without the end of its line.
pub(crate) extern "C" fn read_sysfs_file(
    directory: In<std::ffi::c_char>,
    file: In<std::ffi::c_char>,
    to: Out<u8>,
    size: usize,
) -> c_int {
    or(-1, || {
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
        c_int::try_from(text.len()).map_err(|_| Errno::INVALID)
    })
}
