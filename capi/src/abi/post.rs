//! Work requests and completions.

use std::ffi::{c_int, c_uint};

use super::{Handle, IbvAh, IbvMr, IbvMw, In, layout};

/// `ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Wc {
    pub(crate) wr_id: u64,
    pub(crate) status: c_uint,
    pub(crate) opcode: c_uint,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    /// Immediate data, big-endian; or the key that was invalidated.
    pub(crate) imm_or_key: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: c_uint,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}
layout!(Wc, 48, status: 8, opcode: 12, byte_len: 20, imm_or_key: 24, qp_num: 28, src_qp: 32,
    wc_flags: 36, pkey_index: 40, slid: 42, sl: 44);

/// `IBV_WC_GRH`.
pub(crate) const WC_GRH: c_uint = 1;
/// `IBV_WC_WITH_IMM`.
pub(crate) const WC_WITH_IMM: c_uint = 2;
/// `IBV_WC_WITH_INV`.
pub(crate) const WC_WITH_INV: c_uint = 8;

/// `ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}
layout!(Sge, 16, length: 8, lkey: 12);

/// `ibv_data_buf`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DataBuf {
    pub(crate) addr: In<u8>,
    pub(crate) length: usize,
}
layout!(DataBuf, 16, length: 8);

/// `ibv_recv_wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RecvWr {
    pub(crate) wr_id: u64,
    pub(crate) next: In<Self>,
    pub(crate) sg_list: In<Sge>,
    pub(crate) num_sge: c_int,
}
layout!(RecvWr, 32, next: 8, sg_list: 16, num_sge: 24);

/// `ibv_send_wr`. The opcode says which members of its unions are valid.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SendWr {
    pub(crate) wr_id: u64,
    pub(crate) next: In<Self>,
    pub(crate) sg_list: In<Sge>,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: c_uint,
    pub(crate) send_flags: c_uint,
    /// Immediate data, big-endian; or the key to invalidate.
    pub(crate) imm_or_key: u32,
    pub(crate) wr: WrTarget,
    pub(crate) remote_srqn: u32,
    pub(crate) bind_mw: WrBindMw,
}
layout!(SendWr, 128, next: 8, sg_list: 16, num_sge: 24, opcode: 28, send_flags: 32, imm_or_key: 36,
    wr: 40, remote_srqn: 72, bind_mw: 80);

/// The union `wr` of `ibv_send_wr`, with the members at each offset in bytes.
///
/// | | 0 | 8 | 16 | 24 |
/// |---|---|---|---|---|
/// | RDMA | remote address | rkey | | |
/// | atomics | remote address | value to add or compare | value to swap | rkey |
/// | UD | address handle | number and key of the queue pair | | |
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WrTarget {
    pub(crate) remote_addr: u64,
    pub(crate) second: [u32; 2],
    pub(crate) swap: u64,
    pub(crate) atomic_rkey: u32,
}
layout!(WrTarget, 32, second: 8, swap: 16, atomic_rkey: 24);

impl WrTarget {
    /// Returns the key of READ and WRITE.
    pub(crate) fn rkey(&self) -> u32 {
        self.second[0]
    }

    /// Returns the value that an atomic operation adds or compares.
    pub(crate) fn compare_add(&self) -> u64 {
        let [low, high] = self.second.map(u32::to_ne_bytes);
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&low);
        bytes[4..].copy_from_slice(&high);
        u64::from_ne_bytes(bytes)
    }

    /// Returns the number and the Q_Key of a UD queue pair.
    pub(crate) fn remote_qp(&self) -> [u32; 2] {
        self.second
    }

    /// Returns the address handle of UD.
    pub(crate) fn ah(&self) -> Handle<IbvAh> {
        Handle::at(self.remote_addr)
    }
}

/// The member `bind_mw` of `ibv_send_wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WrBindMw {
    pub(crate) mw: Handle<IbvMw>,
    pub(crate) rkey: u32,
    pub(crate) info: MwBindInfo,
}
layout!(WrBindMw, 48, rkey: 8, info: 16);

/// `ibv_mw_bind_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MwBindInfo {
    pub(crate) mr: Handle<IbvMr>,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) access: c_uint,
}
layout!(MwBindInfo, 32, addr: 8, length: 16, access: 24);

/// `ibv_mw_bind`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MwBind {
    pub(crate) wr_id: u64,
    pub(crate) send_flags: c_uint,
    pub(crate) info: MwBindInfo,
}
layout!(MwBind, 48, send_flags: 8, info: 16);

/// `IBV_SEND_INLINE`. The lower flags are those of the library.
pub(crate) const SEND_INLINE: c_uint = 8;
