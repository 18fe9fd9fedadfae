//! Protection domains and memory regions.

use std::ops::{Bound, Deref, RangeBounds};
use std::sync::Arc;

use crate::ids::PdId;
use crate::mem::{Access, BindInfo, DeregisterError, DeviceMemory, HostMemory, MwType, Region};
use crate::runtime::Shard;
use crate::transport::work::{RemoteAddr, Sge};
use crate::verbs::context::ContextInner;
use crate::verbs::usage::User;
use crate::verbs::{
    CompletionQueue, Error, MemoryWindow, QpConfig, QueuePair, SharedReceiveQueue, SrqConfig,
    ThreadDomain, XrcDomain,
};

/// Queue pairs and the memory that they, and through them their peers, may use.
///
/// ```
/// use softroce::verbs::{Access, Context, HostMemory, OpenOptions};
///
/// let pd = Context::open(OpenOptions::loopback())?.alloc_pd();
/// let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
/// mr.write_at(100, b"for all to read")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_pd")]
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    pub(super) inner: Arc<PdInner>,
    /// Counts the handles: who else has `inner` was made from it.
    handles: Arc<()>,
}

#[derive(Debug)]
pub(super) struct PdInner {
    pub(super) id: PdId,
    pub(super) context: Arc<ContextInner>,
    parent: Option<Parent>,
}

/// What makes a domain a parent domain.
#[derive(Debug)]
struct Parent {
    _pd: Arc<PdInner>,
    td: Option<(ThreadDomain, User)>,
}

impl PdInner {
    pub(super) fn new(context: Arc<ContextInner>) -> Self {
        Self { id: context.device.next_pd(), context, parent: None }
    }

    /// A parent domain, which stands for `pd`.
    pub(super) fn parent_of(
        context: Arc<ContextInner>,
        pd: &Arc<Self>,
        td: Option<ThreadDomain>,
    ) -> Self {
        let td = td.map(|td| {
            let user = td.users().join();
            (td, user)
        });
        Self { id: pd.id, context, parent: Some(Parent { _pd: Arc::clone(pd), td }) }
    }

    pub(super) fn is_parent(&self) -> bool {
        self.parent.is_some()
    }

    /// Where to put what is made from it: on the shard of its thread domain, or on the next.
    pub(super) fn next_shard(&self) -> &Arc<Shard> {
        let td = self.parent.as_ref().and_then(|parent| parent.td.as_ref());
        td.map_or_else(|| self.context.device.shards.next(), |(td, _)| td.shard())
    }
}

impl ProtectionDomain {
    pub(super) fn new(inner: PdInner) -> Self {
        Self { inner: Arc::new(inner), handles: Arc::default() }
    }

    /// Allocates `len` bytes, zeroed and page-aligned, and registers them.
    ///
    /// # Errors
    ///
    /// [`Error::Alloc`], [`Error::Register`].
    pub fn alloc_mr(&self, len: usize, access: Access) -> Result<MemoryRegion, Error> {
        self.reg_mr(HostMemory::alloc(len)?, access)
    }

    /// Registers memory. Peers and work requests address it by its host addresses, or from zero
    /// with [`Access::ZERO_BASED`].
    ///
    /// # Errors
    ///
    /// [`Error::Register`]; the memory is dropped.
    #[doc(alias = "ibv_reg_mr")]
    pub fn reg_mr(&self, memory: HostMemory, access: Access) -> Result<MemoryRegion, Error> {
        self.register(memory, None, access)
    }

    /// Registers memory to be addressed from `iova`.
    ///
    /// # Errors
    ///
    /// [`Error::Register`]; the memory is dropped.
    #[doc(alias = "ibv_reg_mr_iova")]
    pub fn reg_mr_iova(
        &self,
        memory: HostMemory,
        iova: u64,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        self.register(memory, Some(iova), access)
    }

    /// A memory window, bound to nothing yet.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]: there are [`max_mw`](super::Limits::max_mw).
    #[doc(alias = "ibv_alloc_mw")]
    pub fn alloc_mw(&self, mw_type: MwType) -> Result<MemoryWindow, Error> {
        MemoryWindow::alloc(&self.inner, mw_type)
    }

    /// Creates a queue pair, in RESET.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`], [`Error::OtherDevice`] for a completion queue or a shared receive queue, [`Error::Create`],
    /// [`Error::Down`].
    #[doc(alias = "ibv_create_qp")]
    pub fn create_qp(&self, config: &QpConfig<'_>) -> Result<QueuePair, Error> {
        QueuePair::create(&self.inner, config)
    }

    /// Creates a receive queue that several queue pairs may share, also those of other domains.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`], [`Error::Srq`], [`Error::Down`].
    #[doc(alias = "ibv_create_srq")]
    pub fn create_srq(&self, config: &SrqConfig) -> Result<SharedReceiveQueue, Error> {
        SharedReceiveQueue::create(&self.inner, config, None)
    }

    /// Creates a receive queue that XRC requests name by its number. Its requests complete at `cq`, and
    /// the keys of what comes with its number are looked for in this protection domain.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`], [`Error::OtherDevice`], [`Error::Srq`], [`Error::Down`].
    #[doc(alias = "ibv_create_srq_ex")]
    pub fn create_xrc_srq(
        &self,
        config: &SrqConfig,
        domain: &XrcDomain,
        cq: &CompletionQueue,
    ) -> Result<SharedReceiveQueue, Error> {
        SharedReceiveQueue::create(&self.inner, config, Some((domain, cq)))
    }

    /// The thread domain that it names, of a
    /// [parent domain](super::Context::alloc_parent_domain).
    pub fn thread_domain(&self) -> Option<&ThreadDomain> {
        self.inner.parent.as_ref()?.td.as_ref().map(|(td, _)| td)
    }

    /// Lets go of it.
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// # let ctx = Context::open(OpenOptions::loopback())?;
    /// let pd = ctx.alloc_pd();
    /// let mr = pd.alloc_mr(64, Access::empty())?;
    /// let (pd, refused) = pd.dealloc().unwrap_err();
    /// assert_eq!(refused.to_string(), "the protection domain is in use by objects made from it: 1");
    /// drop(mr);
    /// assert!(pd.dealloc().is_ok());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The domain, and [`Error::InUse`] when something that was made from it exists.
    #[doc(alias = "ibv_dealloc_pd")]
    pub fn dealloc(self) -> Result<(), (Self, Error)> {
        let count = Arc::strong_count(&self.inner).saturating_sub(Arc::strong_count(&self.handles));
        match count as u64 {
            0 => Ok(()),
            count => Err((
                self,
                Error::InUse { what: "protection domain", by: "objects made from it", count },
            )),
        }
    }

    fn register(
        &self,
        memory: HostMemory,
        iova: Option<u64>,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let pd = Arc::clone(&self.inner);
        let region = pd.context.device.memory.register(pd.id, memory, iova, access)?;
        Ok(MemoryRegion::new(region, pd, None))
    }
}

/// Registered memory. The last handle that is dropped deregisters it: work requests that name it
/// later end with `LOC_PROT_ERR`, and requests of peers with `REM_ACCESS_ERR`, also those that name
/// memory windows which are bound to it.
///
/// Its bytes are read and written through the methods of [`Region`], because peers may write them
/// at any time.
///
/// ```
/// # use softroce::verbs::*;
/// # let pd = Context::open(OpenOptions::loopback())?.alloc_pd();
/// let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::ZERO_BASED)?;
/// assert_eq!(mr.sge(16..80), Sge { addr: 16, length: 64, lkey: mr.lkey() });
/// assert_eq!(mr.remote(16), RemoteAddr { addr: 16, rkey: mr.rkey() });
/// # Ok::<(), Error>(())
/// ```
#[doc(alias = "ibv_mr")]
#[derive(Clone, Debug)]
pub struct MemoryRegion {
    pub(super) inner: Arc<MrInner>,
}

#[derive(Debug)]
pub(super) struct MrInner {
    pub(super) region: Arc<Region>,
    pub(super) pd: Arc<PdInner>,
    /// What it is a part of: it takes its share of the device's until then.
    pub(super) dm: Option<DeviceMemory>,
}

impl MemoryRegion {
    pub(super) fn new(region: Arc<Region>, pd: Arc<PdInner>, dm: Option<DeviceMemory>) -> Self {
        Self { inner: Arc::new(MrInner { region, pd, dm }) }
    }

    /// These bytes, for a work request. Whether they are within the region is found out when the
    /// request runs.
    pub fn sge(&self, range: impl RangeBounds<usize>) -> Sge {
        let (start, end) = self.bounds(&range);
        Sge {
            addr: self.remote(start).addr,
            // No message is as long as that.
            length: u32::try_from(end.saturating_sub(start)).unwrap_or(u32::MAX),
            lkey: self.lkey(),
        }
    }

    /// Deregisters it now, though there are handles on it, unless memory windows are bound to it.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`]; it stays registered.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn deregister(&self) -> Result<(), Error> {
        let memory = &self.inner.pd.context.device.memory;
        memory.try_deregister(&self.inner.region).map_err(|DeregisterError { windows }| {
            Error::InUse { what: "memory region", by: "memory windows", count: windows as u64 }
        })
    }

    /// What binds a memory window to these bytes, with these rights of peers. Whether they are within
    /// the region is found out when the window is bound.
    pub fn bind_info(&self, range: impl RangeBounds<usize>, access: Access) -> BindInfo {
        let (start, end) = self.bounds(&range);
        let length = end.saturating_sub(start) as u64;
        BindInfo { lkey: self.lkey(), addr: self.remote(start).addr, length, access }
    }

    /// The byte at `offset`, as a peer names it.
    pub fn remote(&self, offset: usize) -> RemoteAddr {
        RemoteAddr { addr: self.addr().wrapping_add(offset as u64), rkey: self.rkey() }
    }
}

impl MemoryRegion {
    fn bounds(&self, range: &impl RangeBounds<usize>) -> (usize, usize) {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.len(),
        };
        (start, end)
    }
}

impl Deref for MemoryRegion {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.inner.region
    }
}

impl Drop for MrInner {
    fn drop(&mut self) {
        self.pd.context.device.memory.deregister(&self.region);
    }
}
