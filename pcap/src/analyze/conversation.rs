//! Conversations of connection managers: which messages belong together, how long each step took, what was sent
//! again, and how it ended.

use std::collections::HashMap;
use std::net::IpAddr;

use softroce::cm::{RejectReason, SidrStatus};
use softroce::wire::Transport;
use softroce::wire::cm::{Body, CommId, Message, ServiceId};

use super::cm_exchange::transport;
use crate::flow::SeenPacket;

/// Maximum number of conversations that are listed.
const MAX_CONVERSATIONS: usize = 4096;

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

/// Times of the steps of a conversation, in nanoseconds since the capture began: of the first message of each kind.
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
    /// Address of the side that asked.
    pub active: IpAddr,
    /// Address of the other side.
    pub passive: IpAddr,
    /// The service that was asked for.
    pub service: ServiceId,
    /// Connection or service.
    pub subject: Subject,
    /// Times.
    pub steps: Steps,
    /// Repetitions.
    pub repeated: Repeated,
    /// Its end.
    pub outcome: Outcome,
    passive_id: Option<CommId>,
}

/// The conversations of a capture.
#[derive(Debug, Default)]
pub(super) struct Conversations {
    list: Vec<CmConversation>,
    /// Index of the newest conversation of an address and its ID, on the active side.
    newest: HashMap<(IpAddr, CommId), usize>,
    /// Conversations past the limit.
    unlisted: u64,
}

impl Conversations {
    /// Returns the conversations in the order of their requests, and the number of further ones.
    pub(super) fn finish(self) -> (Vec<CmConversation>, u64) {
        (self.list, self.unlisted)
    }

    /// Adds a message.
    pub(super) fn message(&mut self, seen: &SeenPacket<'_>, message: &Message<'_>, now: u64) {
        let (from, to) = (seen.source, seen.destination);
        match &message.body {
            Body::Req(req) => {
                let subject = Subject::Connection(transport(req.transport, req.extended_transport));
                self.begin((from, to), req.local_id, (req.service_id, subject), now);
            }
            Body::SidrReq(req) => {
                self.begin((from, to), req.request_id, (req.service_id, Subject::Service), now);
            }
            Body::SidrRep(rep) => {
                if let Some(of) = self.request(to, from, rep.request_id)
                    && of.subject == Subject::Service
                {
                    of.steps.answered.get_or_insert(now);
                    of.outcome = Outcome::Resolved(SidrStatus(rep.status));
                }
            }
            Body::Rep(rep) => {
                if let Some(of) = self.request(to, from, rep.remote_id) {
                    of.replied(rep.local_id, now);
                }
            }
            Body::Rtu(ids) => {
                if let Some(of) = self.between((from, to), (ids.local_id, ids.remote_id))
                    && of.outcome == Outcome::Replied
                {
                    of.steps.ready = Some(now);
                    of.outcome = Outcome::Connected;
                }
            }
            Body::Mra(mra) => {
                if let Some(of) = self.between((from, to), (mra.local_id, mra.remote_id)) {
                    of.repeated.delays += 1;
                }
            }
            Body::Rej(rej) => {
                if let Some(of) = self.between((from, to), (rej.local_id, rej.remote_id)) {
                    of.steps.ended.get_or_insert(now);
                    of.outcome = Outcome::Rejected(from, RejectReason(rej.reason));
                }
            }
            Body::Dreq(dreq) => {
                if let Some(of) = self.between((from, to), (dreq.local_id, dreq.remote_id)) {
                    of.disconnecting(from, now);
                }
            }
            Body::Drep(ids) => {
                if let Some(of) = self.between((from, to), (ids.local_id, ids.remote_id)) {
                    of.steps.ended.get_or_insert(now);
                    if let Outcome::Disconnected(_, is_answered) = &mut of.outcome {
                        *is_answered = true;
                    }
                }
            }
            _ => {}
        }
    }

    fn begin(
        &mut self,
        (active, passive): (IpAddr, IpAddr),
        active_id: CommId,
        (service, subject): (ServiceId, Subject),
        now: u64,
    ) {
        if let Some(of) = self.request(active, passive, active_id) {
            of.repeated.requests += 1;
            return;
        }
        if self.list.len() >= MAX_CONVERSATIONS {
            self.unlisted += 1;
            return;
        }
        self.newest.insert((active, active_id), self.list.len());
        self.list.push(CmConversation {
            active,
            passive,
            service,
            subject,
            steps: Steps { asked: now, ..Steps::default() },
            repeated: Repeated::default(),
            outcome: Outcome::Unanswered,
            passive_id: None,
        });
    }

    /// Returns the conversation that an ID of the active side began.
    fn request(
        &mut self,
        active: IpAddr,
        passive: IpAddr,
        id: CommId,
    ) -> Option<&mut CmConversation> {
        let at = *self.newest.get(&(active, id))?;
        self.list.get_mut(at).filter(|of| of.passive == passive)
    }

    /// Returns the conversation of a message between two addresses, with the IDs of its sender and its receiver. Before
    /// the REP, a sender on the passive side may have no ID.
    fn between(
        &mut self,
        (from, to): (IpAddr, IpAddr),
        (local, remote): (CommId, CommId),
    ) -> Option<&mut CmConversation> {
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
    fn replied(&mut self, passive_id: CommId, now: u64) {
        if self.steps.answered.is_some() {
            self.repeated.replies += 1;
            return;
        }
        self.steps.answered = Some(now);
        self.passive_id = Some(passive_id);
        self.outcome = Outcome::Replied;
    }

    fn disconnecting(&mut self, from: IpAddr, now: u64) {
        match &self.outcome {
            Outcome::Disconnected(first, _) if *first == from => self.repeated.disconnects += 1,
            // Both sides may disconnect.
            Outcome::Disconnected(..) => {}
            _ => {
                self.steps.ending = Some(now);
                self.outcome = Outcome::Disconnected(from, false);
            }
        }
    }
}
