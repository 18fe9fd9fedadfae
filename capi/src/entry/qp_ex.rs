//! Functions of `ibv_qp_ex`: requests that the program builds by calls, from `ibv_wr_start` to
//! `ibv_wr_complete`.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use softroce::verbs;
use softroce::verbs::{
    FlushPlacement, FlushTarget, Lkey, QKey, Qpn, RemoteAddr, Rkey, SendData, SendOp, SendRequest,
    SendTarget, Srqn,
};

use crate::abi::{DataBuf, Handle, IbvAh, IbvMw, IbvQp, In, MwBindInfo, QpWr, Sge};
use crate::border::{Errno, without_result, zero_or_errno};
use crate::convert::memory::bind_info;
use crate::convert::request::{inline, send_flags, sges};
use crate::objects::qp::Qp;

/// The functions in each `ibv_qp_ex`.
pub(crate) const WR: QpWr = QpWr {
    atomic_cmp_swp,
    atomic_fetch_add,
    bind_mw,
    local_inv,
    rdma_read,
    rdma_write,
    rdma_write_imm,
    send,
    send_imm,
    send_inv,
    send_tso: 0,
    set_ud_addr,
    set_xrc_srqn,
    set_inline_data,
    set_inline_data_list,
    set_sge,
    set_sge_list,
    start,
    complete,
    abort,
    atomic_write,
    flush,
};

/// Changes the requests of the batch. `ibv_wr_complete` returns the first error.
fn change(qp: Handle<IbvQp>, change: impl FnOnce(&Qp, &mut Vec<SendRequest>) -> Result<(), Errno>) {
    without_result(|| {
        let qp = qp.get()?;
        qp.batch.change(|requests| change(qp, requests));
        Ok(())
    });
}

/// Appends a request with the number and the flags that the program has stored in the structure.
fn append(qp: Handle<IbvQp>, op: impl FnOnce() -> Result<(SendOp, SendData), Errno>) {
    change(qp, |qp, requests| {
        let (op, data) = op()?;
        let wr_id = qp.c.wr_id.load(Ordering::Relaxed);
        let flags = send_flags(qp.c.wr_flags.load(Ordering::Relaxed))?;
        requests.push(SendRequest { wr_id, op, data, flags, to: None });
        Ok(())
    });
}

fn no_request() -> Errno {
    Errno::invalid(
        "no request has been started (ibv_wr_send and others) to set data or an address of",
    )
}

/// Changes the last request.
fn set(qp: Handle<IbvQp>, set: impl FnOnce(&mut SendRequest) -> Result<(), Errno>) {
    change(qp, |_, requests| set(requests.last_mut().ok_or_else(no_request)?));
}

fn plain(qp: Handle<IbvQp>, op: SendOp) {
    append(qp, || Ok((op, SendData::none())));
}

fn remote(rkey: u32, addr: u64) -> RemoteAddr {
    RemoteAddr { addr, rkey: Rkey(rkey) }
}

extern "C" fn atomic_cmp_swp(qp: Handle<IbvQp>, rkey: u32, addr: u64, expect: u64, swap: u64) {
    plain(qp, SendOp::CompareSwap { at: remote(rkey, addr), expect, swap });
}

extern "C" fn atomic_fetch_add(qp: Handle<IbvQp>, rkey: u32, addr: u64, add: u64) {
    plain(qp, SendOp::FetchAdd { at: remote(rkey, addr), add });
}

extern "C" fn bind_mw(qp: Handle<IbvQp>, mw: Handle<IbvMw>, rkey: u32, info: In<MwBindInfo>) {
    append(qp, || {
        let (window, to) = (mw.get()?.verbs.id(), bind_info(&info.read()?)?);
        Ok((SendOp::BindMw { window, rkey: Rkey(rkey), to }, SendData::none()))
    });
}

extern "C" fn local_inv(qp: Handle<IbvQp>, rkey: u32) {
    plain(qp, SendOp::LocalInv { rkey: Rkey(rkey) });
}

extern "C" fn rdma_read(qp: Handle<IbvQp>, rkey: u32, addr: u64) {
    plain(qp, SendOp::Read { from: remote(rkey, addr) });
}

extern "C" fn rdma_write(qp: Handle<IbvQp>, rkey: u32, addr: u64) {
    plain(qp, SendOp::Write { to: remote(rkey, addr) });
}

extern "C" fn rdma_write_imm(qp: Handle<IbvQp>, rkey: u32, addr: u64, imm: u32) {
    plain(qp, SendOp::WriteImm { to: remote(rkey, addr), imm: u32::from_be(imm) });
}

extern "C" fn send(qp: Handle<IbvQp>) {
    plain(qp, SendOp::Send);
}

extern "C" fn send_imm(qp: Handle<IbvQp>, imm: u32) {
    plain(qp, SendOp::SendImm { imm: u32::from_be(imm) });
}

extern "C" fn send_inv(qp: Handle<IbvQp>, rkey: u32) {
    plain(qp, SendOp::SendInv { rkey: Rkey(rkey) });
}

/// Copies the bytes at once.
extern "C" fn atomic_write(qp: Handle<IbvQp>, rkey: u32, addr: u64, word: In<u8>) {
    append(qp, || {
        let data = inline(std::iter::once((word, 8)))?;
        Ok((SendOp::AtomicWrite { to: remote(rkey, addr) }, data))
    });
}

/// `IBV_FLUSH_RANGE`.
const RANGE: u8 = 0;
/// `IBV_FLUSH_MR`.
const REGION: u8 = 1;

extern "C" fn flush(qp: Handle<IbvQp>, rkey: u32, addr: u64, len: usize, placement: u8, level: u8) {
    append(qp, || {
        let length = u32::try_from(len)
            .map_err(|_| Errno::invalid(format!("a FLUSH of {len} bytes is too long")))?;
        let target = match level {
            RANGE => FlushTarget::Range { at: remote(rkey, addr), length },
            REGION => FlushTarget::Region { rkey: Rkey(rkey) },
            _ => return Err(Errno::invalid(format!("level {level} of FLUSH is unknown"))),
        };
        let placement = FlushPlacement::from_bits_retain(placement);
        Ok((SendOp::Flush { target, placement }, SendData::none()))
    });
}

extern "C" fn set_ud_addr(qp: Handle<IbvQp>, ah: Handle<IbvAh>, qpn: u32, qkey: u32) {
    set(qp, |request| {
        request.to = Some(ah.get()?.verbs.target(Qpn::new(qpn), QKey(qkey)).into());
        Ok(())
    });
}

extern "C" fn set_xrc_srqn(qp: Handle<IbvQp>, srqn: u32) {
    set(qp, |request| {
        request.to = Some(SendTarget::Srq(Srqn::new(srqn)));
        Ok(())
    });
}

extern "C" fn set_inline_data(qp: Handle<IbvQp>, from: In<u8>, len: usize) {
    set(qp, |request| {
        request.data = inline(std::iter::once((from, len)))?;
        Ok(())
    });
}

extern "C" fn set_inline_data_list(qp: Handle<IbvQp>, count: usize, list: In<DataBuf>) {
    set(qp, |request| {
        request.data = inline(list.array(count)?.map(|buf| (buf.addr, buf.length)))?;
        Ok(())
    });
}

extern "C" fn set_sge(qp: Handle<IbvQp>, lkey: u32, addr: u64, length: u32) {
    set(qp, |request| {
        request.data = verbs::Sge { addr, length, lkey: Lkey(lkey) }.into();
        Ok(())
    });
}

extern "C" fn set_sge_list(qp: Handle<IbvQp>, count: usize, list: In<Sge>) {
    let max_sge = qp.get().map_or(0, |qp| qp.cap().max_send_sge);
    set(qp, |request| {
        request.data = SendData::Sges(sges(list, count, max_sge)?);
        Ok(())
    });
}

extern "C" fn start(qp: Handle<IbvQp>) {
    without_result(|| {
        qp.get()?.batch.start();
        Ok(())
    });
}

/// Posts all requests of the batch, or none.
extern "C" fn complete(qp: Handle<IbvQp>) -> c_int {
    zero_or_errno(|| {
        let qp = qp.get()?;
        let posted = qp.batch.take().and_then(|requests| post(qp, requests));
        qp.batch.end();
        posted
    })
}

fn post(qp: &Qp, mut requests: Vec<SendRequest>) -> Result<(), Errno> {
    let pair = qp.initiator()?;
    match requests.len() {
        1 => requests.pop().map_or(Ok(()), |only| Ok(pair.post_send(only)?)),
        _ => Ok(pair.post_all(requests)?),
    }
}

extern "C" fn abort(qp: Handle<IbvQp>) {
    without_result(|| {
        let batch = &qp.get()?.batch;
        // The requests and their errors are dropped.
        let _ = batch.take();
        batch.end();
        Ok(())
    });
}
