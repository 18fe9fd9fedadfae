//! A bounded queue: a consumer polls it, blocks until an item comes, or waits for a descriptor to become readable.
//!
//! ```text
//! producer, under the lock          consumer that blocks, under the lock
//! put items in                      blocked += 1
//! count = n                         no item and not closed:
//! min(blocked, n) = 0: nothing        take a ticket
//!                   1: wake one       unlock, sleep with the ticket, lock, look again
//!                   else: wake all  blocked -= 1
//!                                   take an item
//! ```
//!
//! - A consumer looks at the items and takes its ticket in one critical section. A wake-up that comes later ends a sleep
//!   with this ticket, even if the sleep has not begun. So an item that the look did not find wakes the consumer.
//! - A consumer is counted from its first look until it takes an item. For one item one wake-up is enough. A woken
//!   consumer takes an item if there is one, also when its time is over or a signal has ended its sleep. If another
//!   thread has taken the item, it sleeps again.
//! - If there is more than one item for more than one consumer, all are woken. How many of the items have a consumer that
//!   an earlier push has woken is not known.
//! - The descriptor is readable while the queue has items and no consumer that drives the device: all three change under
//!   the lock. Such a consumer takes an item before it leaves, and saves two system calls. A closed queue leaves the
//!   descriptor readable.
//!
//! A consumer that polls reads the number of items without the lock (`ItemCount`, in `notify`).

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::notify::ItemCount;
use super::primitives::{AtomicBool, Mutex, MutexGuard};
use super::signal::Signal;

/// Threads that sleep until they are woken.
pub(crate) trait Sleepers: Default {
    /// The reason why a sleep ended.
    type Woken;

    /// Returns a ticket for a sleep. Each wake-up from now on ends it.
    fn ticket(&self) -> u32;

    /// Sleeps until a wake-up that is later than the ticket, for at most `timeout`. It may return early.
    fn sleep(&self, ticket: u32, timeout: Option<Duration>) -> Self::Woken;

    /// Wakes one sleeping thread.
    fn wake_one(&self);

    /// Wakes all sleeping threads.
    fn wake_all(&self);
}

/// A bounded queue of items `T` for threads that sleep on `S`, with a descriptor `D`.
///
/// Some consumers do not block here, but drive the device meanwhile: `W` is the set of these.
#[derive(Debug)]
pub(crate) struct BlockingQueue<T, S, D, W> {
    state: Mutex<State<T, D, W>>,
    /// The number of items.
    count: ItemCount,
    sleepers: S,
    /// Whether there is a descriptor.
    is_exported: AtomicBool,
}

#[derive(Debug)]
struct State<T, D, W> {
    items: VecDeque<T>,
    capacity: usize,
    /// The number of items that were put in until now.
    added: u64,
    /// The number of consumers that block.
    blocked: usize,
    drivers: W,
    descriptor: Option<Arc<D>>,
    /// Whether the descriptor is readable.
    is_readable: bool,
    is_closed: bool,
}

impl<T, D, W> State<T, D, W> {
    /// Whether it has room for one more item. Without memory it is full.
    fn has_room(&mut self) -> bool {
        self.items.len() < self.capacity && self.items.try_reserve(1).is_ok()
    }
}

impl<T, S: Sleepers, D: Signal, W: Copy + Default + PartialEq> BlockingQueue<T, S, D, W> {
    /// Room that is allocated at once. A longer queue grows.
    const MIN_ROOM: usize = 1024;

    /// An empty queue for `capacity` items.
    pub(crate) fn new(capacity: usize) -> Self {
        let state = State {
            items: VecDeque::with_capacity(capacity.min(Self::MIN_ROOM)),
            capacity,
            added: 0,
            blocked: 0,
            drivers: W::default(),
            descriptor: None,
            is_readable: false,
            is_closed: false,
        };
        Self {
            state: Mutex::new(state),
            count: ItemCount::new(),
            sleepers: S::default(),
            is_exported: AtomicBool::new(false),
        }
    }

    /// Begins to put items in.
    pub(crate) fn fill(&self) -> Filling<'_, T, S, D, W> {
        Filling { state: self.lock(), queue: self }
    }

    /// Returns the maximum number of items.
    pub(crate) fn capacity(&self) -> usize {
        self.lock().capacity
    }

    /// Changes the maximum number of items. The items stay, in their order.
    ///
    /// # Errors
    ///
    /// The number of items, if it is larger.
    pub(crate) fn resize(&self, capacity: usize) -> Result<(), usize> {
        let mut state = self.lock();
        if state.items.len() > capacity {
            return Err(state.items.len());
        }
        state.capacity = capacity;
        state.items.shrink_to(capacity.min(Self::MIN_ROOM));
        Ok(())
    }

    /// Whether the queue has no items. Reads one word, without the lock.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.is_zero()
    }

    /// Returns the number of items that were taken until now, or `None` from an empty queue.
    pub(crate) fn taken(&self) -> Option<u64> {
        let state = self.lock();
        (!state.items.is_empty()).then(|| state.added - state.items.len() as u64)
    }

    /// Returns the number of items for which `is_counted` returns true.
    pub(crate) fn count(&self, is_counted: impl Fn(&T) -> bool) -> usize {
        self.lock().items.iter().filter(|item| is_counted(item)).count()
    }

    /// Takes the oldest item.
    pub(crate) fn pop(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let mut state = self.lock();
        let item = state.items.pop_front();
        self.after_removal(&mut state);
        item
    }

    /// Removes the items for which `keep` returns false.
    pub(crate) fn retain(&self, keep: impl FnMut(&T) -> bool) {
        let mut state = self.lock();
        state.items.retain(keep);
        self.after_removal(&mut state);
    }

    /// Takes up to `max` items and appends them to `out`. Returns their number.
    pub(crate) fn pop_into<O: From<T>>(&self, out: &mut Vec<O>, max: usize) -> usize {
        if self.is_empty() {
            return 0;
        }
        let mut state = self.lock();
        let count = state.items.len().min(max);
        out.extend(state.items.drain(..count).map(O::from));
        self.after_removal(&mut state);
        count
    }

    /// Blocks until there is an item, and takes it. Returns `None` from a closed queue without items.
    ///
    /// # Errors
    ///
    /// The error of `timeout`, which returns how long the next sleep may last, or of `after`, which gets the reason why a
    /// sleep ended. An item that is there by then is returned in place of the error.
    pub(crate) fn block_with<E>(
        &self,
        mut timeout: impl FnMut() -> Result<Option<Duration>, E>,
        mut after: impl FnMut(S::Woken) -> Result<(), E>,
    ) -> Result<Option<T>, E> {
        let mut state = self.lock();
        state.blocked += 1;
        let mut result = Ok(None);
        while result.is_ok() && state.items.is_empty() && !state.is_closed {
            match timeout() {
                Ok(timeout) => {
                    let ticket = self.sleepers.ticket();
                    drop(state);
                    let woken = self.sleepers.sleep(ticket, timeout);
                    state = self.lock();
                    result = after(woken).map(|()| None);
                }
                Err(error) => result = Err(error),
            }
        }
        state.blocked -= 1;
        let item = state.items.pop_front();
        self.after_removal(&mut state);
        item.map_or(result, |item| Ok(Some(item)))
    }

    /// Changes the set of consumers that drive the device.
    pub(crate) fn change_drivers(&self, change: impl FnOnce(W) -> W) {
        let mut state = self.lock();
        state.drivers = change(state.drivers);
        show_items(&mut state);
    }

    /// Wakes the consumers that block, now and later: no item will come.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        self.sleepers.wake_all();
        if let Some(descriptor) = &state.descriptor {
            descriptor.ring();
        }
    }

    /// Makes `descriptor` readable while the queue has items that no driver takes, from now on. The first descriptor
    /// stays.
    pub(crate) fn export(&self, descriptor: &Arc<D>) {
        if !self.is_exported() {
            let mut state = self.lock();
            state.descriptor.get_or_insert_with(|| Arc::clone(descriptor));
            show_items(&mut state);
            self.is_exported.store(true, Ordering::Release);
        }
    }

    /// Whether there is a descriptor.
    pub(crate) fn is_exported(&self) -> bool {
        self.is_exported.load(Ordering::Acquire)
    }

    fn after_removal(&self, state: &mut State<T, D, W>) {
        self.count.lower(state.items.len());
        if state.is_readable && state.items.is_empty() && !state.is_closed {
            state.is_readable = false;
            if let Some(descriptor) = &state.descriptor {
                descriptor.silence();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T, D, W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the descriptor readable, if the queue has one, and items that no driver takes.
fn show_items<T, D: Signal, W: Default + PartialEq>(state: &mut State<T, D, W>) {
    if let Some(descriptor) = &state.descriptor
        && !state.is_readable
        && !state.items.is_empty()
        && state.drivers == W::default()
    {
        descriptor.ring();
        state.is_readable = true;
    }
}

/// Items that are put in together: no consumer sees one before [`end`](Self::end).
#[derive(Debug)]
#[must_use = "consumers are woken by its end"]
pub(crate) struct Filling<'q, T, S, D, W> {
    state: MutexGuard<'q, State<T, D, W>>,
    queue: &'q BlockingQueue<T, S, D, W>,
}

impl<T, S: Sleepers, D: Signal, W: Copy + Default + PartialEq> Filling<'_, T, S, D, W> {
    /// Puts an item in. A full queue drops its oldest item if `may_drop_oldest`; otherwise it does not change, and this
    /// returns false.
    pub(crate) fn push(&mut self, item: T, may_drop_oldest: bool) -> bool {
        if !self.state.has_room() {
            if !may_drop_oldest {
                return false;
            }
            self.state.items.pop_front();
        }
        self.state.items.push_back(item);
        self.state.added += 1;
        true
    }

    /// Wakes consumers. Returns the set of those that drive the device.
    pub(crate) fn end(mut self) -> W {
        let Self { state, queue } = &mut self;
        queue.count.publish(state.items.len());
        match state.blocked.min(state.items.len()) {
            0 => {}
            1 => queue.sleepers.wake_one(),
            _ => queue.sleepers.wake_all(),
        }
        show_items(state);
        state.drivers
    }
}
