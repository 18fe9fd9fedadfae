//! Send permission of a send queue.
//!
//! ```text
//!                 RTS → SQD                  SQE, ERR, RESET
//!   Running ─────────────────► Draining ───────────────────► Halted
//!      ▲ ◄───────────────────────┘                              │
//!      │          SQD → RTS                 SQE → RTS           │
//!      └────────────────────────────────────────────────────────┘
//! ```
//!
//! RC, XRC, UC and UD use only [`SendState::admits`] to check whether a request may send.

/// Send permission, which follows from the state of the queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SendState {
    /// RTS: requests start and continue.
    Running,
    /// SQD: started requests continue, and no request starts (IBTA vol 1, §10.3.1.5).
    Draining,
    /// Any other state: no request packet is sent.
    Halted,
}

impl SendState {
    /// Whether a request may send its next packet; `has_started`: packets of it have been sent. A
    /// request without packets starts and ends at once.
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
