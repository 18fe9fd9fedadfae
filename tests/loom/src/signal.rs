//! A signal: each ring is followed by a look for its reason, and the signal does not stay raised.

use std::sync::atomic::Ordering::Relaxed;

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread;

use crate::Model;
use crate::event::Event;
use crate::sync::signal::Signal;

pub(crate) const MODELS: &[Model] =
    &[("signal: each ring is followed by a look", each_ring_is_followed_by_a_look)];

/// An eventfd.
impl Signal for Event {
    fn ring(&self) {
        self.set();
    }

    fn silence(&self) {
        self.reset();
    }
}

/// Sleeps as the library does: until the signal is raised, and silences it.
pub(crate) fn wait_for_ring(signal: &Event) {
    signal.wait();
    signal.silence();
}

fn each_ring_is_followed_by_a_look() {
    let signal = Event::new();
    let work = Arc::new(AtomicUsize::new(0));
    let ringers = [(); 2].map(|()| {
        let (signal, work) = (signal.clone(), Arc::clone(&work));
        thread::spawn(move || {
            work.fetch_add(1, Relaxed);
            signal.ring();
        })
    });
    // A ring that is silenced without a look would leave the thread asleep.
    while work.load(Relaxed) < 2 {
        wait_for_ring(&signal);
    }
    for ringer in ringers {
        ringer.join().unwrap();
    }
}
