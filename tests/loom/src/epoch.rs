//! Epochs: memory is freed only when no engine and no application thread accesses it.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::Model;
use crate::sync::epoch::{Epochs, LiveFlag, UserCount};

pub(crate) const MODELS: &[Model] = &[
    ("epoch: revocation waits for an engine", revocation_waits_for_an_engine),
    ("epoch: revocation waits for the second of two epochs", revocation_waits_for_a_second_epoch),
    ("epoch: revocation finds engines that come and go", revocation_finds_engines_that_come_and_go),
    ("epoch: revocation waits for application threads", revocation_waits_for_application_threads),
];

/// Memory that engines and application threads read until a thread frees it. loom reports a read that is not ordered
/// before the free.
struct Memory {
    epochs: Epochs,
    live: LiveFlag,
    users: UserCount,
    bytes: UnsafeCell<u8>,
}

impl Memory {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            epochs: Epochs::new(),
            live: LiveFlag::new(),
            users: UserCount::new(),
            bytes: UnsafeCell::new(0),
        })
    }

    fn read(&self) {
        if self.live.is_live() {
            self.bytes.with(|_| ());
        }
    }

    fn revoke_and_free(&self) {
        self.live.revoke();
        self.epochs.wait();
        self.users.wait();
        self.bytes.with_mut(|_| ());
    }
}

fn revocation_waits_for_an_engine() {
    let memory = Memory::new();
    let epoch = memory.epochs.register();
    let engine = thread::spawn({
        let memory = Arc::clone(&memory);
        move || {
            let number = epoch.begin();
            memory.read();
            epoch.end(number);
        }
    });
    memory.revoke_and_free();
    engine.join().unwrap();
}

fn revocation_waits_for_a_second_epoch() {
    let memory = Memory::new();
    let epoch = memory.epochs.register();
    let engine = thread::spawn({
        let memory = Arc::clone(&memory);
        move || {
            for _ in 0..2 {
                let number = epoch.begin();
                memory.read();
                epoch.end(number);
            }
        }
    });
    memory.revoke_and_free();
    engine.join().unwrap();
}

fn revocation_finds_engines_that_come_and_go() {
    let memory = Memory::new();
    let engine = thread::spawn({
        let memory = Arc::clone(&memory);
        move || {
            let epoch = memory.epochs.register();
            let number = epoch.begin();
            memory.read();
            epoch.end(number);
            memory.epochs.unregister(&epoch);
        }
    });
    memory.revoke_and_free();
    engine.join().unwrap();
}

fn revocation_waits_for_application_threads() {
    let memory = Memory::new();
    let application = thread::spawn({
        let memory = Arc::clone(&memory);
        move || {
            memory.users.join();
            memory.read();
            memory.users.leave();
        }
    });
    memory.revoke_and_free();
    application.join().unwrap();
}
