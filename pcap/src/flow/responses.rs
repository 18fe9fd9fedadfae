//! Answers to the requests of one direction: acknowledgements, NAKs, READ responses, atomics.

use std::time::Duration;

use softroce::ids::Mtu;
use softroce::psn::Psn;
use softroce::wire::{Aeth, NakCode, Opcode, Operation, Position, Syndrome, aeth};

use super::answers::{MSN_MASK, Nak, Reason, Refused};
use super::read::Read;
use super::record::{Ends, Record, takes_receive};
use super::requests::{FAR, Requests, packets};
use super::{Event, NakEvent, ReadResponse, RequestEvent, ResponseEvent, SeenPacket};

/// Copies that a network makes come this close together: also where it is a program that makes them, which the
/// system lets wait for a processor.
const MAX_COPY_DELAY: Duration = Duration::from_millis(20);

impl Requests {
    /// Takes an answer.
    pub(super) fn response(&mut self, seen: &SeenPacket<'_>, out: &mut Vec<Event>) {
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
            out.push(ResponseEvent::Ahead { next }.into());
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
    fn is_after_refusal(&mut self, seen: &SeenPacket<'_>, out: &mut Vec<Event>) -> bool {
        let Some(Refused { psn: refused, packet: nak, asked_on }) = self.answers.refused else {
            return false;
        };
        let psn = seen.datagram.bth.psn;
        let positive = matches!(syndrome(seen), None | Some(Syndrome::Ack { .. }));
        if !positive || psn.is_before(refused) {
            return false;
        }
        out.push(NakEvent::AfterRefusal { nak, refused, certain: !asked_on }.into());
        if asked_on {
            self.answers.refused = None;
            self.answers.forget_msn();
        }
        !asked_on
    }

    fn acknowledgement(&mut self, seen: &SeenPacket<'_>, aeth: Aeth, out: &mut Vec<Event>) {
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
                let is_refused = self.history.has_refused(seen, timer.wait(), before);
                self.rnr(seen, out);
                let refused = is_refused.then_some(psn);
                let reason = Reason { refused, ..self.reason_of(seen, Some(timer.wait())) };
                self.answers.reason = Some((psn, reason));
                self.answers.acknowledge(psn, seen.time);
            }
            // The specification does not define how a requester handles these.
            Syndrome::Nak(NakCode::Reserved(_) | NakCode::InvalidRdRequest) => {}
            Syndrome::Nak(code) => {
                self.check_nak_msn(psn, aeth, out);
                self.refuse(seen, code, out);
                self.answers.acknowledge(psn, seen.time);
            }
            Syndrome::Reserved(_) => {}
        }
    }

    fn ack(&mut self, seen: &SeenPacket<'_>, aeth: Aeth, out: &mut Vec<Event>) {
        let psn = seen.datagram.bth.psn;
        let known = self.records.covering(psn).map(|record| *record);
        let after_duplicate = std::mem::take(&mut self.answers.duplicate);
        if self.answers.has_acknowledged(psn) {
            let newest = self.answers.una.unwrap_or(psn).previous();
            // To a repeated request it has the MSN of now, and that of then if it is late.
            self.check_msn(known, aeth, out);
            if self.records.acknowledges(psn.next(), newest) {
                out.push(ResponseEvent::Older { newest, after_duplicate }.into());
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
                out.push(ResponseEvent::WrongAnswer { request: record.opcode }.into());
                self.mark_answered(psn);
            }
            _ => {}
        }
        self.check_msn(known, aeth, out);
        self.pass(psn.next(), seen, out);
    }

    /// Completes the requests before `psn`. READs and atomics among them should have been answered.
    fn pass(&mut self, psn: Psn, seen: &SeenPacket<'_>, out: &mut Vec<Event>) {
        let una = self.answers.una.unwrap_or(psn);
        if !psn.is_before(una) {
            for record in self.records.unanswered(una, psn) {
                out.push(
                    ResponseEvent::Unanswered { request: record.opcode, psn: record.psn }.into(),
                );
                let reason = Reason { implied: true, ..self.reason_of(seen, None) };
                self.answers.reason = Some((record.psn, reason));
                if let Some(read) = self.reads.iter_mut().rev().find(|read| read.psn == record.psn)
                {
                    read.overtaken = Some(seen.number).filter(|_| read.next == read.psn);
                }
            }
        }
        self.answers.acknowledge(psn, seen.time);
    }

    fn reason_of(&self, seen: &SeenPacket<'_>, timer: Option<Duration>) -> Reason {
        Reason { packet: seen.number, time: seen.time, timer, implied: false, refused: None }
    }

    fn mark_answered(&mut self, psn: Psn) {
        if let Some(record) = self.records.covering(psn) {
            record.answered = true;
        }
    }

    fn sequence_nak(&mut self, seen: &SeenPacket<'_>, aeth: Aeth, out: &mut Vec<Event>) {
        let psn = seen.datagram.bth.psn;
        if self.answers.has_acknowledged(psn) {
            let newest = self.answers.una.unwrap_or(psn).previous();
            let certain = self.is_nak_newer(psn, aeth);
            out.push(NakEvent::NakOfAcknowledged { newest, certain }.into());
            return;
        }
        let captured = self.records.covering(psn).map(|record| record.number);
        match self.answers.nak {
            Some(nak) if nak.psn == psn && nak.rnr => {
                out.push(NakEvent::SequenceNakAfterRnr { rnr: nak.packet }.into());
                return;
            }
            Some(nak) if nak.psn == psn => {
                let apart = seen.time.zip(nak.time).and_then(|(now, then)| now.checked_sub(then));
                // A request that comes ahead of its turn makes a responder send a NAK.
                let is_prompt =
                    self.history.since(seen.time).is_some_and(|since| since < MAX_COPY_DELAY);
                let certain = self.holes == 0
                    && !nak.is_heeded
                    && self.history.newest > nak.packet
                    && is_prompt
                    && apart.is_some_and(|apart| apart >= MAX_COPY_DELAY);
                out.push(NakEvent::SequenceNakAgain { first: nak.packet, certain }.into());
                return;
            }
            _ => out.push(NakEvent::SequenceNak { captured }.into()),
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

    fn rnr(&mut self, seen: &SeenPacket<'_>, out: &mut Vec<Event>) {
        let psn = seen.datagram.bth.psn;
        let request = self.records.covering(psn).map(|record| (record.opcode, record.number));
        match request {
            Some((opcode, _)) if !takes_receive(opcode) => {
                out.push(NakEvent::RnrOfOther { request: opcode }.into());
            }
            _ => out.push(NakEvent::RnrNak { request }.into()),
        }
        self.answers.nak = Some(Nak::new(seen, true));
    }

    fn refuse(&mut self, seen: &SeenPacket<'_>, code: NakCode, out: &mut Vec<Event>) {
        let psn = seen.datagram.bth.psn;
        let request = self.records.covering(psn).map(|record| (record.opcode, record.number));
        match request {
            Some((opcode, _)) if code == NakCode::RemoteAccess && names_no_memory(opcode) => {
                out.push(NakEvent::AccessNakOfSend { request: opcode }.into());
            }
            _ => out.push(NakEvent::Refused { request }.into()),
        }
        self.mark_answered(psn);
        self.answers.refused = Some(Refused { psn, packet: seen.number, asked_on: false });
    }

    fn atomic(&mut self, seen: &SeenPacket<'_>, aeth: Aeth, out: &mut Vec<Event>) {
        let psn = seen.datagram.bth.psn;
        let value = seen.datagram.atomic_ack_eth().map_or(0, |eth| eth.original);
        let known = self.records.covering(psn).map(|record| *record);
        if let Some(record) = known {
            use Operation::{CompareSwap, FetchAdd};
            if !matches!(record.opcode.operation(), CompareSwap | FetchAdd) {
                out.push(ResponseEvent::WrongAnswer { request: record.opcode }.into());
                return;
            }
        }
        if !matches!(aeth.syndrome, Syndrome::Ack { .. }) {
            out.push(ResponseEvent::NotAnAck.into());
        }
        if let Some((first, value)) = self.answers.compare_atomic(psn, value, seen.number) {
            out.push(ResponseEvent::AtomicChanged { first, value }.into());
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
            out.push(ResponseEvent::TooManyOutstanding { count: later + 1, newest, limit }.into());
        }
    }

    fn read_response(&mut self, seen: &SeenPacket<'_>, aeth: Option<Aeth>, out: &mut Vec<Event>) {
        let bth = &seen.datagram.bth;
        if aeth.is_some_and(|aeth| !matches!(aeth.syndrome, Syndrome::Ack { .. })) {
            out.push(ResponseEvent::NotAnAck.into());
        }
        let known = self.records.covering(bth.psn).map(|record| *record);
        match known.map(|record| record.opcode.operation()) {
            Some(Operation::Flush | Operation::AtomicWrite) => self.empty_response(seen, out),
            Some(Operation::ReadRequest) => self.data_response(seen, out),
            Some(_) => {
                let request = known.map_or(bth.opcode, |record| record.opcode);
                out.push(ResponseEvent::WrongAnswer { request }.into());
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
        self.answers.acknowledge(bth.psn.next(), seen.time);
    }

    fn learn_mtu_of_response(&mut self, seen: &SeenPacket<'_>, out: &mut Vec<Event>) {
        let len = seen.datagram.payload_len;
        if !matches!(seen.datagram.bth.opcode.position(), Position::First | Position::Middle) {
            return;
        }
        match self.mtu {
            Some(mtu) if mtu != len && Mtu::from_bytes(len).is_some() => {
                out.push(RequestEvent::OtherMtu { other: mtu }.into());
            }
            Some(mtu) if mtu != len => out.push(ReadResponse::Length { expected: mtu }.into()),
            Some(_) => {}
            None if Mtu::from_bytes(len).is_none() => {
                out.push(RequestEvent::NotMtu { mtu: None }.into());
            }
            None if self.fits_read(seen.datagram.bth.psn, len) => self.set_mtu(len),
            None => {}
        }
    }

    /// Returns whether `mtu` fits the READ that begins at a PSN, if one was captured: its answer has several packets, and
    /// has room before the next request.
    fn fits_read(&self, psn: Psn, mtu: usize) -> bool {
        self.reads.iter().rev().find(|read| read.psn == psn).is_none_or(|read| {
            let count = packets(read.reth.length, mtu);
            // While no next request has shown how many PSNs there are, it is 1.
            count > 1 && (read.count == 1 || count <= read.count)
        })
    }

    /// The answer to a FLUSH or ATOMIC WRITE.
    fn empty_response(&mut self, seen: &SeenPacket<'_>, out: &mut Vec<Event>) {
        if seen.datagram.bth.opcode.position() != Position::Only {
            out.push(ReadResponse::Position { expected: Position::Only }.into());
        } else if seen.datagram.payload_len > 0 {
            out.push(ReadResponse::Length { expected: 0 }.into());
        }
        self.mark_answered(seen.datagram.bth.psn);
    }

    /// A part of the answer to a READ.
    fn data_response(&mut self, seen: &SeenPacket<'_>, out: &mut Vec<Event>) {
        let psn = seen.datagram.bth.psn;
        let mtu = self.mtu;
        if mtu.is_none() && seen.datagram.bth.opcode.position().is_end() {
            self.end_read(psn);
        }
        let found = self.reads.iter_mut().rev().find(|read| psn.is_within(read.psn, read.count));
        let Some(read) = found else { return };
        if let Some(by) = read.overtaken.take() {
            out.push(ResponseEvent::Overtaken { by }.into());
        }
        read.position(seen.datagram.bth.opcode.position(), psn, out);
        read.measure(seen, mtu, out);
        if let Some(first) = self.answers.compare_response(seen, read.has_come(psn)) {
            out.push(ReadResponse::Changed { first }.into());
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
            out.push(ResponseEvent::Msn { low, high, may_count_more: is_above(high) }.into());
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
            out.push(ResponseEvent::Msn { low, high, may_count_more: false }.into());
        }
    }
}

fn syndrome(seen: &SeenPacket<'_>) -> Option<Syndrome> {
    seen.datagram.aeth().map(|aeth| aeth.syndrome)
}

fn names_no_memory(opcode: Opcode) -> bool {
    opcode.operation() == Operation::Send && !opcode.has_invalidate()
}
