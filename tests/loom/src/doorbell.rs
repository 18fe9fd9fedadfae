//! The doorbell: each ring is followed by a look for its reason, and the signal does not stay raised.

use std::sync::atomic::Ordering::Relaxed;

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread;

use crate::Model;
use crate::event::Event;
use crate::sync::doorbell::{Doorbell, Signal};

pub(crate) const MODELS: &[Model] =
    &[("doorbell: each ring is followed by a look", each_ring_is_followed_by_a_look)];

/// An eventfd.
impl Signal for Event {
    fn raise(&self) {
        self.set();
    }

    fn clear(&self) {
        self.reset();
    }
}

/// Sleeps as the library does: on the signal, which is cleared after that.
pub(crate) fn wait_for_ring(doorbell: &Doorbell<Event>) {
    doorbell.signal().wait();
    doorbell.silence();
    // Until the ringer has set the flag each wait ends at once.
    if doorbell.signal().is_set() {
        thread::yield_now();
    }
}

fn each_ring_is_followed_by_a_look() {
    let doorbell = Arc::new(Doorbell::new(Event::new()));
    let work = Arc::new(AtomicUsize::new(0));
    let ringers = [(); 2].map(|()| {
        let (doorbell, work) = (Arc::clone(&doorbell), Arc::clone(&work));
        thread::spawn(move || {
            work.fetch_add(1, Relaxed);
            doorbell.ring();
        })
    });
    // A thread may silence the doorbell without a wait.
    doorbell.silence();
    while work.load(Relaxed) < 2 {
        wait_for_ring(&doorbell);
    }
    for ringer in ringers {
        ringer.join().unwrap();
    }
    doorbell.silence();
    assert!(!doorbell.signal().is_set(), "a signal that stays raised");
}
