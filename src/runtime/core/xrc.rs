//! XRC targets, under the shard's lock: queue pairs that several contexts may hold.

use std::sync::Arc;

use crate::ids::{Qpn, XrcdId};
use crate::runtime::core::Core;
use crate::runtime::queue::Queue;
use crate::time::Instant;
use crate::transport::outputs::AsyncEvent;

impl Core {
    /// Opens a target of this domain once more; its events go to `owner` too. Returns false if there is none with this
    /// number.
    pub(crate) fn open_target(
        &mut self,
        qpn: Qpn,
        domain: XrcdId,
        owner: &Arc<Queue<AsyncEvent>>,
    ) -> bool {
        let found = self.engine.query_qp(qpn).is_some_and(|info| info.init.xrcd == Some(domain));
        if found && let Some(owners) = self.owners.qps.get_mut(&qpn) {
            owners.push(Arc::clone(owner));
        }
        found
    }

    /// Closes a target that was created or opened for `owner`. The last one to close it destroys it.
    pub(crate) fn close_target(&mut self, now: Instant, qpn: Qpn, owner: &Arc<Queue<AsyncEvent>>) {
        let Some(owners) = self.owners.qps.get_mut(&qpn) else { return };
        if owners.len() == 1 {
            self.destroy_qp(now, qpn);
        } else if let Some(index) = owners.iter().position(|other| Arc::ptr_eq(other, owner)) {
            owners.swap_remove(index);
        }
    }
}
