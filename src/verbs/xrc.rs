//! Extended reliable connections: domains, and the receiving end.

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
use crate::verbs::end::End;
use crate::verbs::subject::Subject;
use crate::verbs::usage::Unacknowledged;
use crate::verbs::{ConnectOptions, Context, Counters, Endpoint, Error};

/// How an XRC domain is opened.
#[doc(alias = "ibv_xrcd_init_attr")]
#[derive(Clone, Copy, Debug, Default)]
pub struct XrcdOptions<'a> {
    /// The file by which contexts of the device find the same domain; its contents do not matter.
    /// Without one it is a domain of its own.
    pub file: Option<BorrowedFd<'a>>,
    /// With a file: the domain is created if it is not open.
    #[doc(alias = "O_CREAT")]
    pub create: bool,
    /// With a file: it must not be open already.
    #[doc(alias = "O_EXCL")]
    pub exclusive: bool,
}

/// Shared receive queues that requests name by number, and the queue pairs through which they do.
///
/// RC needs a queue pair for each two programs that talk to each other. With XRC it takes one for each
/// two *hosts*: an initiator ([`QpConfig::xrc`](super::QpConfig::xrc)) on the one, a target on the
/// other, and each request names the [shared receive queue](super::SharedReceiveQueue), and with it the
/// program, that it is for. The queue has its own completion queue, and the keys of WRITEs, READs and
/// atomics are those of its protection domain.
///
/// Contexts share a domain by a file, and a target by its number. Within one process: a device belongs
/// to one.
///
/// ```
/// use softroce::verbs::*;
///
/// let ctx = Context::open(OpenOptions::loopback())?;
/// let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
/// let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE)?;
///
/// // Who receives: a domain, a target in it, and a queue for each part of the program.
/// let domain = ctx.open_xrcd(&XrcdOptions::default())?;
/// let target = domain.create_target()?;
/// let (one_cq, other_cq) = (ctx.create_cq(16, None)?, ctx.create_cq(16, None)?);
/// let one = pd.create_xrc_srq(&SrqConfig::default(), &domain, &one_cq)?;
/// let other = pd.create_xrc_srq(&SrqConfig::default(), &domain, &other_cq)?;
/// one.post_recv(RecvRequest::new(1, mr.sge(..64)))?;
/// other.post_recv(RecvRequest::new(2, mr.sge(64..128)))?;
///
/// // Who sends; here on the same device.
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
    /// Creates the receiving end of a connection, in RESET. It has neither send queue nor protection
    /// domain.
    ///
    /// # Errors
    ///
    /// [`Error::Create`], [`Error::Down`].
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

    /// Opens a target that this or another context has created in the domain. Events of it come to all
    /// that have it open, and whoever is the last to drop it destroys it.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTarget`], [`Error::Down`].
    #[doc(alias = "ibv_open_qp")]
    pub fn open_target(&self, qpn: Qpn) -> Result<XrcTarget, Error> {
        let (id, events) = (self.domain.id, &self.context.events);
        if self.shard().with(|core, _| core.open_target(qpn, id, events))? {
            Ok(XrcTarget::new(self, qpn))
        } else {
            Err(Error::NoSuchTarget { qpn })
        }
    }

    /// Where its targets and its shared receive queues are.
    pub(super) fn shard(&self) -> &Arc<Shard> {
        self.context.device.shards.at(self.domain.id.0 as usize)
    }

    /// Whether it is the same domain, whichever context has opened it.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.domain, &other.domain)
    }
}

impl Context {
    /// Opens an XRC domain: a new one, or the one that a context of this device has opened for the
    /// same file. The last handle of the domain, and of objects made from it, closes it.
    ///
    /// # Errors
    ///
    /// [`Error::Xrcd`] when a domain exists that must not, or none exists and none may be created;
    /// [`Error::Os`] when the metadata of the file cannot be read.
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

/// The receiving end of an extended reliable connection: requests arrive here and go to the shared
/// receive queue that they name.
///
/// The last handle that is dropped, in whichever context, destroys it.
#[doc(alias = "IBV_QPT_XRC_RECV")]
#[derive(Clone, Debug)]
pub struct XrcTarget {
    inner: Arc<TargetInner>,
}

#[derive(Debug)]
struct TargetInner {
    end: End,
    domain: XrcDomain,
    async_events: Arc<Unacknowledged>,
}

impl XrcTarget {
    fn new(domain: &XrcDomain, qpn: Qpn) -> Self {
        // It has no request for which the PSN would matter.
        let (shard, psn) = (Arc::clone(domain.shard()), Psn::default());
        let end = End { shard, qpn, qp_type: QpType::XrcTgt, psn };
        let async_events = domain.context.subjects.enter(Subject::Qp(qpn));
        Self { inner: Arc::new(TargetInner { end, domain: domain.clone(), async_events }) }
    }

    /// Lets go of it. It is destroyed with its last handle, in whichever context.
    ///
    /// # Errors
    ///
    /// The target, and [`Error::InUse`] when events that tell of it are not acknowledged.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(self) -> Result<(), (Self, Error)> {
        self.inner.async_events.check("queue pair").map_err(|error| (self, error))
    }

    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.inner.end.qpn
    }

    /// What the initiator must know to connect to it: at the address that its path leads from, or at the
    /// device's first before it has one.
    pub fn endpoint(&self) -> Endpoint {
        self.inner.end.endpoint(self.context())
    }

    /// What the initiator must know to connect to it at the address with this index in the GID table, which is
    /// the [`ConnectOptions::sgid_index`] to connect it with.
    ///
    /// # Errors
    ///
    /// [`Error::TableIndex`].
    pub fn endpoint_at(&self, sgid_index: u8) -> Result<Endpoint, Error> {
        self.inner.end.endpoint_at(self.context(), sgid_index)
    }

    /// Connects it to the initiator: from RESET or INIT to RTS. The initiator connects itself likewise,
    /// before or after.
    ///
    /// # Errors
    ///
    /// [`Error::Modify`], and it stays in the last state that it came to; [`Error::Down`].
    pub fn connect(&self, peer: &Endpoint, options: &ConnectOptions) -> Result<(), Error> {
        self.inner.end.connect(self.context(), peer, options)
    }

    /// Changes its state or attributes, as [`QueuePair::modify`](super::QueuePair::modify).
    ///
    /// # Errors
    ///
    /// [`Error::Modify`], [`Error::Down`].
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&self, attr: impl Into<QpAttr>) -> Result<(), Error> {
        self.inner.end.modify(self.context(), &attr.into())
    }

    /// The same in the form that C has, as [`QueuePair::modify_masked`](super::QueuePair::modify_masked).
    ///
    /// # Errors
    ///
    /// [`Error::Modify`], [`Error::Down`].
    pub fn modify_masked(&self, attr: &FlatAttr, mask: u32) -> Result<(), Error> {
        let qpn = self.qpn();
        self.modify(attr.select(mask).map_err(|source| Error::Modify { qpn, source })?)
    }

    /// Acknowledges so many asynchronous events that were [kept](super::PendingEvent::keep).
    #[doc(alias = "ibv_ack_async_event")]
    pub fn ack_async_events(&self, events: u32) {
        self.inner.async_events.acknowledge(events.into());
    }

    /// Waits until every event that tells of it is acknowledged. No timeout is for ever.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`].
    pub fn wait_acknowledged(&self, timeout: impl Into<Option<Duration>>) -> Result<(), Error> {
        self.inner.async_events.wait(timeout.into())
    }

    /// Its state and attributes.
    ///
    /// # Errors
    ///
    /// [`Error::Down`].
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QpInfo, Error> {
        self.inner.end.query()
    }

    /// What it has counted since it was created, by whatever context.
    ///
    /// # Errors
    ///
    /// [`Error::Down`].
    pub fn counters(&self) -> Result<Counters, Error> {
        self.inner.end.counters()
    }

    /// Its state.
    ///
    /// # Errors
    ///
    /// [`Error::Down`].
    pub fn state(&self) -> Result<QpState, Error> {
        Ok(self.query()?.state)
    }

    fn context(&self) -> &ContextInner {
        &self.inner.domain.context
    }
}

impl Drop for TargetInner {
    fn drop(&mut self) {
        let (qpn, context) = (self.end.qpn, &self.domain.context);
        // In a device that has failed it is as good as destroyed.
        let _ = self.end.shard.with(|core, now| {
            core.close_target(now, qpn, &context.events);
            // Before another has the number; the context may have it open once more.
            if Arc::strong_count(&self.async_events) <= 2 {
                context.forget(Subject::Qp(qpn));
            }
        });
    }
}
