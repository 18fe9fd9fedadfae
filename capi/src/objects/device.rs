//! The device. There is one.

use std::ffi::c_int;
use std::net::IpAddr;
use std::sync::atomic::AtomicU8;
use std::sync::{Mutex, MutexGuard, OnceLock};

use softroce::runtime::Environment;

use crate::abi::{DeviceHead, DeviceList, Handle, IbvDevice};
use crate::border::Pointee;
use crate::gate::lock;

/// A device. Providers have a larger structure at the same address, and follow a pointer behind
/// `ibv_device`: it must be valid, and must not lead to functions of theirs.
#[repr(C)]
pub(crate) struct Device {
    pub(crate) c: DeviceHead,
    providers: &'static [usize; 32],
    zeros: [usize; 32],
}

impl Pointee for IbvDevice {
    type Object = Device;
    const IS_FOR_CHILDREN: bool = true;
}

impl Pointee for DeviceList {
    type Object = Self;
    const IS_FOR_CHILDREN: bool = true;
}

/// The address at which the device was opened last. The GUID contains it.
static IP: Mutex<Option<IpAddr>> = Mutex::new(None);

/// Guard of the address, for the time of a fork.
pub(super) type IpGuard = MutexGuard<'static, Option<IpAddr>>;

/// Locks the address.
pub(super) fn lock_ip() -> IpGuard {
    lock(&IP)
}

/// `IBV_NODE_CA`.
const NODE_CA: c_int = 1;

impl Device {
    /// Returns the device. It is never destroyed, as programs expect of the devices of a list.
    pub(crate) fn only() -> Handle<IbvDevice> {
        static ONLY: OnceLock<Handle<IbvDevice>> = OnceLock::new();
        *ONLY.get_or_init(|| {
            // Opening of the device reports errors in the environment.
            let name = Environment::read().ok().and_then(|found| found.name);
            let name = name.as_deref().unwrap_or("softroce0");
            Handle::new(Self {
                c: DeviceHead {
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

    /// Remembers the address at which the device is open.
    pub(crate) fn opened_at(ip: IpAddr) {
        *lock(&IP) = Some(ip);
    }

    /// Returns the node GUID. For IPv4 it is the EUI-64 of the locally administered MAC address that ends
    /// with the four bytes of the address; for IPv6 the interface identifier. Before the device is opened,
    /// it is that of the first address in the environment.
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

/// Returns a C string of at most `N - 1` bytes of `text`.
fn chars<const N: usize>(text: &str) -> [AtomicU8; N] {
    let mut bytes = text.bytes().take(N - 1);
    std::array::from_fn(|_| AtomicU8::new(bytes.next().unwrap_or(0)))
}
