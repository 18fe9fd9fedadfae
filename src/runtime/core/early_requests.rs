//! Requests for connections that arrive before their listener.
//!
//! Some programs, such as `qperf` and perftest with `-R`, tell the peer a port and listen there afterwards. With an adapter
//! the peer usually takes longer to resolve the address than the program to listen; here it takes microseconds. So a
//! request for a service without a listener waits [`LISTENER_WAIT`] before the agent rejects it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::engine::ReceivedMad;
use crate::time::Instant;

/// Time that a request waits for its listener: much less than the peer waits for an answer (4.3 s by default).
const LISTENER_WAIT: Duration = Duration::from_millis(100);

/// Maximum number of requests that wait.
const MAX_REQUESTS: usize = 64;

/// Requests without a listener, the oldest first, and when to reject each.
#[derive(Debug, Default)]
pub(super) struct EarlyRequests(VecDeque<(Instant, ReceivedMad)>);

impl EarlyRequests {
    /// Keeps a request, and returns whether there was room.
    pub(super) fn hold(&mut self, now: Instant, request: &ReceivedMad) -> bool {
        let has_room = self.0.len() < MAX_REQUESTS;
        if has_room {
            self.0.push_back((now + LISTENER_WAIT, request.clone()));
        }
        has_room
    }

    /// Removes the first request that has a listener, or that has waited long enough.
    pub(super) fn take(
        &mut self,
        now: Instant,
        has_listener: impl Fn(&ReceivedMad) -> bool,
    ) -> Option<ReceivedMad> {
        let is_due = |(until, request): &(Instant, _)| *until <= now || has_listener(request);
        let at = self.0.iter().position(is_due)?;
        self.0.remove(at).map(|(_, request)| request)
    }

    /// Removes a request, at the end of the process.
    pub(super) fn take_any(&mut self) -> Option<ReceivedMad> {
        self.0.pop_front().map(|(_, request)| request)
    }

    /// Returns when the oldest request is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.front().map(|(until, _)| *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::MadPath;
    use crate::wire::mad::Mad;

    fn request(number: u8) -> ReceivedMad {
        let path = MadPath {
            source: [127, 0, 0, 1].into(),
            destination: [127, 0, 0, 2].into(),
            traffic_class: 0,
            hop_limit: 64,
            pkey: Default::default(),
        };
        ReceivedMad { path, bytes: Box::new([number; Mad::DATAGRAM_LEN]) }
    }

    #[test]
    fn request_waits_for_its_listener_and_no_longer_than_the_limit() {
        let mut early = EarlyRequests::default();
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        for number in 0..3 {
            assert!(early.hold(at(number.into()), &request(number)));
        }
        assert_eq!(early.deadline(), Some(at(100)));
        assert_eq!(early.take(at(99), |_| false), None);
        let second = early.take(at(99), |held| held.bytes[0] == 1);
        assert_eq!(second, Some(request(1)), "it has a listener");
        assert_eq!(early.take(at(100), |_| false), Some(request(0)));
        assert_eq!((early.take(at(100), |_| false), early.deadline()), (None, Some(at(102))));
        assert_eq!((early.take_any(), early.take_any()), (Some(request(2)), None));
        assert_eq!(early.deadline(), None);
    }

    #[test]
    fn requests_of_a_flood_do_not_wait() {
        let mut early = EarlyRequests::default();
        let held = (0..100).filter(|number| early.hold(Instant::ZERO, &request(*number))).count();
        assert_eq!(held, MAX_REQUESTS);
    }
}
