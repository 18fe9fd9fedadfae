//! Which addresses of this process have a device.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError, Weak};

use crate::io::at_exit;
use crate::runtime::device::Device;
use crate::runtime::fork;

static REGISTRY: Mutex<Option<HashMap<IpAddr, Entry>>> = Mutex::new(None);
static RELEASED: Condvar = Condvar::new();

struct Entry {
    /// Dangling while the device is being opened or closed.
    device: Weak<Device>,
    /// A child inherits the table, and not the devices.
    generation: u32,
}

/// The right to have the device of an address. It lives until its sockets are closed.
#[derive(Debug)]
pub(crate) struct Claim {
    ip: IpAddr,
    generation: u32,
}

/// Who has an address.
pub(crate) enum Claimed {
    /// A device that is open.
    Device(Arc<Device>),
    /// The caller, from now on.
    Caller(Claim),
}

impl Claim {
    /// Finds the device of an address, or claims it. Waits while one is being opened or closed.
    pub(crate) fn find_or_make(ip: IpAddr) -> Claimed {
        let mut entries = lock();
        loop {
            let Some(found) = of(&mut entries, ip) else {
                return Claimed::Caller(Self::make(&mut entries, ip));
            };
            if let Some(device) = found.upgrade() {
                return Claimed::Device(device);
            }
            entries = RELEASED.wait(entries).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Claims an address unless it has, or is about to have, or had until just now, a device.
    pub(crate) fn make_free(ip: IpAddr) -> Option<Self> {
        let mut entries = lock();
        of(&mut entries, ip).is_none().then(|| Self::make(&mut entries, ip))
    }

    fn make(entries: &mut Entries<'_>, ip: IpAddr) -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| at_exit(flush_all));
        let generation = fork::generation();
        let device = Weak::new();
        entries.get_or_insert_default().insert(ip, Entry { device, generation });
        Self { ip, generation }
    }

    /// Enters the device that the address has been claimed for.
    pub(crate) fn enter(device: &Arc<Device>) {
        let mut entries = lock();
        let generation = fork::generation();
        let entry = Entry { device: Arc::downgrade(device), generation };
        entries.get_or_insert_default().insert(device.ip, entry);
        RELEASED.notify_all();
    }

    /// The address.
    pub(crate) fn ip(&self) -> IpAddr {
        self.ip
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A child's copy is none of the child's table.
        if self.generation == fork::generation() {
            lock().get_or_insert_default().remove(&self.ip);
            RELEASED.notify_all();
        }
    }
}

/// The device of this process that is open at `ip`.
pub(crate) fn find(ip: IpAddr) -> Option<Arc<Device>> {
    of(&mut lock(), ip)?.upgrade()
}

type Entries<'a> = MutexGuard<'a, Option<HashMap<IpAddr, Entry>>>;

fn lock<'a>() -> Entries<'a> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What this process has at `ip`.
fn of(entries: &mut Entries<'_>, ip: IpAddr) -> Option<Weak<Device>> {
    let entry = entries.as_ref()?.get(&ip)?;
    (entry.generation == fork::generation()).then(|| Weak::clone(&entry.device))
}

/// The end of the process: sends what is owed.
extern "C" fn flush_all() {
    // Another thread may hold it, and go on for as long as it likes.
    let Ok(entries) = REGISTRY.try_lock() else { return };
    let devices: Vec<_> = entries
        .iter()
        .flat_map(HashMap::values)
        .filter_map(|entry| entry.device.upgrade())
        .collect();
    drop(entries);
    for device in devices {
        device.shard.flush_at_exit();
        // To close it is the system's part now.
        std::mem::forget(device);
    }
}
