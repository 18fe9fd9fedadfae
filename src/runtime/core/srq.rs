//! Shared receive queues, under the shard's lock.

use std::sync::Arc;

use crate::engine::{PostError, SrqError, SrqInit};
use crate::ids::Srqn;
use crate::runtime::core::Core;
use crate::runtime::queue::Queue;
use crate::transport::outputs::AsyncEvent;
use crate::transport::work::RecvRequest;

impl Core {
    /// Creates a shared receive queue; its events go to `owner`.
    pub(crate) fn create_srq(
        &mut self,
        init: SrqInit,
        owner: &Arc<Queue<AsyncEvent>>,
    ) -> Result<Srqn, SrqError> {
        let srqn = self.engine.create_srq(init)?;
        self.owners.srqs.insert(srqn, Arc::clone(owner));
        Ok(srqn)
    }

    /// Destroys a shared receive queue that no queue pair uses any more.
    pub(crate) fn destroy_srq(&mut self, srqn: Srqn) -> Result<(), SrqError> {
        self.engine.destroy_srq(srqn)?;
        self.owners.srqs.remove(&srqn);
        Ok(())
    }

    /// Posts receive requests until one is refused, and returns their number.
    pub(crate) fn post_srq_recvs(
        &mut self,
        srqn: Srqn,
        requests: impl IntoIterator<Item = RecvRequest>,
    ) -> (usize, Result<(), PostError>) {
        let mut taken = 0;
        for request in requests {
            if let Err(error) = self.engine.post_srq_recv(srqn, request) {
                return (taken, Err(error));
            }
            taken += 1;
        }
        (taken, Ok(()))
    }
}
