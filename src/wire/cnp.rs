//! The congestion notification packet: "slow down, your packets to me met congestion".
//!
//! A CNP is a BTH with BECN set, for the queue pair that shall slow down, and 16 reserved bytes. It
//! has no PSN of its own, is never acknowledged, and is not part of any message (IBTA vol 1, annex
//! A17).

/// The reserved bytes after the BTH of a CNP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Cnp;

impl Cnp {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Reads nothing: whatever the bytes are, they are ignored.
    pub const fn parse(_: &[u8; Self::LEN]) -> Self {
        Self
    }

    /// Writes zeros.
    pub const fn write(&self, bytes: &mut [u8; Self::LEN]) {
        *bytes = [0; Self::LEN];
    }
}
