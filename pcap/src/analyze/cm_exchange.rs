//! What two connection managers agreed upon.

use std::collections::VecDeque;
use std::net::IpAddr;

use softroce::ids::Qpn;
use softroce::wire::Transport;
use softroce::wire::cm::{Body, CommId, Message, Value};

use crate::flow::{Direction, SeenPacket, transport};

/// A connection as its managers made it: REQ and REP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CmExchange {
    /// The transport service.
    pub transport: Transport,
    /// From the one that asked for it.
    pub there: Direction,
    /// From the one that said yes.
    pub here: Direction,
    /// When the REQ came, in nanoseconds since the capture began.
    pub asked: u64,
    /// When the REP came.
    pub answered: u64,
    /// What the REQ says.
    pub request: CmMessage,
    /// What the REP says.
    pub reply: CmMessage,
}

/// What a message says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CmMessage {
    /// Its fields in their order.
    pub fields: Vec<(&'static str, Value)>,
    /// The consumers' bytes, without the zeros that they end with.
    pub private_data: Vec<u8>,
}

impl CmMessage {
    fn of(message: &Message<'_>) -> Self {
        let mut fields = Vec::new();
        message.each_field(&mut |name, value| fields.push((name, value)));
        let used = message.private_data.iter().rposition(|byte| *byte != 0);
        let used = used.map_or(0, |at| at + 1);
        let private_data = message.private_data.get(..used).unwrap_or_default().to_vec();
        Self { fields, private_data }
    }
}

/// REQs that no REP has answered yet.
#[derive(Debug, Default)]
pub(super) struct Negotiations {
    open: VecDeque<Open>,
}

#[derive(Debug)]
struct Open {
    from: IpAddr,
    to: IpAddr,
    id: CommId,
    qp: Qpn,
    transport: Transport,
    asked: u64,
    request: CmMessage,
}

/// How many of them are remembered.
const MAX_OPEN_REQUESTS: usize = 256;

impl Negotiations {
    /// Takes a message. A REP to a REQ that is remembered makes an agreement.
    pub(super) fn message(
        &mut self,
        seen: &SeenPacket<'_>,
        message: &Message<'_>,
        now: u64,
    ) -> Option<CmExchange> {
        let rep = match &message.body {
            Body::Req(req) => {
                let is = |open: &Open| (open.from, open.id) == (seen.source, req.local_id);
                // A REQ that comes again asks for the same.
                if !self.open.iter().any(is) {
                    let transport = transport(req.transport, req.extended_transport);
                    self.open.push_back(Open {
                        from: seen.source,
                        to: seen.destination,
                        id: req.local_id,
                        qp: req.qpn,
                        transport,
                        asked: now,
                        request: CmMessage::of(message),
                    });
                }
                if self.open.len() > MAX_OPEN_REQUESTS {
                    self.open.pop_front();
                }
                return None;
            }
            Body::Rep(rep) => rep,
            _ => return None,
        };
        let (from, back) = (seen.destination, seen.source);
        let is = |open: &Open| (open.from, open.to, open.id) == (from, back, rep.remote_id);
        let open = self.open.remove(self.open.iter().position(is)?)?;
        Some(CmExchange {
            transport: open.transport,
            there: Direction { source: from, destination: back, qp: rep.qpn },
            here: Direction { source: back, destination: from, qp: open.qp },
            asked: open.asked,
            answered: now,
            request: open.request,
            reply: CmMessage::of(message),
        })
    }
}
