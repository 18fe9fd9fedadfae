//! The order in which the bytes of a message are stored.

/// Number of bytes at the end of a message that are stored after all others.
pub(super) const TAIL: usize = 8;

/// Order in which bytes are written to a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Unspecified order.
    Plain,
    /// The last 8 bytes after all others, in ascending order, each store with release ordering: a program that polls
    /// them with acquire loads then sees all earlier bytes of the message. For the last packet of a message.
    Final,
}
