//! How far a stream has come: what is in flight, and what each packet makes of it.

mod answers;
mod requests;

use std::collections::VecDeque;

use softroce::psn::Psn;
use softroce::wire::Transport;

use super::budget::FlowBudget;
use super::kind::{Kind, Line, Phase};
use super::series::Trace;
use super::stream::Stream;
use crate::flow::{Direction, Event, SeenPacket};

/// Adds packets to the figures of a stream.
#[derive(Debug)]
pub(super) struct StreamAnalyzer {
    /// The figures so far.
    pub(super) figures: Stream,
    progress: Progress,
}

/// State of a stream that is no figure.
#[derive(Debug)]
struct Progress {
    /// The PSN before which everything is acknowledged, unwrapped as all here.
    acknowledged: u64,
    /// The PSN after the newest request. `None` before the first.
    next: Option<u64>,
    /// Requests that are not acknowledged, by PSN.
    outstanding: VecDeque<Sent>,
    /// Their bytes.
    bytes: u64,
    /// A message of which more is to come.
    open: Option<Open>,
    /// When the RNR NAK came that is being heeded.
    rnr: Option<u64>,
    /// The READ answer that comes next is the one after this.
    response: u64,
    /// The first READ answer that is missing, and the end of its READ.
    gap: Option<(u64, u64)>,
    /// Up to when time is accounted for.
    until: u64,
    /// The packet before was an answer with data.
    streaming: bool,
}

/// A request packet in flight.
#[derive(Clone, Copy, Debug)]
struct Sent {
    psn: u64,
    /// The PSN after it, or after its answer.
    end: u64,
    sent: u64,
    /// When its message began.
    began: u64,
    /// Payload, or for a READ what it asks for.
    bytes: u32,
    kind: Option<Kind>,
    is_end: bool,
    /// It came again, or was never captured: an acknowledgement tells no round trip.
    again: bool,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    began: u64,
    bytes: u64,
}

/// A packet as a stream takes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step<'a> {
    pub(super) now: u64,
    pub(super) seen: &'a SeenPacket<'a>,
    pub(super) events: &'a [Event],
}

/// One turn of the circle of PSNs.
const PSN_CYCLE: u64 = 1 << 24;

impl Progress {
    const fn new(now: u64) -> Self {
        Self {
            acknowledged: 0,
            next: None,
            outstanding: VecDeque::new(),
            bytes: 0,
            open: None,
            rnr: None,
            response: 0,
            gap: None,
            until: now,
            streaming: false,
        }
    }

    /// The place of a PSN, near the newest.
    fn place(&self, psn: Psn) -> u64 {
        let Some(next) = self.next else { return PSN_CYCLE + u64::from(psn.value()) };
        let here = Psn::new(u32::try_from(next % PSN_CYCLE).unwrap_or_default());
        let ahead = psn.since(here);
        match ahead < Psn::HALF {
            true => next.saturating_add(u64::from(ahead)),
            false => next.saturating_sub(u64::from(Psn::MODULUS - ahead)),
        }
    }

    /// PSNs in flight.
    fn packets(&self) -> u64 {
        self.next.unwrap_or(self.acknowledged).saturating_sub(self.acknowledged)
    }

    fn push(&mut self, sent: Sent, room: &mut FlowBudget) {
        if room.outstanding == 0 || self.outstanding.len() >= room.most_outstanding {
            match self.outstanding.pop_front() {
                Some(oldest) => self.bytes -= u64::from(oldest.bytes),
                None => return,
            }
            room.outstanding += 1;
        }
        room.outstanding -= 1;
        self.bytes += u64::from(sent.bytes);
        self.outstanding.push_back(sent);
    }

    /// The packet in flight at `place`.
    fn at(&mut self, place: u64) -> Option<&mut Sent> {
        let after = self.outstanding.partition_point(|sent| sent.psn <= place);
        let sent = self.outstanding.get_mut(after.checked_sub(1)?)?;
        (place < sent.end).then_some(sent)
    }

    /// The PSN at `place` gets another meaning: it and what comes after is void.
    fn void(&mut self, place: u64, room: &mut FlowBudget) {
        while self.outstanding.back().is_some_and(|sent| sent.psn >= place) {
            let bytes = self.outstanding.pop_back().map_or(0, |sent| sent.bytes);
            self.bytes -= u64::from(bytes);
            room.outstanding += 1;
        }
    }

    /// Takes out what ends before `place`, the oldest first.
    fn pop_before(&mut self, place: u64, room: &mut FlowBudget) -> Option<Sent> {
        self.outstanding.front().filter(|sent| sent.end <= place)?;
        let sent = self.outstanding.pop_front()?;
        self.bytes -= u64::from(sent.bytes);
        room.outstanding += 1;
        Some(sent)
    }
}

impl StreamAnalyzer {
    /// Begins a stream without packets at `now`; `packet` is the number of its first one.
    pub(super) fn new(direction: Direction, transport: Transport, packet: u64, now: u64) -> Self {
        let figures = Stream::new(direction, transport, packet, now);
        Self { figures, progress: Progress::new(now) }
    }

    /// The points over time.
    pub(super) fn traces(&mut self) -> &mut [Trace] {
        &mut self.figures.over_time.traces
    }

    /// Now it is known how many PSNs each READ takes.
    pub(super) fn learn_mtu(&mut self, mtu: usize) {
        if self.figures.mtu.replace(mtu).is_some() {
            return;
        }
        let mut reach = self.progress.next.unwrap_or_default();
        for sent in &mut self.progress.outstanding {
            if sent.kind == Some(Kind::Read) {
                sent.end = sent.end.max(sent.psn + packets(sent.bytes, mtu));
                reach = reach.max(sent.end);
            }
        }
        self.progress.next = self.progress.next.map(|_| reach);
    }

    /// A congestion notification came.
    pub(super) fn notified(&mut self, now: u64, room: &mut FlowBudget) {
        self.figures.traffic.cnps += 1;
        let newest = self.progress.next.unwrap_or_default();
        self.trace_push(Line::Cnp, now, (newest, newest), room);
        self.figures.last = now;
    }

    /// The packet before was marked by a router.
    pub(super) fn marked(&mut self, now: u64, room: &mut FlowBudget) {
        self.figures.traffic.ecn_marked += 1;
        let newest = self.progress.next.unwrap_or_default();
        self.trace_push(Line::Marked, now, (newest, newest), room);
    }

    /// Completes the figures after the last packet.
    pub(super) fn finish(mut self, room: &mut FlowBudget) -> Stream {
        self.figures.recovery.unacknowledged = match self.figures.is_reliable() {
            true => self.progress.outstanding.len() as u64,
            false => 0,
        };
        self.progress.void(0, room);
        // Without any answer in the capture, all bytes count as delivered.
        if self.figures.traffic.answers == 0 {
            self.figures.traffic.delivered = self.figures.traffic.bytes;
        }
        self.figures
    }

    /// The first packet may come long after the connection was made.
    fn begin(&mut self, now: u64) {
        if self.figures.traffic.requests + self.figures.traffic.answers == 0 {
            self.figures.first = now;
            self.progress.until = now;
            self.figures.over_time.begin(now);
        }
    }

    fn mark_time(&mut self, step: &Step<'_>, room: &mut FlowBudget) {
        self.figures.last = step.now;
        if self.figures.is_reliable() {
            let bytes = self.progress.bytes;
            self.figures.over_time.in_flight.add(step.now, bytes);
            self.trace_push(Line::InFlight, step.now, (bytes, bytes), room);
        }
    }

    fn deliver(&mut self, bytes: u64, now: u64) {
        self.figures.traffic.delivered += bytes;
        self.figures.over_time.delivered.add(now, bytes);
    }

    /// Accounts for the time since the packet before.
    fn spend(&mut self, phase: Phase, now: u64) {
        let time = now.saturating_sub(self.progress.until);
        self.progress.until = now;
        if !self.figures.is_reliable() {
            return;
        }
        self.figures.spent[phase as usize] += time;
        if !self.progress.outstanding.is_empty() {
            // What lasts longer counts for more.
            let weight = u32::try_from(time / 1000 + 1).unwrap_or(u32::MAX);
            self.figures.in_flight.bytes.record_weighted(self.progress.bytes, weight);
            self.figures.in_flight.packets.record_weighted(self.progress.packets(), weight);
        }
    }

    fn trace_push(&mut self, line: Line, now: u64, (low, high): (u64, u64), room: &mut FlowBudget) {
        let trace = &mut self.figures.over_time.traces[line as usize];
        let before = trace.cells().len();
        trace.push(now, low, high, room.most_cells);
        room.cells = room.cells + trace.cells().len() - before;
    }
}

/// The packets that answer a READ.
fn packets(length: u32, mtu: usize) -> u64 {
    let mtu = u64::try_from(mtu).unwrap_or(u64::MAX).max(1);
    u64::from(length).div_ceil(mtu).clamp(1, u64::from(Psn::HALF))
}
