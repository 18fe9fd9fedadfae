//! Errors of packet parsers.

use thiserror::Error;

/// Error of a packet parser.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The bytes end within a header, the padding or the ICRC.
    #[error("truncated in {part}: need {need} bytes, have {have}")]
    Truncated {
        /// Name of the truncated part in the specification.
        part: &'static str,
        /// Length of the part in bytes.
        need: usize,
        /// Number of available bytes.
        have: usize,
    },
    /// The transport header version in the BTH is not 0.
    #[error("transport version {found}, expected 0")]
    TransportVersion {
        /// Value of the field, 1 to 15.
        found: u8,
    },
    /// The opcode is not assigned.
    #[error("opcode 0x{byte:02x} is not assigned")]
    UnassignedOpcode {
        /// First byte of the BTH.
        byte: u8,
    },
    /// The IP version is neither 4 nor 6.
    #[error("IP version {found}, expected 4 or 6")]
    IpVersion {
        /// Upper half of the first byte.
        found: u8,
    },
    /// The IPv4 header has options or an invalid length.
    #[error("IPv4 header of {found} bytes, expected 20")]
    Ipv4HeaderLength {
        /// Length in the header, in bytes.
        found: usize,
    },
    /// The packet is a fragment. RoCE packets are never fragmented.
    #[error("IPv4 fragment at byte {offset}, expected a whole packet")]
    Fragment {
        /// Fragment offset in bytes.
        offset: usize,
    },
    /// The protocol is not UDP.
    #[error("IP protocol {found}, expected 17 (UDP)")]
    Protocol {
        /// IPv4 protocol or IPv6 next header.
        found: u8,
    },
    /// The UDP length is smaller than the UDP header or larger than the IP payload.
    #[error("UDP length {found}, expected 8 to {limit}")]
    UdpLength {
        /// Value of the field.
        found: usize,
        /// Length of the IP payload in bytes.
        limit: usize,
    },
}
