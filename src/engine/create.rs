//! Attributes that a queue pair is created with.

use thiserror::Error;

use crate::engine::attr::QpType;
use crate::engine::post::QpCap;
use crate::engine::send_ops::SendOps;
use crate::ids::{CqId, PdId, Srqn, XrcdId};

/// Attributes that a queue pair is created with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_qp_init_attr")]
pub struct QpInit {
    /// The transport service.
    pub qp_type: QpType,
    /// The protection domain of its memory.
    pub pd: PdId,
    /// Where send requests complete. XRC targets have no send queue and ignore it; others need it.
    pub send_cq: Option<CqId>,
    /// Where receive requests complete. XRC queue pairs have no receive queue and ignore it; others need it.
    pub recv_cq: Option<CqId>,
    /// Its limits.
    pub cap: QpCap,
    /// Every send request is announced, signaled or not.
    pub sq_sig_all: bool,
    /// The shared receive queue that it takes from, instead of one of its own. Not of XRC.
    pub srq: Option<Srqn>,
    /// The operations that will be posted to its send queue, and no others; `None` for all that the
    /// service has.
    pub send_ops: Option<SendOps>,
    /// Of an XRC target: the domain of the shared receive queues that requests may name. It needs
    /// neither protection domain nor completion queues.
    pub xrcd: Option<XrcdId>,
}

impl QpInit {
    /// The completion queues of its send and its receive requests, as far as it has such queues.
    pub(super) fn cqs(&self) -> Result<(Option<CqId>, Option<CqId>), CreateError> {
        let qp_type = self.qp_type;
        let needed = |cq: Option<CqId>, has_queue: bool, queue| match cq {
            _ if !has_queue => Ok(None),
            Some(cq) => Ok(Some(cq)),
            None => Err(CreateError::NoCq { qp_type, queue }),
        };
        let sends = needed(self.send_cq, qp_type.has_send_queue(), "send")?;
        Ok((sends, needed(self.recv_cq, qp_type.has_receive_queue(), "receive")?))
    }
}

/// Error for a queue pair that was not created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The device is full.
    #[error("the device has {max} queue pairs and takes no more")]
    TooMany {
        /// Queue pairs allowed.
        max: usize,
    },
    /// There is no such shared receive queue.
    #[error("shared receive queue {0} does not exist")]
    NoSuchSrq(Srqn),
    /// So many queue pairs were destroyed of late that no number is free. They rest for ten seconds,
    /// because peers may still send.
    #[doc(alias = "ENOMEM")]
    #[error("the numbers of {resting} queue pairs that were destroyed of late are not free yet")]
    NumbersRest {
        /// How many numbers.
        resting: usize,
    },
    /// The service does not have such operations.
    #[doc(alias = "EOPNOTSUPP")]
    #[error("{qp_type} queue pairs have no {surplus}")]
    SendOps {
        /// The type of the queue pair.
        qp_type: QpType,
        /// What it does not have.
        surplus: SendOps,
    },
    /// Requests of XRC name the queue, and those of other services take from none that is for XRC.
    #[error(
        "{qp_type} queue pairs do not take from shared receive queue {srqn}: it is for {other}"
    )]
    SrqType {
        /// The queue.
        srqn: Srqn,
        /// What was to take from it.
        qp_type: QpType,
        /// What may.
        other: &'static str,
    },
    /// An XRC target takes from the shared receive queues of a domain.
    #[error("an XRC target needs an XRC domain")]
    NoXrcd,
    /// The requests of a queue have to complete somewhere.
    #[doc(alias = "EINVAL")]
    #[error("{qp_type} queue pairs need a completion queue for {queue} requests")]
    NoCq {
        /// The type of the queue pair.
        qp_type: QpType,
        /// The queue: send or receive.
        queue: &'static str,
    },
}
