//! The devices of this process, by address, and what is sent for them when the process ends.

use std::net::IpAddr;
use std::process;
use std::sync::{Arc, Once, Weak};

use crate::runtime::claim::{self, Claim, Owner};
use crate::runtime::device::Device;
use crate::runtime::shards::Shards;
use crate::sync::Mutex;
use crate::sys::at_exit;

/// The device that has one of some addresses, or the right to open one there.
pub(super) enum Claimed {
    /// The device that has the first of them that is taken.
    Device(IpAddr, Arc<Device>),
    /// The right to open one at all of them.
    Caller(Claim),
}

/// Finds the device of the first of these addresses that has one, or claims all of them at once. Waits while a device
/// is being opened or closed.
pub(super) fn find_or_claim(ips: &[IpAddr]) -> Claimed {
    loop {
        match Claim::find_or_make(ips) {
            claim::Claimed::Caller(claim) => return Claimed::Caller(claim),
            claim::Claimed::Owner(ip, owner) => {
                // Every owner is a device.
                if let Some(device) = device(owner) {
                    return Claimed::Device(ip, device);
                }
            }
        }
    }
}

/// Enters a device at its addresses, which have been claimed for it.
pub(super) fn enter(device: &Arc<Device>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| at_exit(flush_all));
    let owner: Weak<Device> = Arc::downgrade(device);
    let claim = device.shards.first().claim();
    claim.enter(&(owner as Weak<Owner>), || remember(device));
}

/// Returns the device of this process that is open at `ip`.
pub(crate) fn find(ip: IpAddr) -> Option<Arc<Device>> {
    device(claim::owner(ip)?)
}

fn device(owner: Arc<Owner>) -> Option<Arc<Device>> {
    owner.downcast().ok()
}

/// Sends what the devices of this process owe their peers, for its end by `exit`.
extern "C" fn flush_all() {
    // Nothing is sent while another thread opens or closes a device: it may take as long as it likes.
    let devices: Vec<_> = claim::owners_at_once().into_iter().filter_map(device).collect();
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
