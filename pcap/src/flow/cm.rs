//! What connection managers tell each other: which queue pairs are to be connected, and how.

use std::collections::VecDeque;
use std::net::IpAddr;

use softroce::ids::{Mtu, Qpn};
use softroce::psn::Psn;
use softroce::wire::cm::{Body, CommId, Message, Rep, Req};

use super::{CmEvent, Direction, Event, SeenPacket};

/// Questions remembered: connections that are being made, or ended.
const MAX_OPEN_REQUESTS: usize = 1024;

/// What an MRA or a REJ answers, as the messages have it.
const TO_REQ: u8 = 0;
const TO_REP: u8 = 1;

/// The questions that were captured, for what answers them.
#[derive(Debug, Default)]
pub(super) struct CmTracker {
    questions: VecDeque<OpenRequest>,
}

/// A REQ or DREQ.
#[derive(Clone, Copy, Debug)]
struct OpenRequest {
    from: IpAddr,
    to: IpAddr,
    /// What `from` calls the connection.
    id: CommId,
    transaction: u64,
    packet: u64,
    /// Of a REQ.
    offer: Option<Offer>,
    /// There was a REP.
    is_accepted: bool,
}

/// What a REQ says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Offer {
    qp: Qpn,
    /// The PSN that the other side shall begin with.
    psn: Psn,
    mtu: Option<Mtu>,
    /// READs and atomics that its sender takes at once.
    takes: u8,
}

/// How one direction of a new connection begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beginning {
    pub(super) direction: Direction,
    pub(super) first: Psn,
    pub(super) mtu: Option<Mtu>,
    /// READs and atomics that may be outstanding.
    pub(super) outstanding: u8,
}

impl CmTracker {
    /// Takes a message. A REP that answers a captured REQ gives the two directions of a connection.
    pub(super) fn message(
        &mut self,
        seen: &SeenPacket<'_>,
        message: &Message<'_>,
        out: &mut Vec<Event>,
    ) -> Option<[Beginning; 2]> {
        let transaction = message.transaction_id;
        // An answer names the connection by the requester's ID.
        let back = |id| (seen.destination, seen.source, id);
        let on = |id| (seen.source, seen.destination, id);
        let (asked, is_req) = match message.body {
            Body::Req(req) => {
                self.ask(seen, transaction, req.local_id, Some(&req));
                return None;
            }
            Body::Dreq(dreq) => {
                self.ask(seen, transaction, dreq.local_id, None);
                return None;
            }
            Body::Rep(rep) => (back(rep.remote_id), true),
            Body::Rtu(ids) => (on(ids.local_id), true),
            Body::Drep(ids) => (back(ids.remote_id), false),
            Body::Mra(mra) if mra.message == TO_REQ => (back(mra.remote_id), true),
            Body::Mra(mra) if mra.message == TO_REP => (on(mra.local_id), true),
            Body::Rej(rej) if rej.message == TO_REQ => (back(rej.remote_id), true),
            Body::Rej(rej) if rej.message == TO_REP => (on(rej.local_id), true),
            _ => return None,
        };
        let question = self.questions.iter_mut().rev().find(|question| {
            (question.from, question.to, question.id) == asked && question.offer.is_some() == is_req
        })?;
        if question.transaction != transaction {
            let (packet, expected) = (question.packet, question.transaction);
            out.push(CmEvent::Transaction { packet, expected, found: transaction }.into());
        }
        let (Body::Rep(rep), Some(offer)) = (message.body, question.offer) else { return None };
        if std::mem::replace(&mut question.is_accepted, true) {
            // Repeated, it says nothing new.
            return None;
        }
        let (allowed, found) = (offer.takes, rep.initiator_depth);
        if found > allowed {
            out.push(CmEvent::Depth { packet: question.packet, allowed, found }.into());
        }
        Some(beginnings(seen, &offer, &rep))
    }

    fn ask(&mut self, seen: &SeenPacket<'_>, transaction: u64, id: CommId, req: Option<&Req>) {
        let offer = req.map(|req| Offer {
            qp: req.qpn,
            psn: req.starting_psn,
            mtu: req.path_mtu,
            takes: req.responder_resources,
        });
        let (from, to, packet) = (seen.source, seen.destination, seen.number);
        let question = OpenRequest { from, to, id, transaction, packet, offer, is_accepted: false };
        let same = |known: &OpenRequest| {
            (known.from, known.to, known.id) == (from, to, id)
                && known.offer.is_some() == offer.is_some()
        };
        match self.questions.iter_mut().find(|known| same(known)) {
            // It is repeated.
            Some(known) if (known.transaction, known.offer) == (transaction, offer) => {}
            Some(known) => *known = question,
            None => self.questions.push_back(question),
        }
        if self.questions.len() > MAX_OPEN_REQUESTS {
            self.questions.pop_front();
        }
    }
}

/// A REQ and its REP tell both queue pairs, where their PSNs begin, and what each takes at once.
fn beginnings(seen: &SeenPacket<'_>, offer: &Offer, rep: &Rep) -> [Beginning; 2] {
    let (active, passive) = (seen.destination, seen.source);
    let there = Direction { source: active, destination: passive, qp: rep.qpn };
    let here = Direction { source: passive, destination: active, qp: offer.qp };
    [(there, rep.starting_psn, rep.responder_resources), (here, offer.psn, offer.takes)].map(
        |(direction, first, outstanding)| Beginning {
            direction,
            first,
            mtu: offer.mtu,
            outstanding,
        },
    )
}
