//! Registry of the devices of this process by address, and their last packets when the process ends.

use std::net::IpAddr;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use crate::runtime::device::Device;
use crate::runtime::lease::{AddressLease, LeaseRegistry};
use crate::runtime::shards::Shards;
use crate::sync::Mutex;
use crate::sync::claims::{self, Claims};
use crate::sync::exit_list::{ExitList, ExitListIndex};
use crate::sys::{PerProcess, at_exit, generation};

/// A forked child has an empty registry of its own, without locks that a thread of its parent held.
static REGISTRY: PerProcess<Registry> = PerProcess::new(Registry::new);

/// Maximum number of devices that send their last packets when the process ends.
const MAX_FLUSHED_DEVICES: usize = 1024;

/// Maximum number of packets that [`flush`] sends.
const MAX_LAST_PACKETS: usize = 64;

struct Registry {
    devices: Claims<IpAddr, Weak<Device>>,
    /// The device that was opened without an address.
    default: Mutex<Weak<Device>>,
    at_exit: ExitList<Weak<Shards>>,
    generation: u32,
    /// Process ID. A child of `vfork` has the memory and the generation of its parent.
    process: u32,
}

impl Registry {
    fn new(generation: u32) -> Self {
        Self {
            devices: Claims::new(),
            default: Mutex::new(Weak::new()),
            at_exit: ExitList::new(MAX_FLUSHED_DEVICES),
            generation,
            process: process::id(),
        }
    }

    fn lease(&'static self, ips: &[IpAddr]) -> AddressLease {
        AddressLease::new(ips, self.generation, self)
    }
}

impl LeaseRegistry for Registry {
    fn release(&self, ips: &[IpAddr], at_exit: Option<ExitListIndex>) {
        // In a forked child, a lock may stay locked for ever by another thread of the parent.
        if self.generation != generation() {
            return;
        }
        if let Some(place) = at_exit {
            self.at_exit.remove(place);
        }
        self.devices.release(ips);
    }
}

/// The device at one of some addresses, or the right to open one there.
pub(super) enum Claimed {
    /// The device at the first address that is taken.
    Device(IpAddr, Arc<Device>),
    /// The right to open a device at all of them.
    Caller(AddressLease),
}

/// Finds the device at the first of these addresses that has one, or leases all of them at once. Waits while that
/// device is being opened or closed.
pub(super) fn find_or_claim(ips: &[IpAddr]) -> Claimed {
    let registry = REGISTRY.get();
    match registry.devices.find_or_claim(ips) {
        claims::Claimed::Owner(ip, device) => Claimed::Device(ip, device),
        claims::Claimed::Caller => Claimed::Caller(registry.lease(ips)),
    }
}

/// Leases addresses, unless one of them has a device that is open, being opened or being closed.
pub(super) fn claim_free(ips: &[IpAddr]) -> Option<AddressLease> {
    let registry = REGISTRY.get();
    registry.devices.claim_free(ips).then(|| registry.lease(ips))
}

/// Registers a device at the addresses of its lease.
pub(super) fn enter(device: &Arc<Device>) {
    flush_at_exit();
    let lease = device.shards.first().lease();
    let registry = REGISTRY.get();
    // A signal handler has forked while this thread opened the device, and this process is the child.
    if registry.generation != lease.generation() {
        return;
    }
    if let Some(place) = registry.at_exit.insert(Arc::downgrade(&device.shards)) {
        lease.keep(place);
    }
    registry.devices.enter(lease.ips(), &Arc::downgrade(device));
}

/// Returns the device of this process that is open at `ip`.
pub(crate) fn find(ip: IpAddr) -> Option<Arc<Device>> {
    REGISTRY.get().devices.owner(ip)
}

/// Returns the device that was opened without an address. Keeps other threads from opening it until the guard is
/// dropped.
pub(super) fn default_device() -> MutexGuard<'static, Weak<Device>> {
    REGISTRY.get().default.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends the last packets of all devices when the process ends by `exit`.
fn flush_at_exit() {
    /// A `Once` would stay locked in a child that another thread forks during the call. A second hook has no effect.
    static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
    if !IS_INSTALLED.load(Ordering::Acquire) {
        at_exit(flush_all);
        IS_INSTALLED.store(true, Ordering::Release);
    }
}

/// Sends pending packets of the devices of this process and writes their counters, when it ends by `exit`. Devices stay
/// open until then if a library keeps them, as librdmacm does.
extern "C" fn flush_all() {
    each_at_exit(|shards| {
        // The interrupted code of this thread may hold a lock, and counters need all of them.
        let busy = shards.iter().filter(|shard| !shard.flush_at_exit()).count();
        let ip = shards.first().lease().ips().first();
        if let Some(device) = ip.filter(|_| busy == 0).and_then(|ip| find(*ip)) {
            device.write_counters_file();
            device.flush_captures_at_exit();
            // As below.
            std::mem::forget(device);
        }
    });
}

/// Sends posted requests that wait for others, and pending acknowledgements, when the process ends by `_exit`.
///
/// Every step is async-signal-safe, so a signal handler may call this: it allocates nothing, waits for no lock, and
/// sends at most 64 packets. Each device's own thread sends the requests that wait; this waits for it up to half a
/// second. A device that another thread uses at the moment, or that the signal has interrupted, sends no acknowledgement.
/// In a child of the process that has opened a device it does nothing.
///
/// The process ends right after: the devices cannot be closed any more.
pub fn flush() {
    let mut left = MAX_LAST_PACKETS;
    each_at_exit(|shards| {
        for shard in shards.iter() {
            left = left.saturating_sub(shard.send_last(left));
        }
    });
}

/// Calls `act` for each device of this process that no other thread opens or closes at the moment.
fn each_at_exit(mut act: impl FnMut(&Shards)) {
    let Some(registry) = REGISTRY.if_made() else { return };
    if registry.process != process::id() {
        return;
    }
    registry.at_exit.walk(|shards| {
        let Some(shards) = shards.upgrade() else { return };
        act(&shards);
        // The last reference would close the device, which the end of the process does.
        std::mem::forget(shards);
    });
}
