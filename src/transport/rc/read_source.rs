//! Source of the payload of a READ response.
//!
//! The payload is copied from memory when its packet is sent. A later request that writes to the same memory may be executed
//! before that. The specification lets the READ return either bytes then, unless the requester has fenced the later request
//! (IBTA vol 1, §10.8.3.3). But kernel rxe and adapters execute requests in order, and programs rely on it: Open MPI replaces
//! memory by a READ and a WRITE. So a READ saves what is about to change and was not sent, up to [`MAX_SAVED`].

use crate::mem::{EpochGuard, Revoked, Span};

/// Maximum number of bytes that the pending READs of a queue pair save. Bytes beyond it are sent as they are after the write.
pub(super) const MAX_SAVED: usize = 4 << 20;

/// Memory that a READ response is copied from.
#[derive(Debug)]
pub(crate) struct ReadSource {
    span: Span,
    /// Offset of the span within the message, in bytes.
    offset: usize,
    /// The bytes that are not sent yet, if memory has changed since.
    saved: Option<Box<SavedBytes>>,
}

/// Bytes of a READ, as they were when it was executed.
#[derive(Debug)]
struct SavedBytes {
    /// Offset within the span.
    from: usize,
    bytes: Vec<u8>,
}

impl ReadSource {
    /// `offset`: that of the span within the message, in bytes.
    pub(crate) fn new(span: Span, offset: usize) -> Self {
        Self { span, offset, saved: None }
    }

    /// Copies `to.len()` bytes from offset `at` of the message.
    ///
    /// # Errors
    /// [`Revoked`] when the memory was deregistered.
    pub(crate) fn copy_out(
        &self,
        guard: &EpochGuard<'_>,
        at: usize,
        to: &mut [u8],
    ) -> Result<(), Revoked> {
        let at = at.wrapping_sub(self.offset);
        match &self.saved {
            None => self.span.copy_out(guard, at, to),
            Some(saved) => saved.copy_out(at, to).filter(|()| self.span.is_live()).ok_or(Revoked),
        }
    }

    /// Saves the bytes `from..to` of the message, if some of them are in `written` and they are at most `room`.
    /// Returns the number of bytes that it has saved.
    pub(super) fn save(
        &mut self,
        guard: &EpochGuard<'_>,
        (from, to): (usize, usize),
        written: &Span,
        room: usize,
    ) -> usize {
        let (from, len) = (from.saturating_sub(self.offset), to.saturating_sub(from));
        if self.saved.is_some() || len > room || !self.span.overlaps(from, len, written) {
            return 0;
        }
        let mut bytes = vec![0; len];
        // Of memory that has gone nothing is saved: the response ends with a NAK.
        if self.span.copy_out(guard, from, &mut bytes).is_err() {
            return 0;
        }
        self.saved = Some(Box::new(SavedBytes { from, bytes }));
        len
    }

    /// Returns the number of saved bytes.
    pub(super) fn saved_len(&self) -> usize {
        self.saved.as_ref().map_or(0, |saved| saved.bytes.len())
    }
}

impl SavedBytes {
    /// Copies `to.len()` bytes from offset `at` of the span. `None` if some of them are not saved.
    fn copy_out(&self, at: usize, to: &mut [u8]) -> Option<()> {
        let from = at.checked_sub(self.from)?;
        to.copy_from_slice(self.bytes.get(from..from.checked_add(to.len())?)?);
        Some(())
    }
}
