//! Which addresses of this process have a device.

use std::collections::HashMap;
use std::net::IpAddr;
use std::process;
use std::sync::{Arc, Condvar, MutexGuard, Once, PoisonError, Weak};

use crate::runtime::device::Device;
use crate::runtime::fork;
use crate::runtime::shards::Shards;
use crate::sync::Mutex;
use crate::sys::at_exit;

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
        let mut entries = lock();
        device.shards.first().claim().fill(&mut entries, &Arc::downgrade(device));
        remember(device);
        drop(entries);
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

/// Sends what the devices of this process owe their peers, for its end by `exit`.
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
        device.shards.iter().for_each(|shard| shard.flush_at_exit());
        // To close it is the system's part now.
        std::mem::forget(device);
    }
}

/// A device that [`flush`] finds, and the process that has opened it.
type Open = (u32, Weak<Shards>);

/// Devices that [`flush`] finds at most.
const MAX_FLUSHED: usize = 64;

/// Bursts that [`flush`] sends at most.
const MAX_LAST_BURSTS: usize = 64;

/// The devices that are open, where a signal handler finds them. Their places are taken under the
/// registry's lock.
static OPEN: [Mutex<Option<Open>>; MAX_FLUSHED] = [const { Mutex::new(None) }; MAX_FLUSHED];

/// Lets [`flush`] find a device, if there is a place.
fn remember(device: &Device) {
    let me = process::id();
    for place in &OPEN {
        // A thread that flushes has it: the process ends.
        let Ok(mut place) = place.try_lock() else { continue };
        let is_taken = |(opener, shards): &Open| *opener == me && shards.strong_count() > 0;
        if !place.as_ref().is_some_and(is_taken) {
            *place = Some((me, Arc::downgrade(&device.shards)));
            return;
        }
    }
}

/// Sends the acknowledgements that the devices of this process owe their peers, for its end by `_exit`.
///
/// Every step is async-signal-safe, so that it may stand in the handler of a signal: it allocates nothing,
/// waits for no lock, and sends 64 packets at most, of 64 devices at most. A device that another thread
/// uses at the moment, or that the signal has interrupted, sends nothing. In a child of the process that
/// has opened a device it does nothing.
///
/// The process ends right after: the devices cannot be closed any more.
pub fn flush() {
    let me = process::id();
    let mut left = MAX_LAST_BURSTS;
    for place in &OPEN {
        let Ok(place) = place.try_lock() else { continue };
        let Some((opener, shards)) = &*place else { continue };
        // A child of `vfork` has the memory of its parent, and no hook has told that it is one.
        if *opener != me {
            continue;
        }
        let Some(shards) = shards.upgrade() else { continue };
        for shard in shards.iter() {
            left = left.saturating_sub(shard.send_last(left));
        }
        // To close the device is the system's part now, and not that of a signal handler.
        std::mem::forget(shards);
    }
}
