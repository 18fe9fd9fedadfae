//! Claims: each address has one device at a time, and every thread that opens it gets a device.

use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize};
use loom::thread;

use crate::Model;
use crate::sync::claims::{Claimed, Claims, Owner};

pub(crate) const MODELS: &[Model] = &[
    ("claims: two threads open one address", two_threads_open_one_address),
    ("claims: an address is opened while its device is closed", address_is_opened_while_closed),
    ("claims: all waiting threads get the device", all_waiting_threads_get_the_device),
    ("claims: addresses in different order", addresses_in_different_order),
    ("claims: devices share one of their addresses", devices_share_one_of_their_addresses),
    ("claims: one of two threads gets a free address", one_of_two_threads_gets_a_free_address),
];

const ADDRESSES: usize = 2;

struct Registry {
    claims: Claims<usize, WeakDevice>,
    /// Whether the socket of an address is open.
    is_open: [AtomicBool; ADDRESSES],
    /// The sockets. loom reports an open that is not ordered behind the close before it.
    sockets: [UnsafeCell<()>; ADDRESSES],
}

impl Registry {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            claims: Claims::new(),
            is_open: [(); ADDRESSES].map(|()| AtomicBool::new(false)),
            sockets: [(); ADDRESSES].map(UnsafeCell::new),
        })
    }

    /// Finds the device of the first of these addresses that has one, or opens one.
    fn open(registry: &Arc<Self>, addresses: &[usize]) -> Device {
        match registry.claims.find_or_claim(addresses) {
            Claimed::Owner(_, device) => device,
            Claimed::Caller => Self::start(registry, addresses),
        }
    }

    /// Opens the device of addresses that have been claimed.
    fn start(registry: &Arc<Self>, addresses: &[usize]) -> Device {
        for address in addresses {
            assert!(!registry.is_open[*address].swap(true, Ordering::Relaxed), "opened twice");
            registry.sockets[*address].with_mut(|_| ());
        }
        let device = Device(Arc::new(Handles {
            count: AtomicUsize::new(1),
            addresses: addresses.to_vec(),
            registry: Arc::clone(registry),
        }));
        registry.claims.enter(addresses, &WeakDevice(Arc::clone(&device.0)));
        device
    }
}

struct Handles {
    count: AtomicUsize,
    addresses: Vec<usize>,
    registry: Arc<Registry>,
}

/// loom has no weak references, so the handles are counted here.
#[derive(Clone)]
struct WeakDevice(Arc<Handles>);

impl Owner for WeakDevice {
    type Handle = Device;

    fn upgrade(&self) -> Option<Device> {
        let add = |count| (count > 0).then_some(count + 1);
        let added = self.0.count.fetch_update(Ordering::Acquire, Ordering::Relaxed, add);
        added.is_ok().then(|| Device(Arc::clone(&self.0)))
    }
}

/// A handle of a device. The last one closes the sockets and releases the addresses.
struct Device(Arc<Handles>);

impl Drop for Device {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let Handles { addresses, registry, .. } = &*self.0;
        for address in addresses {
            registry.sockets[*address].with_mut(|_| ());
            registry.is_open[*address].store(false, Ordering::Relaxed);
        }
        registry.claims.release(addresses);
    }
}

fn two_threads_open_one_address() {
    let registry = Registry::new();
    let other = thread::spawn({
        let registry = Arc::clone(&registry);
        move || drop(Registry::open(&registry, &[0]))
    });
    drop(Registry::open(&registry, &[0]));
    other.join().unwrap();
    assert!(registry.claims.claim_free(&[0]), "an address that stays claimed");
}

fn address_is_opened_while_closed() {
    let registry = Registry::new();
    let device = Registry::open(&registry, &[0]);
    let other = thread::spawn({
        let registry = Arc::clone(&registry);
        move || Registry::open(&registry, &[0])
    });
    drop(device);
    let device = other.join().unwrap();
    assert!(registry.claims.owner(0).is_some(), "a device that no other thread finds");
    drop(device);
    assert!(registry.claims.owner(0).is_none());
}

fn all_waiting_threads_get_the_device() {
    let registry = Registry::new();
    assert!(registry.claims.claim_free(&[0]));
    let others = [(); 2].map(|()| {
        let registry = Arc::clone(&registry);
        thread::spawn(move || Registry::open(&registry, &[0]))
    });
    let device = Registry::start(&registry, &[0]);
    let devices = others.map(|other| other.join().unwrap());
    assert!(devices.iter().all(|other| Arc::ptr_eq(&other.0, &device.0)), "two devices");
}

fn addresses_in_different_order() {
    let registry = Registry::new();
    let other = thread::spawn({
        let registry = Arc::clone(&registry);
        move || drop(Registry::open(&registry, &[1, 0]))
    });
    drop(Registry::open(&registry, &[0, 1]));
    other.join().unwrap();
}

fn devices_share_one_of_their_addresses() {
    let registry = Registry::new();
    let other = thread::spawn({
        let registry = Arc::clone(&registry);
        move || drop(Registry::open(&registry, &[1]))
    });
    drop(Registry::open(&registry, &[0, 1]));
    other.join().unwrap();
}

fn one_of_two_threads_gets_a_free_address() {
    let registry = Registry::new();
    let other = thread::spawn({
        let registry = Arc::clone(&registry);
        move || registry.claims.claim_free(&[1, 0])
    });
    let is_ours = registry.claims.claim_free(&[0, 1]);
    assert_ne!(is_ours, other.join().unwrap());
}
