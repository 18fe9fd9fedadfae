//! Latency: one message at a time, there and back. Half of a round trip is what is counted.
//!
//! SEND: a receive request completes. WRITE: the last byte of the message is seen to change in
//! memory, and no completion tells of it.

use std::time::Duration;

use anyhow::{bail, ensure};
use hdrhistogram::Histogram;
use softroce::verbs::{Completion, RemoteAddr, SendData, SendRequest};

use super::agree::{Amount, Introduction, Run};
use super::progress::Progress;
use super::station::{PATIENCE, RECV, Station};
use crate::cli::Test;
use crate::clock;
use crate::completion::{Idle, success};
use crate::control::Control;

/// Exchanges before the measuring starts, in this time at most.
const WARM_UP: u64 = 200;
const WARM_UP_TIME: Duration = Duration::from_millis(100);

/// Exchanges between two steps of the progress bar.
const EXCHANGES_PER_STEP: u64 = 256;

/// A row's distribution, and how long it took.
pub(super) struct Times {
    /// Half round trips in nanoseconds.
    pub(super) half_round_trips: Histogram<u64>,
    pub(super) seconds: f64,
}

/// One side.
pub(super) struct Player<'a> {
    test: Test,
    station: &'a mut Station,
    size: usize,
    /// As it lies in memory, or the bytes themselves.
    message: SendData,
    /// Where the other side looks for a WRITE.
    there: RemoteAddr,
    sent: u64,
    received: u64,
    /// Receive requests that were used and not posted again.
    used: u64,
}

impl<'a> Player<'a> {
    pub(super) fn new(
        test: Test,
        station: &'a mut Station,
        theirs: &Introduction,
        run: Run,
    ) -> anyhow::Result<Self> {
        // A WRITE of nothing cannot be seen.
        let size = if test == Test::WriteLat { run.size.max(1) } else { run.size };
        let there = theirs.remote(station.incoming(0, 0, size));
        let message = station.message(station.outgoing(0, 0, size), size)?;
        let (sent, received, used) = (0, 0, 0);
        let player = Self { test, station, size, message, there, sent, received, used };
        player.wipe()?;
        Ok(player)
    }

    /// The active side.
    pub(super) fn serve(&mut self, amount: Amount, progress: &Progress) -> anyhow::Result<Times> {
        let mut half_round_trips = Histogram::new_with_bounds(1, 10_000_000_000, 3)?;
        let warm_up = match amount {
            Amount::Messages(_) => WARM_UP_TIME,
            Amount::Time(duration) => (duration / 10).min(WARM_UP_TIME),
        };
        let mut start = clock::now();
        let mut before = start;
        let mut warm = false;
        loop {
            self.send()?;
            ensure!(self.receive(self.sent, None)?, "the other side has stopped");
            let after = clock::now();
            if warm {
                let half = (after - before) / 2;
                half_round_trips.saturating_record(u64::try_from(half.as_nanos())?);
                let elapsed = after - start;
                let count = half_round_trips.len();
                if count.is_multiple_of(EXCHANGES_PER_STEP) {
                    progress.show(amount, count, elapsed);
                }
                let over = match amount {
                    Amount::Messages(n) => count >= n,
                    Amount::Time(duration) => elapsed >= duration,
                };
                if over {
                    self.replenish()?;
                    return Ok(Times { half_round_trips, seconds: elapsed.as_secs_f64() });
                }
            } else if self.received >= WARM_UP || after - start > warm_up {
                warm = true;
                start = after;
            }
            before = after;
        }
    }

    /// The other side: returns every message until the active side says that it is over.
    pub(super) fn echo(&mut self, control: &mut Control) -> anyhow::Result<()> {
        while self.receive(self.sent + 1, Some(control))? {
            self.send()?;
        }
        Ok(())
    }

    /// Sends a message, and afterwards does what can wait until the answer comes.
    fn send(&mut self) -> anyhow::Result<()> {
        let depth = u64::from(self.station.load.tx_depth);
        self.sent += 1;
        self.station.sent += 1;
        let (number, message) = (self.station.sent, self.message()?);
        let request = match self.test {
            Test::WriteLat => SendRequest::write(number, message, self.there),
            _ => SendRequest::send(number, message),
        };
        // One of half a queue tells that there is room again.
        let tells = number.is_multiple_of(depth.div_ceil(2));
        self.station.qps[0].post_send(if tells { request.signaled() } else { request })?;
        self.replenish()?;
        while self.station.sent - self.station.done >= depth {
            let completion = self.station.waiter.next(PATIENCE)?;
            self.take(&completion);
        }
        Ok(())
    }

    /// The message with the number of the one to be sent, if it is to be looked for.
    fn message(&self) -> anyhow::Result<SendData> {
        let mut message = self.message.clone();
        if self.test == Test::WriteLat {
            match &mut message {
                SendData::Inline(bytes) => {
                    if let Some(last) = bytes.last_mut() {
                        *last = mark(self.sent);
                    }
                }
                SendData::Sges(_) => {
                    let last = self.station.outgoing(0, 0, self.size) + self.size - 1;
                    self.station.mr.write_at(last, &[mark(self.sent)])?;
                }
            }
        }
        Ok(message)
    }

    /// Waits until so many messages have come; `false` when the other side says that it is over
    /// instead.
    fn receive(
        &mut self,
        expected: u64,
        mut control: Option<&mut Control>,
    ) -> anyhow::Result<bool> {
        let mut idle = Idle::default();
        let mut start = None;
        while self.received < expected {
            if self.test == Test::WriteLat && self.is_written(expected)? {
                self.received = expected;
                break;
            }
            if let Some(completion) = self.station.waiter.look(Duration::from_millis(10))? {
                self.take(&success(completion)?);
                continue;
            }
            if !idle.rest(&self.station.waiter) {
                continue;
            }
            if let Some(control) = control.as_deref_mut() {
                if control.has_word()? {
                    return Ok(false);
                }
                continue;
            }
            let now = clock::now();
            let waited = now - *start.get_or_insert(now);
            if waited > PATIENCE {
                bail!("no message from the other side for {} s", waited.as_secs());
            }
        }
        Ok(true)
    }

    fn take(&mut self, completion: &Completion) {
        match completion.wr_id {
            RECV => {
                self.received += 1;
                self.used += 1;
            }
            number => self.station.done = number,
        }
    }

    /// Posts as many receive requests as were used.
    fn replenish(&mut self) -> anyhow::Result<()> {
        for _ in 0..std::mem::take(&mut self.used) {
            self.station.post_recv(0)?;
        }
        Ok(())
    }

    /// Whether the last byte of the WRITE with this number is there.
    fn is_written(&self, number: u64) -> anyhow::Result<bool> {
        let mut last = [0];
        self.station
            .mr
            .read_at(self.station.incoming(0, 0, self.size) + self.size - 1, &mut last)?;
        Ok(last == [mark(number)])
    }

    /// Takes away what an earlier row has left where WRITEs are looked for.
    fn wipe(&self) -> anyhow::Result<()> {
        let at = self.station.incoming(0, 0, self.size) + self.size.max(1) - 1;
        Ok(self.station.mr.write_at(at, &[0])?)
    }
}

/// What the last byte of a WRITE is: never zero, and never that of the one before.
fn mark(number: u64) -> u8 {
    u8::try_from(number % 255 + 1).unwrap_or(1)
}
