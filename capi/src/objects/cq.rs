//! Completion queues.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use softroce::verbs::{Completion, CompletionQueue, Instant};

use super::context::Objects;
use super::number::next_handle;
use crate::abi::{CqHead, CqRead, Handle, IbvCompChannel, IbvContext, IbvCq, UserData};
use crate::border::{Errno, Pointee, report};
use crate::gate::{Gate, lock};

/// A completion queue. Every `ibv_cq` is an `ibv_cq_ex`.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) c: CqHead,
    pub(crate) verbs: CompletionQueue,
    cursor: PollCursor,
    /// Buffer for completions between the library and the array of the program.
    batch: Mutex<Vec<Completion>>,
    objects: Arc<Mutex<Objects>>,
}

/// The state between `ibv_start_poll` and `ibv_end_poll`.
#[derive(Default)]
struct PollCursor {
    gate: Gate,
    current: Mutex<Option<PolledCompletion>>,
}

/// A completion, and the time at which it entered the queue.
#[derive(Clone, Copy)]
pub(crate) struct PolledCompletion {
    pub(crate) completion: Completion,
    pub(crate) at: Instant,
}

/// The arguments of the program for a new queue, as the structure of C has them.
pub(crate) struct CqFields {
    pub(crate) context: Handle<IbvContext>,
    pub(crate) channel: Handle<IbvCompChannel>,
    pub(crate) cq_context: UserData,
    /// Number of completions.
    pub(crate) depth: usize,
    pub(crate) read: CqRead,
}

impl Pointee for IbvCq {
    type Object = Cq;
}

impl Cq {
    /// Creates the object of a queue, and registers it for events.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the context is null, or the context or the channel is destroyed.
    pub(crate) fn create(
        fields: &CqFields,
        verbs: CompletionQueue,
    ) -> Result<Handle<IbvCq>, Errno> {
        let objects = Arc::clone(&fields.context.get()?.objects);
        let (id, table) = (verbs.id().0, Arc::clone(&objects));
        let c = CqHead {
            context: fields.context,
            channel: fields.channel,
            cq_context: AtomicPtr::new(fields.cq_context),
            handle: next_handle(),
            cqe: AtomicI32::new(c_int::try_from(fields.depth).unwrap_or(c_int::MAX)),
            mutex: Default::default(),
            cond: Default::default(),
            comp_events_completed: AtomicU32::new(0),
            async_events_completed: AtomicU32::new(0),
            comp_mask: 0,
            status: AtomicU32::new(0),
            wr_id: AtomicU64::new(0),
            read: fields.read,
        };
        let (cursor, batch) = (PollCursor::default(), Mutex::default());
        let cq = Handle::new(Self { c, verbs, cursor, batch, objects });
        lock(&table).cqs.insert(id, cq);
        if let Some(channel) = fields.channel.optional()? {
            channel.c.refcnt.fetch_add(1, Ordering::Relaxed);
        }
        Ok(cq)
    }

    /// Events no longer name the queue after this.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the channel is destroyed.
    pub(crate) fn unregister(&self) -> Result<(), Errno> {
        lock(&self.objects).cqs.remove(&self.verbs.id().0);
        if let Some(channel) = self.c.channel.optional()? {
            channel.c.refcnt.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes up to `max` completions, and passes each with its index to `take`. Returns how many there
    /// were.
    pub(crate) fn poll(&self, max: usize, mut take: impl FnMut(usize, &Completion)) -> usize {
        // A thread that polls at the same time has a buffer of its own.
        let (mut shared, mut own);
        let batch = match self.batch.try_lock() {
            Ok(guard) => {
                shared = guard;
                &mut *shared
            }
            Err(_) => {
                own = Vec::new();
                &mut own
            }
        };
        let count = self.verbs.poll(batch, max);
        for (n, completion) in batch.drain(..).enumerate() {
            report::completed(&completion);
            take(n, &completion);
        }
        count
    }

    /// Takes the first completion for `ibv_start_poll`. Waits for other threads to end their polling.
    ///
    /// # Errors
    ///
    /// `ENOENT` when the queue is empty; then polling has not started.
    pub(crate) fn start_poll(&self) -> Result<(), Errno> {
        self.cursor.gate.close();
        self.next_poll().inspect_err(|_| self.cursor.gate.open())
    }

    /// Takes the next completion.
    ///
    /// # Errors
    ///
    /// `ENOENT` when the queue is empty.
    pub(crate) fn next_poll(&self) -> Result<(), Errno> {
        let polling = self.verbs.start_poll().ok_or_else(Errno::empty)?;
        let (completion, at) = (polling.completion(), polling.completion_ts());
        report::completed(&completion);
        self.c.wr_id.store(completion.wr_id, Ordering::Relaxed);
        self.c.status.store(completion.status as u32, Ordering::Relaxed);
        *lock(&self.cursor.current) = Some(PolledCompletion { completion, at });
        Ok(())
    }

    /// Lets the next thread start to poll.
    pub(crate) fn end_poll(&self) {
        self.cursor.gate.open();
    }

    /// Returns the completion that was taken last, or `None` before the first.
    pub(crate) fn current(&self) -> Option<PolledCompletion> {
        *lock(&self.cursor.current)
    }
}
