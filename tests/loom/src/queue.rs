//! The queue: no consumer sleeps while there is an item for it.

use std::time::Duration;

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::Model;
use crate::event::Event;
use crate::sync::queue::{BlockingQueue, Sleepers};

pub(crate) const MODELS: &[Model] = &[
    ("queue: an item wakes a consumer", item_wakes_a_consumer),
    ("queue: two items wake two consumers", two_items_wake_two_consumers),
    ("queue: two items put in together wake two consumers", batch_wakes_two_consumers),
    ("queue: a woken consumer sleeps again without an item", woken_consumer_sleeps_again),
    ("queue: an interrupted consumer leaves no item", interrupted_consumer_leaves_no_item),
    ("queue: close wakes all consumers", close_wakes_all_consumers),
    ("queue: the descriptor wakes a consumer", descriptor_wakes_a_consumer),
    ("queue: the descriptor is readable while there are items", descriptor_follows_the_items),
    (
        "queue: the descriptor shows an item that a driver leaves",
        descriptor_shows_what_a_driver_leaves,
    ),
];

/// A futex: a number, and threads that sleep until it changes.
#[derive(Default)]
struct Futex {
    number: Mutex<u32>,
    changed: Condvar,
}

impl Sleepers for Futex {
    type Woken = ();

    fn ticket(&self) -> u32 {
        *self.number.lock().unwrap()
    }

    fn sleep(&self, ticket: u32, _: Option<Duration>) {
        let number = self.number.lock().unwrap();
        if *number == ticket {
            drop(self.changed.wait(number).unwrap());
        }
    }

    fn wake_one(&self) {
        *self.number.lock().unwrap() += 1;
        self.changed.notify_one();
    }

    fn wake_all(&self) {
        *self.number.lock().unwrap() += 1;
        self.changed.notify_all();
    }
}

type Queue = BlockingQueue<u32, Futex, Event, u8>;

fn queue() -> Arc<Queue> {
    Arc::new(Queue::new(4))
}

fn push(queue: &Queue, item: u32) {
    let mut filling = queue.fill();
    assert!(filling.push(item, false));
    filling.end();
}

/// Blocks without limit.
fn block(queue: &Queue) -> Option<u32> {
    queue.block_with(|| Ok::<_, ()>(None), |()| Ok(())).unwrap()
}

fn consumer(queue: &Arc<Queue>) -> thread::JoinHandle<Option<u32>> {
    let queue = Arc::clone(queue);
    thread::spawn(move || block(&queue))
}

/// Waits until another thread has taken all items. Each look lets all other threads run.
fn wait_until_empty(queue: &Queue) {
    const MAX_LOOKS: usize = 100;
    let is_taken = (0..MAX_LOOKS).any(|_| {
        thread::yield_now();
        queue.is_empty()
    });
    assert!(is_taken, "an item that no consumer takes");
}

fn item_wakes_a_consumer() {
    let queue = queue();
    let consumer = consumer(&queue);
    push(&queue, 1);
    assert_eq!(consumer.join().unwrap(), Some(1));
}

fn two_items_wake_two_consumers() {
    let queue = queue();
    let consumers = [(); 2].map(|()| consumer(&queue));
    push(&queue, 1);
    push(&queue, 2);
    let items = consumers.map(|consumer| consumer.join().unwrap().unwrap());
    assert_eq!(items.iter().sum::<u32>(), 3);
}

fn batch_wakes_two_consumers() {
    let queue = queue();
    let consumers = [(); 2].map(|()| consumer(&queue));
    let mut filling = queue.fill();
    assert_eq!([1, 2].map(|item| filling.push(item, false)), [true; 2]);
    filling.end();
    let items = consumers.map(|consumer| consumer.join().unwrap().unwrap());
    assert_eq!(items.iter().sum::<u32>(), 3);
}

fn woken_consumer_sleeps_again() {
    let queue = queue();
    let consumer = consumer(&queue);
    push(&queue, 1);
    if queue.pop().is_some() {
        push(&queue, 2);
    }
    assert!(consumer.join().unwrap().is_some());
}

fn interrupted_consumer_leaves_no_item() {
    let queue = queue();
    // Its sleep ends by a wake-up and by a signal at the same time.
    let interrupted = thread::spawn({
        let queue = Arc::clone(&queue);
        move || queue.block_with(|| Ok(None), |()| Err(()))
    });
    let consumer = consumer(&queue);
    push(&queue, 1);
    wait_until_empty(&queue);
    queue.close();
    let items = [interrupted.join().unwrap().unwrap_or_default(), consumer.join().unwrap()];
    assert_eq!(items.iter().flatten().count(), 1);
}

fn close_wakes_all_consumers() {
    let queue = queue();
    let consumers = [(); 2].map(|()| consumer(&queue));
    queue.close();
    for consumer in consumers {
        assert_eq!(consumer.join().unwrap(), None);
    }
}

fn descriptor_wakes_a_consumer() {
    let queue = queue();
    let producer = thread::spawn({
        let queue = Arc::clone(&queue);
        move || {
            push(&queue, 1);
            push(&queue, 2);
        }
    });
    let descriptor = std::sync::Arc::new(Event::new());
    queue.export(&descriptor);
    let mut items = 0;
    while items < 2 {
        descriptor.wait();
        items += u32::from(queue.pop().is_some());
    }
    producer.join().unwrap();
    assert!(!descriptor.is_set(), "a descriptor that stays readable");
}

fn descriptor_follows_the_items() {
    let queue = queue();
    let descriptor = std::sync::Arc::new(Event::new());
    queue.export(&descriptor);
    let producer = thread::spawn({
        let queue = Arc::clone(&queue);
        move || {
            push(&queue, 1);
            push(&queue, 2);
        }
    });
    let mut out = Vec::<u32>::new();
    queue.pop_into(&mut out, 1);
    producer.join().unwrap();
    assert!(descriptor.is_set(), "an item that the descriptor does not show");
    queue.pop_into(&mut out, 2);
    assert!(!descriptor.is_set(), "a descriptor that stays readable");
}

fn descriptor_shows_what_a_driver_leaves() {
    let queue = queue();
    let descriptor = std::sync::Arc::new(Event::new());
    queue.export(&descriptor);
    queue.change_drivers(|_| 1);
    let producer = thread::spawn({
        let queue = Arc::clone(&queue);
        move || push(&queue, 1)
    });
    // The driver found no item in its last look, and its time is over.
    queue.change_drivers(|_| 0);
    descriptor.wait();
    assert_eq!(queue.pop(), Some(1));
    producer.join().unwrap();
    assert!(!descriptor.is_set(), "a descriptor that stays readable");
}
