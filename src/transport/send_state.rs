//! Which packets of requests a send queue may send.
//!
//! ```text
//!                 RTS → SQD                  SQE, ERR, RESET
//!   Running ─────────────────► Draining ───────────────────► Halted
//!      ▲ ◄───────────────────────┘                              │
//!      │          SQD → RTS                 SQE → RTS           │
//!      └────────────────────────────────────────────────────────┘
//! ```
//!
//! RC, XRC, UC and UD ask [`SendState::admits`], and nothing else, whether a request may send.

/// Permission of a send queue to send, which follows from the state of its queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SendState {
    /// RTS: requests start and go on.
    Running,
    /// SQD: requests that have started go on, and no request starts (IBTA vol 1, §10.3.1.5).
    Draining,
    /// Any other state: no request packet leaves.
    Halted,
}

impl SendState {
    /// Whether a request may send its next packet; `has_started` says whether packets of it have been sent. A request
    /// that takes no packet starts and ends at once.
    #[inline]
    pub(crate) fn admits(self, has_started: impl FnOnce() -> bool) -> bool {
        match self {
            Self::Running => true,
            Self::Draining => has_started(),
            Self::Halted => false,
        }
    }

    /// Whether a request may start.
    #[inline]
    pub(crate) fn admits_new(self) -> bool {
        self.admits(|| false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draining_queue_finishes_started_requests_only() {
        let admitted = |state: SendState| [state.admits(|| true), state.admits_new()];
        assert_eq!(admitted(SendState::Running), [true, true]);
        assert_eq!(admitted(SendState::Draining), [true, false]);
        assert_eq!(admitted(SendState::Halted), [false, false]);
    }
}
