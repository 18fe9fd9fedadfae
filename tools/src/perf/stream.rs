//! Bandwidth: as many messages in flight as the depth allows, one way or both ways at once.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use softroce::verbs::{Completion, SendData, SendFlags, SendOp, SendRequest};

use super::agree::{Ask, Introduction};
use super::measure::{Amount, Arrivals, Rate, Report, Run};
use super::progress::Progress;
use super::station::{PEER_TIMEOUT, RECV, Station};
use crate::cli::{AtomicType, Verb};
use crate::clock;
use crate::completion::{Idle, success};
use crate::control::Control;

/// The least time over which a peak is taken: long enough for many turns of the window.
const SLICE: Duration = Duration::from_millis(5);

/// Completions taken at a time.
const BATCH: usize = 64;

/// Time without arrivals after which missing messages of an unacknowledged service count as lost.
const LOSS_TIMEOUT: Duration = Duration::from_millis(100);

/// One side's part in a row.
pub(super) struct Stream<'a> {
    station: &'a mut Station,
    theirs: &'a Introduction,
    run: Run,
    /// Of each queue pair; none at a side that does not send.
    lanes: Vec<Lane>,
    /// Lanes that something can be posted to.
    ready: Vec<usize>,
    /// Lanes that are not through.
    unfinished: usize,
    meter: Meter,
    counter: Counter,
    completions: Vec<Completion>,
    /// Receive requests to be posted anew: of which queue pair, and how many.
    taken: Vec<(usize, u64)>,
    idle: Idle,
}

/// One queue pair's share of what is sent.
#[derive(Clone, Copy)]
struct Lane {
    posted: u64,
    done: u64,
    /// Messages in all.
    last: u64,
}

impl Lane {
    fn is_through(&self) -> bool {
        self.done >= self.last
    }
}

impl<'a> Stream<'a> {
    /// The side that measures: it sends.
    pub(super) fn active(station: &'a mut Station, theirs: &'a Introduction, run: Run) -> Self {
        Self::new(station, theirs, run, true)
    }

    /// The other side: it sends when both do.
    pub(super) fn listening(station: &'a mut Station, theirs: &'a Introduction, run: Run) -> Self {
        let sends = station.load.kind.bidirectional;
        Self::new(station, theirs, run, sends)
    }

    fn new(station: &'a mut Station, theirs: &'a Introduction, run: Run, sends: bool) -> Self {
        let lanes = if sends { lanes(station.load.qps.into(), run.amount) } else { Vec::new() };
        Self {
            ready: (0..lanes.len()).collect(),
            unfinished: lanes.iter().filter(|lane| !lane.is_through()).count(),
            lanes,
            meter: Meter::begin(run.amount),
            counter: Counter::default(),
            completions: Vec::with_capacity(BATCH),
            taken: Vec::new(),
            idle: Idle::default(),
            station,
            theirs,
            run,
        }
    }

    /// Sends what the row asks for and waits until all of it is complete and the other side is
    /// through; returns what both have seen.
    pub(super) fn drive(
        mut self,
        control: &mut Control,
        progress: &Progress,
    ) -> anyhow::Result<(Report, Report)> {
        self.send(Some(progress))?;
        control.send(&Ask::Finish { sent: self.meter.done })?;
        if self.station.load.kind.bidirectional {
            while !self.has_word(control)? {}
        }
        let theirs: Report = control.receive()?;
        if let Some(rate) = &theirs.rate {
            self.drain(rate.messages)?;
        }
        Ok((self.report()?, theirs))
    }

    /// Does its part until the active side says that it is through.
    pub(super) fn serve(mut self, control: &mut Control) -> anyhow::Result<Report> {
        while !self.has_word(control)? {}
        let Ask::Finish { sent } = control.receive()? else {
            bail!("the other side asks for something else in the middle of a row")
        };
        self.send(None)?;
        self.drain(sent)?;
        self.report()
    }

    /// Sends until all is complete.
    fn send(&mut self, progress: Option<&Progress>) -> anyhow::Result<()> {
        let mut silent_since = None;
        while self.unfinished > 0 {
            if self.turn(progress)? {
                silent_since = None;
            } else if self.idle.rest(&self.station.waiter) {
                ensure_heard(&mut silent_since)?;
            }
        }
        Ok(())
    }

    /// Takes a turn; says whether the other side has said something, which is looked for only when
    /// nothing else happens.
    fn has_word(&mut self, control: &mut Control) -> anyhow::Result<bool> {
        Ok(!self.turn(None)? && self.idle.rest(&self.station.waiter) && control.has_word()?)
    }

    /// Takes what is still on its way of so many messages.
    fn drain(&mut self, sent: u64) -> anyhow::Result<()> {
        let kind = self.station.load.kind;
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

    /// Posts what can be posted, and takes what is complete. Says whether anything was.
    fn turn(&mut self, progress: Option<&Progress>) -> anyhow::Result<bool> {
        let mut ready = std::mem::take(&mut self.ready);
        for index in ready.drain(..) {
            self.post(index)?;
        }
        self.ready = ready;
        let sends = self.unfinished > 0;
        let waiter = &self.station.waiter;
        if waiter.cq.poll(&mut self.completions, BATCH) == 0 {
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
            self.station.post_recvs(qp, count)?;
        }
        self.counter.stamp();
        if sends && self.meter.look(progress) {
            self.close();
        }
        Ok(true)
    }

    fn take(&mut self, completion: Completion) -> anyhow::Result<()> {
        let index = self.station.indices.of(&completion)?;
        if completion.wr_id == RECV {
            self.counter.messages += 1;
            match self.taken.last_mut() {
                Some((qp, count)) if *qp == index => *count += 1,
                _ => self.taken.push((index, 1)),
            }
            return Ok(());
        }
        let lane = &mut self.lanes[index];
        self.meter.done += completion.wr_id - lane.done;
        lane.done = completion.wr_id;
        match lane.is_through() {
            true => self.unfinished -= 1,
            false if self.ready.last() == Some(&index) => {}
            false => self.ready.push(index),
        }
        Ok(())
    }

    /// Time is up: the message that tells of all before it is the last.
    fn close(&mut self) {
        let cq_mod = self.station.load.cq_mod.into();
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            if lane.last == u64::MAX {
                let told = lane.posted.is_multiple_of(cq_mod);
                lane.last = if told { lane.posted } else { lane.posted + 1 };
                if lane.is_through() {
                    self.unfinished -= 1;
                } else {
                    self.ready.push(index);
                }
            }
        }
    }

    /// Posts send requests as long as the queue has room for a whole list, or for all that are left.
    fn post(&mut self, index: usize) -> anyhow::Result<()> {
        let list = u64::from(self.station.load.post_list);
        let depth = u64::from(self.station.load.tx_depth);
        loop {
            let Lane { posted, done, last } = self.lanes[index];
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
            let at = self.lanes[index].posted;
            self.station.qps[index].post_send(self.request(index, at)?)?;
        } else {
            let mut unmade = Ok(());
            let posted = self.lanes[index].posted;
            let requests = (posted..posted + count)
                .map_while(|at| self.request(index, at).map_err(|error| unmade = Err(error)).ok());
            let (_, posted) = self.station.qps[index].post_sends(requests);
            posted?;
            unmade?;
        }
        self.lanes[index].posted += count;
        Ok(())
    }

    /// Returns send request `at` of a queue pair, counted from 0.
    fn request(&self, index: usize, at: u64) -> anyhow::Result<SendRequest> {
        let (op, data) = self.message(index, at)?;
        // Number of messages that are complete when this one is.
        let wr_id = at + 1;
        let cq_mod = u64::from(self.station.load.cq_mod);
        let is_signaled = wr_id.is_multiple_of(cq_mod) || wr_id == self.lanes[index].last;
        let flags = if is_signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
        Ok(SendRequest { wr_id, op, data, flags, to: self.station.target_of(index) })
    }

    /// What is to be done, and with which bytes.
    fn message(&self, qp: usize, count: u64) -> anyhow::Result<(SendOp, SendData)> {
        let (station, size) = (&*self.station, self.run.size);
        let (here, there) =
            (station.memory.outgoing(qp, count, size), station.memory.incoming(qp, count, size));
        let kind = station.load.kind;
        Ok(match kind.verb {
            Verb::Write => {
                let to = self.theirs.remote(there);
                let is_announced = kind.writes_are_announced();
                let op = if is_announced {
                    SendOp::WriteImm { to, imm: 0 }
                } else {
                    SendOp::Write { to }
                };
                (op, station.message(here, size)?)
            }
            Verb::Read => {
                let from = self.theirs.remote(here);
                (SendOp::Read { from }, station.memory.sge(there, size).into())
            }
            Verb::Send => (SendOp::Send, station.message(here, size)?),
            Verb::Atomic => {
                // A place of its own, so that queue pairs do not disturb each other.
                let at = self.theirs.remote(station.memory.incoming(qp, 0, size));
                let op = match kind.atomic {
                    AtomicType::FetchAndAdd => SendOp::FetchAdd { at, add: 1 },
                    AtomicType::CmpAndSwap => {
                        SendOp::CompareSwap { at, expect: count, swap: count + 1 }
                    }
                };
                (op, station.memory.sge(here, size).into())
            }
        })
    }

    fn report(&self) -> anyhow::Result<Report> {
        Ok(Report {
            rate: (!self.lanes.is_empty()).then(|| self.meter.rate()),
            arrivals: self.counter.arrivals(),
            counted: self.station.counted_in_row()?,
        })
    }
}

fn lanes(qps: u64, amount: Amount) -> Vec<Lane> {
    let last = |index| match amount {
        Amount::Messages(n) => n / qps + u64::from(index < n % qps),
        Amount::Time(_) => u64::MAX,
    };
    (0..qps).map(|index| Lane { posted: 0, done: 0, last: last(index) }).collect()
}

/// The other side has not been silent for too long; called when nothing comes.
fn ensure_heard(silent_since: &mut Option<Instant>) -> anyhow::Result<()> {
    let now = clock::now();
    let silence = now - *silent_since.get_or_insert(now);
    ensure!(silence < PEER_TIMEOUT, "nothing from the other side for {} s", silence.as_secs());
    Ok(())
}

/// Counts and times what is sent.
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

    /// Takes the time; says whether it is up.
    fn look(&mut self, progress: Option<&Progress>) -> bool {
        self.latest = clock::now();
        let (since, done) = self.slice;
        let elapsed = self.latest - since;
        if elapsed >= SLICE {
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

/// Counts and times what arrives.
#[derive(Default)]
struct Counter {
    messages: u64,
    stamped: u64,
    times: Option<(Instant, Instant)>,
}

impl Counter {
    /// Takes the time, if something has arrived since it was last taken.
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
