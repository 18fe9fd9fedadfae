//! Shared receive queues, with the interface of verbs.

use thiserror::Error;

use crate::engine::attr::QpType;
use crate::engine::post::PostError;
use crate::engine::{CreateError, Engine, QpInit};
use crate::ids::{CqId, PdId, Srqn};
use crate::transport::outputs::AsyncEvent;
use crate::transport::srq::{Srq, SrqTable, XrcSrq};
use crate::transport::work::RecvRequest;

/// Attributes for the creation of a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_srq_init_attr")]
pub struct SrqInit {
    /// The protection domain of its requests' memory, which may differ from that of the queue
    /// pairs.
    pub pd: PdId,
    /// Maximum number of unfinished requests.
    pub max_wr: u32,
    /// Maximum number of scatter/gather elements of a request.
    pub max_sge: u32,
    /// XRC: the domain of the queue pairs that use it, and the completion queue of its requests.
    /// `None` for RC, UC and UD.
    #[doc(alias = "ibv_srq_init_attr_ex")]
    pub xrc: Option<XrcSrq>,
}

/// Attributes of a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_srq_attr")]
pub struct SrqAttr {
    /// Maximum number of unfinished requests.
    pub max_wr: u32,
    /// Maximum number of scatter/gather elements of a request.
    pub max_sge: u32,
    /// Limit: an event is raised once when fewer requests than this are left. 0 disables it.
    #[doc(alias = "srq_limit")]
    pub limit: u32,
}

/// Modification of a shared receive queue; `None` leaves an attribute unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[doc(alias = "ibv_srq_attr_mask")]
pub struct SrqModify {
    /// New maximum number of unfinished requests.
    #[doc(alias = "IBV_SRQ_MAX_WR")]
    pub max_wr: Option<u32>,
    /// New limit for the event. 0 disables it.
    #[doc(alias = "IBV_SRQ_LIMIT")]
    pub limit: Option<u32>,
}

/// Error for a shared receive queue that was not created, modified or destroyed. Nothing has
/// changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SrqError {
    /// There is no such queue.
    #[doc(alias = "EINVAL")]
    #[error("shared receive queue {0} does not exist")]
    NoSuchSrq(Srqn),
    /// The device is full.
    #[doc(alias = "ENOMEM")]
    #[error("the device has {max} shared receive queues and takes no more")]
    TooMany {
        /// Maximum number of queues.
        max: usize,
    },
    /// The queue must hold at least one request.
    #[doc(alias = "EINVAL")]
    #[error("max_wr is 0: a shared receive queue holds 1 request at least")]
    Empty,
    /// The queue contains more requests than the new maximum.
    #[doc(alias = "EINVAL")]
    #[error("max_wr is {found}, and {used} requests are unfinished")]
    TooSmall {
        /// The requested maximum.
        found: u32,
        /// Number of requests in it, including those of messages being received.
        used: usize,
    },
    /// The limit is larger than the queue.
    #[doc(alias = "EINVAL")]
    #[error("the limit is {found}, of a queue that holds {max_wr}")]
    Limit {
        /// The requested limit.
        found: u32,
        /// Maximum number of requests.
        max_wr: u32,
    },
    /// Some queue pairs use it.
    #[doc(alias = "EBUSY")]
    #[error("{users} queue pairs use shared receive queue {srqn}")]
    InUse {
        /// The queue.
        srqn: Srqn,
        /// Number of queue pairs.
        users: usize,
    },
}

impl Engine {
    /// Maximum number of shared receive queues.
    pub const MAX_SRQ: usize = SrqTable::MAX;

    /// Creates a shared receive queue.
    ///
    /// # Errors
    ///
    /// [`SrqError::Empty`], [`SrqError::TooMany`].
    pub fn create_srq(&mut self, init: SrqInit) -> Result<Srqn, SrqError> {
        if init.max_wr == 0 {
            return Err(SrqError::Empty);
        }
        let srq = Srq::new(init.max_wr, init.max_sge, init.pd, init.xrc);
        self.shared.srqs.insert(srq).ok_or(SrqError::TooMany { max: SrqTable::MAX })
    }

    /// Sets the limit of a shared receive queue, which arms its event, or its size.
    ///
    /// # Errors
    ///
    /// [`SrqError`]; nothing has changed.
    pub fn modify_srq(&mut self, srqn: Srqn, modify: SrqModify) -> Result<(), SrqError> {
        let srq = self.shared.srqs.get_mut(srqn).ok_or(SrqError::NoSuchSrq(srqn))?;
        let attr = srq.attr();
        let max_wr = modify.max_wr.unwrap_or(attr.max_wr);
        let limit = modify.limit.unwrap_or(attr.limit);
        let used = srq.queue.used();
        if max_wr == 0 {
            return Err(SrqError::Empty);
        }
        if (max_wr as usize) < used {
            return Err(SrqError::TooSmall { found: max_wr, used });
        }
        if limit > max_wr {
            return Err(SrqError::Limit { found: limit, max_wr });
        }
        srq.queue.resize(max_wr as usize);
        srq.limit = limit;
        Ok(())
    }

    /// Returns the attributes of a shared receive queue. A limit that was reached is 0.
    pub fn query_srq(&self, srqn: Srqn) -> Option<SrqAttr> {
        self.shared.srqs.get(srqn).map(Srq::attr)
    }

    /// Removes a shared receive queue. Its requests end without completions. Later XRC requests for
    /// it are refused.
    ///
    /// # Errors
    ///
    /// [`SrqError::InUse`], [`SrqError::NoSuchSrq`].
    pub fn destroy_srq(&mut self, srqn: Srqn) -> Result<(), SrqError> {
        let srq = self.shared.srqs.get(srqn).ok_or(SrqError::NoSuchSrq(srqn))?;
        if srq.users > 0 {
            return Err(SrqError::InUse { srqn, users: srq.users });
        }
        self.shared.srqs.remove(srqn);
        self.qps.iter_mut().for_each(|qp| qp.forget_srq(srqn));
        Ok(())
    }

    /// Checks whether a queue pair can be created with these receive queues.
    pub(super) fn check_sources(&self, init: &QpInit) -> Result<(), CreateError> {
        let qp_type = init.qp_type;
        if qp_type == QpType::XrcTgt && init.xrcd.is_none() {
            return Err(CreateError::NoXrcd);
        }
        let Some(srqn) = init.srq else { return Ok(()) };
        let is_for_xrc =
            self.shared.srqs.get(srqn).ok_or(CreateError::NoSuchSrq(srqn))?.xrc.is_some();
        let other = match (is_for_xrc, qp_type) {
            (_, QpType::XrcIni | QpType::XrcTgt) => "requests that name it",
            (true, _) => "XRC",
            (false, _) => return Ok(()),
        };
        Err(CreateError::SrqType { srqn, qp_type, other })
    }

    /// Fails the shared receive queues that complete at a failed completion queue.
    pub(super) fn fail_srqs(&mut self, cq: CqId) {
        for (srqn, srq) in self.shared.srqs.completing_at(cq) {
            if !std::mem::replace(&mut srq.failed, true) {
                self.shared.outputs.events.push_back(AsyncEvent::SrqErr(srqn));
            }
        }
    }

    /// Posts a receive request to a shared receive queue.
    ///
    /// # Errors
    ///
    /// [`PostError`]; nothing has changed.
    pub fn post_srq_recv(&mut self, srqn: Srqn, request: RecvRequest) -> Result<(), PostError> {
        let srq = self.shared.srqs.get_mut(srqn).ok_or(PostError::NoSuchSrq(srqn))?;
        let (found, max) = (request.sges.len(), srq.max_sge);
        if found > max as usize {
            return Err(PostError::TooManySges { found, max });
        }
        let capacity = srq.queue.capacity();
        srq.queue.push(request).map_err(|_| PostError::QueueFull { capacity })?;
        self.shared.outputs.shortage.post();
        Ok(())
    }
}

impl Srq {
    fn attr(&self) -> SrqAttr {
        let max_wr = u32::try_from(self.queue.capacity()).unwrap_or(u32::MAX);
        SrqAttr { max_wr, max_sge: self.max_sge, limit: self.limit }
    }
}
