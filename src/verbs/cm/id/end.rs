//! The end of ids.

use std::sync::atomic::Ordering;

use crate::verbs::cm::inner::{Handle, Id, IdInner, Phase, lock};
use crate::verbs::cm::ports::ports;

use super::with_cm;

impl Id {
    /// Destroys the id: a connection ends, a request is rejected, and waiting events are withdrawn. Returns the number of
    /// events that the program has taken.
    #[doc(alias = "rdma_destroy_id")]
    pub fn destroy(&self) -> u32 {
        self.inner.end();
        self.events_reported()
    }
}

impl IdInner {
    fn end(&self) {
        if self.is_ended.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut state = self.state();
        state.phase = Phase::Destroyed;
        if let Some(bind) = state.bind.take() {
            ports().release(bind);
        }
        let (context, attachment) = (state.context.take(), state.attachment.take());
        drop(state);
        drop(attachment);
        let conn = self.take_conn();
        if let Some(conn) = &conn {
            conn.events.remove(conn.id);
            // A failed device has no peers to notify.
            let _ = with_cm(&conn.context, |cm, now| cm.agent.destroy(now, conn.id));
            // After this no event comes, and no other thread refers to the device for this id.
            conn.events.wait_for_delivery();
        }
        // Withdrawn requests are rejected when they are dropped, without a lock.
        let withdrawn = lock(&self.channel).withdraw(self.number);
        let chosen = lock(&self.chosen).take();
        drop((withdrawn, conn, context, chosen));
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.end();
    }
}
