//! The device. There is one.

use std::ffi::{c_int, c_void};
use std::net::IpAddr;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

use softroce::runtime::Environment;
use softroce::wire::cm::Guid;

use crate::abi::{DeviceHead, DeviceList, Handle, IbvDevice};
use crate::border::Pointee;

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

/// The node GUID of the device that was opened last, or 0.
static GUID: AtomicU64 = AtomicU64::new(0);

/// The node GUID that the program has got first, or 0.
static KNOWN_GUID: AtomicU64 = AtomicU64::new(0);

/// `IBV_NODE_CA`.
const NODE_CA: c_int = 1;

impl Device {
    /// Returns the device. It is never destroyed, as programs expect of the devices of a list.
    pub(crate) fn only() -> Handle<IbvDevice> {
        // A `OnceLock` would remain taken in a child that another thread forks meanwhile.
        static ONLY: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
        let only = ONLY.load(Ordering::Acquire);
        if !only.is_null() {
            return Handle::from_ptr(only);
        }
        let made = Handle::new(Self::in_environment());
        let (stored, loaded) = (Ordering::AcqRel, Ordering::Acquire);
        match ONLY.compare_exchange(ptr::null_mut(), made.as_ptr(), stored, loaded) {
            Ok(_) => made,
            Err(first) => {
                made.destroy();
                Handle::from_ptr(first)
            }
        }
    }

    /// Makes a device with the name that the environment gives it.
    fn in_environment() -> Self {
        // Opening of the device reports errors in the environment.
        let name = Environment::read().ok().and_then(|found| found.name);
        let name = name.as_deref().unwrap_or("softroce0");
        Self {
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
        }
    }

    /// Remembers the address at which the device is open.
    pub(crate) fn opened_at(ip: IpAddr) {
        GUID.store(u64::from_be_bytes(guid_of(ip)), Ordering::Relaxed);
    }

    /// Returns the node GUID that the program has got first: `librdmacm` finds the device of an id by it, and keeps it
    /// from before the device has an address.
    pub(crate) fn known_guid() -> [u8; 8] {
        let now = u64::from_be_bytes(Self::guid());
        let known = KNOWN_GUID.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        known.map_or_else(u64::to_be_bytes, |_| now.to_be_bytes())
    }

    /// Returns the node GUID. Before the device is opened, it is that of the first address in the environment.
    pub(crate) fn guid() -> [u8; 8] {
        match GUID.load(Ordering::Relaxed) {
            0 => {
                let ip = Environment::read().ok().and_then(|found| found.ips.first().copied());
                guid_of(ip.unwrap_or(IpAddr::from([127, 0, 0, 1])))
            }
            guid => guid.to_be_bytes(),
        }
    }
}

/// Returns the node GUID of a device at an address.
fn guid_of(ip: IpAddr) -> [u8; 8] {
    Guid::of(ip).0.to_be_bytes()
}

/// Returns a C string of at most `N - 1` bytes of `text`.
fn chars<const N: usize>(text: &str) -> [AtomicU8; N] {
    let mut bytes = text.bytes().take(N - 1);
    std::array::from_fn(|_| AtomicU8::new(bytes.next().unwrap_or(0)))
}
