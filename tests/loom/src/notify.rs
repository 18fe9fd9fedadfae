//! Completion notification: an armed queue that gets an item is announced, or the consumer finds the item.

use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::Model;
use crate::sync::notify::{Armed, ItemCount, NotifyRequest};

pub(crate) const MODELS: &[Model] = &[
    ("notify: an item is announced or found", item_is_announced_or_found),
    ("notify: one of two producers announces", one_of_two_producers_announces),
];

/// A queue as `runtime::ring` makes it of these parts.
struct Queue {
    items: Mutex<usize>,
    count: ItemCount,
    request: NotifyRequest,
    announced: Mutex<usize>,
}

impl Queue {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            items: Mutex::new(0),
            count: ItemCount::new(),
            request: NotifyRequest::new(),
            announced: Mutex::new(0),
        })
    }

    fn put(&self) {
        let mut items = self.items.lock().unwrap();
        *items += 1;
        self.count.publish(*items);
        drop(items);
        if self.request.get() != Armed::No && self.request.disarm() {
            *self.announced.lock().unwrap() += 1;
        }
    }

    /// Takes what is there, and returns how much that was.
    fn take(&self) -> usize {
        if self.count.is_zero() {
            return 0;
        }
        let mut items = self.items.lock().unwrap();
        self.count.lower(0);
        std::mem::take(&mut *items)
    }

    fn announced(&self) -> usize {
        *self.announced.lock().unwrap()
    }
}

fn item_is_announced_or_found() {
    let queue = Queue::new();
    let producer = thread::spawn({
        let queue = Arc::clone(&queue);
        move || queue.put()
    });
    // A first look makes the count one that another thread has written before.
    let before = queue.take();
    queue.request.arm(Armed::Any);
    let found = before + queue.take();
    producer.join().unwrap();
    assert!(found == 1 || queue.announced() == 1, "an item that no thread is told of");
}

fn one_of_two_producers_announces() {
    let queue = Queue::new();
    queue.request.arm(Armed::Solicited);
    let producers = [(); 2].map(|()| {
        let queue = Arc::clone(&queue);
        thread::spawn(move || queue.put())
    });
    for producer in producers {
        producer.join().unwrap();
    }
    assert_eq!((queue.announced(), queue.take()), (1, 2));
}
