//! Shared receive queues.

use std::sync::atomic::{AtomicPtr, AtomicU32};
use std::sync::{Arc, Mutex};

use softroce::verbs::SharedReceiveQueue;

use super::context::Objects;
use super::number::next_handle;
use super::users::User;
use crate::abi::{Handle, IbvPd, IbvSrq, SrqHead, UserData};
use crate::border::{Errno, Pointee};
use crate::gate::lock;

/// A shared receive queue.
#[repr(C)]
pub(crate) struct Srq {
    c: SrqHead,
    pub(crate) verbs: SharedReceiveQueue,
    max_sge: u32,
    _of_xrcd: Option<User>,
    objects: Arc<Mutex<Objects>>,
}

impl Pointee for IbvSrq {
    type Object = Srq;
}

impl Srq {
    /// Creates the object of a queue, and registers it for events.
    ///
    /// # Errors
    ///
    /// `EINVAL` when `pd` is null or destroyed, and the errors of the library.
    pub(crate) fn create(
        pd: Handle<IbvPd>,
        srq_context: UserData,
        verbs: SharedReceiveQueue,
        of_xrcd: Option<User>,
    ) -> Result<Handle<IbvSrq>, Errno> {
        let context = pd.get()?.c.context;
        let objects = Arc::clone(&context.get()?.objects);
        let max_sge = verbs.query()?.max_sge;
        let (srqn, table) = (verbs.srqn(), Arc::clone(&objects));
        let c = SrqHead {
            context,
            srq_context: AtomicPtr::new(srq_context),
            pd,
            handle: next_handle(),
            mutex: Default::default(),
            cond: Default::default(),
            events_completed: AtomicU32::new(0),
        };
        let srq = Handle::new(Self { c, verbs, max_sge, _of_xrcd: of_xrcd, objects });
        lock(&table).srqs.insert(srqn, srq);
        Ok(srq)
    }

    /// Returns the maximum number of scatter/gather elements of a receive request.
    pub(crate) fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Events no longer name the queue after this.
    pub(crate) fn unregister(&self) {
        lock(&self.objects).srqs.remove(&self.verbs.srqn());
    }
}
