//! The newest request packets in the order of the capture, and the causes of retransmissions.

use std::collections::VecDeque;
use std::time::Duration;

use softroce::psn::Psn;
use softroce::wire::Bth;

use super::answers::{Answers, Reason};
use super::{Cause, Event, SeenPacket, SequenceEvent};

/// Request packets among which the original of a copy is looked for.
const MAX_SENT_RECORDS: usize = 64;
/// A shorter wait than this is no timeout.
const MIN_TIMEOUT: Duration = Duration::from_micros(500);
/// IPv4 identifications below this may count the datagrams of one burst, as Linux does from 0 for each burst.
const MAX_BURST_IDS: u16 = 128;

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
    ack_req: bool,
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
        let Bth { psn, ack_req, .. } = seen.datagram.bth;
        let (id, time, number) = (seen.id, seen.time, seen.number);
        self.sent.push_back(Sent { psn, id, ack_req, time, number });
        self.newest = seen.number;
        self.last = seen.time.or(self.last);
    }

    /// Whether one of the newest packets has this PSN and IPv4 identification.
    pub(super) fn has(&self, psn: Psn, id: Option<u16>) -> bool {
        self.sent.iter().any(|sent| sent.psn == psn && sent.id == id)
    }

    /// Whether all of the newest packets with this PSN have the other value of AckReq. No copy differs from its original.
    pub(super) fn has_other_ack_req(&self, bth: &Bth) -> bool {
        let mut same_psn = self.sent.iter().filter(|sent| sent.psn == bth.psn).peekable();
        same_psn.peek().is_some() && same_psn.all(|sent| sent.ack_req != bth.ack_req)
    }

    /// Whether the network has copied the packet: it has PSN and IPv4 identification of an earlier one, and its sender
    /// gives every packet an identification of its own.
    fn is_copy(&self, seen: &SeenPacket<'_>) -> bool {
        let Some(id) = seen.id.filter(|id| *id >= MAX_BURST_IDS) else { return false };
        let Bth { psn, ack_req, .. } = seen.datagram.bth;
        let mut others = self.sent.iter().filter(|sent| sent.psn != psn).peekable();
        self.sent
            .iter()
            .any(|sent| sent.psn == psn && sent.id == Some(id) && sent.ack_req == ack_req)
            && others.peek().is_some()
            && others.all(|sent| sent.id != Some(id))
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
            (Some(asked), _) => self.heeded(asked, answers, seen, anew, out),
            (None, Some(again)) if goes_on => again.cause,
            (None, _) => self.unasked(answers, seen, anew),
        };
        self.again = Some(Retransmission { cause, last: psn, begins });
        cause
    }

    /// What an answer that gave a reason makes of a retransmission.
    fn heeded(
        &self,
        asked: Reason,
        answers: &Answers,
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
            _ if !asked.is_fresh(seen.time) => self.unasked(answers, seen, anew),
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

    /// Returns the cause of a retransmission that no answer requested.
    fn unasked(&self, answers: &Answers, seen: &SeenPacket<'_>, anew: bool) -> Cause {
        if self.is_copy(seen) {
            return Cause::Unknown;
        }
        match self.since(seen.time) {
            Some(waited) if waited >= MIN_TIMEOUT => Cause::Timeout { waited },
            _ => self.timeout_among_others(answers, seen, anew).unwrap_or(Cause::Unknown),
        }
    }

    /// Returns the cause if the ACK timer has expired although the requester sends other requests. The timer runs for
    /// the oldest request without acknowledgement, from its transmission or the acknowledgement before.
    fn timeout_among_others(
        &self,
        answers: &Answers,
        seen: &SeenPacket<'_>,
        anew: bool,
    ) -> Option<Cause> {
        let psn = seen.datagram.bth.psn;
        let newest = self.sent.iter().rev().find(|sent| sent.psn == psn);
        // A packet that is not among the newest was sent before all of them.
        let sent = newest.or(self.sent.front())?.time?;
        let since = if answers.una == Some(psn) {
            answers.progress.map_or(sent, |progress| progress.max(sent))
        } else if answers.has_acknowledged(psn) && (anew || newest.is_none()) {
            // The acknowledgement was lost behind the point of capture.
            sent
        } else {
            return None;
        };
        let waited = between(Some(since), seen.time)?;
        (waited >= MIN_TIMEOUT).then_some(Cause::Timeout { waited })
    }
}

fn between(then: Option<Duration>, now: Option<Duration>) -> Option<Duration> {
    now?.checked_sub(then?)
}
