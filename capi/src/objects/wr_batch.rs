//! The requests that a program builds between `ibv_wr_start` and `ibv_wr_complete`.

use std::sync::Mutex;

use softroce::verbs::SendRequest;

use crate::border::Errno;
use crate::gate::{Gate, lock};

/// A batch of requests. One thread at a time builds it.
#[derive(Default)]
pub(crate) struct WrBatch {
    gate: Gate,
    content: Mutex<Content>,
}

#[derive(Default)]
struct Content {
    requests: Vec<SendRequest>,
    /// The first error, which `ibv_wr_complete` returns.
    error: Option<Errno>,
}

impl WrBatch {
    /// Begins a batch. Waits until other threads have ended theirs.
    pub(crate) fn start(&self) {
        self.gate.close();
    }

    /// Changes the requests, and keeps the first error for [`take`](Self::take).
    pub(crate) fn change(&self, change: impl FnOnce(&mut Vec<SendRequest>) -> Result<(), Errno>) {
        let mut content = lock(&self.content);
        let result = change(&mut content.requests);
        if content.error.is_none() {
            content.error = result.err();
        }
    }

    /// Takes the requests out of the batch.
    ///
    /// # Errors
    ///
    /// The first error of [`change`](Self::change). The requests are then dropped.
    pub(crate) fn take(&self) -> Result<Vec<SendRequest>, Errno> {
        let Content { requests, error } = std::mem::take(&mut *lock(&self.content));
        error.map_or(Ok(requests), Err)
    }

    /// Lets the next thread begin a batch.
    pub(crate) fn end(&self) {
        self.gate.open();
    }
}
