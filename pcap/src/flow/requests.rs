//! What one side asks of the other, in the order of its PSNs.

use std::collections::VecDeque;

use softroce::ids::Mtu;
use softroce::psn::Psn;
use softroce::wire::{Operation, Position, Reth, Transport};

use super::answers::Answers;
use super::cm::Beginning;
use super::history::History;
use super::message::OpenMessage;
use super::read::Read;
use super::record::{Ends, Record, Records, takes_receive};
use super::{Cause, Event, RequestEvent, SeenPacket, SequenceEvent};

/// A PSN further off than this is of another connection.
pub(super) const FAR: u32 = 1 << 16;
/// READs remembered: more than any adapter has outstanding.
const MAX_READS: usize = 128;
/// The requests in one direction of a connection, and what is known of their answers.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) records: Records,
    /// The PSN after the newest. `None` before the first.
    pub(super) next: Option<Psn>,
    /// `next` follows a READ of unknown length in packets: the path MTU is not known.
    unsure: bool,
    /// Requests that were not captured.
    pub(super) holes: u64,
    message: OpenMessage,
    pub(super) ends: Ends,
    /// The newest PSN that an acknowledgement answers, or may, since its request was not captured.
    newest_acknowledgeable: Option<Psn>,
    pub(super) reads: VecDeque<Read>,
    pub(super) mtu: Option<usize>,
    /// READs and atomics that the responder takes at once, when the managers have told.
    pub(super) outstanding: Option<u8>,
    pub(super) transport: Option<Transport>,
    pub(super) history: History,
    pub(super) answers: Answers,
    limit: usize,
}

impl Requests {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Begins anew, as the connection managers agreed.
    pub(super) fn begin(&mut self, beginning: &Beginning) {
        // The capture may hold requests of the connection before the managers' last message.
        let is_late = self.next.is_some();
        *self = Self::new(self.limit);
        self.next = Some(beginning.first);
        self.message = OpenMessage::idle();
        self.mtu = beginning.mtu.map(Mtu::bytes);
        self.outstanding = Some(beginning.outstanding);
        self.answers.begin(beginning.first);
        if is_late {
            self.message = OpenMessage::default();
            self.answers.forget_msn();
        }
    }

    /// Whether `psn` may be that of an answer to what was asked.
    pub(super) fn may_answer(&self, psn: Psn) -> bool {
        match (self.records.first(), self.next) {
            (Some(first), Some(next)) => psn.is_within(first.psn, next.since(first.psn)),
            _ => false,
        }
    }

    /// Whether `psn` was asked, and no answer to it was captured.
    pub(super) fn awaits(&self, psn: Psn) -> bool {
        self.may_answer(psn) && !self.answers.has_acknowledged(psn) && !self.is_refused()
    }

    /// A NAK has ended the connection.
    pub(super) const fn is_refused(&self) -> bool {
        self.answers.is_refused()
    }

    /// Takes a request. Its sender has `moved` when its port is not that of the request before.
    /// Says whether a new connection begins with it.
    pub(super) fn request(
        &mut self,
        seen: &SeenPacket<'_>,
        moved: bool,
        out: &mut Vec<Event>,
    ) -> bool {
        let psn = seen.datagram.bth.psn;
        let expected = *self.next.get_or_insert(psn);
        let is_new = self.is_another(seen, expected, moved);
        if is_new {
            out.push(SequenceEvent::Restarted { expected }.into());
            *self = Self { next: Some(psn), ..Self::new(self.limit) };
        }
        // It tells how many PSNs a READ takes.
        self.learn_mtu(seen, out);
        if self.next == Some(psn) {
            self.fresh(seen, out);
        } else if self.behind(psn) {
            self.answers.asked_on();
            self.old(seen, out);
        } else {
            self.skip_to(psn, out);
            self.fresh(seen, out);
        }
        self.history.push(seen);
        self.transport = Some(seen.datagram.bth.opcode.transport());
        is_new
    }

    /// Whether a request is of another connection than those before; `next` is the PSN after them.
    /// A PSN from far off says so. One that was there before does when it has another meaning and
    /// there is a second sign: the sender's port is another, or a NAK had ended the connection.
    fn is_another(&mut self, seen: &SeenPacket<'_>, next: Psn, moved: bool) -> bool {
        let bth = &seen.datagram.bth;
        if bth.psn == next {
            return false;
        }
        if !self.behind(bth.psn) {
            return bth.psn.since(next) >= FAR || moved;
        }
        if !moved && !self.is_refused() {
            return false;
        }
        let is_acknowledged = self.answers.has_acknowledged(bth.psn);
        match self.records.covering(bth.psn) {
            Some(record) if record.psn == bth.psn => {
                moved && is_acknowledged || record.opcode != bth.opcode || !is_same(record, seen)
            }
            Some(_) => bth.opcode.operation() != Operation::ReadRequest,
            None => self.records.first().is_none_or(|first| bth.psn.is_before(first.psn)),
        }
    }

    /// Whether `psn` may be that of a request of this connection.
    pub(super) fn is_near(&self, psn: Psn) -> bool {
        self.next.is_some_and(|next| psn.since(next) < FAR) || self.behind(psn)
    }

    /// Whether `psn` was sent before, as far as can be told.
    pub(super) fn behind(&self, psn: Psn) -> bool {
        let Some(next) = self.next else { return false };
        let behind = next.since(psn);
        let known = self.records.first().map_or(0, |first| next.since(first.psn));
        behind != 0 && behind <= known.max(FAR)
    }

    /// Requests before `psn` were not captured, unless a READ takes their PSNs. Either may be so while
    /// the path MTU is unknown.
    pub(super) fn skip_to(&mut self, psn: Psn, out: &mut Vec<Event>) {
        let Some(next) = self.next else { return };
        let count = psn.since(next);
        self.next = Some(psn);
        self.newest_acknowledgeable = Some(psn.previous());
        self.message = OpenMessage::default();
        if std::mem::take(&mut self.unsure) {
            self.stretch(psn);
            return;
        }
        out.push(SequenceEvent::Hole { first: next, count }.into());
        self.holes += u64::from(count);
        self.ends.max += count;
    }

    /// Takes a request at `psn` that cannot be judged by its connection. It may end a message.
    pub(super) fn pass_over(&mut self, psn: Psn) {
        if self.next == Some(psn) {
            self.skip_to(psn.next(), &mut Vec::new());
        }
    }

    /// The newest READ takes all PSNs before `end`.
    fn stretch(&mut self, end: Psn) {
        let Some(read) = self.reads.back_mut() else { return };
        if let Some(record) = self.records.covering(read.psn) {
            record.count = end.since(read.psn);
            read.count = record.count;
        }
    }

    /// A request that comes after all others.
    fn fresh(&mut self, seen: &SeenPacket<'_>, out: &mut Vec<Event>) {
        let bth = &seen.datagram.bth;
        self.history.end_row();
        let is_rest = self.message.is_unknown();
        self.message.follow(bth.opcode, out);
        self.message.measure(seen, out);
        if takes_receive(bth.opcode)
            && let Some(by) = self.answers.beyond_credits(self.ends)
        {
            out.push(RequestEvent::BeyondCredits { by }.into());
        }
        let count = self.count(seen);
        let asked = seen.datagram.reth().map_or(0, |reth| reth.length);
        self.unsure = bth.opcode.operation() == Operation::ReadRequest
            && self.mtu.is_none()
            && packets(asked, Mtu::Mtu256.bytes()) > 1;
        self.next = Some(bth.psn.plus(count));
        if bth.opcode.position().is_end() {
            self.ends.min += 1;
            self.ends.max += 1;
        }
        let mut record = self.record(seen, count);
        let before = self.newest_acknowledgeable;
        record.is_first_unacknowledged =
            before.is_none_or(|psn| self.answers.has_acknowledged(psn));
        if !record.wants_answer() {
            self.newest_acknowledgeable = Some(bth.psn);
        }
        self.records.push(record, self.limit);
        self.remember_read(seen, count, is_rest);
        self.answers.expect_from(bth.psn);
        if matches!(bth.opcode.operation(), Operation::CompareSwap | Operation::FetchAdd) {
            self.answers.forget_atomic(bth.psn);
        }
    }

    fn record(&self, seen: &SeenPacket<'_>, count: u32) -> Record {
        Record {
            psn: seen.datagram.bth.psn,
            count,
            opcode: seen.datagram.bth.opcode,
            len: seen.datagram.payload_len,
            digest: seen.digest,
            number: seen.number,
            id: seen.id,
            ends: self.ends,
            answered: false,
            is_first_unacknowledged: false,
            asked: 0,
        }
    }

    /// The path MTU, which FIRST and MIDDLE have as their length.
    fn learn_mtu(&mut self, seen: &SeenPacket<'_>, out: &mut Vec<Event>) {
        let len = seen.datagram.payload_len;
        match (seen.datagram.bth.opcode.position(), self.mtu) {
            (Position::First | Position::Middle, Some(mtu)) if len != mtu => {
                out.push(RequestEvent::NotMtu { mtu: self.mtu }.into());
            }
            (Position::First | Position::Middle, None) => match Mtu::from_bytes(len) {
                Some(_) => self.set_mtu(len),
                None => out.push(RequestEvent::NotMtu { mtu: None }.into()),
            },
            (Position::Last | Position::Only, Some(mtu)) if len > mtu => {
                out.push(RequestEvent::LongerThanMtu { mtu }.into());
            }
            _ => {}
        }
    }

    /// Now that the path MTU is known, so is how many packets answer a READ. Requests in their place
    /// were void.
    pub(super) fn set_mtu(&mut self, mtu: usize) {
        self.mtu = Some(mtu);
        self.unsure = false;
        for read in &mut self.reads {
            let count = packets(read.reth.length, mtu);
            let end = read.psn.plus(count);
            let Some(record) = self.records.covering(read.psn) else { continue };
            let newest = self.next == Some(record.psn.plus(record.count));
            if count < record.count {
                let freed = self.records.shorten(read.psn, count);
                self.ends.max += freed;
                self.holes += u64::from(freed);
            } else {
                record.count = count;
            }
            read.count = count;
            match self.records.within(read.psn.next(), count - 1) {
                Some(void) => {
                    self.ends = self.records.truncate(void.psn).unwrap_or(self.ends);
                    self.next = Some(end);
                }
                None if newest => self.next = Some(end),
                None => {}
            }
        }
    }

    /// The PSNs it takes, 1 at least.
    fn count(&self, seen: &SeenPacket<'_>) -> u32 {
        if seen.datagram.bth.opcode.operation() != Operation::ReadRequest {
            return 1;
        }
        let length = seen.datagram.reth().map_or(0, |reth| reth.length);
        match self.mtu {
            Some(mtu) => packets(length, mtu),
            None => 1,
        }
    }

    /// Remembers a READ; one that `may_be_rest` is perhaps the rest of a READ that was not captured.
    fn remember_read(&mut self, seen: &SeenPacket<'_>, count: u32, may_be_rest: bool) {
        if seen.datagram.bth.opcode.operation() != Operation::ReadRequest {
            return;
        }
        let (psn, reth) = (seen.datagram.bth.psn, seen.datagram.reth().unwrap_or_default());
        // As with records.
        if self.reads.len() == MAX_READS {
            self.reads.pop_front();
        }
        let mut read = Read::new(psn, count, reth);
        read.may_be_rest = may_be_rest;
        self.reads.push_back(read);
    }

    /// A request with a PSN that was sent before.
    fn old(&mut self, seen: &SeenPacket<'_>, out: &mut Vec<Event>) {
        let bth = &seen.datagram.bth;
        let known = self.records.covering(bth.psn).map(|record| *record);
        let resumes = bth.opcode.operation() == Operation::ReadRequest;
        let original = known.filter(|record| record.psn == bth.psn || resumes);
        let original = original.map(|record| record.number);
        match known {
            Some(record) if record.psn == bth.psn && record.opcode != bth.opcode => {
                self.instead(&record, seen, out);
                return;
            }
            Some(record) if record.psn == bth.psn => compare(&record, seen, out),
            Some(read) if resumes => {
                self.resume(read.psn, seen, out);
            }
            Some(read) if self.is_certain(&read) => {
                out.push(RequestEvent::InsideRead { first: read.psn, count: read.count }.into());
                return;
            }
            None | Some(_) => {
                self.cut_short(known, bth.psn);
                if let Some(record) = self.fill(seen) {
                    self.instead(&record, seen, out);
                    return;
                }
            }
        }
        if let Some(read) = self.reads.iter_mut().rev().find(|read| read.psn == bth.psn) {
            read.ask_again(read.psn);
        }
        // A copy by the network has the identification and AckReq of its original.
        let before = known.and_then(|record| record.id);
        let has_other_ack_req = self.history.has_other_ack_req(bth);
        let has_other_id = before.zip(seen.id).is_some_and(|(before, now)| before != now)
            && !self.history.has(bth.psn, seen.id);
        let mut anew = has_other_id || has_other_ack_req;
        let cause = self.history.cause(&mut self.answers, seen, anew, out);
        // A sender that begins to number its datagrams sends the first both ways, which doubles it too.
        anew = has_other_ack_req || anew && (cause != Cause::Unknown || before != Some(0));
        let has_to_ask = bth.opcode.position().is_end()
            && matches!(bth.opcode.operation(), Operation::Send | Operation::Write)
            && bth.opcode.transport() != Transport::Uc;
        let is_sent_again = original.is_some() && cause != Cause::Unknown;
        if has_to_ask && is_sent_again && !bth.ack_req {
            out.push(RequestEvent::AgainWithoutAckReq.into());
        }
        let from = self.records.first().is_some_and(|first| !bth.psn.is_before(first.psn));
        let acknowledged = from && self.answers.has_acknowledged(bth.psn);
        let begins_row = self.history.begins_row();
        out.push(
            SequenceEvent::Retransmitted { original, cause, acknowledged, anew, begins_row }.into(),
        );
        self.answers.asked_again(bth.psn, acknowledged);
    }

    /// Whether the path MTU says that a READ takes as many PSNs as it is taken to.
    pub(super) fn is_certain(&self, read: &Record) -> bool {
        let reth = self.reads.iter().rev().find(|known| known.psn == read.psn);
        let count = reth.zip(self.mtu).map(|(read, mtu)| packets(read.reth.length, mtu));
        count == Some(read.count)
    }

    /// A READ that was taken to have PSNs up to the next request ends before `psn`.
    fn cut_short(&mut self, read: Option<Record>, psn: Psn) {
        let Some(first) = read.map(|read| read.psn) else { return };
        if let Some(record) = self.records.covering(first) {
            record.count = psn.since(first);
        }
        if let Some(read) = self.reads.iter_mut().rev().find(|read| read.psn == first) {
            read.count = psn.since(first);
        }
    }

    /// A PSN has another meaning than in `record`. The requests after it are void.
    fn instead(&mut self, record: &Record, seen: &SeenPacket<'_>, out: &mut Vec<Event>) {
        let Record { number: original, opcode, len, .. } = *record;
        out.push(RequestEvent::Differs { original, opcode, len }.into());
        let psn = seen.datagram.bth.psn;
        self.next = Some(psn);
        self.message = OpenMessage::default();
        match self.records.truncate(psn) {
            Some(ends) => self.ends = ends,
            None => self.answers.forget_msn(),
        }
        self.reads.retain(|read| read.psn.is_before(psn));
        self.fresh(seen, out);
    }

    /// A request that was not captured the first time. Gives what is in its way.
    fn fill(&mut self, seen: &SeenPacket<'_>) -> Option<Record> {
        let count = self.count(seen);
        let psn = seen.datagram.bth.psn;
        if let Some(record) = self.records.within(psn, count) {
            return Some(record);
        }
        let record = self.record(seen, count);
        let (end, next) = (psn.plus(count), self.next.unwrap_or(psn));
        let taken = if next.is_before(end) { next.since(psn) } else { count };
        if self.records.fill(record, taken, self.limit) {
            if next.is_before(end) {
                self.next = Some(end);
            }
            let own = u32::from(record.opcode.position().is_end());
            let less = taken.saturating_sub(own);
            self.ends.min += own;
            self.ends.max = self.ends.max.saturating_sub(less).max(self.ends.min);
            self.remember_read(seen, count, true);
        }
        None
    }

    /// A READ that asks for the rest of an earlier one.
    fn resume(&mut self, first: Psn, seen: &SeenPacket<'_>, out: &mut Vec<Event>) {
        let psn = seen.datagram.bth.psn;
        let Some(read) = self.reads.iter_mut().rev().find(|read| read.psn == first) else { return };
        read.ask_again(psn);
        let (Some(mtu), Some(found)) = (self.mtu, seen.datagram.reth()) else { return };
        let done = u64::from(psn.since(first)) * u64::try_from(mtu).unwrap_or(u64::MAX);
        let expected = Reth {
            addr: read.reth.addr.wrapping_add(done),
            rkey: read.reth.rkey,
            length: read.reth.length - u32::try_from(done).unwrap_or(read.reth.length),
        };
        if found != expected {
            out.push(RequestEvent::ResumedElsewhere { expected }.into());
        }
    }

    /// Whether the newest READ hides how many PSNs it takes. From now on it is taken to take one.
    pub(super) const fn take_unsure(&mut self) -> bool {
        std::mem::replace(&mut self.unsure, false)
    }
}

/// Whether a retransmission is what it repeats.
fn compare(record: &Record, seen: &SeenPacket<'_>, out: &mut Vec<Event>) {
    let opcode = seen.datagram.bth.opcode;
    let original = record.number;
    if is_same(record, seen) {
        return;
    }
    let address = seen.datagram.reth().map(|reth| reth.addr);
    if opcode.operation() == Operation::Flush && address == Some(0) {
        out.push(RequestEvent::FlushWithoutAddress { original }.into());
    } else {
        out.push(RequestEvent::Differs { original, opcode: record.opcode, len: record.len }.into());
    }
}

/// Whether a request has the content of one before, as far as they were captured.
fn is_same(record: &Record, seen: &SeenPacket<'_>) -> bool {
    match (record.digest, seen.digest) {
        (Some(before), Some(now)) => before == now,
        // It may be a burst, of which only the first packet is known.
        _ => true,
    }
}

/// The packets that answer a READ.
pub(super) fn packets(length: u32, mtu: usize) -> u32 {
    let mtu = u32::try_from(mtu).unwrap_or(u32::MAX).max(1);
    length.div_ceil(mtu).clamp(1, Psn::HALF)
}
