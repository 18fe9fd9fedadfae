//! Thread domains.

use std::sync::Arc;

use crate::runtime::{Device, Shard};
use crate::verbs::context::ContextInner;
use crate::verbs::usage::Users;
use crate::verbs::{Context, Error};

/// A set of objects that the program uses from one thread at a time.
///
/// A device with [several shards](super::OpenOptions::shards) puts the queue pairs of a thread domain on one
/// shard, so that the thread competes with fewer others for the locks. It has no other effect: any thread
/// may use any object, with a thread domain or without.
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
    /// Deallocates the thread domain when no parent domain refers to it.
    ///
    /// # Errors
    ///
    /// The thread domain, and [`Error::InUse`] when parent domains refer to it.
    #[doc(alias = "ibv_dealloc_td")]
    pub fn dealloc(self) -> Result<(), (Self, Error)> {
        let checked = self.inner.users.check("thread domain", "parent domains");
        checked.map_err(|error| (self, error))
    }

    /// Returns the shard of its queue pairs.
    pub(super) fn shard(&self) -> &Arc<Shard> {
        &self.inner.shard
    }

    /// Returns whether it belongs to this device.
    pub(super) fn is_of(&self, device: &Arc<Device>) -> bool {
        self.inner.context.is_of(device)
    }

    /// Returns the counter of parent domains that refer to it.
    pub(super) fn users(&self) -> &Users {
        &self.inner.users
    }
}

/// Compares the identity of thread domains.
impl PartialEq for ThreadDomain {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for ThreadDomain {}

impl Context {
    /// Allocates a thread domain.
    #[doc(alias = "ibv_alloc_td")]
    pub fn alloc_td(&self) -> ThreadDomain {
        let context = Arc::clone(&self.inner);
        let shard = Arc::clone(context.device.shards.next());
        ThreadDomain { inner: Arc::new(TdInner { users: Users::default(), shard, context }) }
    }
}
