//! What a request makes of a stream.

use softroce::wire::{Datagram, Operation, Position, Transport};

use super::{Open, Sent, Step, StreamAnalyzer, packets};
use crate::analyze::budget::FlowBudget;
use crate::analyze::kind::{Kind, Line, Phase};
use crate::flow::{Cause, Event, RequestEvent, SequenceEvent};

/// A request that came before, and how.
#[derive(Clone, Copy)]
struct Repeat {
    original: Option<u64>,
    cause: Cause,
    acknowledged: bool,
    anew: bool,
    begins_row: bool,
}

impl StreamAnalyzer {
    /// Takes a request.
    pub(in super::super) fn request(&mut self, step: &Step<'_>, room: &mut FlowBudget) {
        self.begin(step.now);
        self.figures.traffic.requests += 1;
        self.figures.over_time.carried.add(step.now, carried(step.seen.datagram));
        if self.figures.transport == Transport::Ud {
            self.unconnected(step, room);
            return;
        }
        let place = self.progress.place(step.seen.datagram.bth.psn);
        let mut repeat = None;
        for event in step.events {
            match *event {
                Event::Sequence(SequenceEvent::Retransmitted {
                    original,
                    cause,
                    acknowledged,
                    anew,
                    begins_row,
                }) => {
                    repeat = Some(Repeat { original, cause, acknowledged, anew, begins_row });
                }
                Event::Sequence(SequenceEvent::Hole { first, count }) => {
                    self.hole(self.progress.place(first), count, step, room);
                }
                // No requester means it, so it has no place.
                Event::Request(RequestEvent::InsideRead { .. }) => {
                    return self.mark_time(step, room);
                }
                _ => {}
            }
        }
        match repeat {
            Some(repeat) => self.repeated(place, &repeat, step, room),
            None => self.fresh(place, step, room),
        }
        self.progress.streaming = false;
        self.mark_time(step, room);
    }

    /// A datagram of UD: nothing precedes it, nothing answers it.
    fn unconnected(&mut self, step: &Step<'_>, room: &mut FlowBudget) {
        let datagram = step.seen.datagram;
        let place = self.progress.place(datagram.bth.psn);
        self.progress.next = Some(place + 1);
        let len = datagram.payload_len as u64;
        self.deliver(len, step.now);
        self.figures.traffic.bytes += len;
        let messages = self.figures.operations.entry(Kind::Send).or_default();
        messages.count(Some(len), datagram.bth.opcode.has_imm());
        self.trace_push(Line::Sent, step.now, (place, place), room);
        self.figures.last = step.now;
    }

    /// Requests from `place` on were not captured when their turn came.
    fn hole(&mut self, place: u64, count: u32, step: &Step<'_>, room: &mut FlowBudget) {
        self.figures.recovery.missing.holes += u64::from(count);
        // A single one is within the message that is open, if that goes on; more may be its end and the
        // beginning of another.
        let within = self.progress.open.filter(|_| count == 1).zip(self.figures.mtu);
        self.progress.open =
            within.map(|(open, mtu)| Open { bytes: open.bytes + mtu as u64, ..open });
        if !self.figures.is_reliable() {
            return;
        }
        // Each has its place, in case it comes yet; but no more than could be kept.
        let count = u64::from(count);
        for psn in place + count.saturating_sub(room.most_outstanding as u64)..place + count {
            let sent = Sent {
                psn,
                end: psn + 1,
                sent: step.now,
                began: step.now,
                bytes: 0,
                kind: None,
                is_end: false,
                again: true,
            };
            self.progress.push(sent, room);
        }
    }

    /// A request that comes after all others.
    fn fresh(&mut self, place: u64, step: &Step<'_>, room: &mut FlowBudget) {
        let datagram = step.seen.datagram;
        let opcode = datagram.bth.opcode;
        let phase = match (self.progress.rnr, self.progress.outstanding.is_empty()) {
            (Some(_), _) => Phase::Rnr,
            (None, true) => Phase::Idle,
            (None, false) => Phase::Sending,
        };
        self.spend(phase, step.now);
        self.progress.void(place, room);
        if self.progress.next.is_none() {
            self.progress.acknowledged = place;
            self.progress.response = place;
        }
        let len = carried(datagram);
        self.figures.traffic.bytes += len;
        let asked = datagram.reth().filter(|_| opcode.operation() == Operation::ReadRequest);
        let asked = asked.map(|reth| reth.length);
        let count = self.psns(asked);
        let kind = Kind::of(opcode);
        let began = self.message(kind, step);
        self.progress.next = Some(place + count);
        let line = if asked.is_some() { Line::Read } else { Line::Sent };
        self.trace_push(line, step.now, (place, place + count - 1), room);
        if !self.figures.is_reliable() {
            self.deliver(len, step.now);
            return;
        }
        let sent = Sent {
            psn: place,
            end: place + count,
            sent: step.now,
            began,
            bytes: asked.unwrap_or_else(|| u32::try_from(len).unwrap_or(u32::MAX)),
            kind,
            is_end: opcode.position().is_end(),
            again: false,
        };
        self.progress.push(sent, room);
    }

    /// PSNs of a request: those of its answer, if it is a READ that has `asked` for bytes.
    fn psns(&self, asked: Option<u32>) -> u64 {
        match (asked, self.figures.mtu) {
            (Some(length), Some(mtu)) => packets(length, mtu),
            _ => 1,
        }
    }

    /// Counts the message when it ends. Gives when it began.
    fn message(&mut self, kind: Option<Kind>, step: &Step<'_>) -> u64 {
        let datagram = step.seen.datagram;
        let opcode = datagram.bth.opcode;
        let len = carried(datagram);
        let open = match opcode.position().is_start() {
            true => Some(Open { began: step.now, bytes: 0 }),
            false => self.progress.open.take(),
        };
        let open = open.map(|open| Open { bytes: open.bytes + len, ..open });
        let began = open.map_or(step.now, |open| open.began);
        self.progress.open = open.filter(|_| !opcode.position().is_end());
        if let (Some(kind), true) = (kind, opcode.position().is_end()) {
            let size = match kind {
                Kind::Read => datagram.reth().map(|reth| u64::from(reth.length)),
                _ => open.map(|open| open.bytes),
            };
            self.figures.operations.entry(kind).or_default().count(size, opcode.has_imm());
        }
        began
    }

    /// A request with a PSN that was sent before, or skipped.
    fn repeated(&mut self, place: u64, repeat: &Repeat, step: &Step<'_>, room: &mut FlowBudget) {
        let line = self.count_repeat(repeat, step, room);
        self.trace_push(line, step.now, (place, place), room);
        if repeat.original.is_none() {
            self.fill(place, step);
        } else if let Some(sent) = self.progress.at(place) {
            sent.again = true;
        }
    }

    fn count_repeat(&mut self, repeat: &Repeat, step: &Step<'_>, room: &mut FlowBudget) -> Line {
        let len = step.seen.datagram.payload_len as u64;
        if repeat.cause == Cause::Unknown && !repeat.anew {
            self.spend(Phase::Sending, step.now);
            match repeat.original {
                Some(_) => self.figures.traffic.duplicates += 1,
                None => self.figures.traffic.out_of_order += 1,
            }
            return Line::Astray;
        }
        let again = &mut self.figures.recovery.again;
        again.bytes += len;
        again.spurious += u64::from(repeat.acknowledged);
        let (count, line) = match repeat.cause {
            Cause::Nak { .. } => (&mut again.by_nak, Line::AgainNak),
            Cause::Implied { .. } => (&mut again.implied, Line::AgainNak),
            Cause::Rnr { .. } => (&mut again.by_rnr, Line::AgainRnr),
            Cause::Timeout { .. } => (&mut again.by_timeout, Line::AgainTimeout),
            Cause::Unknown => (&mut again.unexplained, Line::AgainOther),
        };
        *count += 1;
        let phase = self.waited(repeat, step, room);
        self.spend(phase, step.now);
        line
    }

    /// What a retransmission ends.
    fn waited(&mut self, repeat: &Repeat, step: &Step<'_>, room: &mut FlowBudget) -> Phase {
        match repeat.cause {
            // Those that follow in the row have the same cause and have not waited.
            Cause::Timeout { .. } if !repeat.begins_row => Phase::Repeating,
            Cause::Timeout { waited } => {
                let waited = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
                let range = (step.now.saturating_sub(waited), step.now);
                self.figures.recovery.timeouts.count += 1;
                self.figures.recovery.timeouts.end(waited);
                self.trace_push(Line::WaitTimeout, step.now, range, room);
                self.progress.rnr = None;
                Phase::Timeout
            }
            Cause::Rnr { .. } => match self.progress.rnr.take() {
                Some(then) => {
                    self.figures.recovery.rnr.end(step.now.saturating_sub(then));
                    self.trace_push(Line::WaitRnr, step.now, (then, step.now), room);
                    Phase::Rnr
                }
                None => Phase::Repeating,
            },
            _ if self.progress.rnr.is_some() => Phase::Rnr,
            _ => Phase::Repeating,
        }
    }

    /// A request that was not captured the first time.
    fn fill(&mut self, place: u64, step: &Step<'_>) {
        let datagram = step.seen.datagram;
        let opcode = datagram.bth.opcode;
        let kind = Kind::of(opcode);
        let len = carried(datagram);
        self.figures.traffic.bytes += len;
        let asked = datagram.reth().filter(|_| kind == Some(Kind::Read));
        let asked = asked.map(|reth| reth.length);
        self.figures.recovery.missing.filled += self.psns(asked);
        if let (Some(kind), true) = (kind, opcode.position().is_end()) {
            let whole = asked.map(u64::from).or(Some(len));
            let size = whole.filter(|_| opcode.position() == Position::Only);
            let messages = self.figures.operations.entry(kind).or_default();
            messages.count(size, opcode.has_imm());
        }
        let starts = opcode.position().is_start();
        let began = place.checked_sub(1).and_then(|before| self.progress.at(before));
        let began = began.filter(|before| !starts && !before.is_end).map(|before| before.began);
        let Some(sent) = self.progress.at(place) else {
            if !self.figures.is_reliable() {
                self.deliver(len, step.now);
            }
            return;
        };
        sent.began = began.unwrap_or(sent.began);
        // How many PSNs a READ takes shows too late here to tell when it ended.
        sent.kind = kind.filter(|kind| *kind != Kind::Read);
        sent.is_end = opcode.position().is_end();
        let before = std::mem::replace(&mut sent.bytes, u32::try_from(len).unwrap_or(u32::MAX));
        let now = sent.bytes;
        self.progress.bytes = self.progress.bytes - u64::from(before) + u64::from(now);
    }
}

/// The bytes that a request carries: its payload, or the value of an atomic, which is in its headers.
fn carried(datagram: &Datagram<'_>) -> u64 {
    match datagram.bth.opcode.operation() {
        Operation::CompareSwap | Operation::FetchAdd => 8,
        _ => datagram.payload_len as u64,
    }
}
