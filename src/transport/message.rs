//! The packets of a SEND or WRITE that leaves: what RC and UC share of sending.

use crate::psn::Psn;
use crate::transport::build::{Extension, Header};
use crate::transport::segment::Piece;
use crate::transport::work::{SendFlags, SendOp};
use crate::transport::wqe::Wqe;
use crate::wire::{ImmDt, Opcode, Position, Reth, Transport};

/// The header of one packet of a message. A packet that ends one asks for an acknowledgement where
/// there are any.
pub(crate) fn header(transport: Transport, wqe: &Wqe, psn: Psn, piece: Piece) -> Header {
    let (begins, ends) = (piece.position.is_start(), piece.position.is_end());
    let (to, imm) = match wqe.op {
        SendOp::Write { to } => (Some(to), None),
        SendOp::WriteImm { to, imm } => (Some(to), Some(ImmDt(imm))),
        SendOp::SendImm { imm } => (None, Some(ImmDt(imm))),
        _ => (None, None),
    };
    let reth =
        to.filter(|_| begins).map(|to| Reth { addr: to.addr, rkey: to.rkey, length: wqe.length });
    let extension = match (reth, imm.filter(|_| ends)) {
        (None, None) => Extension::None,
        (None, Some(imm)) => Extension::Imm(imm),
        (Some(reth), None) => Extension::Reth(reth),
        (Some(reth), Some(imm)) => Extension::RethImm(reth, imm),
    };
    let notifies = to.is_none() || imm.is_some();
    let acknowledged = matches!(transport, Transport::Rc);
    Header {
        opcode: opcode(acknowledged, to.is_some(), imm.is_some(), piece.position),
        psn,
        ack_req: ends && acknowledged,
        solicited: ends && notifies && wqe.flags.contains(SendFlags::SOLICITED),
        extension,
    }
}

/// The opcode of a packet of a SEND or WRITE.
const fn opcode(rc: bool, write: bool, imm: bool, position: Position) -> Opcode {
    use Opcode as O;
    let (reliable, unreliable) = match (write, position, imm) {
        (false, Position::First, _) => (O::RcSendFirst, O::UcSendFirst),
        (false, Position::Middle, _) => (O::RcSendMiddle, O::UcSendMiddle),
        (false, Position::Last, false) => (O::RcSendLast, O::UcSendLast),
        (false, Position::Last, true) => (O::RcSendLastImm, O::UcSendLastImm),
        (false, Position::Only, false) => (O::RcSendOnly, O::UcSendOnly),
        (false, Position::Only, true) => (O::RcSendOnlyImm, O::UcSendOnlyImm),
        (true, Position::First, _) => (O::RcWriteFirst, O::UcWriteFirst),
        (true, Position::Middle, _) => (O::RcWriteMiddle, O::UcWriteMiddle),
        (true, Position::Last, false) => (O::RcWriteLast, O::UcWriteLast),
        (true, Position::Last, true) => (O::RcWriteLastImm, O::UcWriteLastImm),
        (true, Position::Only, false) => (O::RcWriteOnly, O::UcWriteOnly),
        (true, Position::Only, true) => (O::RcWriteOnlyImm, O::UcWriteOnlyImm),
    };
    if rc { reliable } else { unreliable }
}
