//! Work requests and completions: the input and output of a queue pair.
//!
//! The names and the numbers are those of `verbs.h`.

use std::fmt;

use bitflags::bitflags;
use smallvec::SmallVec;

use crate::ids::{Lkey, MwId, QKey, Qpn, Rkey, Srqn};
use crate::mem::BindInfo;
use crate::net::{AddressVector, IpVersion};
pub use crate::wire::feth::Placement as FlushPlacement;
use crate::wire::{Operation, Suffix};

/// A scatter/gather element: a range of registered local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[doc(alias = "ibv_sge")]
pub struct Sge {
    /// The address within the region, in the region's own addressing (see
    /// [`Region`](crate::mem::Region)).
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Local key of the region.
    pub lkey: Lkey,
}

impl Sge {
    /// Returns key, address and length, in the order of [`Memory::local`](crate::mem::Memory::local).
    pub(crate) fn piece(&self) -> (Lkey, u64, u32) {
        (self.lkey, self.addr, self.length)
    }

    /// Returns the sum of the lengths of a list, in bytes.
    fn total_length(sges: &[Self]) -> u64 {
        sges.iter().map(|sge| u64::from(sge.length)).sum()
    }
}

/// A scatter/gather list. Up to two elements are stored without an allocation.
pub type SgeList = SmallVec<[Sge; 2]>;

/// Remote memory: a virtual address at the peer, and the remote key of its region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteAddr {
    /// The virtual address in the peer's region.
    pub addr: u64,
    /// The peer's remote key.
    pub rkey: Rkey,
}

/// Operation of a send work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_wr_opcode")]
#[non_exhaustive]
pub enum SendOp {
    /// Sends a message into the peer's next receive request.
    #[doc(alias = "IBV_WR_SEND")]
    Send,
    /// `Send` with four bytes of immediate data for the peer's completion.
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    SendImm {
        /// The immediate data, in host order; on the wire big-endian.
        imm: u32,
    },
    /// `Send` that also invalidates the peer's memory window with this key when the message has
    /// arrived. A READ through the window that was posted earlier requires a fence in between.
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    SendInv {
        /// The key of a window of type 2 that the peer has bound for this connection.
        rkey: Rkey,
    },
    /// Writes data to the peer's memory, without a completion at the peer.
    #[doc(alias = "IBV_WR_RDMA_WRITE")]
    Write {
        /// Destination of the data.
        to: RemoteAddr,
    },
    /// `Write` that also consumes a receive request and creates a completion at the peer.
    #[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
    WriteImm {
        /// Destination of the data.
        to: RemoteAddr,
        /// The immediate data, in host order; on the wire big-endian.
        imm: u32,
    },
    /// Reads data from the peer's memory.
    #[doc(alias = "IBV_WR_RDMA_READ")]
    Read {
        /// Source of the data.
        from: RemoteAddr,
    },
    /// Stores `swap` in the 8 bytes at `at` if they equal `expect`; returns the old value.
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    CompareSwap {
        /// 8-byte aligned.
        at: RemoteAddr,
        /// The value to compare with.
        expect: u64,
        /// The value to store.
        swap: u64,
    },
    /// Adds to the 8 bytes at `at`, modulo 2^64; returns the old value.
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    FetchAdd {
        /// 8-byte aligned.
        at: RemoteAddr,
        /// The value to add.
        add: u64,
    },
    /// Binds a memory window of this host for the peer. Sends no packet; requests posted after it
    /// find the window bound. It completes after all requests posted before it. If one of those
    /// fails, it is flushed, whether or not the window was bound.
    #[doc(alias = "IBV_WR_BIND_MW")]
    BindMw {
        /// The window.
        window: MwId,
        /// Its new key. Only the low byte is used, and it must differ from the current one; the
        /// window determines the upper bits.
        rkey: Rkey,
        /// The memory range and access to bind.
        to: BindInfo,
    },
    /// Invalidates a type 2 memory window of this host. Sends no packet, and waits for all requests
    /// posted before it.
    #[doc(alias = "IBV_WR_LOCAL_INV")]
    LocalInv {
        /// The window's key.
        rkey: Rkey,
    },
    /// Completes when all earlier WRITEs have reached the given `placement`. Has no data.
    #[doc(alias = "IBV_WR_FLUSH")]
    Flush {
        /// The memory to flush.
        target: FlushTarget,
        /// Placement: global visibility, persistence or both.
        placement: FlushPlacement,
    },
    /// Writes 8 bytes to the peer's memory atomically: a reader sees either the old or the new
    /// word.
    #[doc(alias = "IBV_WR_ATOMIC_WRITE")]
    AtomicWrite {
        /// 8-byte aligned.
        to: RemoteAddr,
    },
}

/// The memory range of a FLUSH.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushTarget {
    /// A byte range.
    #[doc(alias = "IBV_FLUSH_RANGE")]
    Range {
        /// Start of the range.
        at: RemoteAddr,
        /// Length in bytes.
        length: u32,
    },
    /// The whole memory of the key.
    #[doc(alias = "IBV_FLUSH_MR")]
    Region {
        /// The key.
        rkey: Rkey,
    },
}

impl SendOp {
    /// Whether the peer sends a response for each request instead of a coalesced acknowledgement.
    /// These requests count against `max_rd_atomic`, and a fence waits for them.
    pub const fn has_response(&self) -> bool {
        self.has_result() || self.is_placement()
    }

    /// Whether the response has data, which is stored in the request's memory.
    pub const fn has_result(&self) -> bool {
        self.is_read() || self.is_atomic()
    }

    /// Whether it is a FLUSH or an ATOMIC WRITE. Their response equals that of a READ of 0 bytes.
    pub const fn is_placement(&self) -> bool {
        matches!(self, Self::Flush { .. } | Self::AtomicWrite { .. })
    }

    /// Whether it is a READ.
    pub const fn is_read(&self) -> bool {
        matches!(self, Self::Read { .. })
    }

    /// Whether it is an atomic.
    pub const fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Whether the operation is executed locally, without a packet.
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::BindMw { .. } | Self::LocalInv { .. })
    }

    /// Returns the operation and the suffix of its opcodes; `None` if it sends no packet.
    pub(crate) const fn parts(&self) -> Option<(Operation, Suffix)> {
        Some(match self {
            Self::Send => (Operation::Send, Suffix::None),
            Self::SendImm { .. } => (Operation::Send, Suffix::Imm),
            Self::SendInv { .. } => (Operation::Send, Suffix::Inv),
            Self::Write { .. } => (Operation::Write, Suffix::None),
            Self::WriteImm { .. } => (Operation::Write, Suffix::Imm),
            Self::Read { .. } => (Operation::ReadRequest, Suffix::None),
            Self::CompareSwap { .. } => (Operation::CompareSwap, Suffix::None),
            Self::FetchAdd { .. } => (Operation::FetchAdd, Suffix::None),
            Self::Flush { .. } => (Operation::Flush, Suffix::None),
            Self::AtomicWrite { .. } => (Operation::AtomicWrite, Suffix::None),
            Self::BindMw { .. } | Self::LocalInv { .. } => return None,
        })
    }

    /// Returns the opcode of its completion.
    pub const fn wc_opcode(&self) -> WcOpcode {
        match self {
            Self::Send | Self::SendImm { .. } | Self::SendInv { .. } => WcOpcode::Send,
            Self::Write { .. } | Self::WriteImm { .. } => WcOpcode::RdmaWrite,
            Self::Read { .. } => WcOpcode::RdmaRead,
            Self::CompareSwap { .. } => WcOpcode::CompSwap,
            Self::FetchAdd { .. } => WcOpcode::FetchAdd,
            Self::BindMw { .. } => WcOpcode::BindMw,
            Self::LocalInv { .. } => WcOpcode::LocalInv,
            Self::Flush { .. } => WcOpcode::Flush,
            Self::AtomicWrite { .. } => WcOpcode::AtomicWrite,
        }
    }
}

bitflags! {
    /// Flags of a send work request.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    #[doc(alias = "ibv_send_flags")]
    pub struct SendFlags: u8 {
        /// Starts only when all earlier requests with a response are complete: READs, atomics,
        /// FLUSHes and ATOMIC WRITEs.
        const FENCE = 1;
        /// Creates a completion on success too; without it, only an error creates one.
        const SIGNALED = 2;
        /// The peer's completion is a solicited event.
        const SOLICITED = 4;
    }
}

/// Inline bytes that a request stores without an allocation.
pub(crate) const INLINE_BYTES: u32 = 64;

/// Location of the data of a send work request.
#[derive(PartialEq, Eq, Debug)]
pub enum SendData {
    /// In registered memory. A READ or atomic stores its result there.
    Sges(SgeList),
    /// In the request itself. The caller may reuse its buffer immediately.
    #[doc(alias = "IBV_SEND_INLINE")]
    Inline(SmallVec<[u8; INLINE_BYTES as usize]>),
}

impl Clone for SendData {
    fn clone(&self) -> Self {
        match self {
            Self::Sges(sges) => Self::Sges(SgeList::from_slice(sges)),
            // The derived implementation copies element by element.
            Self::Inline(bytes) => Self::inline(bytes),
        }
    }
}

impl SendData {
    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Sges(sges) => Sge::total_length(sges),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl SendData {
    /// Returns no data: a message of 0 bytes, or a request without a message.
    pub fn none() -> Self {
        Self::Sges(SgeList::new())
    }

    /// Copies `bytes` into the request.
    pub fn inline(bytes: &[u8]) -> Self {
        Self::Inline(SmallVec::from_slice(bytes))
    }
}

impl Default for SendData {
    /// Returns no data.
    fn default() -> Self {
        Self::none()
    }
}

impl From<Sge> for SendData {
    #[inline]
    fn from(sge: Sge) -> Self {
        Self::Sges(SgeList::from_buf_and_len([sge, Sge::default()], 1))
    }
}

impl From<&[Sge]> for SendData {
    fn from(sges: &[Sge]) -> Self {
        Self::Sges(SgeList::from_slice(sges))
    }
}

impl<const N: usize> From<[Sge; N]> for SendData {
    fn from(sges: [Sge; N]) -> Self {
        sges.as_slice().into()
    }
}

impl From<SgeList> for SendData {
    fn from(sges: SgeList) -> Self {
        Self::Sges(sges)
    }
}

/// A send work request.
///
/// # Examples
///
/// ```
/// use softroce::transport::work::{SendData, SendFlags, SendRequest, Sge};
///
/// let sge = Sge { addr: 0x1000, length: 64, ..Sge::default() };
/// let request = SendRequest::send(7, sge).signaled().solicited();
/// assert_eq!(request.flags, SendFlags::SIGNALED | SendFlags::SOLICITED);
/// assert_eq!(SendRequest::send_imm(8, SendData::inline(b"hi"), 0x1234).data.len(), 2);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_send_wr")]
pub struct SendRequest {
    /// Identifier, returned in the completion.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// The data.
    pub data: SendData,
    /// The flags.
    pub flags: SendFlags,
    /// UD and XRC: the destination. Ignored for RC and UC.
    pub to: Option<SendTarget>,
}

/// Destination of a request, if the queue pair does not determine it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendTarget {
    /// UD: a queue pair of any host.
    Datagram(UdTarget),
    /// XRC: a shared receive queue at the peer.
    #[doc(alias = "remote_srqn")]
    Srq(Srqn),
}

impl From<UdTarget> for SendTarget {
    fn from(target: UdTarget) -> Self {
        Self::Datagram(target)
    }
}

impl From<Srqn> for SendTarget {
    fn from(srqn: Srqn) -> Self {
        Self::Srq(srqn)
    }
}

/// Destination of a UD message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdTarget {
    /// The path to the host.
    pub av: AddressVector,
    /// The queue pair at the host.
    pub qpn: Qpn,
    /// The queue key of the destination. With bit 31 set, the sending queue pair's own key is sent
    /// instead.
    pub qkey: QKey,
}

impl SendRequest {
    /// Returns a request without flags: a success creates no completion.
    pub fn new(wr_id: u64, op: SendOp, data: impl Into<SendData>) -> Self {
        Self { wr_id, op, data: data.into(), flags: SendFlags::empty(), to: None }
    }

    /// Sets the destination: UD, a queue pair; XRC, a shared receive queue.
    #[must_use]
    pub fn to(self, target: impl Into<SendTarget>) -> Self {
        Self { to: Some(target.into()), ..self }
    }

    /// Returns a SEND into the peer's next receive request.
    pub fn send(wr_id: u64, data: impl Into<SendData>) -> Self {
        Self::new(wr_id, SendOp::Send, data)
    }

    /// Returns a SEND with four bytes of immediate data for the peer's completion.
    pub fn send_imm(wr_id: u64, data: impl Into<SendData>, imm: u32) -> Self {
        Self::new(wr_id, SendOp::SendImm { imm }, data)
    }

    /// Returns a SEND into the peer's next receive request that also invalidates the peer's memory
    /// window with this key.
    pub fn send_inv(wr_id: u64, data: impl Into<SendData>, rkey: Rkey) -> Self {
        Self::new(wr_id, SendOp::SendInv { rkey }, data)
    }

    /// Returns a request that binds a memory window of this host under this key, of which only the
    /// low byte is used.
    pub fn bind_mw(wr_id: u64, window: MwId, rkey: Rkey, to: BindInfo) -> Self {
        Self::new(wr_id, SendOp::BindMw { window, rkey, to }, SendData::none())
    }

    /// Returns a request that invalidates a type 2 memory window of this host.
    pub fn local_inv(wr_id: u64, rkey: Rkey) -> Self {
        Self::new(wr_id, SendOp::LocalInv { rkey }, SendData::none())
    }

    /// Returns a WRITE to the peer's memory.
    pub fn write(wr_id: u64, data: impl Into<SendData>, to: RemoteAddr) -> Self {
        Self::new(wr_id, SendOp::Write { to }, data)
    }

    /// Returns a WRITE to the peer's memory that also creates a completion at the peer.
    pub fn write_imm(wr_id: u64, data: impl Into<SendData>, to: RemoteAddr, imm: u32) -> Self {
        Self::new(wr_id, SendOp::WriteImm { to, imm }, data)
    }

    /// Returns a READ from the peer's memory into `sges`.
    pub fn read(wr_id: u64, sges: impl Into<SendData>, from: RemoteAddr) -> Self {
        Self::new(wr_id, SendOp::Read { from }, sges)
    }

    /// Returns an atomic that stores `swap` in the 8 bytes at `at` if they equal `expect`. The old
    /// value is stored in `result`, in host order.
    pub fn compare_swap(wr_id: u64, result: Sge, at: RemoteAddr, expect: u64, swap: u64) -> Self {
        Self::new(wr_id, SendOp::CompareSwap { at, expect, swap }, result)
    }

    /// Returns an atomic that adds `add` to the 8 bytes at `at`. The old value is stored in
    /// `result`, in host order.
    pub fn fetch_add(wr_id: u64, result: Sge, at: RemoteAddr, add: u64) -> Self {
        Self::new(wr_id, SendOp::FetchAdd { at, add }, result)
    }

    /// Returns a FLUSH that completes when all earlier WRITEs to the `length` bytes at `at` have
    /// reached the given `placement`.
    #[doc(alias = "ibv_wr_flush")]
    pub fn flush(wr_id: u64, at: RemoteAddr, length: u32, placement: FlushPlacement) -> Self {
        let target = FlushTarget::Range { at, length };
        Self::new(wr_id, SendOp::Flush { target, placement }, SgeList::new())
    }

    /// Returns a FLUSH of the whole memory of `rkey`.
    pub fn flush_region(wr_id: u64, rkey: Rkey, placement: FlushPlacement) -> Self {
        let target = FlushTarget::Region { rkey };
        Self::new(wr_id, SendOp::Flush { target, placement }, SgeList::new())
    }

    /// Returns an ATOMIC WRITE of 8 bytes to `to`. The data must be in the byte order of the
    /// reader.
    #[doc(alias = "ibv_wr_atomic_write")]
    pub fn atomic_write(wr_id: u64, data: impl Into<SendData>, to: RemoteAddr) -> Self {
        Self::new(wr_id, SendOp::AtomicWrite { to }, data)
    }

    /// Returns the request with a completion on success.
    #[must_use]
    pub fn signaled(self) -> Self {
        self.with(SendFlags::SIGNALED)
    }

    /// Returns the request with a solicited event at the peer.
    #[must_use]
    pub fn solicited(self) -> Self {
        self.with(SendFlags::SOLICITED)
    }

    /// Returns the request with a fence: it starts when all earlier requests with a response are
    /// complete.
    #[must_use]
    pub fn fenced(self) -> Self {
        self.with(SendFlags::FENCE)
    }

    fn with(mut self, flags: SendFlags) -> Self {
        self.flags |= flags;
        self
    }
}

/// A receive work request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[doc(alias = "ibv_recv_wr")]
pub struct RecvRequest {
    /// Identifier, returned in the completion.
    pub wr_id: u64,
    /// Buffers for the message. What the message fills must be registered memory with local write permission. The rest
    /// need not be, as with adapters and rxe.
    pub sges: SgeList,
}

impl RecvRequest {
    /// Returns a request for a message of up to `sge.length` bytes.
    #[inline]
    pub fn new(wr_id: u64, sge: Sge) -> Self {
        Self { wr_id, sges: SgeList::from_buf_and_len([sge, Sge::default()], 1) }
    }

    /// Returns a request for a message that is scattered over several buffers in order. With none,
    /// it takes a message of 0 bytes or a WRITE with immediate.
    pub fn scattered(wr_id: u64, sges: &[Sge]) -> Self {
        Self { wr_id, sges: SgeList::from_slice(sges) }
    }

    /// Returns the bytes of the longest message that fits.
    pub(crate) fn length(&self) -> u64 {
        Sge::total_length(&self.sges)
    }

    /// Returns the key, address and length of each buffer.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (Lkey, u64, u32)> {
        self.sges.iter().map(Sge::piece)
    }
}

/// Completion status of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[doc(alias = "ibv_wc_status")]
pub enum WcStatus {
    /// The operation succeeded.
    #[doc(alias = "IBV_WC_SUCCESS")]
    Success = 0,
    /// The message is longer than the receive request or than 2^31 bytes.
    #[doc(alias = "IBV_WC_LOC_LEN_ERR")]
    LocLenErr = 1,
    /// The queue pair detected an internal inconsistency.
    #[doc(alias = "IBV_WC_LOC_QP_OP_ERR")]
    LocQpOpErr = 2,
    /// Used by reliable datagrams only.
    #[doc(alias = "IBV_WC_LOC_EEC_OP_ERR")]
    LocEecOpErr = 3,
    /// A local buffer has an invalid key, range or permission.
    #[doc(alias = "IBV_WC_LOC_PROT_ERR")]
    LocProtErr = 4,
    /// The queue pair failed before this request completed.
    #[doc(alias = "IBV_WC_WR_FLUSH_ERR")]
    WrFlushErr = 5,
    /// A memory window could not be bound or invalidated.
    #[doc(alias = "IBV_WC_MW_BIND_ERR")]
    MwBindErr = 6,
    /// The peer sent an invalid response.
    #[doc(alias = "IBV_WC_BAD_RESP_ERR")]
    BadRespErr = 7,
    /// The peer's WRITE with immediate was not permitted.
    #[doc(alias = "IBV_WC_LOC_ACCESS_ERR")]
    LocAccessErr = 8,
    /// The peer rejected the request as invalid.
    #[doc(alias = "IBV_WC_REM_INV_REQ_ERR")]
    RemInvReqErr = 9,
    /// The peer denied the access: key, range or permission.
    #[doc(alias = "IBV_WC_REM_ACCESS_ERR")]
    RemAccessErr = 10,
    /// The peer could not execute the operation.
    #[doc(alias = "IBV_WC_REM_OP_ERR")]
    RemOpErr = 11,
    /// The peer did not respond to `retry_cnt + 1` attempts.
    #[doc(alias = "IBV_WC_RETRY_EXC_ERR")]
    RetryExcErr = 12,
    /// The peer had no receive request for `rnr_retry + 1` attempts.
    #[doc(alias = "IBV_WC_RNR_RETRY_EXC_ERR")]
    RnrRetryExcErr = 13,
    /// Used by reliable datagrams only.
    #[doc(alias = "IBV_WC_LOC_RDD_VIOL_ERR")]
    LocRddViolErr = 14,
    /// Used by reliable datagrams only.
    #[doc(alias = "IBV_WC_REM_INV_RD_REQ_ERR")]
    RemInvRdReqErr = 15,
    /// The peer aborted the operation.
    #[doc(alias = "IBV_WC_REM_ABORT_ERR")]
    RemAbortErr = 16,
    /// Used by reliable datagrams only.
    #[doc(alias = "IBV_WC_INV_EECN_ERR")]
    InvEecnErr = 17,
    /// Used by reliable datagrams only.
    #[doc(alias = "IBV_WC_INV_EEC_STATE_ERR")]
    InvEecStateErr = 18,
    /// The device failed.
    #[doc(alias = "IBV_WC_FATAL_ERR")]
    FatalErr = 19,
    /// The response did not arrive in time.
    #[doc(alias = "IBV_WC_RESP_TIMEOUT_ERR")]
    RespTimeoutErr = 20,
    /// Any other error.
    #[doc(alias = "IBV_WC_GENERAL_ERR")]
    GeneralErr = 21,
}

impl WcStatus {
    /// Returns the name in `ibv_wc_status` without its prefix: `RETRY_EXC_ERR`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "SUCCESS",
            Self::LocLenErr => "LOC_LEN_ERR",
            Self::LocQpOpErr => "LOC_QP_OP_ERR",
            Self::LocEecOpErr => "LOC_EEC_OP_ERR",
            Self::LocProtErr => "LOC_PROT_ERR",
            Self::WrFlushErr => "WR_FLUSH_ERR",
            Self::MwBindErr => "MW_BIND_ERR",
            Self::BadRespErr => "BAD_RESP_ERR",
            Self::LocAccessErr => "LOC_ACCESS_ERR",
            Self::RemInvReqErr => "REM_INV_REQ_ERR",
            Self::RemAccessErr => "REM_ACCESS_ERR",
            Self::RemOpErr => "REM_OP_ERR",
            Self::RetryExcErr => "RETRY_EXC_ERR",
            Self::RnrRetryExcErr => "RNR_RETRY_EXC_ERR",
            Self::LocRddViolErr => "LOC_RDD_VIOL_ERR",
            Self::RemInvRdReqErr => "REM_INV_RD_REQ_ERR",
            Self::RemAbortErr => "REM_ABORT_ERR",
            Self::InvEecnErr => "INV_EECN_ERR",
            Self::InvEecStateErr => "INV_EEC_STATE_ERR",
            Self::FatalErr => "FATAL_ERR",
            Self::RespTimeoutErr => "RESP_TIMEOUT_ERR",
            Self::GeneralErr => "GENERAL_ERR",
        }
    }
}

impl WcStatus {
    /// Whether the operation succeeded.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Operation of a completed work request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[doc(alias = "ibv_wc_opcode")]
pub enum WcOpcode {
    /// A SEND of any kind.
    #[doc(alias = "IBV_WC_SEND")]
    Send = 0,
    /// A WRITE, with immediate or not.
    #[doc(alias = "IBV_WC_RDMA_WRITE")]
    RdmaWrite = 1,
    /// A READ.
    #[doc(alias = "IBV_WC_RDMA_READ")]
    RdmaRead = 2,
    /// A compare-and-swap.
    #[doc(alias = "IBV_WC_COMP_SWAP")]
    CompSwap = 3,
    /// A fetch-and-add.
    #[doc(alias = "IBV_WC_FETCH_ADD")]
    FetchAdd = 4,
    /// A memory window was bound.
    #[doc(alias = "IBV_WC_BIND_MW")]
    BindMw = 5,
    /// A memory window was invalidated.
    #[doc(alias = "IBV_WC_LOCAL_INV")]
    LocalInv = 6,
    /// A FLUSH.
    #[doc(alias = "IBV_WC_FLUSH")]
    Flush = 8,
    /// An ATOMIC WRITE.
    #[doc(alias = "IBV_WC_ATOMIC_WRITE")]
    AtomicWrite = 9,
    /// The peer's SEND arrived.
    #[doc(alias = "IBV_WC_RECV")]
    Recv = 128,
    /// The peer's WRITE with immediate arrived.
    #[doc(alias = "IBV_WC_RECV_RDMA_WITH_IMM")]
    RecvRdmaWithImm = 129,
}

/// A work completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_wc")]
pub struct Completion {
    /// Identifier of the work request.
    pub wr_id: u64,
    /// The status. Unless it is `Success`, only `wr_id`, `status` and `qpn` are valid.
    pub status: WcStatus,
    /// The operation.
    pub opcode: WcOpcode,
    /// Number of bytes received; for READ and atomics, number of bytes read.
    pub byte_len: u32,
    /// The peer's immediate data, in host order.
    pub imm: Option<u32>,
    /// The key of this host that the peer's SEND invalidated.
    #[doc(alias = "IBV_WC_WITH_INV")]
    pub invalidated: Option<Rkey>,
    /// The local queue pair.
    pub qpn: Qpn,
    /// UD: the peer's queue pair. The first 40 bytes of the buffer then hold the network header.
    #[doc(alias = "src_qp")]
    pub source_qp: Option<Qpn>,
    /// UD: the IP version of the network header.
    pub ip_version: Option<IpVersion>,
    /// The completion is solicited or an error. It triggers a channel that is armed for solicited
    /// completions.
    pub solicited: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `LocLenErr` is `LOC_LEN_ERR`, the name in `ibv_wc_status` without its prefix.
    #[test]
    fn a_status_has_the_name_that_verbs_has_for_it() {
        use WcStatus::*;
        let all = [
            Success,
            LocLenErr,
            LocQpOpErr,
            LocEecOpErr,
            LocProtErr,
            WrFlushErr,
            MwBindErr,
            BadRespErr,
            LocAccessErr,
            RemInvReqErr,
            RemAccessErr,
            RemOpErr,
            RetryExcErr,
            RnrRetryExcErr,
            LocRddViolErr,
            RemInvRdReqErr,
            RemAbortErr,
            InvEecnErr,
            InvEecStateErr,
            FatalErr,
            RespTimeoutErr,
            GeneralErr,
        ];
        for (number, status) in (0..).zip(all) {
            let mut expected = String::new();
            for c in format!("{status:?}").chars() {
                let begins_a_word = c.is_ascii_uppercase() && !expected.is_empty();
                expected.extend(begins_a_word.then_some('_'));
                expected.push(c.to_ascii_uppercase());
            }
            assert_eq!((status as u32, status.to_string()), (number, expected));
            assert_eq!(status.is_success(), number == 0);
        }
    }
}
