//! The ring in shared memory: records arrive whole, in order, and none waits for a consumer that sleeps.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering::Relaxed;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::Model;
use crate::event::Event;
use crate::primitives::AtomicU64;
use crate::sync::spsc::{
    ASLEEP, Broken, Consumer, Producer, PutOutcome, RECORDS, SharedMemory, TAKEN,
};

pub(crate) const MODELS: &[Model] = &[
    ("spsc: records arrive whole and in order", records_arrive_whole_and_in_order),
    ("spsc: a record that wraps arrives whole", record_that_wraps_arrives_whole),
    ("spsc: a record wakes the consumer or is found", record_wakes_the_consumer_or_is_found),
];

/// Memory of four lines, of words.
#[derive(Clone)]
struct Memory(Arc<Words>);

struct Words {
    taken: AtomicU64,
    asleep: AtomicU64,
    records: Vec<Word>,
}

/// A word of a record. The cell holds nothing: by it loom sees when data is read and written at once.
struct Word {
    value: AtomicU64,
    data: UnsafeCell<()>,
}

// SAFETY: no reference to the content of the cell is made, which is empty. loom tracks how it is accessed.
unsafe impl Sync for Word {}

impl Memory {
    fn new() -> Self {
        let word = |_| Word { value: AtomicU64::new(0), data: UnsafeCell::new(()) };
        let records = (0..Self::RECORD_BYTES / 8).map(word).collect();
        let (taken, asleep) = (AtomicU64::new(0), AtomicU64::new(0));
        Self(Arc::new(Words { taken, asleep, records }))
    }

    fn record_word(&self, at: usize) -> Option<&Word> {
        self.0.records.get(at.checked_sub(RECORDS)? / 8)
    }
}

impl SharedMemory for Memory {
    const RECORD_BYTES: u64 = 256;

    fn word(&self, at: usize) -> Option<&AtomicU64> {
        match at {
            TAKEN => Some(&self.0.taken),
            ASLEEP => Some(&self.0.asleep),
            _ => self.record_word(at).map(|word| &word.value),
        }
    }

    fn write(&self, at: usize, from: &[u8]) -> Option<()> {
        for (at, bytes) in (at..).step_by(8).zip(from.chunks(8)) {
            let word = self.record_word(at)?;
            word.data.with_mut(|_| ());
            word.value.store(u64::from_le_bytes(bytes.try_into().ok()?), Relaxed);
        }
        Some(())
    }

    fn read(&self, at: usize, to: &mut [u8]) -> Option<()> {
        for (at, bytes) in (at..).step_by(8).zip(to.chunks_mut(8)) {
            let word = self.record_word(at)?;
            word.data.with(|_| ());
            bytes.copy_from_slice(&word.value.load(Relaxed).to_le_bytes());
        }
        Some(())
    }
}

/// A record: its header is the length of the data, each byte of which is `number`.
fn put(ring: &mut Producer<Memory>, number: u8, len: u8) {
    let header = NonZeroU64::new(len.into()).unwrap();
    while ring.put(header, &vec![number; len.into()]).unwrap() == PutOutcome::Full {
        thread::yield_now();
    }
}

fn take(ring: &mut Consumer<Memory>) -> Option<Vec<u8>> {
    let mut to = vec![0; 256];
    let parse = |header: NonZeroU64| {
        let len = usize::try_from(header.get()).map_err(|_| Broken)?;
        Ok((len, len))
    };
    let len = ring.take(&mut to, parse).unwrap()?;
    to.truncate(len);
    Some(to)
}

fn take_next(ring: &mut Consumer<Memory>) -> Vec<u8> {
    loop {
        match take(ring) {
            Some(data) => return data,
            None => thread::yield_now(),
        }
    }
}

/// The ring has room for three records of a line: the fourth takes the place of the first.
fn records_arrive_whole_and_in_order() {
    let memory = Memory::new();
    let (mut producer, mut consumer) = (Producer::new(memory.clone()), Consumer::new(memory));
    put(&mut producer, 1, 8);
    put(&mut producer, 2, 8);
    let producer = thread::spawn(move || {
        for number in 3..=5 {
            put(&mut producer, number, 8);
        }
        producer
    });
    for number in 1..=5 {
        assert_eq!(take_next(&mut consumer), [number; 8]);
    }
    let mut producer = producer.join().unwrap();
    assert!(consumer.is_empty());
    assert_eq!((producer.taken(), producer.waiting()), (Ok(320), Ok(0)));
}

fn record_that_wraps_arrives_whole() {
    let memory = Memory::new();
    let (mut producer, mut consumer) = (Producer::new(memory.clone()), Consumer::new(memory));
    for number in 1..=3 {
        put(&mut producer, number, 56);
        assert_eq!(take_next(&mut consumer), [number; 56]);
    }
    let producer = thread::spawn(move || {
        put(&mut producer, 4, 64);
        put(&mut producer, 5, 8);
    });
    assert_eq!(take_next(&mut consumer), [4; 64]);
    assert_eq!(take_next(&mut consumer), [5; 8]);
    producer.join().unwrap();
}

fn record_wakes_the_consumer_or_is_found() {
    let memory = Memory::new();
    let (mut producer, mut consumer) = (Producer::new(memory.clone()), Consumer::new(memory));
    let event = Event::new();
    let producer = thread::spawn({
        let event = event.clone();
        move || {
            for number in 1..=2 {
                put(&mut producer, number, 8);
                if producer.wakes().unwrap() {
                    event.set();
                }
            }
        }
    });
    for number in 1..=2 {
        let data = loop {
            if let Some(data) = take(&mut consumer) {
                break data;
            }
            if consumer.arm().unwrap() {
                event.wait();
                event.reset();
            }
        };
        assert_eq!(data, [number; 8]);
    }
    producer.join().unwrap();
}
