//! Work requests and completions: what goes into a queue pair and what comes out.
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

/// A piece of registered local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[doc(alias = "ibv_sge")]
pub struct Sge {
    /// The address within the region, in the region's own addressing (see
    /// [`Region`](crate::mem::Region)).
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// The key of the region.
    pub lkey: Lkey,
}

/// A scatter/gather list. Up to two pieces are held without allocating.
pub type SgeList = SmallVec<[Sge; 2]>;

/// Remote memory: a virtual address at the peer and the key that opens it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteAddr {
    /// The virtual address in the peer's region.
    pub addr: u64,
    /// The peer's key.
    pub rkey: Rkey,
}

/// What a send work request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_wr_opcode")]
#[non_exhaustive]
pub enum SendOp {
    /// Message into the peer's next receive request.
    #[doc(alias = "IBV_WR_SEND")]
    Send,
    /// The same with four bytes for the peer's completion.
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    SendImm {
        /// The immediate data, in host order; on the wire big-endian.
        imm: u32,
    },
    /// The same, and the peer's window with this key is invalid when the message has arrived. A READ
    /// through the window that was posted before it needs a fence between.
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    SendInv {
        /// The key of a window of type 2 that the peer has bound for this connection.
        rkey: Rkey,
    },
    /// Data into the peer's memory, without its notice.
    #[doc(alias = "IBV_WR_RDMA_WRITE")]
    Write {
        /// Where the data goes.
        to: RemoteAddr,
    },
    /// The same, and a completion at the peer, which takes a receive request.
    #[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
    WriteImm {
        /// Where the data goes.
        to: RemoteAddr,
        /// The immediate data, in host order; on the wire big-endian.
        imm: u32,
    },
    /// Data from the peer's memory.
    #[doc(alias = "IBV_WR_RDMA_READ")]
    Read {
        /// Where the data comes from.
        from: RemoteAddr,
    },
    /// Stores `swap` in the 8 bytes at `at` if they hold `expect`; the old value comes back.
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    CompareSwap {
        /// 8-byte aligned.
        at: RemoteAddr,
        /// The value looked for.
        expect: u64,
        /// The value stored.
        swap: u64,
    },
    /// Adds to the 8 bytes at `at`, modulo 2^64; the old value comes back.
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    FetchAdd {
        /// 8-byte aligned.
        at: RemoteAddr,
        /// The value added.
        add: u64,
    },
    /// Binds a memory window of this host, for the peer to use. Sends nothing; what is posted behind
    /// it finds the window bound. It completes after all that was posted before: when one of those
    /// fails it ends as flushed, whether it was carried out or not.
    #[doc(alias = "IBV_WR_BIND_MW")]
    BindMw {
        /// The window.
        window: MwId,
        /// Its new key. Only the low byte counts, and must be another than it has: the rest is the
        /// window's.
        rkey: Rkey,
        /// What it is to open.
        to: BindInfo,
    },
    /// Invalidates a window of type 2 of this host. Sends nothing, and waits for everything posted
    /// before it.
    #[doc(alias = "IBV_WR_LOCAL_INV")]
    LocalInv {
        /// The window's key.
        rkey: Rkey,
    },
    /// Completes when everything written before has got as far as `placement` says. Has no data.
    #[doc(alias = "IBV_WR_FLUSH")]
    Flush {
        /// Which memory.
        target: FlushTarget,
        /// How far.
        placement: FlushPlacement,
    },
    /// 8 bytes into the peer's memory in one step: who reads the word sees the old or the new one.
    #[doc(alias = "IBV_WR_ATOMIC_WRITE")]
    AtomicWrite {
        /// 8-byte aligned.
        to: RemoteAddr,
    },
}

/// The memory that a FLUSH is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushTarget {
    /// These bytes.
    #[doc(alias = "IBV_FLUSH_RANGE")]
    Range {
        /// The first of them.
        at: RemoteAddr,
        /// How many.
        length: u32,
    },
    /// Everything that the key opens.
    #[doc(alias = "IBV_FLUSH_MR")]
    Region {
        /// The key.
        rkey: Rkey,
    },
}

impl SendOp {
    /// Whether the peer answers with a response of its own, and not with an acknowledgement that
    /// stands for several requests: what `max_rd_atomic` counts and a fence waits for.
    pub const fn has_response(&self) -> bool {
        self.has_result() || self.is_placement()
    }

    /// Whether the response has data, for which the request names the place.
    pub const fn has_result(&self) -> bool {
        self.is_read() || self.is_atomic()
    }

    /// Whether it is a FLUSH or an ATOMIC WRITE. Their response is that of a READ of no bytes.
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

    /// Whether it is done here, and no packet is sent for it.
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::BindMw { .. } | Self::LocalInv { .. })
    }

    /// Returns the operation and the suffix of its opcodes; `None` if it takes no packet.
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

    /// The opcode of its completion.
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
    /// How a send work request is treated.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    #[doc(alias = "ibv_send_flags")]
    pub struct SendFlags: u8 {
        /// Starts only when all earlier requests that have a response are complete: READs, atomics,
        /// FLUSHes and ATOMIC WRITEs.
        const FENCE = 1;
        /// A success is announced too; without it only a failure is.
        const SIGNALED = 2;
        /// The peer's completion counts as solicited.
        const SOLICITED = 4;
    }
}

/// Inline bytes that a request holds without allocating.
pub(crate) const INLINE_BYTES: u32 = 64;

/// Where the bytes of a send work request are.
#[derive(PartialEq, Eq, Debug)]
pub enum SendData {
    /// In registered memory; a READ or atomic puts its result there.
    Sges(SgeList),
    /// In the request itself: the caller's copy may be reused at once.
    #[doc(alias = "IBV_SEND_INLINE")]
    Inline(SmallVec<[u8; INLINE_BYTES as usize]>),
}

impl Clone for SendData {
    fn clone(&self) -> Self {
        match self {
            Self::Sges(sges) => Self::Sges(sges.clone()),
            // What it derives for itself copies byte by byte.
            Self::Inline(bytes) => Self::inline(bytes),
        }
    }
}

impl SendData {
    /// Bytes in all.
    pub fn len(&self) -> u64 {
        match self {
            Self::Sges(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl SendData {
    /// Nothing: a message of 0 bytes, or a request that has no message.
    pub fn none() -> Self {
        Self::Sges(SgeList::new())
    }

    /// A copy of `bytes` in the request.
    pub fn inline(bytes: &[u8]) -> Self {
        Self::Inline(SmallVec::from_slice(bytes))
    }
}

impl Default for SendData {
    /// Nothing.
    fn default() -> Self {
        Self::none()
    }
}

impl From<Sge> for SendData {
    fn from(sge: Sge) -> Self {
        Self::Sges(SgeList::from_buf_and_len([sge, Sge::default()], 1))
    }
}

impl From<&[Sge]> for SendData {
    fn from(sges: &[Sge]) -> Self {
        Self::Sges(sges.into())
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

/// A request to the send queue.
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
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// With which bytes.
    pub data: SendData,
    /// And how.
    pub flags: SendFlags,
    /// UD and XRC: to whom. Of no meaning to RC and UC.
    pub to: Option<SendTarget>,
}

/// Whom a request is for, where the queue pair does not say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendTarget {
    /// UD: a queue pair anywhere.
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

/// Whom a UD message is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdTarget {
    /// The way to the host.
    pub av: AddressVector,
    /// The queue pair there.
    pub qpn: Qpn,
    /// The key it wants to see. With bit 31 set, the sending queue pair's own is sent instead.
    pub qkey: QKey,
}

impl SendRequest {
    /// A request without flags: a success is not announced.
    pub fn new(wr_id: u64, op: SendOp, data: impl Into<SendData>) -> Self {
        Self { wr_id, op, data: data.into(), flags: SendFlags::empty(), to: None }
    }

    /// UD: the message is for this queue pair. XRC: the request is for this shared receive queue.
    #[must_use]
    pub fn to(self, target: impl Into<SendTarget>) -> Self {
        Self { to: Some(target.into()), ..self }
    }

    /// A message into the peer's next receive request.
    pub fn send(wr_id: u64, data: impl Into<SendData>) -> Self {
        Self::new(wr_id, SendOp::Send, data)
    }

    /// A message with four bytes for the peer's completion.
    pub fn send_imm(wr_id: u64, data: impl Into<SendData>, imm: u32) -> Self {
        Self::new(wr_id, SendOp::SendImm { imm }, data)
    }

    /// A message into the peer's next receive request, with which the peer's window with this key
    /// ends.
    pub fn send_inv(wr_id: u64, data: impl Into<SendData>, rkey: Rkey) -> Self {
        Self::new(wr_id, SendOp::SendInv { rkey }, data)
    }

    /// Binds a window of this host under this key, of which the low byte counts.
    pub fn bind_mw(wr_id: u64, window: MwId, rkey: Rkey, to: BindInfo) -> Self {
        Self::new(wr_id, SendOp::BindMw { window, rkey, to }, SendData::none())
    }

    /// Invalidates a window of type 2 of this host.
    pub fn local_inv(wr_id: u64, rkey: Rkey) -> Self {
        Self::new(wr_id, SendOp::LocalInv { rkey }, SendData::none())
    }

    /// Data into the peer's memory.
    pub fn write(wr_id: u64, data: impl Into<SendData>, to: RemoteAddr) -> Self {
        Self::new(wr_id, SendOp::Write { to }, data)
    }

    /// Data into the peer's memory, and a completion there.
    pub fn write_imm(wr_id: u64, data: impl Into<SendData>, to: RemoteAddr, imm: u32) -> Self {
        Self::new(wr_id, SendOp::WriteImm { to, imm }, data)
    }

    /// Data from the peer's memory into `sges`.
    pub fn read(wr_id: u64, sges: impl Into<SendData>, from: RemoteAddr) -> Self {
        Self::new(wr_id, SendOp::Read { from }, sges)
    }

    /// Stores `swap` in the 8 bytes at `at` if they hold `expect`. The old value comes to `result`,
    /// in host order.
    pub fn compare_swap(wr_id: u64, result: Sge, at: RemoteAddr, expect: u64, swap: u64) -> Self {
        Self::new(wr_id, SendOp::CompareSwap { at, expect, swap }, result)
    }

    /// Adds `add` to the 8 bytes at `at`. The old value comes to `result`, in host order.
    pub fn fetch_add(wr_id: u64, result: Sge, at: RemoteAddr, add: u64) -> Self {
        Self::new(wr_id, SendOp::FetchAdd { at, add }, result)
    }

    /// Completes when everything written before to `length` bytes `at` the peer has got as far as
    /// `placement` says.
    #[doc(alias = "ibv_wr_flush")]
    pub fn flush(wr_id: u64, at: RemoteAddr, length: u32, placement: FlushPlacement) -> Self {
        let target = FlushTarget::Range { at, length };
        Self::new(wr_id, SendOp::Flush { target, placement }, SgeList::new())
    }

    /// The same for everything that `rkey` opens.
    pub fn flush_region(wr_id: u64, rkey: Rkey, placement: FlushPlacement) -> Self {
        let target = FlushTarget::Region { rkey };
        Self::new(wr_id, SendOp::Flush { target, placement }, SgeList::new())
    }

    /// Puts 8 bytes at `to` in one step. They are in the byte order of whoever reads them there.
    #[doc(alias = "ibv_wr_atomic_write")]
    pub fn atomic_write(wr_id: u64, data: impl Into<SendData>, to: RemoteAddr) -> Self {
        Self::new(wr_id, SendOp::AtomicWrite { to }, data)
    }

    /// The same, with its success announced.
    #[must_use]
    pub fn signaled(self) -> Self {
        self.with(SendFlags::SIGNALED)
    }

    /// The same, and the peer's completion counts as solicited.
    #[must_use]
    pub fn solicited(self) -> Self {
        self.with(SendFlags::SOLICITED)
    }

    /// The same, to be started when all earlier requests that have a response are complete.
    #[must_use]
    pub fn fenced(self) -> Self {
        self.with(SendFlags::FENCE)
    }

    fn with(mut self, flags: SendFlags) -> Self {
        self.flags |= flags;
        self
    }
}

/// A request to the receive queue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[doc(alias = "ibv_recv_wr")]
pub struct RecvRequest {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Where the message goes. Needs local write permission.
    pub sges: SgeList,
}

impl RecvRequest {
    /// A request for a message of up to `sge.length` bytes.
    pub fn new(wr_id: u64, sge: Sge) -> Self {
        Self::scattered(wr_id, &[sge])
    }

    /// A request for a message that is laid into several pieces, one after the other. Without any it
    /// takes a message of 0 bytes, or the notice of a WRITE with immediate.
    pub fn scattered(wr_id: u64, sges: &[Sge]) -> Self {
        Self { wr_id, sges: sges.into() }
    }
}

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[doc(alias = "ibv_wc_status")]
pub enum WcStatus {
    /// As asked.
    #[doc(alias = "IBV_WC_SUCCESS")]
    Success = 0,
    /// The message is longer than the receive request, or than 2^31.
    #[doc(alias = "IBV_WC_LOC_LEN_ERR")]
    LocLenErr = 1,
    /// The queue pair found itself inconsistent.
    #[doc(alias = "IBV_WC_LOC_QP_OP_ERR")]
    LocQpOpErr = 2,
    /// Reliable datagram only.
    #[doc(alias = "IBV_WC_LOC_EEC_OP_ERR")]
    LocEecOpErr = 3,
    /// A piece of local memory has no such key, range or permission.
    #[doc(alias = "IBV_WC_LOC_PROT_ERR")]
    LocProtErr = 4,
    /// The queue pair failed before this one's turn.
    #[doc(alias = "IBV_WC_WR_FLUSH_ERR")]
    WrFlushErr = 5,
    /// A memory window could not be bound, or not be invalidated.
    #[doc(alias = "IBV_WC_MW_BIND_ERR")]
    MwBindErr = 6,
    /// The peer answered what cannot be an answer.
    #[doc(alias = "IBV_WC_BAD_RESP_ERR")]
    BadRespErr = 7,
    /// The peer's WRITE with immediate was not allowed.
    #[doc(alias = "IBV_WC_LOC_ACCESS_ERR")]
    LocAccessErr = 8,
    /// The peer holds the request to be invalid.
    #[doc(alias = "IBV_WC_REM_INV_REQ_ERR")]
    RemInvReqErr = 9,
    /// The peer does not allow the access: key, range or permission.
    #[doc(alias = "IBV_WC_REM_ACCESS_ERR")]
    RemAccessErr = 10,
    /// The peer could not do it.
    #[doc(alias = "IBV_WC_REM_OP_ERR")]
    RemOpErr = 11,
    /// The peer did not answer in `retry_cnt + 1` attempts.
    #[doc(alias = "IBV_WC_RETRY_EXC_ERR")]
    RetryExcErr = 12,
    /// The peer had no receive request in `rnr_retry + 1` attempts.
    #[doc(alias = "IBV_WC_RNR_RETRY_EXC_ERR")]
    RnrRetryExcErr = 13,
    /// Reliable datagram only.
    #[doc(alias = "IBV_WC_LOC_RDD_VIOL_ERR")]
    LocRddViolErr = 14,
    /// Reliable datagram only.
    #[doc(alias = "IBV_WC_REM_INV_RD_REQ_ERR")]
    RemInvRdReqErr = 15,
    /// The peer gave the operation up.
    #[doc(alias = "IBV_WC_REM_ABORT_ERR")]
    RemAbortErr = 16,
    /// Reliable datagram only.
    #[doc(alias = "IBV_WC_INV_EECN_ERR")]
    InvEecnErr = 17,
    /// Reliable datagram only.
    #[doc(alias = "IBV_WC_INV_EEC_STATE_ERR")]
    InvEecStateErr = 18,
    /// The device failed.
    #[doc(alias = "IBV_WC_FATAL_ERR")]
    FatalErr = 19,
    /// No response in time.
    #[doc(alias = "IBV_WC_RESP_TIMEOUT_ERR")]
    RespTimeoutErr = 20,
    /// None of the others.
    #[doc(alias = "IBV_WC_GENERAL_ERR")]
    GeneralErr = 21,
}

impl WcStatus {
    /// The name as `ibv_wc_status` has it, without prefix: `RETRY_EXC_ERR`.
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
    /// Whether it is as asked.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which operation completed.
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

/// The end of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_wc")]
pub struct Completion {
    /// The request's.
    pub wr_id: u64,
    /// How it ended. Unless `Success`, only `wr_id`, `status` and `qpn` mean anything.
    pub status: WcStatus,
    /// What it was.
    pub opcode: WcOpcode,
    /// Bytes received; for READ and atomics, bytes read.
    pub byte_len: u32,
    /// The peer's immediate data, in host order.
    pub imm: Option<u32>,
    /// The key of this host that the peer's SEND has invalidated.
    #[doc(alias = "IBV_WC_WITH_INV")]
    pub invalidated: Option<Rkey>,
    /// The local queue pair.
    pub qpn: Qpn,
    /// UD: the peer's queue pair. The first 40 bytes of the buffer are the network header then.
    #[doc(alias = "src_qp")]
    pub source_qp: Option<Qpn>,
    /// UD: what the network header is.
    pub ip_version: Option<IpVersion>,
    /// The peer asked for notice, or it is an error: wakes a channel armed for solicited
    /// completions.
    pub solicited: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `LocLenErr` is `LOC_LEN_ERR`, as `ibv_wc_status` has it without its prefix.
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
