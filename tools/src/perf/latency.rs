//! Latency: one message at a time.
//!
//! SEND and WRITE go there and back, and half of a round trip is what is counted. SEND: a receive
//! request completes. WRITE: the last byte of the message is seen to change in memory, and no
//! completion tells of it. READs and atomics are answered by the other side's device, and what is
//! counted is the time until the answer is there.

use std::time::Duration;

use anyhow::{bail, ensure};
use hdrhistogram::Histogram;
use softroce::verbs::{Completion, RemoteAddr, SendData, SendOp, SendRequest};

use super::agree::{Ask, Introduction};
use super::measure::{Amount, Run};
use super::progress::Progress;
use super::station::{PEER_TIMEOUT, RECV, Station};
use crate::cli::{AtomicType, Transport, Verb};
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
    /// Nanoseconds, each of half a round trip or of a whole one as the test has it.
    pub(super) each: Histogram<u64>,
    pub(super) seconds: f64,
}

/// One side.
pub(super) struct Player<'a> {
    station: &'a mut Station,
    verb: Verb,
    size: usize,
    /// As it lies in memory, or the bytes themselves.
    message: SendData,
    /// The other side's memory: the target of a WRITE, the source of a READ or an atomic.
    there: RemoteAddr,
    sent: u64,
    received: u64,
    /// Receive requests that were used and not posted again.
    used: u64,
}

impl<'a> Player<'a> {
    pub(super) fn new(
        station: &'a mut Station,
        theirs: &Introduction,
        run: Run,
    ) -> anyhow::Result<Self> {
        let verb = station.load.kind.verb;
        // A WRITE of nothing cannot be seen.
        let size = if verb == Verb::Write { run.size.max(1) } else { run.size };
        let there = theirs.remote(station.memory.incoming(0, 0, size));
        let here = station.memory.outgoing(0, 0, size);
        let message = match verb.is_answered() {
            true => station.memory.sge(here, size).into(),
            false => station.message(here, size)?,
        };
        let (sent, received, used) = (0, 0, 0);
        let player = Self { station, verb, size, message, there, sent, received, used };
        player.wipe()?;
        Ok(player)
    }

    /// The active side.
    pub(super) fn serve(&mut self, amount: Amount, progress: &Progress) -> anyhow::Result<Times> {
        let mut each = Histogram::new_with_bounds(1, 10_000_000_000, 3)?;
        let warm_up = match amount {
            Amount::Messages(_) => WARM_UP_TIME,
            Amount::Time(duration) => (duration / 10).min(WARM_UP_TIME),
        };
        let ways = if self.verb.is_answered() { 1 } else { 2 };
        let mut start = clock::now();
        let mut before = start;
        let mut warm = false;
        loop {
            self.exchange()?;
            let after = clock::now();
            if warm {
                let time = (after - before) / ways;
                each.saturating_record(u64::try_from(time.as_nanos())?);
                let elapsed = after - start;
                let count = each.len();
                if count.is_multiple_of(EXCHANGES_PER_STEP) {
                    progress.show(amount, count, elapsed);
                }
                let over = match amount {
                    Amount::Messages(n) => count >= n,
                    Amount::Time(duration) => elapsed >= duration,
                };
                if over {
                    self.replenish()?;
                    return Ok(Times { each, seconds: elapsed.as_secs_f64() });
                }
            } else if self.sent >= WARM_UP || after - start > warm_up {
                warm = true;
                start = after;
            }
            before = after;
        }
    }

    /// Messages that were sent, those before the measuring included.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// The other side: returns every message until the active side says that it is over.
    pub(super) fn echo(&mut self, control: &mut Control) -> anyhow::Result<()> {
        // The device answers READs and atomics alone: nothing is received, and this waits for the control
        // message.
        while self.receive(self.sent + 1, Some(control))? {
            self.send()?;
        }
        match control.receive()? {
            Ask::Finish { .. } => Ok(()),
            other => bail!("the other side says {other:?} in the middle of a row"),
        }
    }

    /// A message and what comes back for it.
    fn exchange(&mut self) -> anyhow::Result<()> {
        self.send()?;
        if self.verb.is_answered() {
            while self.station.done < self.station.sent {
                let completion = self.station.waiter.next(PEER_TIMEOUT)?;
                self.take(&completion);
            }
            return Ok(());
        }
        ensure!(self.receive(self.sent, None)?, "the other side has stopped");
        Ok(())
    }

    /// Sends a message.
    fn send(&mut self) -> anyhow::Result<()> {
        let depth = u64::from(self.station.load.tx_depth);
        self.sent += 1;
        self.station.sent += 1;
        let number = self.station.sent;
        let request = SendRequest { to: self.station.target_of(0), ..self.request(number)? };
        // One of half a queue tells that there is room again, and an answer that it is there.
        let tells = self.verb.is_answered() || number.is_multiple_of(depth.div_ceil(2));
        self.station.qps[0].post_send(if tells { request.signaled() } else { request })?;
        if self.used >= u64::from(self.station.load.rx_depth).div_ceil(2) {
            self.replenish()?;
        }
        while self.station.sent - self.station.done >= depth {
            let completion = self.station.waiter.next(PEER_TIMEOUT)?;
            self.take(&completion);
        }
        Ok(())
    }

    fn request(&self, number: u64) -> anyhow::Result<SendRequest> {
        let (message, there) = (self.message.clone(), self.there);
        Ok(match self.verb {
            Verb::Write => SendRequest::write(number, self.marked(message)?, there),
            Verb::Send => SendRequest::send(number, message),
            Verb::Read => SendRequest::new(number, SendOp::Read { from: there }, message),
            Verb::Atomic => {
                let op = match self.station.load.kind.atomic {
                    AtomicType::FetchAndAdd => SendOp::FetchAdd { at: there, add: 1 },
                    AtomicType::CmpAndSwap => {
                        SendOp::CompareSwap { at: there, expect: number - 1, swap: number }
                    }
                };
                SendRequest::new(number, op, message)
            }
        })
    }

    /// The message with the number of the one to be sent, which is looked for.
    fn marked(&self, mut message: SendData) -> anyhow::Result<SendData> {
        match &mut message {
            SendData::Inline(bytes) => {
                if let Some(last) = bytes.last_mut() {
                    *last = mark(self.sent);
                }
            }
            SendData::Sges(_) => {
                let last = self.station.memory.outgoing(0, 0, self.size) + self.size - 1;
                self.station.memory.mr.write_at(last, &[mark(self.sent)])?;
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
            if self.verb == Verb::Write && self.is_written(expected)? {
                self.received = expected;
                break;
            }
            if let Some(completion) = self.station.waiter.look(Duration::from_millis(10))? {
                self.take(&success(completion)?);
                continue;
            }
            // The next message is on its way, so the receive queue can be refilled now.
            self.replenish()?;
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
            if waited > PEER_TIMEOUT {
                let why = match self.station.load.kind.transport {
                    Transport::Rc | Transport::Xrc => "",
                    Transport::Uc | Transport::Ud => ": one was lost, and nobody sends it again",
                };
                bail!("no message from the other side for {} s{why}", waited.as_secs());
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
            .memory
            .mr
            .read_at(self.station.memory.incoming(0, 0, self.size) + self.size - 1, &mut last)?;
        Ok(last == [mark(number)])
    }

    /// Takes away what an earlier row has left where WRITEs are looked for.
    fn wipe(&self) -> anyhow::Result<()> {
        let at = self.station.memory.incoming(0, 0, self.size) + self.size.max(1) - 1;
        Ok(self.station.memory.mr.write_at(at, &[0])?)
    }
}

/// The last byte of a WRITE: never zero, and never that of the one before.
fn mark(number: u64) -> u8 {
    u8::try_from(number % 255 + 1).unwrap_or(1)
}
