//! Waiting for completions, and what a failed one means.

use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use softroce::verbs::{Completion, CompletionChannel, CompletionQueue, Error, WcStatus};

use crate::clock;

/// Polls that find nothing before something else is looked at.
const POLLS_PER_REST: u32 = 1024;

/// Counts polls that find nothing.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    polls: u32,
}

impl Idle {
    /// One more. Now and then it is time to look at the clock and the other side's words, which
    /// take as long as a poll; then the CPU has been offered to others. Who has it for himself loses
    /// nothing by that, and where both sides share one it is what lets the other run.
    pub(crate) fn rest(&mut self, waiter: &Waiter) -> bool {
        self.polls += 1;
        if waiter.channel.is_some() {
            // It has slept already.
            return true;
        }
        let rests = self.polls.is_multiple_of(POLLS_PER_REST);
        if rests {
            thread::yield_now();
        }
        rests
    }
}

/// A completion queue, and how its end is awaited.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) cq: CompletionQueue,
    /// To sleep on; without it the queue is polled.
    pub(crate) channel: Option<CompletionChannel>,
}

impl Waiter {
    /// The next completion, which must come within `patience` and be a success.
    pub(crate) fn next(&self, patience: Duration) -> anyhow::Result<Completion> {
        let found = self.next_within(patience)?;
        found.with_context(|| {
            format!("nothing from the other side for {} s", patience.as_secs_f64())
        })
    }

    /// The next completion, which must be a success; `None` when there is none for as long as
    /// `patience`.
    pub(crate) fn next_within(&self, patience: Duration) -> anyhow::Result<Option<Completion>> {
        // Who polls looks at the clock only after a while.
        let mut start = self.channel.as_ref().map(|_| clock::now());
        let mut idle = Idle::default();
        loop {
            if let Some(completion) = self.look(patience)? {
                return success(completion).map(Some);
            }
            if idle.rest(self) {
                let now = clock::now();
                let waited = now - *start.get_or_insert(now);
                if waited >= patience {
                    return Ok(None);
                }
            }
        }
    }

    /// A completion if there is one; sleeps for `at_most` if that is how it waits.
    pub(crate) fn look(&self, at_most: Duration) -> anyhow::Result<Option<Completion>> {
        let found = self.cq.poll_one();
        let Some(channel) = self.channel.as_ref().filter(|_| found.is_none()) else {
            return Ok(found);
        };
        self.cq.req_notify(false);
        // What came before is not announced.
        let found = self.cq.poll_one();
        if found.is_none() {
            match channel.wait(at_most) {
                Ok(_) => return Ok(self.cq.poll_one()),
                Err(Error::Timeout { .. }) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(found)
    }
}

/// The completion, unless it is a failure.
pub(crate) fn success(completion: Completion) -> anyhow::Result<Completion> {
    let (status, qpn) = (completion.status, completion.qpn);
    ensure!(status.is_success(), "queue pair {qpn}: {status}{}", meaning(status));
    Ok(completion)
}

const fn meaning(status: WcStatus) -> &'static str {
    match status {
        WcStatus::RetryExcErr => ": the other side does not acknowledge what is sent",
        WcStatus::RnrRetryExcErr => ": the other side has no receive request",
        WcStatus::LocLenErr => ": the message is longer than was expected here",
        WcStatus::RemInvReqErr => ": the message is longer than was expected at the other side",
        WcStatus::RemAccessErr => ": the other side does not allow the access",
        _ => "",
    }
}
