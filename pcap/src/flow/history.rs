//! The newest request packets in the order of the capture, and the causes of retransmissions.

use std::collections::VecDeque;
use std::time::Duration;

use softroce::psn::Psn;

use super::answers::{Answers, Reason};
use super::{Cause, Event, SeenPacket, SequenceEvent};

/// Request packets among which the original of a copy is looked for.
const MAX_SENT_RECORDS: usize = 64;
/// A shorter wait than this is no timeout.
const MIN_TIMEOUT: Duration = Duration::from_micros(500);

/// The request packets of one direction, new ones and retransmissions.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The newest.
    sent: VecDeque<Sent>,
    /// The number of the newest packet.
    pub(super) newest: u64,
    /// The time of the newest packet that has one.
    last: Option<Duration>,
    /// The retransmissions that are under way.
    again: Option<Retransmission>,
}

/// A request packet that was captured, new or again.
#[derive(Clone, Copy, Debug)]
struct Sent {
    psn: Psn,
    id: Option<u16>,
    time: Option<Duration>,
    number: u64,
}

/// A row of retransmissions that have one cause.
#[derive(Clone, Copy, Debug)]
struct Retransmission {
    cause: Cause,
    last: Psn,
    /// The packet is the first of its row.
    begins: bool,
}

impl History {
    /// Adds a request packet.
    pub(super) fn push(&mut self, seen: &SeenPacket<'_>) {
        if self.sent.len() == MAX_SENT_RECORDS {
            self.sent.pop_front();
        }
        let psn = seen.datagram.bth.psn;
        let (id, time, number) = (seen.id, seen.time, seen.number);
        self.sent.push_back(Sent { psn, id, time, number });
        self.newest = seen.number;
        self.last = seen.time.or(self.last);
    }

    /// Whether one of the newest packets has this PSN and IPv4 identification.
    pub(super) fn has(&self, psn: Psn, id: Option<u16>) -> bool {
        self.sent.iter().any(|sent| sent.psn == psn && sent.id == id)
    }

    /// Time from the newest packet to `now`.
    pub(super) fn since(&self, now: Option<Duration>) -> Option<Duration> {
        between(self.last, now)
    }

    /// A new request ends the row of retransmissions.
    pub(super) const fn end_row(&mut self) {
        self.again = None;
    }

    /// Whether the newest packet begins a row of retransmissions.
    pub(super) fn begins_row(&self) -> bool {
        self.again.is_some_and(|again| again.begins)
    }

    /// Why `seen` comes again. A row of retransmissions has the cause of its first.
    pub(super) fn cause(
        &mut self,
        answers: &mut Answers,
        seen: &SeenPacket<'_>,
        anew: bool,
        out: &mut Vec<Event>,
    ) -> Cause {
        let psn = seen.datagram.bth.psn;
        // Packets that are under way when a NAK comes still leave; then the requester goes back.
        let goes_on = self.again.is_some_and(|again| again.last.is_before(psn));
        let asked = answers.take_reason(psn, goes_on);
        let begins = asked.is_some() || !goes_on;
        let cause = match (asked, self.again) {
            (Some(asked), _) => self.heeded(asked, seen, anew, out),
            (None, Some(again)) if goes_on => again.cause,
            (None, _) => self.unasked(seen),
        };
        self.again = Some(Retransmission { cause, last: psn, begins });
        cause
    }

    /// What an answer that gave a reason makes of a retransmission.
    fn heeded(
        &self,
        asked: Reason,
        seen: &SeenPacket<'_>,
        anew: bool,
        out: &mut Vec<Event>,
    ) -> Cause {
        if let Some(timer) = asked.timer {
            match between(asked.time, seen.time) {
                // The capture's own clock may be late by a little.
                Some(waited) if waited < timer - timer / 10 => {
                    let certain = anew && asked.refused == Some(seen.datagram.bth.psn);
                    out.push(
                        SequenceEvent::TooEarly { rnr: asked.packet, waited, timer, certain }
                            .into(),
                    );
                }
                _ => {}
            }
            return Cause::Rnr { packet: asked.packet };
        }
        match asked.implied {
            _ if !asked.is_fresh(seen.time) => self.unasked(seen),
            true => Cause::Implied { packet: asked.packet },
            false => Cause::Nak { packet: asked.packet },
        }
    }

    /// Whether the capture holds the request that an RNR NAK refuses for `timer`: one that came
    /// before the NAK, after the NAK before, and so shortly before that no other NAK is missing.
    pub(super) fn has_refused(
        &self,
        seen: &SeenPacket<'_>,
        timer: Duration,
        before: Option<u64>,
    ) -> bool {
        let psn = seen.datagram.bth.psn;
        let sent = self.sent.iter().rev().find(|sent| sent.psn == psn);
        sent.is_some_and(|sent| {
            before.is_none_or(|nak| nak < sent.number)
                && between(sent.time, seen.time).is_some_and(|waited| waited < timer / 2)
        })
    }

    /// Why a request comes again for which no answer asked.
    fn unasked(&self, seen: &SeenPacket<'_>) -> Cause {
        match self.since(seen.time) {
            Some(waited) if waited >= MIN_TIMEOUT => Cause::Timeout { waited },
            _ => Cause::Unknown,
        }
    }
}

fn between(then: Option<Duration>, now: Option<Duration>) -> Option<Duration> {
    now?.checked_sub(then?)
}
