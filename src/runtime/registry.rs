//! Which addresses of this process have a device.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, MutexGuard, Once, PoisonError, Weak};

use crate::io::at_exit;
use crate::lock::Mutex;
use crate::runtime::device::Device;
use crate::runtime::fork;

static REGISTRY: Mutex<Option<HashMap<IpAddr, Entry>>> = Mutex::new(None);
static RELEASED: Condvar = Condvar::new();

pub(super) struct Entry {
    /// Dangling while the device is being opened or closed.
    device: Weak<Device>,
    /// A child inherits the table, and not the devices.
    generation: u32,
}

/// The right to have the device of some addresses. It lives until its sockets are closed.
#[derive(Debug)]
pub(crate) struct Claim {
    ips: Vec<IpAddr>,
    generation: u32,
}

/// Who has some addresses.
pub(crate) enum Claimed {
    /// The first of them that is taken belongs to a device that is open.
    Device(IpAddr, Arc<Device>),
    /// The caller, from now on.
    Caller(Claim),
}

impl Claim {
    /// Finds the device of the first of these addresses that has one, or claims all of them at once.
    /// Waits while one is being opened or closed.
    pub(crate) fn find_or_make(ips: &[IpAddr]) -> Claimed {
        let mut entries = lock();
        loop {
            let Some((ip, found)) = first_of(&mut entries, ips) else {
                return Claimed::Caller(Self::make(&mut entries, ips));
            };
            if let Some(device) = found.upgrade() {
                return Claimed::Device(ip, device);
            }
            entries = RELEASED.wait(entries).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Claims addresses unless one of them has, or is about to have, or had until just now, a device.
    pub(crate) fn make_free(ips: &[IpAddr]) -> Option<Self> {
        let mut entries = lock();
        first_of(&mut entries, ips).is_none().then(|| Self::make(&mut entries, ips))
    }

    fn make(entries: &mut Entries<'_>, ips: &[IpAddr]) -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| at_exit(flush_all));
        let claim = Self { ips: ips.to_vec(), generation: fork::generation() };
        claim.fill(entries, &Weak::new());
        claim
    }

    /// Enters a device at its addresses, which have been claimed for it.
    pub(crate) fn enter(device: &Arc<Device>) {
        device.shards.first().claim().fill(&mut lock(), &Arc::downgrade(device));
        RELEASED.notify_all();
    }

    fn fill(&self, entries: &mut Entries<'_>, device: &Weak<Device>) {
        let entries = entries.get_or_insert_default();
        for ip in &self.ips {
            let entry = Entry { device: Weak::clone(device), generation: self.generation };
            entries.insert(*ip, entry);
        }
    }

    /// The addresses.
    pub(crate) fn ips(&self) -> &[IpAddr] {
        &self.ips
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A child's copy is none of the child's table.
        if self.generation == fork::generation() {
            let mut entries = lock();
            let entries = entries.get_or_insert_default();
            for ip in &self.ips {
                entries.remove(ip);
            }
            RELEASED.notify_all();
        }
    }
}

/// The device of this process that is open at `ip`.
pub(crate) fn find(ip: IpAddr) -> Option<Arc<Device>> {
    of(&mut lock(), ip)?.upgrade()
}

type Entries<'a> = MutexGuard<'a, Option<HashMap<IpAddr, Entry>>>;

/// Keeps others from opening and closing devices.
pub(super) type Held = Entries<'static>;

pub(super) fn hold() -> Held {
    lock()
}

fn lock<'a>() -> Entries<'a> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What this process has at `ip`.
fn of(entries: &mut Entries<'_>, ip: IpAddr) -> Option<Weak<Device>> {
    let entry = entries.as_ref()?.get(&ip)?;
    (entry.generation == fork::generation()).then(|| Weak::clone(&entry.device))
}

/// The first of these addresses at which this process has something.
fn first_of(entries: &mut Entries<'_>, ips: &[IpAddr]) -> Option<(IpAddr, Weak<Device>)> {
    ips.iter().find_map(|ip| of(entries, *ip).map(|device| (*ip, device)))
}

extern "C" fn flush_all() {
    flush();
}

/// Sends what the devices of this process owe their peers, acknowledgements above all, as is done when it
/// exits. It is for a process that is to end in another way, by `_exit`, and right after: the devices
/// cannot be closed any more.
pub fn flush() {
    // Another thread may hold it, and go on for as long as it likes.
    let Ok(entries) = REGISTRY.try_lock() else { return };
    let devices: Vec<_> = entries
        .iter()
        .flat_map(HashMap::values)
        .filter_map(|entry| entry.device.upgrade())
        .collect();
    drop(entries);
    for device in devices {
        device.shards.iter().for_each(|shard| shard.flush_at_exit());
        // To close it is the system's part now.
        std::mem::forget(device);
    }
}
