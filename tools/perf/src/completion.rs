//! Waiting for completions, and the meaning of failed ones.

use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use softroce::verbs::{Completion, CompletionChannel, CompletionQueue, Error, WcStatus};

use crate::clock;

/// Number of empty polls after which the CPU is yielded.
const POLLS_PER_YIELD: u32 = 1024;

/// Counts polls of an empty completion queue.
#[derive(Debug, Default)]
pub struct Idle {
    polls: u32,
}

impl Idle {
    /// Counts an empty poll; returns whether it is time to look at the clock and the control connection, which take
    /// as long as a poll. The thread has yielded before: that costs nothing if it has the CPU to itself, and lets the
    /// other side run if both share one.
    #[inline]
    pub fn poll_was_empty(&mut self, waiter: &Waiter) -> bool {
        self.polls += 1;
        if waiter.channel.is_some() {
            // The poll has slept.
            return true;
        }
        let yields = self.polls.is_multiple_of(POLLS_PER_YIELD);
        if yields {
            thread::yield_now();
        }
        yields
    }
}

/// A completion queue, and how to wait for its completions.
#[derive(Clone, Debug)]
pub struct Waiter {
    pub cq: CompletionQueue,
    /// Channel to sleep on; without one the queue is polled.
    pub channel: Option<CompletionChannel>,
}

impl Waiter {
    /// Returns the next completion, which must arrive within `timeout` and be a success.
    pub fn next(&self, timeout: Duration) -> anyhow::Result<Completion> {
        let found = self.next_within(timeout)?;
        found.with_context(|| {
            format!(
                "no completion for {} s: is the other side still running?",
                timeout.as_secs_f64()
            )
        })
    }

    /// Returns the next completion, which must be a success; `None` if none arrives within `timeout`.
    pub fn next_within(&self, timeout: Duration) -> anyhow::Result<Option<Completion>> {
        // A polling thread reads the clock only after many polls.
        let mut start = self.channel.as_ref().map(|_| clock::now());
        let mut idle = Idle::default();
        loop {
            if let Some(completion) = self.look(timeout)? {
                return success(completion).map(Some);
            }
            if idle.poll_was_empty(self) {
                let now = clock::now();
                let waited = now - *start.get_or_insert(now);
                if waited >= timeout {
                    return Ok(None);
                }
            }
        }
    }

    /// Returns a completion if there is one; with a channel, sleeps up to `timeout` for it.
    pub fn look(&self, timeout: Duration) -> anyhow::Result<Option<Completion>> {
        let found = self.cq.poll_one();
        let Some(channel) = self.channel.as_ref().filter(|_| found.is_none()) else {
            return Ok(found);
        };
        self.cq.req_notify(false);
        // Completions that arrived before the request raise no event.
        let found = self.cq.poll_one();
        if found.is_none() {
            match channel.wait(timeout) {
                Ok(_) => return Ok(self.cq.poll_one()),
                Err(Error::Timeout { .. }) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(found)
    }
}

/// Returns the completion, or an error if it has failed.
#[inline]
pub fn success(completion: Completion) -> anyhow::Result<Completion> {
    let (status, qpn) = (completion.status, completion.qpn);
    ensure!(status.is_success(), "queue pair {qpn}: {status}{}", meaning(status));
    Ok(completion)
}

const fn meaning(status: WcStatus) -> &'static str {
    match status {
        WcStatus::RetryExcErr => ": the other side does not acknowledge",
        WcStatus::RnrRetryExcErr => ": the other side has no receive request posted",
        WcStatus::LocLenErr => ": the message is longer than the receive buffer of this side",
        WcStatus::RemInvReqErr => {
            ": the message is longer than the receive buffer of the other side"
        }
        WcStatus::RemAccessErr => ": the other side does not allow the access",
        _ => "",
    }
}
