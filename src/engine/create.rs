//! Attributes for the creation of a queue pair.

use thiserror::Error;

use crate::engine::attr::QpType;
use crate::engine::post::QpCap;
use crate::engine::send_ops::SendOps;
use crate::ids::{CqId, PdId, Srqn, XrcdId};

/// Attributes for the creation of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_qp_init_attr")]
pub struct QpInit {
    /// The transport service.
    pub qp_type: QpType,
    /// The protection domain of its memory.
    pub pd: PdId,
    /// Completion queue of send requests. XRC targets have no send queue and ignore it; other types
    /// require it.
    pub send_cq: Option<CqId>,
    /// Completion queue of receive requests. XRC queue pairs have no receive queue and ignore it;
    /// other types require it.
    pub recv_cq: Option<CqId>,
    /// Its limits.
    pub cap: QpCap,
    /// Every send request creates a completion, signaled or not.
    pub sq_sig_all: bool,
    /// The shared receive queue to use instead of its own. Not for XRC.
    pub srq: Option<Srqn>,
    /// The only operations that will be posted to its send queue; `None` for all that the service
    /// has.
    pub send_ops: Option<SendOps>,
    /// XRC target: the domain of the shared receive queues for its messages. It needs neither
    /// protection domain nor completion queues.
    pub xrcd: Option<XrcdId>,
}

impl QpInit {
    /// Returns the completion queues of its send and receive requests, as far as it has these
    /// queues.
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
        /// Maximum number of queue pairs.
        max: usize,
    },
    /// There is no such shared receive queue.
    #[error("shared receive queue {0} does not exist")]
    NoSuchSrq(Srqn),
    /// No number is free, because too many queue pairs were destroyed recently. Numbers stay
    /// reserved for ten seconds, because peers may still send to them.
    #[doc(alias = "ENOMEM")]
    #[error("the numbers of {resting} recently destroyed queue pairs are still reserved")]
    NumbersRest {
        /// Number of reserved numbers.
        resting: usize,
    },
    /// The service does not have such operations.
    #[doc(alias = "EOPNOTSUPP")]
    #[error("{qp_type} queue pairs have no {surplus}")]
    SendOps {
        /// The type of the queue pair.
        qp_type: QpType,
        /// The unsupported operations.
        surplus: SendOps,
    },
    /// XRC requests carry the number of their queue, and other services cannot use an XRC queue.
    #[error(
        "{qp_type} queue pairs do not take from shared receive queue {srqn}: it is for {other}"
    )]
    SrqType {
        /// The queue.
        srqn: Srqn,
        /// Type of the queue pair that was to use it.
        qp_type: QpType,
        /// Valid users of the queue.
        other: &'static str,
    },
    /// An XRC target needs the domain of its shared receive queues.
    #[error("an XRC target needs an XRC domain")]
    NoXrcd,
    /// The queue needs a completion queue for its requests.
    #[doc(alias = "EINVAL")]
    #[error("{qp_type} queue pairs need a completion queue for {queue} requests")]
    NoCq {
        /// The type of the queue pair.
        qp_type: QpType,
        /// The queue: send or receive.
        queue: &'static str,
    },
}
