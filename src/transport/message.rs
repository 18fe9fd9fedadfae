//! The packets of a SEND or WRITE that leaves: what RC, UC and XRC share of sending.

use crate::psn::Psn;
use crate::transport::build::{Extension, Header};
use crate::transport::segment::Piece;
use crate::transport::work::{SendFlags, SendOp};
use crate::transport::wqe::Wqe;
use crate::wire::{Ieth, ImmDt, Opcode, Position, Reth, Transport};

/// What the last packet of a message says beside its bytes.
#[derive(Clone, Copy)]
enum Note {
    None,
    Imm(ImmDt),
    Inv(Ieth),
}

/// The header of one packet of a message. A packet that ends one asks for an acknowledgement where
/// there are any.
pub(crate) fn header(transport: Transport, wqe: &Wqe, psn: Psn, piece: Piece) -> Header {
    let (begins, ends) = (piece.position.is_start(), piece.position.is_end());
    let (to, note) = match wqe.op {
        SendOp::Write { to } => (Some(to), Note::None),
        SendOp::WriteImm { to, imm } => (Some(to), Note::Imm(ImmDt(imm))),
        SendOp::SendImm { imm } => (None, Note::Imm(ImmDt(imm))),
        SendOp::SendInv { rkey } => (None, Note::Inv(Ieth(rkey))),
        _ => (None, Note::None),
    };
    let reth =
        to.filter(|_| begins).map(|to| Reth { addr: to.addr, rkey: to.rkey, length: wqe.length });
    let extension = match (reth, if ends { note } else { Note::None }) {
        (None, Note::None) => Extension::None,
        (None, Note::Imm(imm)) => Extension::Imm(imm),
        (None, Note::Inv(key)) => Extension::Inv(key),
        (Some(reth), Note::Imm(imm)) => Extension::RethImm(reth, imm),
        (Some(reth), Note::None | Note::Inv(_)) => Extension::Reth(reth),
    };
    let notifies = to.is_none() || matches!(note, Note::Imm(_));
    let acknowledged = transport != Transport::Uc;
    let opcode = opcode(acknowledged, to.is_some(), note, piece.position);
    Header {
        opcode: match transport {
            Transport::Xrc => opcode.over(transport).unwrap_or(opcode),
            _ => opcode,
        },
        psn,
        ack_req: ends && acknowledged,
        solicited: ends && notifies && wqe.flags.contains(SendFlags::SOLICITED),
        srqn: wqe.srqn.filter(|_| transport == Transport::Xrc),
        extension,
    }
}

/// The opcode of a packet of a SEND or WRITE. Only RC has SENDs that invalidate.
const fn opcode(rc: bool, write: bool, note: Note, position: Position) -> Opcode {
    use Opcode as O;
    let (reliable, unreliable) = match (write, position, note) {
        (false, Position::First, _) => (O::RcSendFirst, O::UcSendFirst),
        (false, Position::Middle, _) => (O::RcSendMiddle, O::UcSendMiddle),
        (false, Position::Last, Note::None) => (O::RcSendLast, O::UcSendLast),
        (false, Position::Last, Note::Imm(_)) => (O::RcSendLastImm, O::UcSendLastImm),
        (false, Position::Last, Note::Inv(_)) => (O::RcSendLastInv, O::UcSendLast),
        (false, Position::Only, Note::None) => (O::RcSendOnly, O::UcSendOnly),
        (false, Position::Only, Note::Imm(_)) => (O::RcSendOnlyImm, O::UcSendOnlyImm),
        (false, Position::Only, Note::Inv(_)) => (O::RcSendOnlyInv, O::UcSendOnly),
        (true, Position::First, _) => (O::RcWriteFirst, O::UcWriteFirst),
        (true, Position::Middle, _) => (O::RcWriteMiddle, O::UcWriteMiddle),
        (true, Position::Last, Note::Imm(_)) => (O::RcWriteLastImm, O::UcWriteLastImm),
        (true, Position::Last, _) => (O::RcWriteLast, O::UcWriteLast),
        (true, Position::Only, Note::Imm(_)) => (O::RcWriteOnlyImm, O::UcWriteOnlyImm),
        (true, Position::Only, _) => (O::RcWriteOnly, O::UcWriteOnly),
    };
    if rc { reliable } else { unreliable }
}
