//! Functions of `ibv_cq_ex`: completions one after the other.

use std::ffi::{c_int, c_uint};
use std::time::SystemTime;

use softroce::runtime::wall_clock;

use crate::abi::{CqRead, Handle, IbvCq, In, PollCqAttr};
use crate::border::{Errno, value_or, without_result, zero_or_errno};
use crate::convert::completion::{imm_or_key, service_level, wc_flags};
use crate::objects::cq::PolledCompletion;

/// The functions in each `ibv_cq_ex`.
pub(crate) const READ: CqRead = CqRead {
    start_poll,
    next_poll,
    end_poll,
    opcode: read_opcode,
    vendor_err: read_zero,
    byte_len: read_byte_len,
    imm_data: read_imm_data,
    qp_num: read_qp_num,
    src_qp: read_src_qp,
    wc_flags: read_wc_flags,
    slid: read_zero,
    sl: read_sl,
    dlid_path_bits: read_dlid_path_bits,
    completion_ts: read_completion_ts,
    none: [0; 3],
    completion_wallclock_ns: read_wallclock,
};

/// Returns `ENOENT` when the queue is empty; the program then does not call `ibv_end_poll`.
extern "C" fn start_poll(cq: Handle<IbvCq>, attr: In<PollCqAttr>) -> c_int {
    zero_or_errno(|| {
        if attr.read()?.comp_mask != 0 {
            return Err(Errno::invalid(
                "comp_mask is not 0: no extension of ibv_poll_cq_attr exists",
            ));
        }
        cq.get()?.start_poll()
    })
}

extern "C" fn next_poll(cq: Handle<IbvCq>) -> c_int {
    zero_or_errno(|| cq.get()?.next_poll())
}

extern "C" fn end_poll(cq: Handle<IbvCq>) {
    without_result(|| {
        cq.get()?.end_poll();
        Ok(())
    });
}

/// Returns a field of the current completion, or zero before the first.
fn read<R: Default>(cq: Handle<IbvCq>, field: impl FnOnce(&PolledCompletion) -> R) -> R {
    value_or(R::default(), || {
        let current = cq.get()?.current();
        Ok(current.as_ref().map(field).unwrap_or_default())
    })
}

extern "C" fn read_opcode(cq: Handle<IbvCq>) -> c_uint {
    read(cq, |current| current.completion.opcode as c_uint)
}

/// Returns the vendor's error code, or the LID of the sender: there are none.
extern "C" fn read_zero(_cq: Handle<IbvCq>) -> u32 {
    0
}

extern "C" fn read_sl(cq: Handle<IbvCq>) -> u8 {
    read(cq, |current| service_level(&current.completion))
}

/// Returns the path bits of a LID: there are none.
extern "C" fn read_dlid_path_bits(_cq: Handle<IbvCq>) -> u8 {
    0
}

extern "C" fn read_byte_len(cq: Handle<IbvCq>) -> u32 {
    read(cq, |current| current.completion.byte_len)
}

extern "C" fn read_imm_data(cq: Handle<IbvCq>) -> u32 {
    read(cq, |current| imm_or_key(&current.completion))
}

extern "C" fn read_qp_num(cq: Handle<IbvCq>) -> u32 {
    read(cq, |current| current.completion.qpn.value())
}

extern "C" fn read_src_qp(cq: Handle<IbvCq>) -> u32 {
    read(cq, |current| current.completion.source_qp.map_or(0, |qpn| qpn.value()))
}

extern "C" fn read_wc_flags(cq: Handle<IbvCq>) -> c_uint {
    read(cq, |current| wc_flags(&current.completion))
}

extern "C" fn read_completion_ts(cq: Handle<IbvCq>) -> u64 {
    read(cq, |current| current.at.as_nanos())
}

extern "C" fn read_wallclock(cq: Handle<IbvCq>) -> u64 {
    read(cq, |current| {
        let since = wall_clock(current.at).duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    })
}
