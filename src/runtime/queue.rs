//! What one thread announces and another takes or waits for: completions, notifications, events.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};

use crate::io::Bell;
use crate::runtime::shard_set::ShardSet;
use crate::runtime::{clock, signals};
use crate::sync::Mutex;
use crate::sync::notify::ItemCount;
use crate::sys::{Sleepers, Woken};
use crate::time::Instant;

/// A bounded queue with three ways to learn that something is in it: to look, to block, and to wait
/// on a descriptor. Who looks at an empty one pays for one load.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    /// Number of items, for a look without the lock.
    count: ItemCount,
    arrived: Sleepers,
    /// The descriptor, once somebody has asked for it: readable while there is something.
    bell: OnceLock<Arc<Bell>>,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    capacity: usize,
    /// Threads that block.
    sleepers: usize,
    /// Threads that wait for this queue sleep on the descriptors of these shards, not here.
    driven: ShardSet,
    rung: bool,
    closed: bool,
}

impl<T> State<T> {
    /// Whether it takes one more. Where the host has no memory it is full.
    fn has_room(&mut self) -> bool {
        self.items.len() < self.capacity && self.items.try_reserve(1).is_ok()
    }
}

/// What became of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pushed {
    /// It is in the queue, and the threads that drive these shards wait for it.
    Waking(ShardSet),
    /// There was no room.
    Full,
}

impl Pushed {
    /// The shards whose drivers wait for it.
    pub(crate) fn wakes(self) -> ShardSet {
        match self {
            Self::Waking(these) => these,
            Self::Full => ShardSet::EMPTY,
        }
    }
}

/// The effect of a signal on a thread that waits, when its handler has run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnSignal {
    /// The thread waits on.
    Wait,
    /// That on a thread that reads from a pipe: with `SA_RESTART` it waits on, without the wait ends.
    AsRead,
}

/// The end of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waited<T> {
    /// There is something.
    Item(T),
    /// The time is over, or the queue is closed.
    Over,
    /// A signal has ended the wait.
    Interrupted,
}

#[cfg(test)]
impl<T> Waited<T> {
    /// The item, if there is one.
    pub(crate) fn item(self) -> Option<T> {
        match self {
            Self::Item(item) => Some(item),
            Self::Over | Self::Interrupted => None,
        }
    }
}

impl<T> Queue<T> {
    /// Room that is made at once; a longer queue grows.
    const ROOM: usize = 1024;

    pub(crate) fn new(capacity: usize) -> Self {
        let state = State {
            items: VecDeque::with_capacity(capacity.min(Self::ROOM)),
            capacity,
            sleepers: 0,
            driven: ShardSet::EMPTY,
            rung: false,
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            count: ItemCount::new(),
            arrived: Sleepers::default(),
            bell: OnceLock::new(),
        }
    }

    pub(crate) fn push(&self, item: T) -> Pushed {
        let mut filling = self.fill();
        if !filling.push(item, false) {
            return Pushed::Full;
        }
        Pushed::Waking(filling.end())
    }

    /// Begins to put several in.
    pub(crate) fn fill(&self) -> Filling<'_, T> {
        Filling { state: self.lock(), queue: self }
    }

    /// How many it takes.
    pub(crate) fn capacity(&self) -> usize {
        self.lock().capacity
    }

    /// Lets it take more or fewer. What is in it stays, in its order.
    ///
    /// # Errors
    ///
    /// How many there are in it, when that is more.
    pub(crate) fn resize(&self, capacity: usize) -> Result<(), usize> {
        let mut state = self.lock();
        if state.items.len() > capacity {
            return Err(state.items.len());
        }
        state.capacity = capacity;
        state.items.shrink_to(capacity.min(Self::ROOM));
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.is_zero()
    }

    pub(crate) fn pop(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let mut state = self.lock();
        let item = state.items.pop_front();
        self.taken(&mut state);
        item
    }

    /// Takes out what `keep` says no to.
    pub(crate) fn retain(&self, keep: impl FnMut(&T) -> bool) {
        let mut state = self.lock();
        state.items.retain(keep);
        self.taken(&mut state);
    }

    /// Takes up to `max` and appends them to `out`.
    pub(crate) fn pop_into<O: From<T>>(&self, out: &mut Vec<O>, max: usize) -> usize {
        if self.is_empty() {
            return 0;
        }
        let mut state = self.lock();
        let count = state.items.len().min(max);
        out.extend(state.items.drain(..count).map(O::from));
        self.taken(&mut state);
        count
    }

    /// Blocks until there is something, `until`, or the queue is closed; and where a signal is to end that,
    /// until one does.
    pub(crate) fn block(&self, until: Option<Instant>, on_signal: OnSignal) -> Waited<T> {
        let mut state = self.lock();
        state.sleepers += 1;
        let mut end = Waited::Over;
        while state.items.is_empty() && !state.closed {
            let rest = until.map(|until| until - clock::now());
            if rest.is_some_and(|rest| rest.is_zero()) {
                break;
            }
            // Under the lock: what is pushed after it is let go wakes.
            let ticket = self.arrived.ticket();
            drop(state);
            let woken = self.arrived.sleep(ticket, rest);
            state = self.lock();
            // The kernel restarts only sleeps without timeout.
            let is_over = || until.is_none() || signals::has_ended_the_call();
            if woken == Woken::Interrupted && on_signal == OnSignal::AsRead && is_over() {
                end = Waited::Interrupted;
                break;
            }
        }
        state.sleepers -= 1;
        let item = state.items.pop_front();
        self.taken(&mut state);
        item.map_or(end, Waited::Item)
    }

    /// Whether a push is to wake the thread that drives a shard.
    pub(crate) fn set_driven(&self, shard: ShardSet, driven: bool) {
        let mut state = self.lock();
        state.driven = if driven { state.driven | shard } else { state.driven.without(shard) };
    }

    /// Wakes whoever blocks, now and later: nothing will come.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        self.arrived.wake(i32::MAX);
        if let Some(bell) = self.bell.get() {
            bell.ring();
        }
    }

    /// From now on `bell` is readable while there is something. The first bell stays.
    pub(crate) fn export(&self, bell: &Arc<Bell>) {
        if self.bell.get().is_none() {
            let mut state = self.lock();
            self.bell.get_or_init(|| Arc::clone(bell));
            self.sound(&mut state);
        }
    }

    /// Whether somebody has the descriptor.
    pub(crate) fn is_exported(&self) -> bool {
        self.bell.get().is_some()
    }

    fn sound(&self, state: &mut State<T>) {
        if let Some(bell) = self.bell.get()
            && !state.rung
            && !state.items.is_empty()
        {
            state.rung = true;
            bell.ring();
        }
    }

    fn taken(&self, state: &mut State<T>) {
        self.count.lower(state.items.len());
        if state.rung && state.items.is_empty() && !state.closed {
            state.rung = false;
            if let Some(bell) = self.bell.get() {
                bell.silence();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Items that are put in one behind the other, before anybody looks.
#[derive(Debug)]
#[must_use = "what is in it is told by its end"]
pub(crate) struct Filling<'q, T> {
    state: MutexGuard<'q, State<T>>,
    queue: &'q Queue<T>,
}

impl<T> Filling<'_, T> {
    /// Puts one in. Where there is no room the oldest makes some if it `may_push_out` that; otherwise
    /// nothing changes, and this says so.
    pub(crate) fn push(&mut self, item: T, may_push_out: bool) -> bool {
        if !self.state.has_room() {
            if !may_push_out {
                return false;
            }
            self.state.items.pop_front();
        }
        self.state.items.push_back(item);
        true
    }

    /// Wakes who waits. Returns the shards whose drivers do.
    pub(crate) fn end(mut self) -> ShardSet {
        let Self { state, queue } = &mut self;
        queue.count.publish(state.items.len());
        match state.sleepers.min(state.items.len()) {
            0 => {}
            1 => queue.arrived.wake(1),
            _ => queue.arrived.wake(i32::MAX),
        }
        queue.sound(state);
        state.driven
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::io::wait_readable;

    fn block(queue: &Queue<i32>) -> Option<i32> {
        queue.block(None, OnSignal::Wait).item()
    }

    const QUIETLY: Pushed = Pushed::Waking(ShardSet::EMPTY);

    #[test]
    fn a_full_queue_takes_nothing() {
        let queue = Queue::new(2);
        assert_eq!([1, 2, 3].map(|i| queue.push(i)), [QUIETLY, QUIETLY, Pushed::Full]);
        let mut taken = Vec::<i32>::new();
        assert_eq!((queue.pop_into(&mut taken, 1), queue.pop()), (1, Some(2)));
        assert!(taken == [1] && queue.is_empty());
    }

    #[test]
    fn its_size_can_change_while_something_is_in_it() {
        let queue = Queue::new(2);
        assert_eq!([1, 2, 3].map(|i| queue.push(i))[2], Pushed::Full);
        assert_eq!((queue.resize(1), queue.capacity()), (Err(2), 2));
        assert_eq!(
            (queue.resize(3), queue.push(3), queue.push(4)),
            (Ok(()), QUIETLY, Pushed::Full)
        );
        assert_eq!((queue.pop(), queue.resize(2)), (Some(1), Ok(())));
        assert_eq!((queue.push(5), queue.fill().push(6, true)), (Pushed::Full, true));
        let mut taken = Vec::<i32>::new();
        queue.pop_into(&mut taken, 9);
        assert_eq!(taken, [3, 6]);
    }

    #[test]
    fn the_descriptor_is_readable_while_there_is_something() {
        let bell = Arc::new(Bell::open().unwrap());
        let readable = || wait_readable(&[bell.as_fd()], Some(Duration::ZERO)).unwrap();
        let queue = Queue::new(4);
        queue.push(1);
        assert!(!readable(), "not exported yet");
        queue.export(&bell);
        assert!(readable());
        queue.push(2);
        assert_eq!((queue.pop(), readable()), (Some(1), true));
        assert_eq!((queue.pop(), readable()), (Some(2), false));
        queue.push(3);
        assert!(readable());
    }

    #[test]
    fn who_blocks_gets_what_is_pushed_and_nothing_from_a_closed_queue() {
        let queue = Queue::new(4);
        thread::scope(|scope| {
            let waiters: Vec<_> =
                (0..3).map(|_| scope.spawn(|| block(&queue).unwrap_or(0))).collect();
            for i in 1..=3 {
                queue.push(i);
            }
            let sum: i32 = waiters.into_iter().map(|waiter| waiter.join().unwrap()).sum();
            assert_eq!(sum, 6);
            let waiter = scope.spawn(|| block(&queue));
            queue.close();
            assert_eq!(waiter.join().unwrap(), None);
        });
        assert_eq!(block(&queue), None);
        assert_eq!(queue.block(Some(clock::now()), OnSignal::Wait).item(), None);
    }
}
