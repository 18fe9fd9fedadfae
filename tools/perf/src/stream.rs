//! Bandwidth: as many messages in flight as the depth allows, in one direction or both.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use softroce::verbs::{Completion, SendData, SendFlags, SendOp, SendRequest};
use softroce_cli::{AtomicType, Verb};

use crate::clock;
use crate::completion::{Idle, success};
use crate::control::Control;
use crate::measure::{Amount, Arrivals, Rate, Report, Run};
use crate::progress::Progress;
use crate::protocol::{Request, SideInfo};
use crate::side::{PEER_TIMEOUT, RECV_WR_ID, Side};

/// Minimum interval for the peak rate: many round trips of the window.
const MIN_PEAK_INTERVAL: Duration = Duration::from_millis(5);

/// Maximum number of completions taken in one poll.
const MAX_COMPLETIONS_PER_POLL: usize = 64;

/// Time without arrivals after which missing messages of an unacknowledged service count as lost.
const LOSS_TIMEOUT: Duration = Duration::from_millis(100);

/// One side of a row.
pub struct Stream<'a> {
    side: &'a mut Side,
    theirs: &'a SideInfo,
    run: Run,
    /// Progress of each queue pair; empty on a side that does not send.
    qps: Vec<QpProgress>,
    /// Indices of queue pairs to which requests can be posted.
    ready: Vec<usize>,
    /// Number of queue pairs that have not finished.
    unfinished: usize,
    meter: Meter,
    counter: Counter,
    completions: Vec<Completion>,
    /// Receive requests to post again: queue pair and count.
    taken: Vec<(usize, u64)>,
    idle: Idle,
}

/// Progress of the messages of one queue pair.
#[derive(Clone, Copy)]
struct QpProgress {
    posted: u64,
    done: u64,
    /// Number of messages to send.
    last: u64,
}

impl QpProgress {
    fn is_through(&self) -> bool {
        self.done >= self.last
    }
}

impl<'a> Stream<'a> {
    /// Creates the active side, which sends.
    pub fn active(side: &'a mut Side, theirs: &'a SideInfo, run: Run) -> Self {
        Self::new(side, theirs, run, true)
    }

    /// Creates the listening side, which sends in a bidirectional test.
    pub fn listening(side: &'a mut Side, theirs: &'a SideInfo, run: Run) -> Self {
        let sends = side.load.kind.bidirectional;
        Self::new(side, theirs, run, sends)
    }

    fn new(side: &'a mut Side, theirs: &'a SideInfo, run: Run, sends: bool) -> Self {
        let qps = if sends { qps(side.load.qps.into(), run.amount) } else { Vec::new() };
        Self {
            ready: (0..qps.len()).collect(),
            unfinished: qps.iter().filter(|qp| !qp.is_through()).count(),
            qps,
            meter: Meter::begin(run.amount),
            counter: Counter::default(),
            completions: Vec::with_capacity(MAX_COMPLETIONS_PER_POLL),
            taken: Vec::new(),
            idle: Idle::default(),
            side,
            theirs,
            run,
        }
    }

    /// Sends the messages of the row, and waits until all are complete and the other side has finished; returns the
    /// reports of both.
    pub fn drive(
        mut self,
        control: &mut Control,
        progress: &Progress,
    ) -> anyhow::Result<(Report, Report)> {
        self.send(Some(progress))?;
        control.send(&Request::Finish { sent: self.meter.done })?;
        if self.side.load.kind.bidirectional {
            while !self.has_message(control)? {}
        }
        let theirs: Report = control.receive()?;
        if let Some(rate) = &theirs.rate {
            self.drain(rate.messages)?;
        }
        Ok((self.report()?, theirs))
    }

    /// Runs the listening side until the active side has finished.
    pub fn serve(mut self, control: &mut Control) -> anyhow::Result<Report> {
        while !self.has_message(control)? {}
        let Request::Finish { sent } = control.receive()? else {
            bail!("the other side sent another request during a row, expected Finish")
        };
        self.send(None)?;
        self.drain(sent)?;
        self.report()
    }

    /// Sends until all messages are complete.
    fn send(&mut self, progress: Option<&Progress>) -> anyhow::Result<()> {
        let mut silent_since = None;
        while self.unfinished > 0 {
            if self.turn(progress)? {
                silent_since = None;
            } else if self.idle.poll_was_empty(&self.side.waiter) {
                ensure_progress(&mut silent_since)?;
            }
        }
        Ok(())
    }

    /// Makes progress; returns whether a control message is waiting, which is checked only when nothing else happens.
    #[inline]
    fn has_message(&mut self, control: &mut Control) -> anyhow::Result<bool> {
        Ok(!self.turn(None)?
            && self.idle.poll_was_empty(&self.side.waiter)
            && control.has_message()?)
    }

    /// Receives the messages still in flight, of `sent` in all.
    fn drain(&mut self, sent: u64) -> anyhow::Result<()> {
        let kind = self.side.load.kind;
        if !kind.is_unreliable() || !kind.takes_receives() {
            return Ok(());
        }
        let mut heard = clock::now();
        while self.counter.messages < sent && clock::now() - heard < LOSS_TIMEOUT {
            if self.turn(None)? {
                heard = clock::now();
            }
        }
        Ok(())
    }

    /// Posts and polls once; returns whether there was a completion.
    fn turn(&mut self, progress: Option<&Progress>) -> anyhow::Result<bool> {
        let mut ready = std::mem::take(&mut self.ready);
        for index in ready.drain(..) {
            self.post(index)?;
        }
        self.ready = ready;
        let sends = self.unfinished > 0;
        let waiter = &self.side.waiter;
        if waiter.cq.poll(&mut self.completions, MAX_COMPLETIONS_PER_POLL) == 0 {
            if waiter.channel.is_some() {
                self.completions.extend(waiter.look(Duration::from_millis(10))?);
            }
            if self.completions.is_empty() {
                return Ok(false);
            }
        }
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            self.take(success(completion)?)?;
        }
        self.completions = completions;
        for (qp, count) in self.taken.drain(..) {
            self.side.post_recvs(qp, count)?;
        }
        self.counter.stamp();
        if sends && self.meter.look(progress) {
            self.close();
        }
        Ok(true)
    }

    fn take(&mut self, completion: Completion) -> anyhow::Result<()> {
        let index = self.side.indices.of(&completion)?;
        if completion.wr_id == RECV_WR_ID {
            self.counter.messages += 1;
            match self.taken.last_mut() {
                Some((qp, count)) if *qp == index => *count += 1,
                _ => self.taken.push((index, 1)),
            }
            return Ok(());
        }
        let qp = &mut self.qps[index];
        self.meter.done += completion.wr_id - qp.done;
        qp.done = completion.wr_id;
        match qp.is_through() {
            true => self.unfinished -= 1,
            false if self.ready.last() == Some(&index) => {}
            false => self.ready.push(index),
        }
        Ok(())
    }

    /// Ends a timed row: the next signaled message of each queue pair is its last.
    fn close(&mut self) {
        let cq_mod = self.side.load.cq_mod.into();
        for (index, qp) in self.qps.iter_mut().enumerate() {
            if qp.last == u64::MAX {
                let told = qp.posted.is_multiple_of(cq_mod);
                qp.last = if told { qp.posted } else { qp.posted + 1 };
                if qp.is_through() {
                    self.unfinished -= 1;
                } else {
                    self.ready.push(index);
                }
            }
        }
    }

    /// Posts send requests as long as the queue has room for a whole list, or for all that are left.
    fn post(&mut self, index: usize) -> anyhow::Result<()> {
        let list = u64::from(self.side.load.post_list);
        let depth = u64::from(self.side.load.tx_depth);
        loop {
            let QpProgress { posted, done, last } = self.qps[index];
            let count = list.min(last - posted);
            if count == 0 || posted - done + count > depth {
                return Ok(());
            }
            self.post_list(index, count)?;
        }
    }

    /// Posts `count` send requests in one call.
    fn post_list(&mut self, index: usize, count: u64) -> anyhow::Result<()> {
        if count == 1 {
            let at = self.qps[index].posted;
            self.side.qps[index].post_send(self.request(index, at))?;
        } else {
            let posted = self.qps[index].posted;
            let requests = (posted..posted + count).map(|at| self.request(index, at));
            let (_, posted) = self.side.qps[index].post_sends(requests);
            posted?;
        }
        self.qps[index].posted += count;
        Ok(())
    }

    /// Returns send request `at` of a queue pair, counted from 0.
    #[inline]
    fn request(&self, index: usize, at: u64) -> SendRequest {
        let (op, data) = self.message(index, at);
        // Number of messages that are complete when this one is.
        let wr_id = at + 1;
        let cq_mod = u64::from(self.side.load.cq_mod);
        let is_signaled = wr_id.is_multiple_of(cq_mod) || wr_id == self.qps[index].last;
        let flags = if is_signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
        SendRequest { wr_id, op, data, flags, to: self.side.target_of(index) }
    }

    /// Returns operation and data of a message.
    #[inline]
    fn message(&self, qp: usize, count: u64) -> (SendOp, SendData) {
        let (side, size) = (&*self.side, self.run.size);
        let (here, there) =
            (side.memory.outgoing(qp, count, size), side.memory.incoming(qp, count, size));
        let kind = side.load.kind;
        match kind.verb {
            Verb::Write => {
                let to = self.theirs.remote(there);
                let is_announced = kind.writes_are_announced();
                let op = if is_announced {
                    SendOp::WriteImm { to, imm: 0 }
                } else {
                    SendOp::Write { to }
                };
                (op, side.memory.message(here, size))
            }
            Verb::Read => {
                let from = self.theirs.remote(here);
                (SendOp::Read { from }, side.memory.sge(there, size).into())
            }
            Verb::Send => (SendOp::Send, side.memory.message(here, size)),
            Verb::Atomic => {
                // Each queue pair has its own location, so atomics do not contend.
                let at = self.theirs.remote(side.memory.incoming(qp, 0, size));
                let op = match kind.atomic {
                    AtomicType::FetchAndAdd => SendOp::FetchAdd { at, add: 1 },
                    AtomicType::CmpAndSwap => {
                        SendOp::CompareSwap { at, expect: count, swap: count + 1 }
                    }
                };
                (op, side.memory.sge(here, size).into())
            }
        }
    }

    fn report(&self) -> anyhow::Result<Report> {
        Ok(Report {
            rate: (!self.qps.is_empty()).then(|| self.meter.rate()),
            arrivals: self.counter.arrivals(),
            counted: self.side.counted_in_row()?,
        })
    }
}

fn qps(qps: u64, amount: Amount) -> Vec<QpProgress> {
    let last = |index| match amount {
        Amount::Messages(n) => n / qps + u64::from(index < n % qps),
        Amount::Time(_) => u64::MAX,
    };
    (0..qps).map(|index| QpProgress { posted: 0, done: 0, last: last(index) }).collect()
}

/// Fails if nothing has arrived for too long; called when nothing arrives.
fn ensure_progress(silent_since: &mut Option<Instant>) -> anyhow::Result<()> {
    let now = clock::now();
    let silence = now - *silent_since.get_or_insert(now);
    ensure!(
        silence < PEER_TIMEOUT,
        "no completion for {} s: is the other side still running?",
        silence.as_secs()
    );
    Ok(())
}

/// Counts and times sent messages.
struct Meter {
    amount: Amount,
    start: Instant,
    done: u64,
    latest: Instant,
    slice: (Instant, u64),
    /// Messages a second.
    peak: f64,
}

impl Meter {
    fn begin(amount: Amount) -> Self {
        let start = clock::now();
        Self { amount, start, done: 0, latest: start, slice: (start, 0), peak: 0.0 }
    }

    /// Reads the clock; returns whether the time of the row is over.
    fn look(&mut self, progress: Option<&Progress>) -> bool {
        self.latest = clock::now();
        let (since, done) = self.slice;
        let elapsed = self.latest - since;
        if elapsed >= MIN_PEAK_INTERVAL {
            self.peak = self.peak.max((self.done - done) as f64 / elapsed.as_secs_f64());
            self.slice = (self.latest, self.done);
            if let Some(progress) = progress {
                progress.show(self.amount, self.done, self.latest - self.start);
            }
        }
        matches!(self.amount, Amount::Time(duration) if self.latest - self.start >= duration)
    }

    fn rate(&self) -> Rate {
        let seconds = (self.latest - self.start).as_secs_f64();
        let average = self.done as f64 / seconds.max(f64::EPSILON);
        Rate { messages: self.done, seconds, peak: self.peak.max(average) }
    }
}

/// Counts and times messages that arrive.
#[derive(Default)]
struct Counter {
    messages: u64,
    stamped: u64,
    times: Option<(Instant, Instant)>,
}

impl Counter {
    /// Reads the clock if messages have arrived since the last call.
    fn stamp(&mut self) {
        if self.messages > self.stamped {
            self.stamped = self.messages;
            let now = clock::now();
            self.times.get_or_insert((now, now)).1 = now;
        }
    }

    fn arrivals(&self) -> Arrivals {
        let seconds = self.times.map_or(0.0, |(first, last)| (last - first).as_secs_f64());
        Arrivals { messages: self.messages, seconds }
    }
}
