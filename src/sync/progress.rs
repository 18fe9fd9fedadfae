//! Progress of a shard: its thread makes it, or meanwhile a waiting thread that drives the shard.
//!
//! The thread publishes its state before it sleeps, and then checks whether it may sleep. The other side writes each
//! change that concerns the thread before it reads the thread's state. So the thread sees the change, or the other side
//! sees that the thread sleeps, and rings its signal:
//!
//! ```text
//! thread                                   driver that leaves
//! state = Parked         (SeqCst)          driven = false         (SeqCst)
//! driven?                (SeqCst)          state?                 (SeqCst)
//!   yes: sleep on the signal               Parked: ring
//!                                            Watch: ring if passengers or tasks wait
//!
//! thread                                   task that registers
//! state = Watch          (SeqCst)          registrations += 1     (SeqCst)
//! passengers, tasks,     (SeqCst)          tasks += 1             (SeqCst)
//! registrations?                           state?                 (SeqCst)
//!   none, or known:                          Watch: ring
//!   sleep on the signal
//!
//! passenger                                driver that leaves
//! passengers += 1        (SeqCst)          driven = false         (SeqCst)
//! driven = true          (SeqCst)          passengers?            (SeqCst)
//!   was true: sleep on the queue             any, and Watch: ring
//!
//! thread                                   stop
//! closing?               (SeqCst)          closing = true         (SeqCst)
//!   no: sleep on the signal              ring
//! ```
//!
//! All of these are in the one total order of `SeqCst` operations. A passenger that finds a driver has counted itself
//! before that driver leaves. A parked thread passes through `Watch`, where it checks for passengers and tasks. The
//! signal keeps a ring for a thread that does not sleep yet.

use std::sync::atomic::Ordering;

use super::primitives::{AtomicBool, AtomicU8, AtomicUsize};

/// The state of the shard's thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum ThreadState {
    /// The thread makes progress, and sleeps on the port.
    Socket = 0,
    /// Other threads poll; the thread checks now and then whether they still do.
    Watch = 1,
    /// A driver makes progress; the thread sleeps until it leaves.
    Parked = 2,
}

/// Role of a waiting thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// The thread makes progress, until [`Progress::leave_driver`].
    Driver,
    /// The thread relies on the driver, and on the shard's thread when the driver leaves, until
    /// [`Progress::leave_passenger`].
    Passenger,
}

/// State by which threads agree which of them makes progress.
#[derive(Debug)]
pub(crate) struct Progress {
    thread: AtomicU8,
    /// There is a driver.
    driven: AtomicBool,
    passengers: AtomicUsize,
    /// Number of waiting tasks and descriptors, which never drive.
    tasks: AtomicUsize,
    /// Number of registrations of tasks until now, modulo the range: it changes with each.
    registrations: AtomicUsize,
    closing: AtomicBool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            thread: AtomicU8::new(ThreadState::Socket as u8),
            driven: AtomicBool::new(false),
            passengers: AtomicUsize::new(0),
            tasks: AtomicUsize::new(0),
            registrations: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
        }
    }

    /// Enters a state of the thread, before the thread checks whether it may sleep there. Returns false if it has to
    /// end instead.
    pub(crate) fn enter(&self, state: ThreadState) -> bool {
        if self.is_closing() {
            return false;
        }
        self.thread.store(state as u8, Ordering::SeqCst);
        true
    }

    /// Ends the thread. The caller rings its signal.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }

    /// Returns whether the thread has to end.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Returns whether a waiting thread drives the shard.
    pub(crate) fn is_driven(&self) -> bool {
        self.driven.load(Ordering::SeqCst)
    }

    /// Returns the number of registrations of tasks until now.
    pub(crate) fn registrations(&self) -> usize {
        self.registrations.load(Ordering::SeqCst)
    }

    /// Returns whether the thread has to stay on the socket, or to be ready for that. A driver may serve tasks too, and
    /// so may polling threads: those of the first `served` registrations. A passenger relies on the thread even while
    /// there is a driver.
    pub(crate) fn is_waited_for(&self, served: usize) -> bool {
        self.passengers.load(Ordering::SeqCst) > 0
            || (self.tasks.load(Ordering::SeqCst) > 0
                && self.registrations() != served
                && !self.is_driven())
    }

    /// Returns whether the thread has to leave `Watch` for the socket at once, although polling threads serve the tasks
    /// of the first `served` registrations.
    pub(crate) fn needs_thread(&self, served: usize) -> bool {
        !self.is_driven() && self.is_waited_for(served)
    }

    /// Adds a waiting thread.
    pub(crate) fn join(&self) -> Role {
        self.passengers.fetch_add(1, Ordering::SeqCst);
        if self.driven.swap(true, Ordering::SeqCst) {
            return Role::Passenger;
        }
        self.passengers.fetch_sub(1, Ordering::SeqCst);
        Role::Driver
    }

    /// Removes a passenger.
    pub(crate) fn leave_passenger(&self) {
        self.passengers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Removes the driver. Returns whether the caller has to ring the thread's signal.
    #[must_use]
    pub(crate) fn leave_driver(&self) -> bool {
        // An exchange follows those of the passengers. loom would not order a store after them, and it costs the
        // same.
        self.driven.swap(false, Ordering::SeqCst);
        let thread = self.thread.load(Ordering::SeqCst);
        thread == ThreadState::Parked as u8
            || (thread == ThreadState::Watch as u8 && self.has_waiters())
    }

    /// Returns whether passengers or tasks wait.
    pub(crate) fn has_waiters(&self) -> bool {
        self.passengers.load(Ordering::SeqCst) > 0 || self.tasks.load(Ordering::SeqCst) > 0
    }

    /// Adds a waiting task. Returns whether the caller has to ring the thread's signal.
    #[must_use]
    pub(crate) fn register_task(&self) -> bool {
        self.registrations.fetch_add(1, Ordering::SeqCst);
        self.tasks.fetch_add(1, Ordering::SeqCst);
        self.thread.load(Ordering::SeqCst) == ThreadState::Watch as u8
    }

    /// Removes a task.
    pub(crate) fn unregister_task(&self) {
        self.tasks.fetch_sub(1, Ordering::SeqCst);
    }
}
