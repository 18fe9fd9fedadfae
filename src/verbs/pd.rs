//! Protection domains, parent domains included.

use std::sync::Arc;

use crate::ids::PdId;
use crate::runtime::Shard;
use crate::verbs::context::ContextInner;
use crate::verbs::usage::User;
use crate::verbs::{Context, Error, ThreadDomain};

/// A protection domain: queue pairs, and the memory that they and their peers may use.
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
    /// Counts the handles. All other owners of `inner` are objects made from the domain.
    handles: Arc<()>,
}

#[derive(Debug)]
pub(super) struct PdInner {
    pub(super) id: PdId,
    pub(super) context: Arc<ContextInner>,
    parent: Option<Parent>,
}

/// The domains to which a parent domain refers.
#[derive(Debug)]
struct Parent {
    _pd: Arc<PdInner>,
    td: Option<(ThreadDomain, User)>,
}

impl PdInner {
    fn new(context: Arc<ContextInner>) -> Self {
        Self { id: context.device.next_pd(), context, parent: None }
    }

    /// Returns a parent domain that stands for `pd`.
    fn parent_of(context: Arc<ContextInner>, pd: &Arc<Self>, td: Option<ThreadDomain>) -> Self {
        let td = td.map(|td| {
            let user = td.users().join();
            (td, user)
        });
        Self { id: pd.id, context, parent: Some(Parent { _pd: Arc::clone(pd), td }) }
    }

    pub(super) fn is_parent(&self) -> bool {
        self.parent.is_some()
    }

    /// Returns the shard for a new object of the domain: that of its thread domain, or the next.
    pub(super) fn next_shard(&self) -> &Arc<Shard> {
        let td = self.parent.as_ref().and_then(|parent| parent.td.as_ref());
        td.map_or_else(|| self.context.device.shards.next(), |(td, _)| td.shard())
    }
}

impl ProtectionDomain {
    fn new(inner: PdInner) -> Self {
        Self { inner: Arc::new(inner), handles: Arc::default() }
    }

    /// Returns the thread domain of a [parent domain](Context::alloc_parent_domain).
    pub fn thread_domain(&self) -> Option<&ThreadDomain> {
        self.inner.parent.as_ref()?.td.as_ref().map(|(td, _)| td)
    }

    /// Deallocates the domain when no object made from it exists.
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
    /// The domain, and [`Error::InUse`] when an object made from it exists.
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
}

impl Context {
    /// Allocates a protection domain: queue pairs, and the memory that they may use.
    #[doc(alias = "ibv_alloc_pd")]
    pub fn alloc_pd(&self) -> ProtectionDomain {
        ProtectionDomain::new(PdInner::new(Arc::clone(&self.inner)))
    }

    /// Allocates a parent domain. It stands for `pd` wherever a protection domain is expected, and names
    /// the thread domain of the objects made from it. Both domains may use memory registered in either.
    ///
    /// ```
    /// use softroce::verbs::*;
    ///
    /// let ctx = Context::open(OpenOptions::loopback())?;
    /// let (pd, td) = (ctx.alloc_pd(), ctx.alloc_td());
    /// let parent = ctx.alloc_parent_domain(&pd, Some(&td))?;
    /// let cq = ctx.create_cq_ex(&CqConfig { parent_domain: Some(&parent), ..CqConfig::new(16) })?;
    /// let qp = parent.create_qp(&QpConfig::rc(&cq))?;
    /// assert_eq!(parent.thread_domain(), Some(&td));
    ///
    /// let (td, refused) = td.dealloc().unwrap_err();
    /// assert_eq!(refused.to_string(), "the thread domain is in use by parent domains: 1");
    /// drop((qp, cq));
    /// assert!(parent.dealloc().is_ok() && td.dealloc().is_ok() && pd.dealloc().is_ok());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::OtherDevice`] for either domain.
    #[doc(alias = "ibv_alloc_parent_domain")]
    pub fn alloc_parent_domain(
        &self,
        pd: &ProtectionDomain,
        td: Option<&ThreadDomain>,
    ) -> Result<ProtectionDomain, Error> {
        let device = &self.inner.device;
        if !pd.inner.context.is_of(device) {
            return Err(Error::OtherDevice { what: "protection domain" });
        }
        if td.is_some_and(|td| !td.is_of(device)) {
            return Err(Error::OtherDevice { what: "thread domain" });
        }
        let context = Arc::clone(&self.inner);
        Ok(ProtectionDomain::new(PdInner::parent_of(context, &pd.inner, td.cloned())))
    }
}
