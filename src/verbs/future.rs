//! Completions for asynchronous tasks.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

#[cfg(feature = "futures")]
use futures_core::Stream;

use crate::runtime::{Ring, ShardSet, WakerKey};
use crate::transport::work::Completion;
use crate::verbs::context::ContextInner;
use crate::verbs::cq::inner::CqInner;
use crate::verbs::{CompletionQueue, Error};

impl CompletionQueue {
    /// Returns a future for the next completion. The device's thread wakes the task, so every executor works, and no
    /// channel is necessary.
    ///
    /// Several tasks may wait for completions of one queue: each completion wakes all of them, and one of them takes
    /// it. Dropping a future loses no completion.
    ///
    /// ```
    /// use std::future::Future;
    /// use softroce::verbs::*;
    ///
    /// /// Sends four bytes and waits until they have arrived.
    /// async fn send(qp: &QueuePair, word: u32) -> Result<(), Error> {
    ///     qp.post_send(SendRequest::send(1, SendData::inline(&word.to_be_bytes())).signaled())?;
    ///     let completion = qp.send_cq().next().await?;
    ///     assert!(completion.status.is_success());
    ///     Ok(())
    /// }
    /// # fn is_send(_: impl Future + Send) {}
    /// # let ctx = Context::open(OpenOptions::loopback())?;
    /// # let cq = ctx.create_cq(4, None)?;
    /// # is_send(send(&ctx.alloc_pd().create_qp(&QpConfig::rc(&cq))?, 7));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Overrun`] after the last completion before an overrun; [`Error::Device`].
    pub fn next(&self) -> NextCompletion<'_> {
        NextCompletion { cq: self, waiter: None }
    }

    /// Returns a stream of completions. It ends after the first error.
    ///
    /// ```
    /// use std::pin::pin;
    /// use std::task::{Context as Task, Poll, Waker};
    ///
    /// use futures_core::Stream;
    /// use softroce::verbs::*;
    ///
    /// let ctx = Context::open(OpenOptions::loopback())?;
    /// let cq = ctx.create_cq(4, None)?;
    /// let mut completions = pin!(cq.completions());
    /// // An executor polls the stream, and polls again when it is woken.
    /// let next = completions.as_mut().poll_next(&mut Task::from_waker(Waker::noop()));
    /// assert!(matches!(next, Poll::Pending));
    /// # Ok::<(), Error>(())
    /// ```
    #[cfg(feature = "futures")]
    pub fn completions(&self) -> Completions {
        Completions { cq: self.clone(), waiter: None, over: false }
    }

    /// Takes a completion for a task, or registers the task to be woken by the next one.
    fn poll_for(
        &self,
        waiter: &mut Option<Waiter>,
        cx: &Context<'_>,
    ) -> Poll<Result<Completion, Error>> {
        let inner = &self.inner;
        let mut found = self.take();
        if found.is_none() {
            let waiter = waiter.get_or_insert_with(|| Waiter::of(inner));
            inner.ring.wakers.register(&mut waiter.key, cx.waker());
            // Completions that arrived before the registration wake no task.
            found = inner.ring.completions.pop();
        }
        let end = match found {
            Some(stamped) => Ok(stamped.completion),
            None if inner.ring.is_overrun() => Err(self.overrun()),
            None => match inner.context.device.shards.check() {
                // A flush that has ended meanwhile is in the queue.
                Err(down) => match inner.ring.completions.pop() {
                    Some(stamped) => Ok(stamped.completion),
                    None => Err(down.into()),
                },
                Ok(()) => {
                    if let Some(waiter) = waiter {
                        waiter.register_waiter();
                    }
                    return Poll::Pending;
                }
            },
        };
        *waiter = None;
        Poll::Ready(end)
    }
}

/// Registration of a future that waits for completions of a queue. Dropping the future removes it.
#[derive(Debug)]
struct Waiter {
    context: Arc<ContextInner>,
    ring: Arc<Ring>,
    key: Option<WakerKey>,
    /// Shards that fill the queue, while the future is registered with their threads.
    registered: ShardSet,
}

impl Waiter {
    fn of(cq: &CqInner) -> Self {
        Self {
            context: Arc::clone(&cq.context),
            ring: Arc::clone(&cq.ring),
            key: None,
            registered: ShardSet::EMPTY,
        }
    }

    /// Registers the future with the threads of the shards.
    fn register_waiter(&mut self) {
        if self.registered.is_empty() {
            self.registered = self.ring.feeders();
            self.context.device.shards.register_waiter(self.registered);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.context.device.shards.unregister_waiter(self.registered);
        if let Some(key) = self.key {
            self.ring.wakers.remove(key);
        }
    }
}

/// Future for the next completion of a queue, see [`CompletionQueue::next`].
#[derive(Debug)]
#[must_use = "it does nothing until it is awaited"]
pub struct NextCompletion<'a> {
    cq: &'a CompletionQueue,
    waiter: Option<Waiter>,
}

impl Future for NextCompletion<'_> {
    type Output = Result<Completion, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.cq.poll_for(&mut self.waiter, cx)
    }
}

/// Stream of completions of a queue, see [`CompletionQueue::completions`].
#[cfg(feature = "futures")]
#[derive(Debug)]
#[must_use = "it does nothing until it is polled"]
pub struct Completions {
    cq: CompletionQueue,
    waiter: Option<Waiter>,
    over: bool,
}

#[cfg(feature = "futures")]
impl Stream for Completions {
    type Item = Result<Completion, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.over {
            return Poll::Ready(None);
        }
        let end = this.cq.poll_for(&mut this.waiter, cx);
        this.over = matches!(end, Poll::Ready(Err(_)));
        end.map(Some)
    }
}
