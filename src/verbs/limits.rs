//! Limits that queue pairs and shared receive queues have in common.

use crate::verbs::Error;

/// Maximum number of unfinished requests of one queue.
pub(super) const MAX_WR: u32 = 1 << 15;

/// Maximum number of scatter/gather elements of one request.
pub(super) const MAX_SGE: u32 = 32;

/// Maximum bytes of an inline request.
pub(super) const MAX_INLINE: u32 = 1024;

/// Returns [`Error::Limit`] when the value `found` of the attribute `what` exceeds `max`.
pub(super) fn check_max(what: &'static str, found: u32, max: u32) -> Result<(), Error> {
    let (found, max) = (found.into(), max.into());
    if found <= max { Ok(()) } else { Err(Error::Limit { what, found, min: 0, max }) }
}
