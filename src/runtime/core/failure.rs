//! Failure of a device: all waiting threads get an error.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;

use crate::engine::{QpAttr, QpState};
use crate::ids::Qpn;
use crate::runtime::core::Core;
use crate::time::Instant;
use crate::transport::outputs::AsyncEvent;

impl Core {
    /// Flushes every queue pair and reports the failure to every context. Sends nothing.
    pub(crate) fn fail(&mut self, now: Instant) {
        let mut qpns: Vec<_> = self.owners.qps.keys().copied().collect();
        qpns.sort_unstable_by_key(|qpn| qpn.value());
        for qpn in qpns {
            // The panic may have left one queue pair in an inconsistent state. The others are flushed.
            let _ = catch_unwind(AssertUnwindSafe(|| self.flush_failed(now, qpn)));
        }
        // Before the queues are closed.
        self.wakes |= self.rings.take_ready().announce();
        self.report_to_contexts(AsyncEvent::DeviceFatal);
    }

    /// Closes all queues: threads that wait for more than the flushed requests wake up.
    pub(crate) fn close_queues(&mut self) {
        self.rings.close();
        for events in self.contexts.iter().filter_map(Weak::upgrade) {
            events.close();
        }
    }

    fn flush_failed(&mut self, now: Instant, qpn: Qpn) {
        // In RESET, the one state without a transition to ERR, there is nothing to flush.
        let _ = self.engine.modify_qp(now, qpn, &QpAttr::to(QpState::Err), |_, wanted| wanted);
        self.move_completions(now);
        self.rings.announce_when_unlocked();
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;
    use crate::net::TransmitErrorKind;
    use crate::runtime::AckPolicy;
    use crate::runtime::post_coalescing::Doorbell;
    use crate::runtime::queue::{OnSignal, Queue, WaitOutcome};
    use crate::runtime::wire_of_tests::{End, pair};
    use crate::sync::notify::Armed;
    use crate::sys::is_closed;
    use crate::transport::work::{RecvRequest, SendRequest, WcStatus};

    const NOW: Instant = Instant::ZERO;

    /// Returns the completions in its completion queue.
    fn ends(end: &End) -> Vec<(u64, WcStatus)> {
        let found = std::iter::from_fn(|| end.ring.completions.pop());
        found.map(|completion| (completion.wr_id, completion.status)).collect()
    }

    #[test]
    fn failure_flushes_posted_requests_and_sends_nothing() {
        let (mut a, b) = pair(AckPolicy::BeforeCompletion, 16);
        let events = Arc::new(Queue::new(16));
        a.core.add_context(&events);
        a.core.post_recvs(NOW, a.qpn, [RecvRequest::new(7, a.sge(8))]).1.unwrap();
        a.core
            .post_send(NOW, a.qpn, SendRequest::write(1, a.sge(8), b.remote()), Doorbell::Now)
            .unwrap();
        a.wire.lock().unwrap().busy = true;
        a.core
            .post_send(NOW, a.qpn, SendRequest::write(2, a.sge(8), b.remote()), Doorbell::Now)
            .unwrap();
        a.wire.lock().unwrap().busy = false;
        a.log();
        a.ring.arm(Armed::Solicited);
        a.core.fail(NOW);
        a.core.close_queues();
        let flushed = [1, 2, 7].map(|wr_id| (wr_id, WcStatus::WrFlushErr));
        assert_eq!((ends(&a), a.log()), (flushed.to_vec(), vec!["announce".to_owned()]));
        assert_eq!((events.pop(), events.pop()), (Some(AsyncEvent::DeviceFatal), None));
        assert_eq!(a.ring.completions.block(None, OnSignal::Wait), WaitOutcome::Ended, "closed");
        assert_eq!(events.block(None, OnSignal::Wait), WaitOutcome::Ended, "closed");
    }

    #[test]
    fn a_socket_that_was_closed_under_the_port_is_noticed() {
        let (mut a, b) = pair(AckPolicy::Lazy, 16);
        let mut receives = |errno: i32| {
            a.wire.lock().unwrap().receive_error = Some(errno);
            a.core.turn(NOW);
            a.core.take_notices().is_some_and(|notices| notices.port_closed)
        };
        assert!(!receives(libc::ENOMEM), "it may come to itself again");
        assert!(receives(libc::EBADF));
        let (mut a, _) = pair(AckPolicy::Lazy, 16);
        a.wire.lock().unwrap().refuses = Some(TransmitErrorKind::Closed);
        a.core
            .post_send(NOW, a.qpn, SendRequest::write(1, a.sge(8), b.remote()), Doorbell::Now)
            .unwrap();
        assert!(a.core.take_notices().is_some_and(|notices| notices.port_closed));
        assert!(is_closed(&io::Error::from_raw_os_error(libc::ENOTSOCK)));
    }
}
