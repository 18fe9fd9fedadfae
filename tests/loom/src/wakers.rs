//! Wakers of tasks: each item wakes all tasks that wait, and a cancelled future leaves nothing behind.

use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::Model;
use crate::event::Event;
use crate::sync::notify::ItemCount;
use crate::sync::wakers::{WakerKey, Wakers};

pub(crate) const MODELS: &[Model] = &[
    ("wakers: an item wakes the task or is found", item_wakes_the_task_or_is_found),
    ("wakers: a task that waits again is woken again", task_that_waits_again_is_woken_again),
    ("wakers: a cancelled future keeps no wake-up", cancelled_future_keeps_no_wake_up),
    ("wakers: the flag is up while a task waits", flag_is_up_while_a_task_waits),
];

/// A queue as `runtime::ring` makes it of these parts.
struct Queue {
    items: Mutex<usize>,
    count: ItemCount,
    wakers: Wakers,
}

impl Queue {
    fn new() -> Arc<Self> {
        Arc::new(Self { items: Mutex::new(0), count: ItemCount::new(), wakers: Wakers::new() })
    }

    fn put(&self) {
        let mut items = self.items.lock().unwrap();
        *items += 1;
        self.count.publish(*items);
        drop(items);
        self.wake();
    }

    fn wake(&self) {
        if self.wakers.is_waiting() {
            let mut woken = Vec::new();
            self.wakers.take(&mut woken);
            woken.into_iter().for_each(std::task::Waker::wake);
        }
    }

    fn take(&self) -> bool {
        if self.count.is_zero() {
            return false;
        }
        let mut items = self.items.lock().unwrap();
        let found = *items > 0;
        *items = items.saturating_sub(1);
        self.count.lower(*items);
        found
    }

    /// A task that waits for an item.
    fn next(&self) {
        let (event, mut key) = (Event::new(), None);
        while !self.take() {
            self.wakers.register(&mut key, &event.waker());
            if self.take() {
                break;
            }
            event.wait();
            event.reset();
        }
        self.cancel(key);
    }

    fn cancel(&self, key: Option<WakerKey>) {
        if let Some(key) = key {
            self.wakers.remove(key);
        }
    }
}

fn item_wakes_the_task_or_is_found() {
    let queue = Queue::new();
    let producer = thread::spawn({
        let queue = Arc::clone(&queue);
        move || queue.put()
    });
    queue.next();
    producer.join().unwrap();
    assert!(!queue.wakers.is_waiting(), "a flag without a task");
}

fn task_that_waits_again_is_woken_again() {
    let queue = Queue::new();
    let producer = thread::spawn({
        let queue = Arc::clone(&queue);
        move || {
            queue.put();
            queue.put();
        }
    });
    queue.next();
    queue.next();
    producer.join().unwrap();
}

fn cancelled_future_keeps_no_wake_up() {
    let queue = Queue::new();
    let threads = [
        thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.put()
        }),
        thread::spawn({
            let queue = Arc::clone(&queue);
            move || {
                let (event, mut key) = (Event::new(), None);
                queue.wakers.register(&mut key, &event.waker());
                queue.cancel(key);
            }
        }),
    ];
    queue.next();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(!queue.wakers.is_waiting(), "a flag without a task");
}

fn flag_is_up_while_a_task_waits() {
    let queue = Queue::new();
    let task = Event::new();
    let cancelled = thread::spawn({
        let queue = Arc::clone(&queue);
        move || {
            let (event, mut key) = (Event::new(), None);
            queue.wakers.register(&mut key, &event.waker());
            queue.cancel(key);
        }
    });
    queue.wakers.register(&mut None, &task.waker());
    cancelled.join().unwrap();
    queue.wake();
    task.wait();
    assert!(!queue.wakers.is_waiting(), "a flag without a task");
}
