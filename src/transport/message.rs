//! Request packets of SENDs and WRITEs, for RC, UC and XRC.

use crate::psn::Psn;
use crate::transport::build::{Extension, Header};
use crate::transport::connection;
use crate::transport::segment::Segment;
use crate::transport::work::{SendFlags, SendOp};
use crate::transport::wqe::Wqe;
use crate::wire::{Ieth, ImmDt, Operation, Reth, Suffix, Transport};

/// Returns the headers of one packet of a message. The last packet requests an acknowledgement if
/// the service has acknowledgements.
pub(crate) fn header(transport: Transport, wqe: &Wqe, psn: Psn, segment: Segment) -> Header {
    let (begins, ends) = (segment.position.is_start(), segment.position.is_end());
    let (operation, suffix) = wqe.op.parts().unwrap_or((Operation::Send, Suffix::None));
    let reth = match wqe.op {
        SendOp::Write { to } | SendOp::WriteImm { to, .. } if begins => {
            Some(Reth { addr: to.addr, rkey: to.rkey, length: wqe.length })
        }
        _ => None,
    };
    let extension = match (wqe.op, reth) {
        (SendOp::WriteImm { imm, .. }, Some(reth)) if ends => Extension::RethImm(reth, ImmDt(imm)),
        (_, Some(reth)) => Extension::Reth(reth),
        (SendOp::SendImm { imm } | SendOp::WriteImm { imm, .. }, None) if ends => {
            Extension::Imm(ImmDt(imm))
        }
        (SendOp::SendInv { rkey }, None) if ends => Extension::Inv(Ieth(rkey)),
        (_, None) => Extension::None,
    };
    let takes_receive = operation == Operation::Send || suffix == Suffix::Imm;
    let suffix = if ends { suffix } else { Suffix::None };
    Header {
        opcode: connection::opcode(transport, operation, segment.position, suffix),
        psn,
        ack_req: ends && transport != Transport::Uc,
        solicited: ends && takes_receive && wqe.flags.contains(SendFlags::SOLICITED),
        srqn: wqe.srqn.filter(|_| transport == Transport::Xrc),
        extension,
    }
}
