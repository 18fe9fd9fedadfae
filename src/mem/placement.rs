//! The order in which the bytes of a message are stored.

/// The bytes at the end of a message that are stored after all others.
pub(super) const TAIL: usize = 8;

/// How bytes are put into a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// In no particular order.
    Plain,
    /// The last 8 bytes after all others, in ascending order, each store a release: a program that polls for
    /// them with an acquire load and sees them sees everything placed before. For the last packet
    /// of a message.
    Final,
}
