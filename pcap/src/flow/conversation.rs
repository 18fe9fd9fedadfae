//! Conversations of connection managers: the messages that belong together, the time of each step, retransmissions
//! and the outcome.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use softroce::cm::{RejectReason, SidrStatus};
use softroce::ids::Qpn;
use softroce::wire::Transport;
use softroce::wire::cm::{Body, CommId, Dreq, Message, Mra, Rej, Rep, Req, ServiceId};

use super::cm::{Beginning, Offer};
use super::{CmEvent, Event, SeenPacket};

/// Maximum number of conversations that are remembered. The oldest is forgotten first.
const MAX_CONVERSATIONS: usize = 4096;

/// Codes of the message that an MRA or a REJ answers.
const TO_REQ: u8 = 0;
const TO_REP: u8 = 1;

/// Purpose of a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// A connection, by REQ.
    Connection(Transport),
    /// The queue pair of a datagram service, by SIDR_REQ.
    Service,
}

/// How a conversation ended, as far as it was captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// No answer was captured.
    Unanswered,
    /// The REP was captured and the RTU was not.
    Replied,
    /// Both sides were ready, and no end was captured.
    Connected,
    /// A REJ: from this address, for this reason.
    Rejected(IpAddr, RejectReason),
    /// A DREQ from this address. Whether a DREP was captured.
    Disconnected(IpAddr, bool),
    /// A SIDR_REP.
    Resolved(SidrStatus),
}

impl Outcome {
    /// Returns the name for scripts.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unanswered => "unanswered",
            Self::Replied => "replied",
            Self::Connected => "connected",
            Self::Rejected(..) => "rejected",
            Self::Disconnected(..) => "disconnected",
            Self::Resolved(_) => "resolved",
        }
    }
}

/// Times of the steps of a conversation in nanoseconds: of the first message of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Steps {
    /// REQ or SIDR_REQ.
    pub asked: u64,
    /// REP or SIDR_REP.
    pub answered: Option<u64>,
    /// RTU.
    pub ready: Option<u64>,
    /// DREQ.
    pub ending: Option<u64>,
    /// DREP, or REJ.
    pub ended: Option<u64>,
}

impl Steps {
    fn since(self, start: u64) -> Self {
        let since = |time: Option<u64>| time.map(|time| time.saturating_sub(start));
        Self {
            asked: self.asked.saturating_sub(start),
            answered: since(self.answered),
            ready: since(self.ready),
            ending: since(self.ending),
            ended: since(self.ended),
        }
    }
}

/// Messages of a conversation that were captured more than once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repeated {
    /// Repetitions of REQ or SIDR_REQ.
    pub requests: u64,
    /// Repetitions of REP.
    pub replies: u64,
    /// Repetitions of DREQ.
    pub disconnects: u64,
    /// MRAs: the consumer needed longer than the sender waited.
    pub delays: u64,
}

/// Messages that belong together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmConversation {
    /// Its number in the capture, from 1.
    pub number: u64,
    /// Address of the side that asked.
    pub active: IpAddr,
    /// Address of the other side.
    pub passive: IpAddr,
    /// The service that was asked for.
    pub service: ServiceId,
    /// Connection or service.
    pub subject: Subject,
    /// Times since the Unix epoch; of an analysis, since the capture began.
    pub steps: Steps,
    /// Repetitions.
    pub repeated: Repeated,
    /// Its end.
    pub outcome: Outcome,
    active_id: CommId,
    passive_id: Option<CommId>,
    offer: Option<Offer>,
    passive_qp: Option<Qpn>,
    sent: Sent,
}

/// The messages that need an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sent {
    request: SentMessage,
    reply: Option<SentMessage>,
    /// DREQ of the active and of the passive side.
    disconnects: [Option<SentMessage>; 2],
}

/// The first copy of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SentMessage {
    packet: u64,
    /// Time in nanoseconds since the Unix epoch.
    time: u64,
    transaction: u64,
    digest: u32,
}

/// The place of a message in its conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmPlace {
    /// Number of the conversation in the capture, from 1.
    pub conversation: u64,
    /// Relation to the messages before it.
    pub relation: CmRelation,
}

/// Relation of a message to the messages before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CmRelation {
    /// A new request: REQ, SIDR_REQ or DREQ.
    Begins,
    /// The response to the message in a packet.
    Answers {
        /// Packet with the first copy of that message.
        packet: u64,
        /// Time since then.
        after: Duration,
    },
    /// A repetition.
    Repeats {
        /// Packet with the first copy.
        packet: u64,
        /// Time since then.
        after: Duration,
    },
}

/// Conversations of the connection managers in a capture.
#[derive(Debug, Default)]
pub struct CmConversations {
    list: VecDeque<CmConversation>,
    /// Number of the newest conversation of an address and its communication ID, on the active side.
    newest: HashMap<(IpAddr, CommId), u64>,
    /// Number of conversations that were forgotten.
    forgotten: u64,
}

/// A message with the facts that each step needs.
struct Step<'a> {
    seen: &'a SeenPacket<'a>,
    sent: SentMessage,
}

impl CmConversations {
    /// Returns the newest conversations in the order of their requests.
    pub fn iter(&self) -> impl Iterator<Item = &CmConversation> {
        self.list.iter()
    }

    /// Returns the number of conversations that were forgotten, the oldest first.
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Adds a packet; returns the place of its message, or `None` for another packet or a message of no remembered
    /// conversation.
    pub fn packet(&mut self, seen: &SeenPacket<'_>) -> Option<CmPlace> {
        let message = Message::of(seen.datagram)?.ok()?;
        self.message(seen, &message, &mut Vec::new()).0
    }

    /// Adds a message. The first REP to a REQ returns the two directions of a connection.
    pub(super) fn message(
        &mut self,
        seen: &SeenPacket<'_>,
        message: &Message<'_>,
        out: &mut Vec<Event>,
    ) -> (Option<CmPlace>, Option<[Beginning; 2]>) {
        let time = seen.time.and_then(|time| u64::try_from(time.as_nanos()).ok());
        let sent = SentMessage {
            packet: seen.number,
            time: time.unwrap_or_default(),
            transaction: message.transaction_id,
            digest: crc32fast::hash(seen.datagram.payload),
        };
        let step = Step { seen, sent };
        let place = match &message.body {
            Body::Req(req) => {
                let subject = Subject::Connection(transport(req.transport, req.extended_transport));
                let about = (req.service_id, subject);
                let place = self.begin(&step, req.local_id, about, Some(req), out);
                if place.is_some_and(|place| place.relation == CmRelation::Begins) {
                    addresses(seen, req, message, out);
                }
                place
            }
            Body::SidrReq(req) => {
                let about = (req.service_id, Subject::Service);
                self.begin(&step, req.request_id, about, None, out)
            }
            Body::Rep(rep) => {
                let Some(of) = self.request(seen.destination, seen.source, rep.remote_id) else {
                    return (None, None);
                };
                let beginnings = of.reply(&step, rep, out);
                return (of.place(&step), beginnings);
            }
            Body::SidrRep(rep) => {
                self.request(seen.destination, seen.source, rep.request_id).and_then(|of| {
                    of.resolved(&step, SidrStatus(rep.status), out);
                    of.place(&step)
                })
            }
            Body::Rtu(ids) => self.between(seen, ids.local_id, ids.remote_id).and_then(|of| {
                // The passive side sends none.
                if !of.is_active(seen, ids.local_id) {
                    return None;
                }
                of.ready(&step, out);
                of.place_behind(&step, of.sent.reply)
            }),
            Body::Mra(mra) => self
                .between(seen, mra.local_id, mra.remote_id)
                .and_then(|of| of.delayed(&step, mra, out)),
            Body::Rej(rej) => self
                .between(seen, rej.local_id, rej.remote_id)
                .and_then(|of| of.rejected(&step, rej, out)),
            Body::Dreq(dreq) => self
                .between(seen, dreq.local_id, dreq.remote_id)
                .and_then(|of| of.disconnecting(&step, dreq, out)),
            Body::Drep(ids) => self
                .between(seen, ids.local_id, ids.remote_id)
                .and_then(|of| of.disconnected(&step, ids.local_id, out)),
            _ => None,
        };
        (place, None)
    }

    /// Adds a REQ or SIDR_REQ: a new conversation, or a repetition.
    fn begin(
        &mut self,
        step: &Step<'_>,
        active_id: CommId,
        (service, subject): (ServiceId, Subject),
        req: Option<&Req>,
        out: &mut Vec<Event>,
    ) -> Option<CmPlace> {
        let (active, passive) = (step.seen.source, step.seen.destination);
        if let Some(of) = self.request(active, passive, active_id)
            && of.sent.request.transaction == step.sent.transaction
            && (of.sent.request.digest == step.sent.digest || !of.is_over())
        {
            of.repeated.requests += 1;
            let name = if req.is_some() { "REQ" } else { "SIDR_REQ" };
            return step.repeated(of.number, name, of.sent.request, out);
        }
        let number = self.forgotten + self.list.len() as u64 + 1;
        self.newest.insert((active, active_id), number);
        self.list.push_back(CmConversation {
            number,
            active,
            passive,
            service,
            subject,
            steps: Steps { asked: step.sent.time, ..Steps::default() },
            repeated: Repeated::default(),
            outcome: Outcome::Unanswered,
            active_id,
            passive_id: None,
            offer: req.map(Offer::of),
            passive_qp: None,
            sent: Sent { request: step.sent, reply: None, disconnects: [None; 2] },
        });
        if self.list.len() > MAX_CONVERSATIONS
            && let Some(oldest) = self.list.pop_front()
        {
            self.forgotten += 1;
            let key = (oldest.active, oldest.active_id);
            if self.newest.get(&key) == Some(&oldest.number) {
                self.newest.remove(&key);
            }
        }
        Some(CmPlace { conversation: number, relation: CmRelation::Begins })
    }

    /// Returns the conversation that an ID of the active side began.
    fn request(
        &mut self,
        active: IpAddr,
        passive: IpAddr,
        id: CommId,
    ) -> Option<&mut CmConversation> {
        let number = *self.newest.get(&(active, id))?;
        let at = usize::try_from(number.checked_sub(self.forgotten + 1)?).ok()?;
        self.list.get_mut(at).filter(|of| of.passive == passive)
    }

    /// Returns the conversation of a message with the IDs of its sender and its receiver. Before the REP, a sender on
    /// the passive side may have no ID.
    fn between(
        &mut self,
        seen: &SeenPacket<'_>,
        local: CommId,
        remote: CommId,
    ) -> Option<&mut CmConversation> {
        let (from, to) = (seen.source, seen.destination);
        let is = |of: Option<&mut CmConversation>, passive_id| {
            of.is_some_and(|of| of.passive_id.is_none_or(|id| id == passive_id))
        };
        if is(self.request(to, from, remote), local) {
            return self.request(to, from, remote);
        }
        if is(self.request(from, to, local), remote) {
            return self.request(from, to, local);
        }
        None
    }
}

impl CmConversation {
    /// Returns the conversation with times since `start`, in nanoseconds since the Unix epoch.
    #[must_use]
    pub fn since(&self, start: u64) -> Self {
        Self { steps: self.steps.since(start), ..*self }
    }

    /// Returns whether the conversation has ended, so that its IDs may be used again.
    const fn is_over(&self) -> bool {
        matches!(
            self.outcome,
            Outcome::Rejected(..) | Outcome::Disconnected(..) | Outcome::Resolved(_)
        )
    }

    /// Returns whether the active side sent a message with this communication ID of its sender.
    fn is_active(&self, seen: &SeenPacket<'_>, local_id: CommId) -> bool {
        seen.source == self.active && local_id == self.active_id
    }

    /// Adds a REP. The first returns the two directions of the connection.
    fn reply(
        &mut self,
        step: &Step<'_>,
        rep: &Rep,
        out: &mut Vec<Event>,
    ) -> Option<[Beginning; 2]> {
        let offer = self.offer?;
        step.check_transaction(self.sent.request, out);
        if let Some(first) = self.sent.reply {
            self.repeated.replies += 1;
            if self.passive_id == Some(rep.local_id) {
                step.repeated(self.number, "REP", first, out);
            } else {
                out.push(CmEvent::SecondReply { packet: first.packet }.into());
            }
            return None;
        }
        let Subject::Connection(transport) = self.subject else { return None };
        self.steps.answered = Some(step.sent.time);
        self.sent.reply = Some(step.sent);
        self.passive_id = Some(rep.local_id);
        self.passive_qp = (transport != Transport::Xrc).then_some(rep.qpn);
        self.outcome = Outcome::Replied;
        let (allowed, found) = (offer.takes, rep.initiator_depth);
        if found > allowed {
            let packet = self.sent.request.packet;
            out.push(CmEvent::Depth { packet, allowed, found }.into());
        }
        Some(offer.beginnings(step.seen, rep))
    }

    /// Adds a SIDR_REP.
    fn resolved(&mut self, step: &Step<'_>, status: SidrStatus, out: &mut Vec<Event>) {
        if self.subject != Subject::Service {
            return;
        }
        step.check_transaction(self.sent.request, out);
        self.steps.answered.get_or_insert(step.sent.time);
        self.outcome = Outcome::Resolved(status);
        if status.0 != 0 {
            out.push(CmEvent::Unresolved { packet: self.sent.request.packet, status }.into());
        }
    }

    /// Adds an RTU.
    fn ready(&mut self, step: &Step<'_>, out: &mut Vec<Event>) {
        step.check_transaction(self.sent.request, out);
        if self.outcome == Outcome::Replied {
            self.steps.ready = Some(step.sent.time);
            self.outcome = Outcome::Connected;
        }
    }

    /// Adds an MRA.
    fn delayed(&mut self, step: &Step<'_>, mra: &Mra, out: &mut Vec<Event>) -> Option<CmPlace> {
        self.repeated.delays += 1;
        let delayed = self.answered_by(mra.message)?;
        step.check_transaction(self.sent.request, out);
        let packet = delayed.packet;
        out.push(CmEvent::Delayed { packet, service_timeout: mra.service_timeout }.into());
        self.place_behind(step, Some(delayed))
    }

    /// Adds a REJ.
    fn rejected(&mut self, step: &Step<'_>, rej: &Rej, out: &mut Vec<Event>) -> Option<CmPlace> {
        let rejected = self.answered_by(rej.message);
        if rejected.is_some() {
            step.check_transaction(self.sent.request, out);
        }
        let reason = RejectReason(rej.reason);
        let packet = rejected.unwrap_or(self.sent.request).packet;
        out.push(CmEvent::Rejected { packet, reason }.into());
        self.steps.ended.get_or_insert(step.sent.time);
        self.outcome = Outcome::Rejected(step.seen.source, reason);
        self.place_behind(step, Some(rejected.unwrap_or(self.sent.request)))
    }

    /// Returns the message that an MRA or a REJ with this code answers.
    const fn answered_by(&self, code: u8) -> Option<SentMessage> {
        match code {
            TO_REQ => Some(self.sent.request),
            TO_REP => self.sent.reply,
            _ => None,
        }
    }

    /// Adds a DREQ.
    fn disconnecting(
        &mut self,
        step: &Step<'_>,
        dreq: &Dreq,
        out: &mut Vec<Event>,
    ) -> Option<CmPlace> {
        let is_active = self.is_active(step.seen, dreq.local_id);
        let named = if is_active { self.passive_qp } else { self.offer.map(|offer| offer.qp) };
        // A connection of XRC has other numbers here.
        let expected = named.filter(|_| self.subject != Subject::Connection(Transport::Xrc));
        if let Some(expected) = expected.filter(|qp| *qp != dreq.remote_qpn) {
            out.push(CmEvent::OtherQp { expected, found: dreq.remote_qpn }.into());
        }
        let of_side = &mut self.sent.disconnects[usize::from(!is_active)];
        if let Some(first) = *of_side {
            self.repeated.disconnects += 1;
            return step.repeated(self.number, "DREQ", first, out);
        }
        *of_side = Some(step.sent);
        // Both sides may disconnect; the first decides.
        if !matches!(self.outcome, Outcome::Disconnected(..)) {
            self.steps.ending = Some(step.sent.time);
            self.outcome = Outcome::Disconnected(step.seen.source, false);
        }
        Some(CmPlace { conversation: self.number, relation: CmRelation::Begins })
    }

    /// Adds a DREP.
    fn disconnected(
        &mut self,
        step: &Step<'_>,
        local_id: CommId,
        out: &mut Vec<Event>,
    ) -> Option<CmPlace> {
        // It answers the DREQ of the other side.
        let is_active = self.is_active(step.seen, local_id);
        let dreq = self.sent.disconnects[usize::from(is_active)];
        if let Some(dreq) = dreq {
            step.check_transaction(dreq, out);
        }
        self.steps.ended.get_or_insert(step.sent.time);
        if let Outcome::Disconnected(_, is_answered) = &mut self.outcome {
            *is_answered = true;
        }
        self.place_behind(step, dreq)
    }

    /// Returns the place of a REP or SIDR_REP.
    fn place(&self, step: &Step<'_>) -> Option<CmPlace> {
        match self.sent.reply {
            Some(first) if first.packet != step.sent.packet => {
                let (packet, after) = (first.packet, step.since(first));
                let relation = CmRelation::Repeats { packet, after };
                Some(CmPlace { conversation: self.number, relation })
            }
            _ => self.place_behind(step, Some(self.sent.request)),
        }
    }

    /// Returns the place of the response to a message.
    fn place_behind(&self, step: &Step<'_>, answered: Option<SentMessage>) -> Option<CmPlace> {
        let relation = match answered {
            Some(of) => CmRelation::Answers { packet: of.packet, after: step.since(of) },
            None => CmRelation::Begins,
        };
        Some(CmPlace { conversation: self.number, relation })
    }
}

impl Step<'_> {
    /// Returns the time since an earlier message.
    const fn since(&self, earlier: SentMessage) -> Duration {
        Duration::from_nanos(self.sent.time.saturating_sub(earlier.time))
    }

    /// Reports a response with another transaction ID than its request.
    fn check_transaction(&self, request: SentMessage, out: &mut Vec<Event>) {
        let (packet, expected) = (request.packet, request.transaction);
        let found = self.sent.transaction;
        if found != expected {
            out.push(CmEvent::Transaction { packet, expected, found }.into());
        }
    }

    /// Reports a repetition of a message.
    fn repeated(
        &self,
        conversation: u64,
        name: &'static str,
        first: SentMessage,
        out: &mut Vec<Event>,
    ) -> Option<CmPlace> {
        let (packet, after) = (first.packet, self.since(first));
        let is_equal = first.digest == self.sent.digest;
        out.push(CmEvent::Repeated { name, packet, after, is_equal }.into());
        Some(CmPlace { conversation, relation: CmRelation::Repeats { packet, after } })
    }
}

/// Reports a REQ that states other addresses than those of its IP header: the passive side replies to the stated ones.
fn addresses(seen: &SeenPacket<'_>, req: &Req, message: &Message<'_>, out: &mut Vec<Event>) {
    let (source, destination) = (req.primary.local_gid.ip(), req.primary.remote_gid.ip());
    if (source, destination) != (seen.source, seen.destination) {
        out.push(CmEvent::OtherAddresses { source, destination }.into());
    }
    if let Some(ip) = message.ip
        && (ip.version != 0 || ![4, 6].contains(&ip.ip_version))
    {
        let (version, ip_version) = (ip.version, ip.ip_version);
        out.push(CmEvent::IpHeader { version, ip_version }.into());
    }
}

/// Returns the transport service that a REQ asks for.
pub(crate) const fn transport(code: u8, extended: u8) -> Transport {
    match (code, extended) {
        (1, _) => Transport::Uc,
        (2, _) => Transport::Rd,
        (3, 1) => Transport::Xrc,
        _ => Transport::Rc,
    }
}
