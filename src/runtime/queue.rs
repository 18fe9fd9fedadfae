//! Queues of completions, notifications and events: [`BlockingQueue`] with the sleeps, descriptors and clock of this
//! process.

use std::ops::Deref;
use std::time::Duration;

use crate::port::EventFd;
use crate::runtime::shard_set::ShardSet;
use crate::runtime::{clock, signals};
use crate::sync::queue::{self, BlockingQueue};
use crate::sys::{Sleepers, Woken};
use crate::time::Instant;

impl queue::Sleepers for Sleepers {
    type Woken = Woken;

    fn ticket(&self) -> u32 {
        self.ticket()
    }

    fn sleep(&self, ticket: u32, timeout: Option<Duration>) -> Woken {
        self.sleep(ticket, timeout)
    }

    fn wake_one(&self) {
        self.wake(1);
    }

    fn wake_all(&self) {
        self.wake(i32::MAX);
    }
}

/// A bounded queue. Its consumers are the shards with drivers that wait for it.
#[derive(Debug)]
pub(crate) struct Queue<T>(BlockingQueue<T, Sleepers, EventFd, ShardSet>);

impl<T> Deref for Queue<T> {
    type Target = BlockingQueue<T, Sleepers, EventFd, ShardSet>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Result of a push.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PushOutcome {
    /// The item is in the queue; the drivers of these shards wait for it.
    Waking(ShardSet),
    /// The queue had no room.
    Full,
}

impl PushOutcome {
    /// Returns the shards with drivers that wait for the item.
    pub(crate) fn wakes(self) -> ShardSet {
        match self {
            Self::Waking(these) => these,
            Self::Full => ShardSet::EMPTY,
        }
    }
}

/// Effect of a signal on a waiting thread, after its handler has run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnSignal {
    /// The wait continues.
    Wait,
    /// As in `read` from a pipe: with `SA_RESTART` the wait continues, otherwise it ends.
    AsRead,
}

/// Result of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitOutcome<T> {
    /// An item.
    Item(T),
    /// The time is over, or the queue is closed.
    Ended,
    /// A signal has ended the wait.
    Interrupted,
}

#[cfg(test)]
impl<T> WaitOutcome<T> {
    /// Returns the item, if there is one.
    pub(crate) fn item(self) -> Option<T> {
        match self {
            Self::Item(item) => Some(item),
            Self::Ended | Self::Interrupted => None,
        }
    }
}

impl<T> Queue<T> {
    /// Returns an empty queue for `capacity` items.
    pub(crate) fn new(capacity: usize) -> Self {
        Self(BlockingQueue::new(capacity))
    }

    /// Appends an item.
    pub(crate) fn push(&self, item: T) -> PushOutcome {
        let mut filling = self.fill();
        if !filling.push(item, false) {
            return PushOutcome::Full;
        }
        PushOutcome::Waking(filling.end())
    }

    /// Blocks until there is an item, until `until`, or until the queue is closed; with [`OnSignal::AsRead`] also until
    /// a signal.
    pub(crate) fn block(&self, until: Option<Instant>, on_signal: OnSignal) -> WaitOutcome<T> {
        let timeout = || {
            let rest = until.map(|until| until - clock::now());
            if rest.is_some_and(|rest| rest.is_zero()) { Err(WaitOutcome::Ended) } else { Ok(rest) }
        };
        let after = |woken| {
            // The kernel restarts only sleeps without timeout.
            let is_over = || until.is_none() || signals::ends_call();
            let is_interrupted =
                woken == Woken::Interrupted && on_signal == OnSignal::AsRead && is_over();
            if is_interrupted { Err(WaitOutcome::Interrupted) } else { Ok(()) }
        };
        match self.block_with(timeout, after) {
            Ok(item) => item.map_or(WaitOutcome::Ended, WaitOutcome::Item),
            Err(end) => end,
        }
    }

    /// Sets whether an item wakes the thread that drives a shard.
    pub(crate) fn set_driven(&self, shard: ShardSet, is_driven: bool) {
        self.change_drivers(|all| if is_driven { all | shard } else { all.without(shard) });
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;
    use std::thread;

    use super::*;
    use crate::port::{EventFd, wait_readable};

    fn block(queue: &Queue<i32>) -> Option<i32> {
        queue.block(None, OnSignal::Wait).item()
    }

    const QUIETLY: PushOutcome = PushOutcome::Waking(ShardSet::EMPTY);

    #[test]
    fn a_full_queue_takes_nothing() {
        let queue = Queue::new(2);
        assert_eq!([1, 2, 3].map(|i| queue.push(i)), [QUIETLY, QUIETLY, PushOutcome::Full]);
        let mut taken = Vec::<i32>::new();
        assert_eq!((queue.pop_into(&mut taken, 1), queue.pop()), (1, Some(2)));
        assert!(taken == [1] && queue.is_empty());
    }

    #[test]
    fn its_size_can_change_while_something_is_in_it() {
        let queue = Queue::new(2);
        assert_eq!([1, 2, 3].map(|i| queue.push(i))[2], PushOutcome::Full);
        assert_eq!((queue.resize(1), queue.capacity()), (Err(2), 2));
        assert_eq!(
            (queue.resize(3), queue.push(3), queue.push(4)),
            (Ok(()), QUIETLY, PushOutcome::Full)
        );
        assert_eq!((queue.pop(), queue.resize(2)), (Some(1), Ok(())));
        assert_eq!((queue.push(5), queue.fill().push(6, true)), (PushOutcome::Full, true));
        let mut taken = Vec::<i32>::new();
        queue.pop_into(&mut taken, 9);
        assert_eq!(taken, [3, 6]);
    }

    #[test]
    fn the_descriptor_is_readable_while_there_is_something() {
        let event_fd = Arc::new(EventFd::open().unwrap());
        let readable = || wait_readable(&[event_fd.as_fd()], Some(Duration::ZERO)).unwrap();
        let queue = Queue::new(4);
        queue.push(1);
        assert!(!readable(), "not exported yet");
        queue.export(&event_fd);
        assert!(readable());
        queue.push(2);
        assert_eq!((queue.pop(), readable()), (Some(1), true));
        assert_eq!((queue.pop(), readable()), (Some(2), false));
        queue.push(3);
        assert!(readable());
    }

    #[test]
    fn the_descriptor_shows_only_what_drivers_leave() {
        let event_fd = Arc::new(EventFd::open().unwrap());
        let readable = || wait_readable(&[event_fd.as_fd()], Some(Duration::ZERO)).unwrap();
        let queue = Queue::new(4);
        queue.export(&event_fd);
        let [first, second] = [0, 1].map(ShardSet::of);
        queue.set_driven(first, true);
        queue.set_driven(second, true);
        assert_eq!(queue.push(1), PushOutcome::Waking(first | second));
        queue.push(2);
        queue.set_driven(second, false);
        assert!(!readable(), "a driver is still there");
        assert_eq!(queue.pop(), Some(1));
        queue.set_driven(first, false);
        assert!(readable(), "it has left one item");
        assert_eq!((queue.pop(), readable()), (Some(2), false));
        queue.set_driven(first, true);
        queue.push(3);
        assert_eq!(queue.pop(), Some(3));
        queue.set_driven(first, false);
        assert!(!readable(), "it has left nothing");
    }

    #[test]
    fn blocked_consumer_gets_an_item_or_the_end_of_the_queue() {
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
