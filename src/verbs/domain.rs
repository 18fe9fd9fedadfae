//! Thread domains and parent domains.

use std::sync::Arc;

use crate::runtime::Shard;
use crate::verbs::context::ContextInner;
use crate::verbs::pd::PdInner;
use crate::verbs::usage::Users;
use crate::verbs::{Context, Error, ProtectionDomain};

/// A program's word that what belongs to it is used by one thread at a time.
///
/// A device with [several shards](super::OpenOptions::shards) puts the queue pairs of a thread domain on one
/// of them, so that the thread meets nobody there whom it need not. Nothing else follows from the word:
/// everything may be used from any thread, with a thread domain or without.
#[doc(alias = "ibv_td")]
#[derive(Clone, Debug)]
pub struct ThreadDomain {
    inner: Arc<TdInner>,
}

#[derive(Debug)]
struct TdInner {
    users: Users,
    shard: Arc<Shard>,
    context: Arc<ContextInner>,
}

impl ThreadDomain {
    /// Lets go of it.
    ///
    /// # Errors
    ///
    /// The thread domain, and [`Error::InUse`] when parent domains refer to it.
    #[doc(alias = "ibv_dealloc_td")]
    pub fn dealloc(self) -> Result<(), (Self, Error)> {
        let checked = self.inner.users.check("thread domain", "parent domains");
        checked.map_err(|error| (self, error))
    }

    /// Where its queue pairs are.
    pub(super) fn shard(&self) -> &Arc<Shard> {
        &self.inner.shard
    }

    /// How parent domains refer to it.
    pub(super) fn users(&self) -> &Users {
        &self.inner.users
    }
}

/// Whether they are the same.
impl PartialEq for ThreadDomain {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for ThreadDomain {}

impl Context {
    /// A new thread domain.
    #[doc(alias = "ibv_alloc_td")]
    pub fn alloc_td(&self) -> ThreadDomain {
        let context = Arc::clone(&self.inner);
        let shard = Arc::clone(context.device.shards.next());
        ThreadDomain { inner: Arc::new(TdInner { users: Users::default(), shard, context }) }
    }

    /// A domain that stands for `pd` wherever a protection domain is asked for, and names the thread
    /// domain of what is made from it. Memory registered in the one can be used through the other.
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
        if td.is_some_and(|td| !td.inner.context.is_of(device)) {
            return Err(Error::OtherDevice { what: "thread domain" });
        }
        let context = Arc::clone(&self.inner);
        Ok(ProtectionDomain::new(PdInner::parent_of(context, &pd.inner, td.cloned())))
    }
}
