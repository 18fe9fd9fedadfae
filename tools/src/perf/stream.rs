//! Bandwidth: as many messages in flight as the depth allows.

use std::time::{Duration, Instant};

use softroce::verbs::{Completion, SendRequest, WcOpcode};

use super::agree::{Amount, Introduction, Run};
use super::progress::Progress;
use super::station::{PATIENCE, Station};
use crate::cli::Test;
use crate::clock;
use crate::completion::{Idle, success};
use crate::control::Control;

/// What a row has measured.
pub(super) struct Rate {
    pub(super) messages: u64,
    pub(super) seconds: f64,
    /// Messages a second in the best slice.
    pub(super) peak: f64,
}

/// The least time over which a peak is taken: long enough for many turns of the window.
const SLICE: Duration = Duration::from_millis(5);

/// The active side.
pub(super) struct Sender<'a> {
    pub(super) test: Test,
    pub(super) station: &'a Station,
    pub(super) theirs: &'a Introduction,
    pub(super) run: Run,
}

/// One queue pair's share.
#[derive(Clone, Copy)]
struct Lane {
    posted: u64,
    done: u64,
    /// Messages in all.
    last: u64,
}

impl Sender<'_> {
    /// Sends what the row asks for, and waits until all of it is complete.
    pub(super) fn run(&self, progress: &Progress) -> anyhow::Result<Rate> {
        let mut lanes = self.lanes();
        let mut meter = Meter::begin(self.run.amount);
        let mut completions = Vec::with_capacity(64);
        while lanes.iter().any(|lane| lane.done < lane.last) {
            for (index, lane) in lanes.iter_mut().enumerate() {
                self.post(index, lane)?;
            }
            self.wait(&mut completions)?;
            for completion in completions.drain(..) {
                let completion = success(completion)?;
                let lane = &mut lanes[self.station.index(&completion)?];
                meter.done += completion.wr_id - lane.done;
                lane.done = completion.wr_id;
            }
            if meter.look(progress) {
                lanes.iter_mut().for_each(|lane| self.close(lane));
            }
        }
        Ok(meter.rate())
    }

    fn lanes(&self) -> Vec<Lane> {
        let qps = self.station.load.qps.into();
        let last = |index| match self.run.amount {
            Amount::Messages(n) => n / qps + u64::from(index < n % qps),
            Amount::Time(_) => u64::MAX,
        };
        (0..qps).map(|index| Lane { posted: 0, done: 0, last: last(index) }).collect()
    }

    /// Time is up: the message that tells of all before it is the last.
    fn close(&self, lane: &mut Lane) {
        if lane.last == u64::MAX {
            let told = lane.posted.is_multiple_of(self.station.load.cq_mod.into());
            lane.last = if told { lane.posted } else { lane.posted + 1 };
        }
    }

    /// Posts what the queue has room for, and that is its depth: so some message on its way tells
    /// when it is complete.
    fn post(&self, index: usize, lane: &mut Lane) -> anyhow::Result<()> {
        let load = &self.station.load;
        let (depth, cq_mod) = (u64::from(load.tx_depth), u64::from(load.cq_mod));
        let room = depth - (lane.posted - lane.done);
        let count = room.min(lane.last - lane.posted);
        if count == 0 {
            return Ok(());
        }
        // A list costs less than one by one.
        let mut requests = Vec::with_capacity(usize::try_from(count)?);
        for at in lane.posted..lane.posted + count {
            let request = self.request(index, at)?;
            // The number of messages that are complete when this one is.
            let request = SendRequest { wr_id: at + 1, ..request };
            let tells = (at + 1).is_multiple_of(cq_mod) || at + 1 == lane.last;
            requests.push(if tells { request.signaled() } else { request });
        }
        let (_, result) = self.station.qps[index].post_sends(requests);
        lane.posted += count;
        Ok(result?)
    }

    fn request(&self, qp: usize, count: u64) -> anyhow::Result<SendRequest> {
        let (station, size) = (self.station, self.run.size);
        let (here, there) = (station.outgoing(qp, count, size), station.incoming(qp, count, size));
        Ok(match self.test {
            Test::WriteBw => {
                SendRequest::write(0, station.message(here, size)?, self.theirs.remote(there))
            }
            Test::ReadBw => {
                SendRequest::read(0, station.sge(there, size), self.theirs.remote(here))
            }
            _ => SendRequest::send(0, station.message(here, size)?),
        })
    }

    /// Waits for completions, and takes all that are there.
    fn wait(&self, completions: &mut Vec<Completion>) -> anyhow::Result<()> {
        let waiter = &self.station.waiter;
        if waiter.cq.poll(completions, 64) == 0 {
            completions.push(waiter.next(PATIENCE)?);
        }
        Ok(())
    }
}

/// Counts and times.
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
    fn look(&mut self, progress: &Progress) -> bool {
        self.latest = clock::now();
        let (since, done) = self.slice;
        let elapsed = self.latest - since;
        if elapsed >= SLICE {
            self.peak = self.peak.max((self.done - done) as f64 / elapsed.as_secs_f64());
            self.slice = (self.latest, self.done);
            progress.show(self.amount, self.done, self.latest - self.start);
        }
        matches!(self.amount, Amount::Time(duration) if self.latest - self.start >= duration)
    }

    fn rate(&self) -> Rate {
        let seconds = (self.latest - self.start).as_secs_f64();
        let average = self.done as f64 / seconds.max(f64::EPSILON);
        Rate { messages: self.done, seconds, peak: self.peak.max(average) }
    }
}

/// The listening side: takes what comes, until the active side says that it is over.
pub(super) fn receive(station: &mut Station, control: &mut Control) -> anyhow::Result<()> {
    let mut idle = Idle::default();
    loop {
        match station.waiter.look(Duration::from_millis(10))? {
            Some(completion) => {
                let completion = success(completion)?;
                if completion.opcode == WcOpcode::Recv {
                    let qp = station.index(&completion)?;
                    station.post_recv(qp)?;
                }
            }
            None => {
                if idle.rest(&station.waiter) && control.has_word()? {
                    return Ok(());
                }
            }
        }
    }
}
