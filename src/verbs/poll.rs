//! Completions, one after the other, each asked for what is wanted of it.

use std::time::SystemTime;

use crate::ids::Qpn;
use crate::runtime::{Stamped, now, wall_clock};
use crate::time::Instant;
use crate::transport::work::{Completion, WcOpcode, WcStatus};
use crate::verbs::{CompletionQueue, Context};

/// What a device measures time by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_values_ex")]
#[non_exhaustive]
pub struct RtValues {
    /// The clock that [`Polling::completion_ts`] reads, in nanoseconds.
    pub raw_clock: Instant,
}

/// A look at the completions of a queue: at one, and then at the next.
///
/// A completion is taken out when the look at it begins. Others may poll the same queue meanwhile:
/// each completion is seen by one.
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
    current: Stamped,
}

impl Polling<'_> {
    /// Goes to the next completion. False when there is none, and it stays where it is.
    #[doc(alias = "ibv_next_poll")]
    pub fn next_poll(&mut self) -> bool {
        let next = self.cq.take();
        self.current = next.unwrap_or(self.current);
        next.is_some()
    }

    /// The request's number.
    pub fn wr_id(&self) -> u64 {
        self.current.wr_id
    }

    /// How it ended. Unless that is `Success`, only this, the numbers and the times mean anything.
    pub fn status(&self) -> WcStatus {
        self.current.status
    }

    /// What it was.
    #[doc(alias = "ibv_wc_read_opcode")]
    pub fn opcode(&self) -> WcOpcode {
        self.current.opcode
    }

    /// What else the vendor knows of an error: nothing, it is 0.
    #[doc(alias = "ibv_wc_read_vendor_err")]
    pub fn vendor_err(&self) -> u32 {
        0
    }

    /// Bytes received; for READ and atomics, bytes read.
    #[doc(alias = "ibv_wc_read_byte_len")]
    pub fn byte_len(&self) -> u32 {
        self.current.byte_len
    }

    /// The peer's immediate data, in host order.
    #[doc(alias = "ibv_wc_read_imm_data")]
    pub fn imm_data(&self) -> Option<u32> {
        self.current.imm
    }

    /// The local queue pair.
    #[doc(alias = "ibv_wc_read_qp_num")]
    pub fn qp_num(&self) -> Qpn {
        self.current.qpn
    }

    /// UD: the peer's queue pair.
    #[doc(alias = "ibv_wc_read_src_qp")]
    pub fn src_qp(&self) -> Option<Qpn> {
        self.current.source_qp
    }

    /// When it was put in, by the clock of [`Context::query_rt_values`]: a few microseconds after
    /// what it tells of, because a device looks at its socket in turns.
    ///
    /// [`Context::query_rt_values`]: super::Context::query_rt_values
    #[doc(alias = "ibv_wc_read_completion_ts")]
    pub fn completion_ts(&self) -> Instant {
        self.current.at
    }

    /// The same by the wall clock, if nobody has set that since.
    #[doc(alias = "ibv_wc_read_completion_wallclock_ns")]
    pub fn completion_wallclock(&self) -> SystemTime {
        wall_clock(self.current.at)
    }

    /// All that [`CompletionQueue::poll`] would have handed out.
    pub fn completion(&self) -> Completion {
        self.current.completion
    }
}

impl CompletionQueue {
    /// Takes the next completion for [`Polling`], which reads more of it than [`poll`](Self::poll)
    /// returns; `None` when there is none.
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
