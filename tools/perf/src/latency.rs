//! Latency: one message at a time.
//!
//! A SEND or WRITE is returned by the other side, and half of the round trip counts. A SEND arrives as a completed
//! receive request; a WRITE as a change of the last byte in memory, without a completion. READs and atomics are
//! answered by the responding device, and the time until the completion counts.

use std::time::Duration;

use anyhow::{bail, ensure};
use hdrhistogram::Histogram;
use softroce::verbs::{Completion, RemoteAddr, SendData, SendOp, SendRequest};
use softroce_cli::{AtomicType, Transport, Verb};

use crate::clock;
use crate::completion::{Idle, success};
use crate::control::Control;
use crate::measure::{Amount, Run};
use crate::progress::Progress;
use crate::protocol::{Request, SideInfo};
use crate::side::{PEER_TIMEOUT, RECV_WR_ID, Side};

/// Number of exchanges before the measurement, unless they take longer than the time below.
const WARM_UP_EXCHANGES: u64 = 200;
const WARM_UP_TIME: Duration = Duration::from_millis(100);

/// Number of exchanges between two steps of the progress bar.
const EXCHANGES_PER_STEP: u64 = 256;

/// Distribution and duration of a row.
pub struct Times {
    /// Nanoseconds of half a round trip, or of a whole one, depending on the test.
    pub each: Histogram<u64>,
    pub seconds: f64,
}

/// One side of a latency test.
pub struct PingPong<'a> {
    side: &'a mut Side,
    verb: Verb,
    size: usize,
    /// The message in memory, or inline.
    message: SendData,
    /// Memory of the other side: the target of a WRITE, the source of a READ or an atomic.
    there: RemoteAddr,
    sent: u64,
    received: u64,
    /// Completed receive requests that have not been posted again.
    used: u64,
}

impl<'a> PingPong<'a> {
    pub fn new(side: &'a mut Side, theirs: &SideInfo, run: Run) -> anyhow::Result<Self> {
        let verb = side.load.kind.verb;
        // The receiver of a WRITE needs a byte to look at.
        let size = if verb == Verb::Write { run.size.max(1) } else { run.size };
        let there = theirs.remote(side.memory.incoming(0, 0, size));
        let here = side.memory.outgoing(0, 0, size);
        let message = match verb.is_answered() {
            true => side.memory.sge(here, size).into(),
            false => side.memory.message(here, size),
        };
        let (sent, received, used) = (0, 0, 0);
        let player = Self { side, verb, size, message, there, sent, received, used };
        player.wipe()?;
        Ok(player)
    }

    /// Runs the active side.
    pub fn serve(&mut self, amount: Amount, progress: &Progress) -> anyhow::Result<Times> {
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
            } else if self.sent >= WARM_UP_EXCHANGES || after - start > warm_up {
                warm = true;
                start = after;
            }
            before = after;
        }
    }

    /// Returns the number of sent messages, including those before the measurement.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Runs the listening side: returns every message until the active side finishes.
    pub fn echo(&mut self, control: &mut Control) -> anyhow::Result<()> {
        // The device answers READs and atomics: nothing is received, and this waits for the control message.
        while self.receive(self.sent + 1, Some(control))? {
            self.send()?;
        }
        match control.receive()? {
            Request::Finish { .. } => Ok(()),
            other => bail!("the other side sent {other:?} during a row, expected Finish"),
        }
    }

    /// Sends a message and waits for the response.
    fn exchange(&mut self) -> anyhow::Result<()> {
        self.send()?;
        if self.verb.is_answered() {
            while self.side.done < self.side.sent {
                let completion = self.side.waiter.next(PEER_TIMEOUT)?;
                self.take(&completion);
            }
            return Ok(());
        }
        ensure!(self.receive(self.sent, None)?, "the other side has ended the row");
        Ok(())
    }

    /// Sends a message.
    fn send(&mut self) -> anyhow::Result<()> {
        let depth = u64::from(self.side.load.tx_depth);
        self.sent += 1;
        self.side.sent += 1;
        let number = self.side.sent;
        let request = SendRequest { to: self.side.target_of(0), ..self.request(number)? };
        // A READ or atomic is complete with its response; otherwise one completion for half a queue makes room.
        let tells = self.verb.is_answered() || number.is_multiple_of(depth.div_ceil(2));
        self.side.qps[0].post_send(if tells { request.signaled() } else { request })?;
        if self.used >= u64::from(self.side.load.rx_depth).div_ceil(2) {
            self.replenish()?;
        }
        while self.side.sent - self.side.done >= depth {
            let completion = self.side.waiter.next(PEER_TIMEOUT)?;
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
                let op = match self.side.load.kind.atomic {
                    AtomicType::FetchAndAdd => SendOp::FetchAdd { at: there, add: 1 },
                    AtomicType::CmpAndSwap => {
                        SendOp::CompareSwap { at: there, expect: number - 1, swap: number }
                    }
                };
                SendRequest::new(number, op, message)
            }
        })
    }

    /// Returns the message with a mark in its last byte, for which the other side looks.
    fn marked(&self, mut message: SendData) -> anyhow::Result<SendData> {
        match &mut message {
            SendData::Inline(bytes) => {
                if let Some(last) = bytes.last_mut() {
                    *last = mark(self.sent);
                }
            }
            SendData::Sges(_) => {
                let last = self.side.memory.outgoing(0, 0, self.size) + self.size - 1;
                self.side.memory.mr.write_at(last, &[mark(self.sent)])?;
            }
        }
        Ok(message)
    }

    /// Waits until `expected` messages have arrived; returns `false` if a control message arrives instead.
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
            if let Some(completion) = self.side.waiter.look(Duration::from_millis(10))? {
                self.take(&success(completion)?);
                continue;
            }
            // The next message is on its way, so there is time to refill the receive queue.
            self.replenish()?;
            if !idle.poll_was_empty(&self.side.waiter) {
                continue;
            }
            if let Some(control) = control.as_deref_mut() {
                if control.has_message()? {
                    return Ok(false);
                }
                continue;
            }
            let now = clock::now();
            let waited = now - *start.get_or_insert(now);
            if waited > PEER_TIMEOUT {
                let why = match self.side.load.kind.transport {
                    Transport::Rc | Transport::Xrc => "",
                    Transport::Uc | Transport::Ud => {
                        ": one was lost, and the service does not retransmit"
                    }
                };
                bail!("no message from the other side for {} s{why}", waited.as_secs());
            }
        }
        Ok(true)
    }

    fn take(&mut self, completion: &Completion) {
        match completion.wr_id {
            RECV_WR_ID => {
                self.received += 1;
                self.used += 1;
            }
            number => self.side.done = number,
        }
    }

    /// Posts the completed receive requests again.
    fn replenish(&mut self) -> anyhow::Result<()> {
        for _ in 0..std::mem::take(&mut self.used) {
            self.side.post_recv(0)?;
        }
        Ok(())
    }

    /// Returns whether the last byte of the WRITE with this number has arrived.
    fn is_written(&self, number: u64) -> anyhow::Result<bool> {
        let mut last = [0];
        self.side
            .memory
            .mr
            .read_at(self.side.memory.incoming(0, 0, self.size) + self.size - 1, &mut last)?;
        Ok(last == [mark(number)])
    }

    /// Clears the byte at which the receiver of WRITEs looks.
    fn wipe(&self) -> anyhow::Result<()> {
        let at = self.side.memory.incoming(0, 0, self.size) + self.size.max(1) - 1;
        Ok(self.side.memory.mr.write_at(at, &[0])?)
    }
}

/// Returns the last byte of a WRITE: never zero, and never that of the one before.
fn mark(number: u64) -> u8 {
    u8::try_from(number % 255 + 1).unwrap_or(1)
}
