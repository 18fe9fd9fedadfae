//! What an answer makes of a stream.

use softroce::wire::{Aeth, NakCode, Operation, Syndrome};

use super::{Sent, Step, StreamAnalyzer};
use crate::analyze::budget::FlowBudget;
use crate::analyze::kind::{Kind, Line, Nak, Phase};
use crate::flow::{Event, NakEvent, ReadResponse, ResponseEvent};

impl StreamAnalyzer {
    /// Takes an answer to its requests. The path MTU may be known from it.
    pub(in super::super) fn answer(&mut self, step: &Step<'_>, room: &mut FlowBudget) {
        self.begin(step.now);
        self.figures.traffic.answers += 1;
        let bth = &step.seen.datagram.bth;
        let place = self.progress.place(bth.psn);
        let operation = bth.opcode.operation();
        let data = operation == Operation::ReadResponse && step.seen.datagram.payload_len > 0;
        let phase = match (self.progress.rnr, self.progress.streaming && data) {
            (Some(_), _) => Phase::Rnr,
            (None, true) => Phase::Receiving,
            (None, false) => Phase::Waiting,
        };
        self.spend(phase, step.now);
        self.progress.streaming = data;
        self.refusal(step);
        match (operation, step.seen.datagram.aeth()) {
            (Operation::ReadResponse, _) => self.response(place, step, room),
            (Operation::Acknowledge, Some(aeth)) => self.acknowledgement(place, aeth, step, room),
            (Operation::AtomicAcknowledge, _) => drop(self.acknowledge(place + 1, step, room)),
            _ => {}
        }
        self.mark_time(step, room);
    }

    fn refusal(&mut self, step: &Step<'_>) {
        for event in step.events {
            match event {
                Event::Nak(NakEvent::SequenceNak { captured: Some(_) }) => {
                    self.figures.recovery.missing.lost_behind += 1;
                }
                Event::Nak(NakEvent::SequenceNak { captured: None }) => {
                    self.figures.recovery.missing.lost_before += 1;
                }
                _ => {}
            }
        }
    }

    fn acknowledgement(&mut self, place: u64, aeth: Aeth, step: &Step<'_>, room: &mut FlowBudget) {
        match aeth.syndrome {
            Syndrome::Ack { .. } => {
                let last = self.acknowledge(place + 1, step, room);
                let exact = last.filter(|sent| sent.end == place + 1 && !sent.again);
                if let Some(sent) = exact {
                    let rtt = step.now.saturating_sub(sent.sent);
                    self.figures.in_flight.ack_rtt.record(rtt);
                    self.trace_push(Line::AckRtt, step.now, (rtt, rtt), room);
                }
                return;
            }
            Syndrome::Rnr { .. } => {
                self.figures.recovery.rnr.count += 1;
                self.progress.rnr.get_or_insert(step.now);
                self.trace_push(Line::Rnr, step.now, (place, place), room);
            }
            Syndrome::Nak(code) => {
                let nak = Nak::of(code);
                *self.figures.recovery.naks.entry(nak).or_default() += 1;
                if !matches!(code, NakCode::PsnSequence) {
                    self.figures.recovery.refused.get_or_insert((nak, step.now));
                }
                self.trace_push(Line::Nak, step.now, (place, place), room);
            }
            Syndrome::Reserved(_) => return,
        }
        self.acknowledge(place, step, room);
    }

    /// A part of the answer to a READ, or the empty answer to a FLUSH or ATOMIC WRITE.
    fn response(&mut self, place: u64, step: &Step<'_>, room: &mut FlowBudget) {
        let datagram = step.seen.datagram;
        let len = datagram.payload_len as u64;
        self.figures.over_time.carried.add(step.now, len);
        if place < self.progress.response {
            self.figures.recovery.again.responses += 1;
        } else {
            self.progress.response = place + 1;
            self.figures.traffic.bytes += len;
            self.deliver(len, step.now);
        }
        self.trace_push(Line::Response, step.now, (place, place), room);
        for event in step.events {
            if let Event::ReadResponse(ReadResponse::Hole { first, count }) = *event {
                self.figures.recovery.missing.responses += u64::from(count);
                let first = self.progress.place(first);
                let end = self.progress.at(place).map_or(place + 1, |read| read.end);
                self.progress.gap.get_or_insert((first, end));
            }
        }
        match self.progress.gap {
            Some((first, end)) if place > first && place < end => {
                self.acknowledge(first, step, room);
                return;
            }
            Some(_) => self.progress.gap = None,
            None => {}
        }
        self.acknowledge(place + 1, step, room);
    }

    /// Everything before `place` is done, but for what was skipped. Gives the last of it.
    fn acknowledge(&mut self, place: u64, step: &Step<'_>, room: &mut FlowBudget) -> Option<Sent> {
        let skipped = step.events.iter().filter_map(|event| match event {
            Event::Response(ResponseEvent::Unanswered { psn, .. }) => {
                Some(self.progress.place(*psn))
            }
            _ => None,
        });
        let place = skipped.fold(place, u64::min);
        if place <= self.progress.acknowledged {
            return None;
        }
        self.progress.acknowledged = place;
        // The answer to a request that was not captured shows how far the requester is.
        self.progress.next = self.progress.next.map(|next| next.max(place));
        let mut last = None;
        while let Some(sent) = self.progress.pop_before(place, room) {
            if sent.kind != Some(Kind::Read) {
                self.deliver(u64::from(sent.bytes), step.now);
            }
            if let (Some(kind), true) = (sent.kind, sent.is_end) {
                let latency = step.now.saturating_sub(sent.began);
                self.figures.operations.entry(kind).or_default().latency.record(latency);
                self.trace_push(Line::Latency, step.now, (latency, latency), room);
            }
            last = Some(sent);
        }
        self.trace_push(Line::Acknowledged, step.now, (place, place), room);
        last
    }
}
