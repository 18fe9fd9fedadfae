//! Extended reliable connections: XRC domains and targets (IBTA vol 1, annex A14).

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{FlatAttr, QpAttr, QpCap, QpInfo, QpInit, QpState, QpType};
use crate::ids::{PdId, Qpn};
use crate::psn::Psn;
use crate::runtime::{Shard, Xrcd};
use crate::verbs::context::ContextInner;
use crate::verbs::qp_handle::QpHandle;
use crate::verbs::subject::Subject;
use crate::verbs::usage::Unacknowledged;
use crate::verbs::{ConnectOptions, Context, Counters, Endpoint, Error};

/// Options for opening an XRC domain (`ibv_open_xrcd(3)`).
#[doc(alias = "ibv_xrcd_init_attr")]
#[derive(Clone, Copy, Debug, Default)]
pub struct XrcdOptions<'a> {
    /// File that identifies the domain to several contexts of the device; its contents do not matter. Without a file
    /// the domain is private.
    pub file: Option<BorrowedFd<'a>>,
    /// Creates the domain of the file if it is not open (`O_CREAT`).
    #[doc(alias = "O_CREAT")]
    pub create: bool,
    /// Requires that the domain of the file is not open (`O_EXCL`).
    #[doc(alias = "O_EXCL")]
    pub exclusive: bool,
}

/// An XRC domain: shared receive queues that requests name by number, and the queue pairs that deliver to them.
///
/// RC needs one connection for each pair of communicating programs, XRC one for each pair of *hosts*: from an
/// initiator ([`QpConfig::xrc`](super::QpConfig::xrc)) on one host to a target on the other. Each request names a
/// [shared receive queue](super::SharedReceiveQueue), and thus the receiving program. The queue has its own
/// completion queue, and its protection domain checks the keys of WRITEs, READs and atomics.
///
/// Contexts share a domain by a file, and a target by its number. Both belong to one process, as the device does.
///
/// ```
/// use softroce::verbs::*;
///
/// let ctx = Context::open(OpenOptions::loopback())?;
/// let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
/// let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE)?;
///
/// // The receiver: a domain, a target in it, and a queue for each part of the program.
/// let domain = ctx.open_xrcd(&XrcdOptions::default())?;
/// let target = domain.create_target()?;
/// let (one_cq, other_cq) = (ctx.create_cq(16, None)?, ctx.create_cq(16, None)?);
/// let one = pd.create_xrc_srq(&SrqConfig::default(), &domain, &one_cq)?;
/// let other = pd.create_xrc_srq(&SrqConfig::default(), &domain, &other_cq)?;
/// one.post_recv(RecvRequest::new(1, mr.sge(..64)))?;
/// other.post_recv(RecvRequest::new(2, mr.sge(64..128)))?;
///
/// // The sender, here on the same device.
/// let qp = pd.create_qp(&QpConfig::xrc(&cq))?;
/// qp.connect(&target.endpoint(), &ConnectOptions::default())?;
/// target.connect(&qp.endpoint(), &ConnectOptions::default())?;
/// qp.post_send(SendRequest::send(7, SendData::inline(b"hello")).to(other.srqn()).signaled())?;
///
/// assert_eq!(cq.wait_one(None)?.wr_id, 7);
/// assert_eq!(other_cq.wait_one(None)?.wr_id, 2);
/// assert_eq!(one_cq.poll_one(), None);
/// # Ok::<(), Error>(())
/// ```
#[doc(alias = "ibv_xrcd")]
#[derive(Clone, Debug)]
pub struct XrcDomain {
    pub(super) domain: Arc<Xrcd>,
    pub(super) context: Arc<ContextInner>,
}

impl XrcDomain {
    /// Creates a target, the receiving queue pair of an XRC connection, in state RESET. It has no send queue and no
    /// protection domain.
    ///
    /// # Errors
    ///
    /// [`Error::Create`], [`Error::Device`].
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn create_target(&self) -> Result<XrcTarget, Error> {
        let init = QpInit {
            qp_type: QpType::XrcTgt,
            pd: PdId::default(),
            send_cq: None,
            recv_cq: None,
            cap: QpCap::default(),
            sq_sig_all: false,
            srq: None,
            send_ops: None,
            xrcd: Some(self.domain.id),
        };
        let events = &self.context.events;
        let create = self.shard().with(|core, now| core.create_qp(now, init, events));
        Ok(XrcTarget::new(self, create??))
    }

    /// Opens a target that this or another context has created in the domain. All contexts that have it open receive
    /// its events. Dropping the last handle destroys it.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTarget`], [`Error::Device`].
    #[doc(alias = "ibv_open_qp")]
    pub fn open_target(&self, qpn: Qpn) -> Result<XrcTarget, Error> {
        let (id, events) = (self.domain.id, &self.context.events);
        if self.shard().with(|core, _| core.open_target(qpn, id, events))? {
            Ok(XrcTarget::new(self, qpn))
        } else {
            Err(Error::NoSuchTarget { qpn })
        }
    }

    /// Returns the shard of its targets and shared receive queues.
    pub(super) fn shard(&self) -> &Arc<Shard> {
        self.context.device.shards.at(self.domain.id.0 as usize)
    }

    /// Returns whether both handles refer to the same domain.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.domain, &other.domain)
    }
}

impl Context {
    /// Opens an XRC domain: a new one, or the one that a context of this device has opened for the same file.
    /// Dropping the last handle on the domain and its objects closes it.
    ///
    /// # Errors
    ///
    /// [`Error::Xrcd`] when the domain is open despite `exclusive`, or is not open without `create`; [`Error::Os`]
    /// when the metadata of the file cannot be read.
    #[doc(alias = "ibv_open_xrcd")]
    pub fn open_xrcd(&self, options: &XrcdOptions<'_>) -> Result<XrcDomain, Error> {
        let context = Arc::clone(&self.inner);
        let domains = &context.device.xrcds;
        let domain = match options.file {
            None => domains.make(),
            Some(file) => {
                let os = |source| Error::Os { what: "the file of an XRC domain", source };
                let file = File::from(file.try_clone_to_owned().map_err(os)?);
                let found = file.metadata().map_err(os)?;
                let file = (found.dev(), found.ino());
                domains.open(file, options.create, !options.exclusive)?
            }
        };
        Ok(XrcDomain { domain, context })
    }
}

/// An XRC target, the receiving queue pair of an XRC connection. It delivers each request to the shared receive queue
/// that the request names.
///
/// Dropping the last handle of all contexts destroys it.
#[doc(alias = "IBV_QPT_XRC_RECV")]
#[derive(Clone, Debug)]
pub struct XrcTarget {
    inner: Arc<TargetInner>,
}

#[derive(Debug)]
struct TargetInner {
    handle: QpHandle,
    domain: XrcDomain,
    async_events: Arc<Unacknowledged>,
}

impl XrcTarget {
    fn new(domain: &XrcDomain, qpn: Qpn) -> Self {
        // A target sends no requests, so its PSN does not matter.
        let (shard, psn) = (Arc::clone(domain.shard()), Psn::default());
        let handle = QpHandle { shard, qpn, qp_type: QpType::XrcTgt, psn };
        let async_events = domain.context.subjects.enter(Subject::Qp(qpn));
        Self { inner: Arc::new(TargetInner { handle, domain: domain.clone(), async_events }) }
    }

    /// Drops this handle. The last handle of all contexts destroys the target.
    ///
    /// # Errors
    ///
    /// The target, and [`Error::InUse`] when events of it are unacknowledged.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(self) -> Result<(), (Self, Error)> {
        self.inner.async_events.check("queue pair").map_err(|error| (self, error))
    }

    /// Returns the queue pair number.
    pub fn qpn(&self) -> Qpn {
        self.inner.handle.qpn
    }

    /// Returns the endpoint of the target, which the initiator needs to connect. The address is that of the target's
    /// path, or the first address of the device before it has a path.
    pub fn endpoint(&self) -> Endpoint {
        self.inner.handle.endpoint(self.context())
    }

    /// Returns the endpoint at the address with this index in the GID table. Use the same index as
    /// [`ConnectOptions::sgid_index`].
    ///
    /// # Errors
    ///
    /// [`Error::TableIndex`].
    pub fn endpoint_at(&self, sgid_index: u8) -> Result<Endpoint, Error> {
        self.inner.handle.endpoint_at(self.context(), sgid_index)
    }

    /// Connects the target to the initiator: takes it from RESET or INIT to RTS. The initiator connects in the same
    /// way, before or after this call.
    ///
    /// # Errors
    ///
    /// [`Error::Modify`], after which the target is in the last state that it reached; [`Error::Device`].
    pub fn connect(&self, peer: &Endpoint, options: &ConnectOptions) -> Result<(), Error> {
        self.inner.handle.connect(self.context(), peer, options)
    }

    /// Modifies the state or attributes of the target, as [`QueuePair::modify`](super::QueuePair::modify).
    ///
    /// # Errors
    ///
    /// [`Error::Modify`], [`Error::Device`].
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&self, attr: impl Into<QpAttr>) -> Result<(), Error> {
        self.inner.handle.modify(self.context(), &attr.into())
    }

    /// Modifies the target as `ibv_modify_qp(3)`, see [`QueuePair::modify_masked`](super::QueuePair::modify_masked).
    ///
    /// # Errors
    ///
    /// [`Error::Modify`], [`Error::Device`].
    pub fn modify_masked(&self, attr: &FlatAttr, mask: u32) -> Result<(), Error> {
        let qpn = self.qpn();
        self.modify(attr.select(mask).map_err(|source| Error::Modify { qpn, source })?)
    }

    /// Acknowledges this many asynchronous events that were [kept](super::PendingEvent::keep).
    #[doc(alias = "ibv_ack_async_event")]
    pub fn ack_async_events(&self, events: u32) {
        self.inner.async_events.acknowledge(events.into());
    }

    /// Waits until all events of the target are acknowledged. `None` waits without limit.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`].
    pub fn wait_acknowledged(&self, timeout: impl Into<Option<Duration>>) -> Result<(), Error> {
        self.inner.async_events.wait(timeout.into())
    }

    /// Returns the state and attributes of the target.
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QpInfo, Error> {
        self.inner.handle.query()
    }

    /// Returns the counters of the target since its creation.
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    pub fn counters(&self) -> Result<Counters, Error> {
        self.inner.handle.counters()
    }

    /// Returns the state of the target.
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    pub fn state(&self) -> Result<QpState, Error> {
        Ok(self.query()?.state)
    }

    fn context(&self) -> &ContextInner {
        &self.inner.domain.context
    }
}

impl Drop for TargetInner {
    fn drop(&mut self) {
        let (qpn, context) = (self.handle.qpn, &self.domain.context);
        // A target of a failed device needs no destruction.
        let _ = self.handle.shard.with(|core, now| {
            core.close_target(now, qpn, &context.events);
            // Before another queue pair gets the number. The context may hold another handle on the target.
            if Arc::strong_count(&self.async_events) <= 2 {
                context.remove_subject(Subject::Qp(qpn));
            }
        });
    }
}
