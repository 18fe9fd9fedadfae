//! Work requests.

use std::ffi::{c_int, c_uint};

use softroce::verbs::{
    QKey, QpType, Qpn, RecvRequest, RemoteAddr, Rkey, SendData, SendFlags, SendOp, SendRequest,
    SendTarget, SgeList, Srqn,
};

use super::memory::{bind_info, sge};
use crate::abi::{In, RecvWr, SEND_INLINE, SendWr, Sge};
use crate::border::{Errno, size_from};

/// `ibv_wr_opcode`.
const WRITE: c_uint = 0;
const WRITE_IMM: c_uint = 1;
const SEND: c_uint = 2;
const SEND_IMM: c_uint = 3;
const READ: c_uint = 4;
const COMPARE_SWAP: c_uint = 5;
const FETCH_ADD: c_uint = 6;
const LOCAL_INV: c_uint = 7;
const BIND_MW: c_uint = 8;
const SEND_INV: c_uint = 9;
const ATOMIC_WRITE: c_uint = 15;

/// Maximum number of inline bytes of a request.
const MAX_INLINE_BYTES: usize = 1 << 16;

/// Reads a list of at most `max` scatter/gather elements. A longer list is not read at all, because its
/// count may be wrong.
///
/// # Errors
///
/// `EINVAL` when the list is too long.
pub(crate) fn sges(list: In<Sge>, count: usize, max: u32) -> Result<SgeList, Errno> {
    Ok(list.array(bounded(count, max)?)?.map(sge).collect())
}

fn bounded(count: usize, max: u32) -> Result<usize, Errno> {
    if u32::try_from(count).is_ok_and(|count| count <= max) {
        Ok(count)
    } else {
        Err(Errno::invalid(format!("the request has {count} elements, and the limit is {max}")))
    }
}

/// Copies inline data from several places.
///
/// # Errors
///
/// `EINVAL` when there are more than [`MAX_INLINE_BYTES`], or a place is null.
pub(crate) fn inline(places: impl Iterator<Item = (In<u8>, usize)>) -> Result<SendData, Errno> {
    let mut bytes = smallvec::SmallVec::new();
    for (place, len) in places {
        if bytes.len().saturating_add(len) > MAX_INLINE_BYTES {
            return Err(Errno::invalid(format!(
                "the request has more inline data than the limit of {MAX_INLINE_BYTES} bytes"
            )));
        }
        place.copy_to(len, &mut bytes)?;
    }
    Ok(SendData::Inline(bytes))
}

fn count(found: c_int) -> Result<usize, Errno> {
    size_from(found)
}

/// Returns the operation of a request.
fn operation(wr: &SendWr) -> Result<SendOp, Errno> {
    let addr = wr.wr.remote_addr;
    let remote = RemoteAddr { addr, rkey: Rkey(wr.wr.rkey()) };
    let at = RemoteAddr { addr, rkey: Rkey(wr.wr.atomic_rkey) };
    let imm = u32::from_be(wr.imm_or_key);
    let rkey = Rkey(wr.imm_or_key);
    Ok(match wr.opcode {
        WRITE => SendOp::Write { to: remote },
        WRITE_IMM => SendOp::WriteImm { to: remote, imm },
        SEND => SendOp::Send,
        SEND_IMM => SendOp::SendImm { imm },
        READ => SendOp::Read { from: remote },
        COMPARE_SWAP => SendOp::CompareSwap { at, expect: wr.wr.compare_add(), swap: wr.wr.swap },
        FETCH_ADD => SendOp::FetchAdd { at, add: wr.wr.compare_add() },
        LOCAL_INV => SendOp::LocalInv { rkey },
        SEND_INV => SendOp::SendInv { rkey },
        ATOMIC_WRITE => SendOp::AtomicWrite { to: remote },
        BIND_MW => SendOp::BindMw {
            window: wr.bind_mw.mw.get()?.verbs.id(),
            rkey: Rkey(wr.bind_mw.rkey),
            to: bind_info(&wr.bind_mw.info)?,
        },
        opcode => return Err(Errno::invalid(format!("opcode {opcode} of the request is unknown"))),
    })
}

/// Returns the request of `wr` to a queue pair of a type, with at most `max_sge` scatter/gather elements.
///
/// # Errors
///
/// `EINVAL` for unknown opcodes and flags, too many elements, and handles that are null or destroyed.
pub(crate) fn request(qp_type: QpType, max_sge: u32, wr: &SendWr) -> Result<SendRequest, Errno> {
    let op = operation(wr)?;
    let num_sge = count(wr.num_sge)?;
    let data = if op.is_local() {
        // Local operations have no data: the fields may have any value.
        SendData::none()
    } else if wr.send_flags & SEND_INLINE == 0 {
        SendData::Sges(sges(wr.sg_list, num_sge, max_sge)?)
    } else {
        let places = wr.sg_list.array(bounded(num_sge, max_sge)?)?;
        inline(
            places.map(|sge| (In::at(sge.addr), usize::try_from(sge.length).unwrap_or(usize::MAX))),
        )?
    };
    let to = match qp_type {
        QpType::Ud => {
            let [qpn, qkey] = wr.wr.remote_qp();
            let ah = wr.wr.ah().get()?;
            Some(ah.verbs.target(Qpn::new(qpn), QKey(qkey)).into())
        }
        QpType::XrcIni => Some(SendTarget::Srq(Srqn::new(wr.remote_srqn))),
        QpType::Rc | QpType::Uc | QpType::XrcTgt => None,
    };
    Ok(SendRequest { wr_id: wr.wr_id, op, data, flags: send_flags(wr.send_flags)?, to })
}

/// Returns the flags of a request, without inline data (which is in the request) and IP checksum (16, which
/// is always on).
///
/// # Errors
///
/// `EINVAL` for unknown flags.
pub(crate) fn send_flags(flags: c_uint) -> Result<SendFlags, Errno> {
    let known = flags & !(SEND_INLINE | 16);
    u8::try_from(known)
        .ok()
        .and_then(SendFlags::from_bits)
        .ok_or_else(|| Errno::invalid(format!("send flags {flags:#x} have unknown bits")))
}

/// Returns the receive request of `wr`, with at most `max_sge` scatter/gather elements.
///
/// # Errors
///
/// `EINVAL` when there are more elements.
pub(crate) fn receive(max_sge: u32, wr: &RecvWr) -> Result<RecvRequest, Errno> {
    let sges = sges(wr.sg_list, count(wr.num_sge)?, max_sge)?;
    Ok(RecvRequest { wr_id: wr.wr_id, sges })
}
