//! Progress: no thread or task that waits is left to a thread that sleeps.

use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

use crate::Model;
use crate::event::Event;
use crate::signal::wait_for_ring;
use crate::sync::progress::{Progress, Role, ThreadState};
use crate::sync::signal::Signal;

pub(crate) const MODELS: &[Model] = &[
    ("progress: a parked thread follows the driver", || two_waiters(ThreadState::Parked)),
    ("progress: a watching thread follows the driver", || two_waiters(ThreadState::Watch)),
    ("progress: a task is served after the driver (parked)", || {
        task_and_driver(ThreadState::Parked)
    }),
    ("progress: a task is served after the driver (watching)", || {
        task_and_driver(ThreadState::Watch)
    }),
    ("progress: a task wakes the thread", task_wakes_the_thread),
    ("progress: a task wakes the thread although another is served", task_beside_a_served_one),
    ("progress: the thread ends when it is told to", thread_ends),
];

/// A shard as `runtime::progress` makes it of these parts.
struct Shard {
    progress: Progress,
    /// Number of registrations that polling threads serve.
    polled: usize,
    signal: Event,
    /// The thread is on the socket: every passenger and task is served.
    served: Event,
}

impl Shard {
    fn new() -> Arc<Self> {
        Self::polled(0)
    }

    /// A shard with this many tasks, which polling threads serve.
    fn polled(tasks: usize) -> Arc<Self> {
        let progress = Progress::new();
        (0..tasks).for_each(|_| assert!(!progress.register_task(), "the thread is on the socket"));
        Arc::new(Self { progress, polled: tasks, signal: Event::new(), served: Event::new() })
    }

    /// The thread, until it is on the socket or has to end. Here it watches without a timeout, so that
    /// only a ring wakes it.
    fn run(&self, mut state: ThreadState) {
        while self.progress.enter(state) {
            state = match state {
                ThreadState::Socket => return self.served.set(),
                ThreadState::Watch if self.progress.needs_thread(self.polled) => {
                    ThreadState::Socket
                }
                ThreadState::Watch => {
                    wait_for_ring(&self.signal);
                    if self.progress.is_driven() { ThreadState::Parked } else { ThreadState::Watch }
                }
                ThreadState::Parked => {
                    if self.progress.is_driven() {
                        wait_for_ring(&self.signal);
                    }
                    ThreadState::Watch
                }
            };
        }
    }

    fn leave_driver(&self) {
        if self.progress.leave_driver() {
            self.signal.ring();
        }
    }

    /// A thread that waits: as the driver it finds something at once.
    fn wait(&self) {
        match self.progress.join() {
            Role::Driver => self.leave_driver(),
            Role::Passenger => {
                self.served.wait();
                self.progress.leave_passenger();
            }
        }
    }

    fn task(&self) {
        if self.progress.register_task() {
            self.signal.ring();
        }
        self.served.wait();
        self.progress.unregister_task();
    }

    fn stop(&self) {
        self.progress.close();
        self.signal.ring();
    }
}

fn spawn(shard: &Arc<Shard>, body: impl FnOnce(&Shard) + 'static) -> JoinHandle<()> {
    let shard = Arc::clone(shard);
    thread::spawn(move || body(&shard))
}

fn two_waiters(state: ThreadState) {
    let shard = Shard::new();
    let driver = shard.progress.join();
    assert_eq!(driver, Role::Driver);
    let threads = [spawn(&shard, move |shard| shard.run(state)), spawn(&shard, Shard::wait)];
    shard.leave_driver();
    let [thread, waiter] = threads;
    waiter.join().unwrap();
    shard.stop();
    thread.join().unwrap();
}

fn task_and_driver(state: ThreadState) {
    let shard = Shard::new();
    let driver = shard.progress.join();
    assert_eq!(driver, Role::Driver);
    let threads = [spawn(&shard, move |shard| shard.run(state)), spawn(&shard, Shard::task)];
    shard.leave_driver();
    for thread in threads {
        thread.join().unwrap();
    }
}

fn task_wakes_the_thread() {
    let shard = Shard::new();
    let thread = spawn(&shard, |shard| shard.run(ThreadState::Watch));
    shard.task();
    thread.join().unwrap();
}

fn task_beside_a_served_one() {
    let shard = Shard::polled(1);
    let thread = spawn(&shard, |shard| shard.run(ThreadState::Watch));
    shard.task();
    thread.join().unwrap();
}

fn thread_ends() {
    let shard = Shard::new();
    let driver = shard.progress.join();
    assert_eq!(driver, Role::Driver);
    let thread = spawn(&shard, |shard| shard.run(ThreadState::Parked));
    shard.stop();
    thread.join().unwrap();
}
