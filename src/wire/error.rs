//! Why bytes make no packet.

use thiserror::Error;

/// Bytes that are no packet: what was found and what was expected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The bytes end within a header, the padding or the ICRC.
    #[error("truncated in {part}: need {need} bytes, have {have}")]
    Truncated {
        /// The part that is cut off, as it is called in the specification.
        part: &'static str,
        /// Its length.
        need: usize,
        /// The bytes that are there.
        have: usize,
    },
    /// The transport version in the BTH is one that does not exist.
    #[error("transport version {found}, expected 0")]
    TransportVersion {
        /// The field's value, 1 to 15.
        found: u8,
    },
    /// No operation has this opcode.
    #[error("opcode 0x{byte:02x} is not assigned")]
    UnassignedOpcode {
        /// The first byte of the BTH.
        byte: u8,
    },
}
