//! The mailbox: its owner gets every item, in the order of each sender.

use loom::sync::Arc;
use loom::thread;

use crate::Model;
use crate::event::Event;
use crate::sync::mailbox::Mailbox;

pub(crate) const MODELS: &[Model] = &[
    ("mailbox: the owner gets every item", owner_gets_every_item),
    ("mailbox: a full mailbox takes items again", full_mailbox_takes_items_again),
];

fn mailbox(max_bytes: usize) -> Arc<Mailbox<u8, Event>> {
    Arc::new(Mailbox::new(Event::new(), max_bytes))
}

fn owner_gets_every_item() {
    let mailbox = mailbox(9);
    let senders = [[1, 2].as_slice(), &[3]].map(|items| {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || items.iter().for_each(|item| assert!(mailbox.put(*item, 1))))
    });
    let mut taken = Vec::new();
    while taken.len() < 3 {
        mailbox.signal().wait();
        taken.extend(mailbox.take());
    }
    for sender in senders {
        sender.join().unwrap();
    }
    assert!(taken.iter().filter(|item| **item < 3).eq(&[1, 2]), "{taken:?}");
    assert!(!mailbox.signal().is_set(), "a signal of an empty mailbox");
}

fn full_mailbox_takes_items_again() {
    let mailbox = mailbox(1);
    let sender = thread::spawn({
        let mailbox = Arc::clone(&mailbox);
        move || [1, 2].map(|item| mailbox.put(item, 1))
    });
    mailbox.signal().wait();
    let mut taken = mailbox.take();
    let [first, second] = sender.join().unwrap();
    taken.extend(mailbox.take());
    assert!(mailbox.put(3, 1), "an empty mailbox has room");
    assert_eq!((first, taken), (true, [1, 2].into_iter().take(1 + usize::from(second)).collect()));
}
