//! Events for asynchronous tasks.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::runtime::WakerKey;
use crate::verbs::cm::Error;
use crate::verbs::cm::channel::{Event, EventChannel, Events, Receiving, check_device};
use crate::verbs::cm::inner::ChannelInner;

impl EventChannel {
    /// Returns a future for the next event. The device's thread wakes the task, so every executor works. Dropping the
    /// future loses no event.
    pub fn next(&self) -> NextEvent<'_> {
        self.events.next()
    }
}

impl Events {
    fn next(&self) -> NextEvent<'_> {
        NextEvent { channel: self, waiter: None }
    }

    /// Waits as a task for the first event for which `handle` returns a value.
    pub(super) async fn next_for<T>(
        &self,
        mut handle: impl FnMut(Event) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        loop {
            let event = self.next().await;
            check_device(&event)?;
            if let Some(value) = handle(event)? {
                return Ok(value);
            }
        }
    }
}

/// Future for the next event of a channel, see [`EventChannel::next`].
#[derive(Debug)]
#[must_use = "it does nothing until it is awaited"]
pub struct NextEvent<'a> {
    channel: &'a Events,
    waiter: Option<Waiter>,
}

/// Registration of a future that waits for events. Dropping it removes it.
#[derive(Debug)]
struct Waiter {
    channel: Arc<ChannelInner>,
    key: Option<WakerKey>,
    _receiving: Receiving,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.channel.wakers.remove(key);
        }
    }
}

impl Future for NextEvent<'_> {
    type Output = Event;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Event> {
        let channel = self.channel;
        let mut found = channel.poll();
        if found.is_none() {
            let waiter = self.waiter.get_or_insert_with(|| Waiter {
                channel: Arc::clone(&channel.inner),
                key: None,
                _receiving: Receiving::of(&channel.inner),
            });
            channel.inner.wakers.register(&mut waiter.key, cx.waker());
            // Events that came before the registration wake no task.
            found = channel.poll();
        }
        match found {
            Some(event) => {
                self.waiter = None;
                Poll::Ready(event)
            }
            None => Poll::Pending,
        }
    }
}
