//! The two directions of a connection, as REQ and REP describe them.

use softroce::ids::{Mtu, Qpn};
use softroce::psn::Psn;
use softroce::wire::cm::{Rep, Req};

use super::{Direction, SeenPacket};

/// The offer of a REQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Offer {
    /// Queue pair of the active side.
    pub(super) qp: Qpn,
    /// The PSN that the other side shall begin with.
    psn: Psn,
    mtu: Option<Mtu>,
    /// READs and atomics that its sender takes at once.
    pub(super) takes: u8,
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

impl Offer {
    /// Returns the offer of a REQ.
    pub(super) const fn of(req: &Req) -> Self {
        Self {
            qp: req.qpn,
            psn: req.starting_psn,
            mtu: req.path_mtu,
            takes: req.responder_resources,
        }
    }

    /// Returns both directions: a REP tells the other queue pair, where its PSNs begin, and what it takes at once.
    pub(super) fn beginnings(&self, seen: &SeenPacket<'_>, rep: &Rep) -> [Beginning; 2] {
        let (active, passive) = (seen.destination, seen.source);
        let there = Direction { source: active, destination: passive, qp: rep.qpn };
        let here = Direction { source: passive, destination: active, qp: self.qp };
        [(there, rep.starting_psn, rep.responder_resources), (here, self.psn, self.takes)].map(
            |(direction, first, outstanding)| Beginning {
                direction,
                first,
                mtu: self.mtu,
                outstanding,
            },
        )
    }
}
