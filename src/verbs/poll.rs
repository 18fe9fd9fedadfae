//! Polling of completions field by field, as with `ibv_start_poll(3)`.

use std::time::SystemTime;

use crate::ids::Qpn;
use crate::runtime::{TimestampedCompletion, now, wall_clock};
use crate::time::Instant;
use crate::transport::work::{Completion, WcOpcode, WcStatus};
use crate::verbs::{CompletionQueue, Context};

/// Clock values of a device (`ibv_query_rt_values_ex(3)`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_values_ex")]
#[non_exhaustive]
pub struct RtValues {
    /// Present time of the clock for [`Polling::completion_ts`], in nanoseconds.
    pub raw_clock: Instant,
}

/// Iteration over the completions of a queue, with access to the fields of the current one.
///
/// Each step takes a completion out of the queue. Several threads may poll one queue at a time: each completion goes
/// to one of them.
///
/// ```
/// # use softroce::verbs::*;
/// # let ctx = Context::open(OpenOptions::loopback())?;
/// # let pd = ctx.alloc_pd();
/// # let cq = ctx.create_cq(16, None)?;
/// # let (a, b) = (pd.create_qp(&QpConfig::rc(&cq))?, pd.create_qp(&QpConfig::rc(&cq))?);
/// # a.connect(&b.endpoint(), &ConnectOptions::default())?;
/// # b.connect(&a.endpoint(), &ConnectOptions::default())?;
/// let posted = ctx.query_rt_values().raw_clock;
/// for wr_id in 0..3 {
///     a.post_send(SendRequest::write(wr_id, SendData::inline(b""), RemoteAddr::default()).signaled())?;
/// }
/// let mut ended = Vec::new();
/// while ended.len() < 3 {
///     let Some(mut polling) = cq.start_poll() else { continue };
///     loop {
///         assert!(polling.status().is_success() && polling.completion_ts() >= posted);
///         ended.push(polling.wr_id());
///         if !polling.next_poll() {
///             break;
///         }
///     }
/// }
/// assert_eq!(ended, [0, 1, 2]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
#[doc(alias = "ibv_cq_ex")]
#[doc(alias = "ibv_end_poll")]
pub struct Polling<'a> {
    cq: &'a CompletionQueue,
    current: TimestampedCompletion,
}

impl Polling<'_> {
    /// Advances to the next completion. Returns false when the queue is empty, and keeps the current completion.
    #[doc(alias = "ibv_next_poll")]
    pub fn next_poll(&mut self) -> bool {
        let next = self.cq.take();
        self.current = next.unwrap_or(self.current);
        next.is_some()
    }

    /// Number that the program gave the request.
    pub fn wr_id(&self) -> u64 {
        self.current.wr_id
    }

    /// Status of the request. With a status other than `Success`, only this field, the request and queue pair
    /// numbers, and the times are valid.
    pub fn status(&self) -> WcStatus {
        self.current.status
    }

    /// Operation of the request.
    #[doc(alias = "ibv_wc_read_opcode")]
    pub fn opcode(&self) -> WcOpcode {
        self.current.opcode
    }

    /// Vendor-specific error code, always 0.
    #[doc(alias = "ibv_wc_read_vendor_err")]
    pub fn vendor_err(&self) -> u32 {
        0
    }

    /// Number of bytes received, or read by a READ or an atomic operation.
    #[doc(alias = "ibv_wc_read_byte_len")]
    pub fn byte_len(&self) -> u32 {
        self.current.byte_len
    }

    /// Immediate data of the peer, in host byte order.
    #[doc(alias = "ibv_wc_read_imm_data")]
    pub fn imm_data(&self) -> Option<u32> {
        self.current.imm
    }

    /// Number of the local queue pair.
    #[doc(alias = "ibv_wc_read_qp_num")]
    pub fn qp_num(&self) -> Qpn {
        self.current.qpn
    }

    /// Number of the peer's queue pair, for UD.
    #[doc(alias = "ibv_wc_read_src_qp")]
    pub fn src_qp(&self) -> Option<Qpn> {
        self.current.source_qp
    }

    /// Time at which the completion entered the queue, by the clock of [`Context::query_rt_values`]. It is some
    /// microseconds later than the arrival of the packet, because the device polls its socket.
    ///
    /// [`Context::query_rt_values`]: super::Context::query_rt_values
    #[doc(alias = "ibv_wc_read_completion_ts")]
    pub fn completion_ts(&self) -> Instant {
        self.current.at
    }

    /// Time at which the completion entered the queue, by the wall clock. The value is wrong if the wall clock was
    /// set meanwhile.
    #[doc(alias = "ibv_wc_read_completion_wallclock_ns")]
    pub fn completion_wallclock(&self) -> SystemTime {
        wall_clock(self.current.at)
    }

    /// The completion as [`CompletionQueue::poll`] returns it.
    pub fn completion(&self) -> Completion {
        self.current.completion
    }
}

impl CompletionQueue {
    /// Takes the next completion and returns access to its fields, which are more than those that
    /// [`poll`](Self::poll) returns; `None` when the queue is empty.
    #[doc(alias = "ibv_start_poll")]
    pub fn start_poll(&self) -> Option<Polling<'_>> {
        Some(Polling { cq: self, current: self.take()? })
    }
}

impl Context {
    /// Reads the clock that stamps completions.
    ///
    /// # Examples
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// let ctx = Context::open(OpenOptions::loopback())?;
    /// let first = ctx.query_rt_values().raw_clock;
    /// assert!(first <= ctx.query_rt_values().raw_clock);
    /// # Ok::<(), Error>(())
    /// ```
    #[doc(alias = "ibv_query_rt_values_ex")]
    pub fn query_rt_values(&self) -> RtValues {
        RtValues { raw_clock: now() }
    }
}
