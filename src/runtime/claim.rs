//! Addresses of this process, each of which one device can have.

use std::any::Any;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, MutexGuard, PoisonError, TryLockError, Weak};

use crate::runtime::generation::generation;
use crate::sync::Mutex;

/// A device, of a type that only the registry knows.
pub(super) type Owner = dyn Any + Send + Sync;

static CLAIMED: Mutex<Option<HashMap<IpAddr, Entry>>> = Mutex::new(None);
static RELEASED: Condvar = Condvar::new();

struct Entry {
    /// Dangling while the device is being opened or closed.
    owner: Weak<Owner>,
    /// A child inherits the table, and not the devices.
    generation: u32,
}

/// The right to open the device of some addresses. It lives until the device's sockets are closed.
#[derive(Debug)]
pub(crate) struct Claim {
    ips: Vec<IpAddr>,
    generation: u32,
}

/// The owner of some addresses.
pub(super) enum Claimed {
    /// The device that has the first of them that is taken.
    Owner(IpAddr, Arc<Owner>),
    /// The caller, from now on.
    Caller(Claim),
}

impl Claim {
    /// Finds the owner of the first of these addresses that has one, or claims all of them at once.
    /// Waits while a device is being opened or closed.
    pub(super) fn find_or_make(ips: &[IpAddr]) -> Claimed {
        let mut entries = lock();
        loop {
            let Some((ip, found)) = first_of(&entries, ips) else {
                return Claimed::Caller(Self::make(&mut entries, ips));
            };
            if let Some(owner) = found.upgrade() {
                return Claimed::Owner(ip, owner);
            }
            entries = RELEASED.wait(entries).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Claims addresses, unless a device has one of them, is about to have it, or is being closed.
    pub(super) fn make_free(ips: &[IpAddr]) -> Option<Self> {
        let mut entries = lock();
        first_of(&entries, ips).is_none().then(|| Self::make(&mut entries, ips))
    }

    fn make(entries: &mut Entries<'_>, ips: &[IpAddr]) -> Self {
        let claim = Self { ips: ips.to_vec(), generation: generation() };
        // No device yet, of whatever type.
        let nobody: Weak<()> = Weak::new();
        claim.fill(entries, &(nobody as Weak<Owner>));
        claim
    }

    /// Enters the owner of the addresses, and does `also` before others see it.
    pub(super) fn enter(&self, owner: &Weak<Owner>, also: impl FnOnce()) {
        let mut entries = lock();
        self.fill(&mut entries, owner);
        also();
        drop(entries);
        RELEASED.notify_all();
    }

    fn fill(&self, entries: &mut Entries<'_>, owner: &Weak<Owner>) {
        let entries = entries.get_or_insert_default();
        for ip in &self.ips {
            let entry = Entry { owner: Weak::clone(owner), generation: self.generation };
            entries.insert(*ip, entry);
        }
    }

    /// Returns the addresses.
    pub(super) fn ips(&self) -> &[IpAddr] {
        &self.ips
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A child's copy has no entry in the child's table.
        if self.generation == generation() {
            let mut entries = lock();
            let entries = entries.get_or_insert_default();
            for ip in &self.ips {
                entries.remove(ip);
            }
            RELEASED.notify_all();
        }
    }
}

/// Returns the owner of an address in this process.
pub(super) fn owner(ip: IpAddr) -> Option<Arc<Owner>> {
    of(&lock(), ip)?.upgrade()
}

/// Returns each owner once, or none while another thread opens or closes a device.
pub(super) fn owners_at_once() -> Vec<Arc<Owner>> {
    let entries = match CLAIMED.try_lock() {
        Ok(entries) => entries,
        Err(TryLockError::Poisoned(entries)) => entries.into_inner(),
        Err(TryLockError::WouldBlock) => return Vec::new(),
    };
    distinct(entries.iter().flat_map(HashMap::values).filter_map(|entry| entry.owner.upgrade()))
}

/// Returns each owner once, although it has an entry for each of its addresses.
fn distinct(all: impl Iterator<Item = Arc<Owner>>) -> Vec<Arc<Owner>> {
    let mut owners: Vec<Arc<Owner>> = Vec::new();
    for owner in all {
        if !owners.iter().any(|known| Arc::ptr_eq(known, &owner)) {
            owners.push(owner);
        }
    }
    owners
}

type Entries<'a> = MutexGuard<'a, Option<HashMap<IpAddr, Entry>>>;

/// Keeps other threads from opening and closing devices.
pub(super) struct Held(#[expect(dead_code, reason = "it is held")] Entries<'static>);

/// Keeps other threads from opening and closing devices, until the result is dropped.
pub(super) fn hold() -> Held {
    Held(lock())
}

fn lock<'a>() -> Entries<'a> {
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the entry of this process for `ip`.
fn of(entries: &Entries<'_>, ip: IpAddr) -> Option<Weak<Owner>> {
    let entry = entries.as_ref()?.get(&ip)?;
    (entry.generation == generation()).then(|| Weak::clone(&entry.owner))
}

/// Returns the first of these addresses that has an entry of this process.
fn first_of(entries: &Entries<'_>, ips: &[IpAddr]) -> Option<(IpAddr, Weak<Owner>)> {
    ips.iter().find_map(|ip| of(entries, *ip).map(|owner| (*ip, owner)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_of_several_addresses_is_one_owner() {
        let [first, second]: [Arc<Owner>; 2] = [1, 2].map(|number: u8| Arc::new(number) as _);
        let all = [&first, &second, &first, &first].map(Arc::clone);
        let owners = distinct(all.into_iter());
        let numbers: Vec<_> = owners.iter().map(|owner| owner.downcast_ref::<u8>()).collect();
        assert_eq!(numbers, [Some(&1), Some(&2)]);
    }
}
