//! What the other side answers: acknowledgements, NAKs, READ responses, atomics.

use std::collections::VecDeque;
use std::time::Duration;

use softroce::ids::Mtu;
use softroce::psn::Psn;
use softroce::wire::{Aeth, NakCode, Opcode, Operation, Position, Syndrome, aeth};

use super::read::Read;
use super::record::{Ends, Record};
use super::requests::{FAR, Requests, between};
use super::{Answering, Asking, Event, Refusal, Seen};

/// Answers to atomics remembered: as many as any adapter keeps for those who ask again.
const ATOMICS: usize = 128;

/// READ responses remembered, to compare those that come again.
const RESPONSES: usize = 256;

/// How far the answers to the requests of one direction have come.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// The first PSN that no answer acknowledged.
    una: Option<Psn>,
    base: Option<Base>,
    /// The base that the last answer had if its MSN did not fit. Another answer has to confirm it.
    other_base: Option<Base>,
    nak: Option<Nak>,
    /// Why the next retransmission comes, when an answer gave the reason.
    reason: Option<(Psn, Reason)>,
    refused: Option<Refused>,
    atomics: VecDeque<(Psn, u64, u64)>,
    /// The newest READ responses.
    responses: VecDeque<Response>,
    /// Something acknowledged was sent again.
    duplicate: bool,
    /// The last message for which there is a receive request, when the responder counts them.
    limit: Option<u32>,
    /// The last answer was ahead of all requests. A second one shows that requests are missing from
    /// the capture; one alone may be wrong.
    is_ahead: bool,
    /// More READs and atomics were outstanding than may be, and that was told.
    is_beyond: bool,
}

/// A READ response that was captured whole.
#[derive(Clone, Copy, Debug)]
struct Response {
    psn: Psn,
    /// Of its payload.
    digest: u32,
    packet: u64,
}

/// A NAK that ended the connection.
#[derive(Clone, Copy, Debug)]
struct Refused {
    psn: Psn,
    packet: u64,
    /// Something was asked again after it: the requester has not heard of it, or there is a new
    /// connection with the same numbers.
    asked_on: bool,
}

/// The MSN less the messages that ended: from `low` up to `width` more.
#[derive(Clone, Copy, Debug)]
struct Base {
    low: u32,
    width: u32,
}

/// The last NAK for a missing packet, or RNR NAK.
#[derive(Clone, Copy, Debug)]
struct Nak {
    psn: Psn,
    packet: u64,
    time: Option<Duration>,
    rnr: bool,
    /// Something was sent again since: what the NAK asked for, too, and the capture lacks it.
    is_heeded: bool,
}

impl Nak {
    const fn new(seen: &Seen<'_>, rnr: bool) -> Self {
        let psn = seen.datagram.bth.psn;
        Self { psn, packet: seen.number, time: seen.time, rnr, is_heeded: false }
    }
}

/// What made a requester send again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reason {
    pub(super) packet: u64,
    pub(super) time: Option<Duration>,
    /// It was an RNR NAK with this timer.
    pub(super) timer: Option<Duration>,
    /// It was an answer to something later.
    pub(super) implied: bool,
    /// The request that an RNR NAK refused, when the capture has it before the NAK.
    pub(super) refused: Option<Psn>,
}

impl Reason {
    /// Whether a requester that heeds it may do so only now.
    pub(super) fn is_fresh(&self, now: Option<Duration>) -> bool {
        let waited = self.time.zip(now).and_then(|(then, now)| now.checked_sub(then));
        waited.is_none_or(|waited| waited <= PROMPT)
    }
}

/// Copies that a network makes come this close together: also where it is a program that makes them, which the
/// system lets wait for a processor.
const COPIES: Duration = Duration::from_millis(20);

/// An MSN has 24 bits.
const MSN_MASK: u32 = 0xff_ffff;

/// A requester that has not gone back this long after a NAK did not heed it: its timer ran out.
const PROMPT: Duration = Duration::from_millis(20);

impl Answers {
    /// The connection begins: nothing is answered and the MSN is 0.
    pub(super) fn begin(&mut self, first: Psn) {
        self.una = Some(first);
        self.base = Some(Base { low: 0, width: 0 });
    }

    /// The first request that was captured.
    pub(super) fn expect_from(&mut self, psn: Psn) {
        self.una.get_or_insert(psn);
    }

    pub(super) fn has_acknowledged(&self, psn: Psn) -> bool {
        self.una.is_some_and(|una| psn.is_before(una))
    }

    /// A request came again.
    pub(super) fn asked_again(&mut self, psn: Psn, acknowledged: bool) {
        self.duplicate |= acknowledged;
        match &mut self.nak {
            Some(nak) if nak.psn == psn => self.nak = None,
            Some(nak) => nak.is_heeded = true,
            None => {}
        }
    }

    /// Why `psn` is sent again, if an answer asked for it. A requester that `goes_on` with a row of
    /// retransmissions has not yet heard of it.
    pub(super) fn take_reason(&mut self, psn: Psn, goes_on: bool) -> Option<Reason> {
        let (from, _) = self.reason?;
        let applies = from == psn || (!goes_on && from.is_before(psn));
        applies.then(|| self.reason.take())?.map(|(_, reason)| reason)
    }

    /// A NAK has ended the connection.
    pub(super) const fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Something was asked that was asked before.
    pub(super) fn asked_on(&mut self) {
        if let Some(refused) = &mut self.refused {
            refused.asked_on = true;
        }
    }

    /// A new atomic has this PSN. The answer to one a lap of PSNs ago is no longer of interest.
    pub(super) fn forget_atomic(&mut self, psn: Psn) {
        self.atomics.retain(|(known, _, _)| *known != psn);
    }

    /// Remembers a READ response. Gives the packet that had another payload, if it `is_repeated`.
    fn compare_response(&mut self, seen: &Seen<'_>, is_repeated: bool) -> Option<u64> {
        let (psn, packet) = (seen.datagram.bth.psn, seen.number);
        let digest = seen.digest?;
        let known = self.responses.iter_mut().rev().filter(|_| is_repeated);
        if let Some(known) = known.into_iter().find(|known| known.psn == psn) {
            let before = std::mem::replace(known, Response { psn, digest, packet });
            return (before.digest != digest).then_some(before.packet);
        }
        if self.responses.len() == RESPONSES {
            self.responses.pop_front();
        }
        self.responses.push_back(Response { psn, digest, packet });
        None
    }

    /// How many messages were complete before is not known any more.
    pub(super) fn forget_msn(&mut self) {
        (self.base, self.other_base) = (None, None);
    }

    /// Everything before `psn` is acknowledged.
    fn acknowledge(&mut self, psn: Psn) {
        if self.una.is_none_or(|una| una.is_before(psn)) {
            self.una = Some(psn);
        }
        if self.nak.is_some_and(|nak| nak.psn.is_before(psn)) {
            self.nak = None;
        }
        if self.reason.is_some_and(|(from, reason)| from.is_before(psn) && !reason.implied) {
            self.reason = None;
        }
    }

    /// By how many messages the one after `ends` is beyond what the responder has receive requests
    /// for. One may be: it asks for news.
    pub(super) fn beyond_credits(&self, ends: Ends) -> Option<u32> {
        let (limit, base) = self.limit.zip(self.base)?;
        if base.width != 0 || ends.min != ends.max {
            return None;
        }
        let by = base.low.wrapping_add(ends.min + 1).wrapping_sub(limit) & MSN_MASK;
        (by > 1 && by < MSN_MASK / 2).then_some(by)
    }

    /// Whether `msn` fits `ends` messages, which are some more or less.
    fn fits(&mut self, msn: u32, ends: Ends) -> Result<(), (u32, u32)> {
        let found = Base { low: msn.wrapping_sub(ends.max) & MSN_MASK, width: ends.max - ends.min };
        let Some(base) = self.base else {
            self.base = Some(found);
            return Ok(());
        };
        if let Some(base) = base.and(found) {
            self.base = Some(base);
            self.other_base = None;
            return Ok(());
        }
        let low = base.low.wrapping_add(ends.min) & MSN_MASK;
        let high = base.low.wrapping_add(base.width).wrapping_add(ends.max) & MSN_MASK;
        match self.other_base.and_then(|other| other.and(found)) {
            Some(confirmed) => (self.base, self.other_base) = (Some(confirmed), None),
            None => self.other_base = Some(found),
        }
        Err((low, high))
    }
}

impl Base {
    /// The bases that are both in `self` and in `found`.
    fn and(self, found: Self) -> Option<Self> {
        let base = self;
        // Where `found` begins, seen from where `base` begins; the circle is cut opposite.
        let from = found.low.wrapping_sub(base.low) & MSN_MASK;
        let before = base.low.wrapping_sub(found.low) & MSN_MASK;
        let (skip, reach) = match from <= before {
            true => (from, from.saturating_add(found.width)),
            false if before <= found.width => (0, found.width - before),
            false => (1, 0),
        };
        let width = reach.min(base.width).checked_sub(skip)?;
        Some(Self { low: base.low.wrapping_add(skip) & MSN_MASK, width })
    }
}

impl Requests {
    /// Takes an answer.
    pub(super) fn response(&mut self, seen: &Seen<'_>, out: &mut Vec<Event>) {
        let psn = seen.datagram.bth.psn;
        let operation = seen.datagram.bth.opcode.operation();
        if operation == Operation::ReadResponse {
            self.learn_mtu_of_response(seen, out);
        }
        let Some(next) = self.next else { return };
        let ahead = psn.since(next);
        let sequence_nak = matches!(syndrome(seen), Some(Syndrome::Nak(NakCode::PsnSequence)));
        let is_far = ahead >= FAR && !self.behind(psn);
        let is_ahead = (ahead < FAR || is_far) && !self.may_answer(psn);
        let is_ahead = is_ahead && !(sequence_nak && ahead == 0);
        let was_ahead = std::mem::replace(&mut self.answers.is_ahead, is_ahead);
        // A READ may take these PSNs, or requests that were not captured do.
        if is_ahead && (is_far || !self.take_unsure()) {
            out.push(Answering::Ahead { next }.into());
            if is_far || !was_ahead {
                return;
            }
        }
        if is_ahead {
            self.skip_to(psn.next(), &mut Vec::new());
        }
        if self.is_after_refusal(seen, out) {
            return;
        }
        let aeth = seen.datagram.aeth();
        if let Some(Aeth { syndrome: Syndrome::Ack { credits }, msn }) = aeth {
            let count = aeth::credit_count(credits).map(u32::from);
            self.answers.limit = count.map(|count| msn.wrapping_add(count) & MSN_MASK);
        }
        match (operation, aeth) {
            (Operation::Acknowledge, Some(aeth)) => self.acknowledgement(seen, aeth, out),
            (Operation::ReadResponse, aeth) => self.read_response(seen, aeth, out),
            (Operation::AtomicAcknowledge, Some(aeth)) => self.atomic(seen, aeth, out),
            _ => {}
        }
    }

    /// Whether an answer breaks the rule that none follows a NAK which ends the connection. Where it
    /// may be of a new connection, it is taken as such.
    fn is_after_refusal(&mut self, seen: &Seen<'_>, out: &mut Vec<Event>) -> bool {
        let Some(Refused { psn: refused, packet: nak, asked_on }) = self.answers.refused else {
            return false;
        };
        let psn = seen.datagram.bth.psn;
        let positive = matches!(syndrome(seen), None | Some(Syndrome::Ack { .. }));
        if !positive || psn.is_before(refused) {
            return false;
        }
        out.push(Refusal::AfterRefusal { nak, refused, certain: !asked_on }.into());
        if asked_on {
            self.answers.refused = None;
            self.answers.forget_msn();
        }
        !asked_on
    }

    fn acknowledgement(&mut self, seen: &Seen<'_>, aeth: Aeth, out: &mut Vec<Event>) {
        let psn = seen.datagram.bth.psn;
        match aeth.syndrome {
            Syndrome::Ack { .. } => self.ack(seen, aeth, out),
            Syndrome::Nak(NakCode::PsnSequence) => {
                self.check_nak_msn(psn, aeth, out);
                self.sequence_nak(seen, aeth, out);
            }
            Syndrome::Rnr { timer } => {
                self.check_nak_msn(psn, aeth, out);
                let before = self.answers.nak.filter(|nak| nak.psn == psn).map(|nak| nak.packet);
                let is_refused = self.has_refused(seen, timer.wait(), before);
                self.rnr(seen, out);
                let refused = is_refused.then_some(psn);
                let reason = Reason { refused, ..self.reason_of(seen, Some(timer.wait())) };
                self.answers.reason = Some((psn, reason));
                self.answers.acknowledge(psn);
            }
            // The specification does not define how a requester handles these.
            Syndrome::Nak(NakCode::Reserved(_) | NakCode::InvalidRdRequest) => {}
            Syndrome::Nak(code) => {
                self.check_nak_msn(psn, aeth, out);
                self.refuse(seen, code, out);
                self.answers.acknowledge(psn);
            }
            Syndrome::Reserved(_) => {}
        }
    }

    fn ack(&mut self, seen: &Seen<'_>, aeth: Aeth, out: &mut Vec<Event>) {
        let psn = seen.datagram.bth.psn;
        let known = self.records.covering(psn).map(|record| *record);
        let after_duplicate = std::mem::take(&mut self.answers.duplicate);
        if self.answers.has_acknowledged(psn) {
            let newest = self.answers.una.unwrap_or(psn).previous();
            // To a repeated request it has the MSN of now, and that of then if it is late.
            self.check_msn(known, aeth, out);
            if self.records.acknowledges(psn.next(), newest) {
                out.push(Answering::Older { newest, after_duplicate }.into());
            }
            return;
        }
        let exact = known.filter(|record| {
            record.wants_answer() && (record.psn == psn || self.is_certain(record))
        });
        match exact {
            // Of a request that was repeated behind the point of capture, it may be the answer.
            Some(record)
                if !record.answered && !after_duplicate && record.is_first_unacknowledged =>
            {
                out.push(Answering::WrongAnswer { request: record.opcode }.into());
                self.mark_answered(psn);
            }
            _ => {}
        }
        self.check_msn(known, aeth, out);
        self.pass(psn.next(), seen, out);
    }

    /// What comes before `psn` is done, and READs and atomics among it should have been answered.
    fn pass(&mut self, psn: Psn, seen: &Seen<'_>, out: &mut Vec<Event>) {
        let una = self.answers.una.unwrap_or(psn);
        if !psn.is_before(una) {
            for record in self.records.unanswered(una, psn) {
                out.push(Answering::Unanswered { request: record.opcode, psn: record.psn }.into());
                let reason = Reason { implied: true, ..self.reason_of(seen, None) };
                self.answers.reason = Some((record.psn, reason));
                if let Some(read) = self.reads.iter_mut().rev().find(|read| read.psn == record.psn)
                {
                    read.overtaken = Some(seen.number).filter(|_| read.next == read.psn);
                }
            }
        }
        self.answers.acknowledge(psn);
    }

    fn reason_of(&self, seen: &Seen<'_>, timer: Option<Duration>) -> Reason {
        Reason { packet: seen.number, time: seen.time, timer, implied: false, refused: None }
    }

    fn mark_answered(&mut self, psn: Psn) {
        if let Some(record) = self.records.covering(psn) {
            record.answered = true;
        }
    }

    fn sequence_nak(&mut self, seen: &Seen<'_>, aeth: Aeth, out: &mut Vec<Event>) {
        let psn = seen.datagram.bth.psn;
        if self.answers.has_acknowledged(psn) {
            let newest = self.answers.una.unwrap_or(psn).previous();
            let certain = self.is_nak_newer(psn, aeth);
            out.push(Refusal::NakOfAcknowledged { newest, certain }.into());
            return;
        }
        let captured = self.records.covering(psn).map(|record| record.number);
        match self.answers.nak {
            Some(nak) if nak.psn == psn && nak.rnr => {
                out.push(Refusal::SequenceNakAfterRnr { rnr: nak.packet }.into());
                return;
            }
            Some(nak) if nak.psn == psn => {
                let apart = seen.time.zip(nak.time).and_then(|(now, then)| now.checked_sub(then));
                // A request that comes ahead of its turn makes a responder send a NAK.
                let is_prompt = between(self.last, seen.time).is_some_and(|since| since < COPIES);
                let certain = self.holes == 0
                    && !nak.is_heeded
                    && self.newest > nak.packet
                    && is_prompt
                    && apart.is_some_and(|apart| apart >= COPIES);
                out.push(Refusal::SequenceNakAgain { first: nak.packet, certain }.into());
                return;
            }
            _ => out.push(Refusal::SequenceNak { captured }.into()),
        }
        self.answers.nak = Some(Nak::new(seen, false));
        self.pass(psn, seen, out);
        // A READ without its answer takes the requester further back.
        let implied = self.answers.reason.filter(|(_, reason)| reason.implied);
        let implied = implied.filter(|(_, reason)| reason.is_fresh(seen.time));
        self.answers.reason = implied.or(Some((psn, self.reason_of(seen, None))));
    }

    /// Whether the MSN shows that the NAK of an acknowledged `psn` was sent after the acknowledgement.
    fn is_nak_newer(&self, psn: Psn, aeth: Aeth) -> bool {
        let acknowledged = self.records.ends_before(self.answers.una.unwrap_or(psn));
        let known = acknowledged.zip(self.records.ends_before(psn)).zip(self.answers.base);
        // A message has to have ended between the two.
        known.is_some_and(|((ends, before), base)| {
            let now = base.low.wrapping_add(ends.min) & MSN_MASK;
            before != ends && base.width == 0 && ends.min == ends.max && aeth.msn == now
        })
    }

    fn rnr(&mut self, seen: &Seen<'_>, out: &mut Vec<Event>) {
        let psn = seen.datagram.bth.psn;
        let request = self.records.covering(psn).map(|record| (record.opcode, record.number));
        match request {
            Some((opcode, _)) if !takes_receive(opcode) => {
                out.push(Refusal::RnrOfOther { request: opcode }.into());
            }
            _ => out.push(Refusal::RnrNak { request }.into()),
        }
        self.answers.nak = Some(Nak::new(seen, true));
    }

    fn refuse(&mut self, seen: &Seen<'_>, code: NakCode, out: &mut Vec<Event>) {
        let psn = seen.datagram.bth.psn;
        let request = self.records.covering(psn).map(|record| (record.opcode, record.number));
        match request {
            Some((opcode, _)) if code == NakCode::RemoteAccess && names_no_memory(opcode) => {
                out.push(Refusal::AccessNakOfSend { request: opcode }.into());
            }
            _ => out.push(Refusal::Refused { request }.into()),
        }
        self.mark_answered(psn);
        self.answers.refused = Some(Refused { psn, packet: seen.number, asked_on: false });
    }

    fn atomic(&mut self, seen: &Seen<'_>, aeth: Aeth, out: &mut Vec<Event>) {
        let psn = seen.datagram.bth.psn;
        let value = seen.datagram.atomic_ack_eth().map_or(0, |eth| eth.original);
        let known = self.records.covering(psn).map(|record| *record);
        if let Some(record) = known {
            use Operation::{CompareSwap, FetchAdd};
            if !matches!(record.opcode.operation(), CompareSwap | FetchAdd) {
                out.push(Answering::WrongAnswer { request: record.opcode }.into());
                return;
            }
        }
        if !matches!(aeth.syndrome, Syndrome::Ack { .. }) {
            out.push(Answering::NotAnAck.into());
        }
        match self.answers.atomics.iter().find(|(known, _, _)| *known == psn) {
            Some(&(_, first_value, first)) if first_value != value => {
                out.push(Answering::AtomicChanged { first, value: first_value }.into());
            }
            Some(_) => {}
            None => {
                if self.answers.atomics.len() == ATOMICS {
                    self.answers.atomics.pop_front();
                }
                self.answers.atomics.push_back((psn, value, seen.number));
            }
        }
        let is_first = known.is_some_and(|record| !record.answered);
        self.mark_answered(psn);
        if is_first {
            self.check_outstanding(psn, out);
        }
        self.check_response_msn(psn, known, (aeth, 0), out);
        self.pass(psn.next(), seen, out);
    }

    /// Now that the answer to `psn` is whole: whether more was outstanding until now than may be.
    fn check_outstanding(&mut self, psn: Psn, out: &mut Vec<Event>) {
        let Some(limit) = self.outstanding.map(usize::from) else { return };
        if self.records.asked_after(psn) < limit {
            self.answers.is_beyond = false;
            return;
        }
        // It was told.
        if self.answers.is_beyond {
            return;
        }
        let (later, newest) = self.records.outstanding_after(psn);
        self.answers.is_beyond = later >= limit;
        if self.answers.is_beyond {
            out.push(Answering::TooManyOutstanding { count: later + 1, newest, limit }.into());
        }
    }

    fn read_response(&mut self, seen: &Seen<'_>, aeth: Option<Aeth>, out: &mut Vec<Event>) {
        let bth = &seen.datagram.bth;
        if aeth.is_some_and(|aeth| !matches!(aeth.syndrome, Syndrome::Ack { .. })) {
            out.push(Answering::NotAnAck.into());
        }
        let known = self.records.covering(bth.psn).map(|record| *record);
        match known.map(|record| record.opcode.operation()) {
            Some(Operation::Flush | Operation::AtomicWrite) => self.empty_response(seen, out),
            Some(Operation::ReadRequest) => self.data_response(seen, out),
            Some(_) => {
                let request = known.map_or(bth.opcode, |record| record.opcode);
                out.push(Answering::WrongAnswer { request }.into());
                return;
            }
            None => {}
        }
        if let Some(aeth) = aeth {
            // A READ may count as complete when its answer begins, or when that ends.
            let early = u32::from(bth.opcode.position() == Position::First);
            self.check_response_msn(bth.psn, known, (aeth, early), out);
        }
        if let Some(record) = known {
            self.pass(record.psn, seen, out);
        }
        self.answers.acknowledge(bth.psn.next());
    }

    fn learn_mtu_of_response(&mut self, seen: &Seen<'_>, out: &mut Vec<Event>) {
        let len = seen.datagram.payload_len;
        if !matches!(seen.datagram.bth.opcode.position(), Position::First | Position::Middle) {
            return;
        }
        match self.mtu {
            Some(mtu) if mtu != len && Mtu::from_bytes(len).is_some() => {
                out.push(Asking::OtherMtu { other: mtu }.into());
            }
            Some(mtu) if mtu != len => out.push(Answering::ResponseLength { expected: mtu }.into()),
            Some(_) => {}
            None if Mtu::from_bytes(len).is_some() => self.set_mtu(len),
            None => out.push(Asking::NotMtu { mtu: None }.into()),
        }
    }

    /// The answer to a FLUSH or ATOMIC WRITE.
    fn empty_response(&mut self, seen: &Seen<'_>, out: &mut Vec<Event>) {
        if seen.datagram.bth.opcode.position() != Position::Only {
            out.push(Answering::ResponsePosition { expected: Position::Only }.into());
        } else if seen.datagram.payload_len > 0 {
            out.push(Answering::ResponseLength { expected: 0 }.into());
        }
        self.mark_answered(seen.datagram.bth.psn);
    }

    /// A part of the answer to a READ.
    fn data_response(&mut self, seen: &Seen<'_>, out: &mut Vec<Event>) {
        let psn = seen.datagram.bth.psn;
        let mtu = self.mtu;
        if mtu.is_none() && seen.datagram.bth.opcode.position().is_end() {
            self.end_read(psn);
        }
        let found = self.reads.iter_mut().rev().find(|read| psn.is_within(read.psn, read.count));
        let Some(read) = found else { return };
        if let Some(by) = read.overtaken.take() {
            out.push(Answering::Overtaken { by }.into());
        }
        read.position(seen.datagram.bth.opcode.position(), psn, out);
        read.measure(seen, mtu, out);
        if let Some(first) = self.answers.compare_response(seen, read.has_come(psn)) {
            out.push(Answering::ReadChanged { first }.into());
        }
        let missing = read.advance(psn, out);
        let is_over = psn.next() == read.psn.plus(read.count) && !read.has_holes;
        if let Some(missing) = missing {
            let reason = Reason { implied: true, ..self.reason_of(seen, None) };
            self.answers.reason = Some((missing, reason));
        }
        if is_over && self.records.covering(psn).is_some_and(|record| !record.answered) {
            self.mark_answered(psn);
            self.check_outstanding(psn, out);
        }
    }

    /// Ends the answer of a READ of unknown length in packets at `psn`.
    fn end_read(&mut self, psn: Psn) {
        let found = self.reads.iter_mut().rev().find(|read| psn.is_within(read.psn, read.count));
        let Some(read) = found else { return };
        read.count = psn.since(read.psn) + 1;
        let freed = self.records.shorten(read.psn, read.count);
        self.ends.max += freed;
        self.holes += u64::from(freed);
    }

    /// Checks the MSN of an acknowledgement of `known`.
    fn check_msn(&mut self, known: Option<Record>, aeth: Aeth, out: &mut Vec<Event>) {
        let Some(record) = known else { return };
        self.expect_msn(aeth, Ends { min: record.ends.min, max: self.ends.max }, out);
    }

    /// Checks the MSN of a response to the READ or atomic `known`; `early` messages may be missing. A response that is
    /// sent again may count requests that the capture lacks, so it sets no bound for later answers.
    fn check_response_msn(
        &mut self,
        psn: Psn,
        known: Option<Record>,
        (aeth, early): (Aeth, u32),
        out: &mut Vec<Event>,
    ) {
        let Some(record) = known else { return };
        let min = record.ends.min.saturating_sub(early);
        let read = self.reads.iter().rev().find(|read| psn.is_within(read.psn, read.count));
        let repeated = record.answered || read.is_some_and(Read::was_repeated);
        let before = (self.answers.base, self.answers.other_base);
        let fits = self.answers.fits(aeth.msn, Ends { min, max: self.ends.max });
        let is_above = |high| (aeth.msn.wrapping_sub(high) & MSN_MASK) < MSN_MASK / 2;
        if repeated || fits.is_err_and(|(_, high)| is_above(high)) {
            (self.answers.base, self.answers.other_base) = before;
        }
        if let Err((low, high)) = fits {
            out.push(Answering::Msn { low, high, may_count_more: is_above(high) }.into());
        }
    }

    /// Checks the MSN of a NAK: what comes before `psn` is complete, and no more.
    fn check_nak_msn(&mut self, psn: Psn, aeth: Aeth, out: &mut Vec<Event>) {
        if self.answers.has_acknowledged(psn) {
            return;
        }
        if let Some(ends) = self.records.ends_before(psn) {
            self.expect_msn(aeth, ends, out);
        }
    }

    fn expect_msn(&mut self, aeth: Aeth, ends: Ends, out: &mut Vec<Event>) {
        if let Err((low, high)) = self.answers.fits(aeth.msn, ends) {
            out.push(Answering::Msn { low, high, may_count_more: false }.into());
        }
    }
}

fn syndrome(seen: &Seen<'_>) -> Option<Syndrome> {
    seen.datagram.aeth().map(|aeth| aeth.syndrome)
}

/// Whether a receive request is used up by the packet or by its message's beginning.
pub(super) fn takes_receive(opcode: Opcode) -> bool {
    match opcode.operation() {
        Operation::Send => opcode.position().is_start(),
        Operation::Write => opcode.has_imm(),
        _ => false,
    }
}

fn names_no_memory(opcode: Opcode) -> bool {
    opcode.operation() == Operation::Send && !opcode.has_invalidate()
}
