//! The congestion notification packet (CNP), which asks a sender to reduce its rate.
//!
//! A CNP consists of a BTH with BECN set, for a queue pair with packets that met congestion, and 16 reserved bytes. It
//! has no PSN of its own, is not acknowledged, and belongs to no message (IBTA vol 1, annex A17).

/// Reserved bytes after the BTH of a CNP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Cnp;

impl Cnp {
    /// Length in bytes.
    pub const LEN: usize = 16;

    /// Parses nothing: receivers ignore the bytes.
    pub const fn parse(_: &[u8; Self::LEN]) -> Self {
        Self
    }

    /// Writes zeros.
    pub const fn write(&self, bytes: &mut [u8; Self::LEN]) {
        *bytes = [0; Self::LEN];
    }
}
