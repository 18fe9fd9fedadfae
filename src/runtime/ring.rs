//! The device's side of a completion queue.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::runtime::queue::{Pushed, Queue};
use crate::transport::outputs::AsyncEvent;
use crate::transport::work::Completion;

/// What is done when a completion queue has something that it was armed for.
pub(crate) trait Announce: Send + Sync {
    /// Announces it. True when the thread that drives the device waits for that.
    fn announce(&self) -> bool;

    /// The device has failed: nothing will be announced any more.
    fn close(&self);
}

/// Completions between the device, which puts them in, and the application.
pub(crate) struct Ring {
    pub(crate) completions: Queue<Completion>,
    armed: AtomicU8,
    announce: Option<Box<dyn Announce>>,
    overrun: AtomicBool,
    /// Where it is told that the queue was full.
    pub(crate) events: Arc<Queue<AsyncEvent>>,
}

/// Which completion a completion queue announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Armed {
    No = 0,
    /// The next for which the peer asked for notice, or that is an error.
    Solicited = 1,
    /// The next.
    Any = 2,
}

/// What became of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Put {
    /// There was no room, for the first time.
    pub(crate) overrun: bool,
    /// The queue is to be announced.
    pub(crate) announce: bool,
    /// The thread that drives the device waits for it.
    pub(crate) wake_driver: bool,
}

impl Ring {
    pub(crate) fn new(
        depth: usize,
        announce: Option<Box<dyn Announce>>,
        events: Arc<Queue<AsyncEvent>>,
    ) -> Self {
        Self {
            completions: Queue::new(depth),
            armed: AtomicU8::new(Armed::No as u8),
            announce,
            overrun: AtomicBool::new(false),
            events,
        }
    }

    /// Puts a completion in. After an overrun they are thrown away: some are missing already.
    pub(crate) fn put(&self, completion: Completion) -> Put {
        if self.is_overrun() {
            return Put::default();
        }
        match self.completions.push(completion) {
            Pushed::Full => {
                self.overrun.store(true, Ordering::Release);
                Put { overrun: true, ..Put::default() }
            }
            pushed => Put {
                overrun: false,
                announce: self.disarm_for(&completion),
                wake_driver: pushed == Pushed::WakeDriver,
            },
        }
    }

    /// Announces the next completion, or the next solicited one, that is put in from now on. The
    /// wider of two wishes counts.
    pub(crate) fn arm(&self, armed: Armed) {
        self.armed.fetch_max(armed as u8, Ordering::SeqCst);
    }

    /// Announces what has been put in. True when the thread that drives the device waits for that.
    pub(crate) fn announce(&self) -> bool {
        self.announce.as_ref().is_some_and(|announce| announce.announce())
    }

    /// The device has failed.
    pub(crate) fn close(&self) {
        self.completions.close();
        if let Some(announce) = &self.announce {
            announce.close();
        }
    }

    /// Whether completions are missing.
    pub(crate) fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Acquire)
    }

    fn disarm_for(&self, completion: &Completion) -> bool {
        let armed = self.armed.load(Ordering::SeqCst);
        let due =
            armed == Armed::Any as u8 || (armed == Armed::Solicited as u8 && completion.solicited);
        due && self.armed.swap(Armed::No as u8, Ordering::SeqCst) != Armed::No as u8
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("completions", &self.completions)
            .field("armed", &self.armed)
            .field("overrun", &self.overrun)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Qpn;
    use crate::transport::work::{WcOpcode, WcStatus};

    fn completion(solicited: bool) -> Completion {
        Completion {
            wr_id: 0,
            status: WcStatus::Success,
            opcode: WcOpcode::Recv,
            byte_len: 0,
            imm: None,
            source_qp: None,
            qpn: Qpn::new(2),
            solicited,
        }
    }

    fn ring(depth: usize) -> Ring {
        Ring::new(depth, None, Arc::new(Queue::new(1)))
    }

    #[test]
    fn it_is_announced_once_each_time_it_is_armed() {
        let ring = ring(16);
        let announced = |solicited| ring.put(completion(solicited)).announce;
        assert_eq!([announced(false), announced(true)], [false, false]);
        ring.arm(Armed::Any);
        assert_eq!([announced(false), announced(true)], [true, false]);
        ring.arm(Armed::Solicited);
        assert_eq!([announced(false), announced(true), announced(true)], [false, true, false]);
        ring.arm(Armed::Any);
        ring.arm(Armed::Solicited);
        assert!(announced(false), "the wider wish counts");
    }

    #[test]
    fn after_an_overrun_nothing_more_is_put_in() {
        let ring = ring(1);
        assert_eq!(ring.put(completion(false)), Put::default());
        assert!(ring.put(completion(false)).overrun);
        ring.completions.pop();
        assert_eq!(ring.put(completion(false)), Put::default());
        assert!(ring.completions.is_empty() && ring.is_overrun());
    }
}
