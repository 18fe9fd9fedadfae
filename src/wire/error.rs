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
    /// Neither IPv4 nor IPv6.
    #[error("IP version {found}, expected 4 or 6")]
    IpVersion {
        /// The upper half of the first byte.
        found: u8,
    },
    /// An IPv4 header with options, or with a length that cannot be.
    #[error("IPv4 header of {found} bytes, expected 20")]
    Ipv4HeaderLength {
        /// The length that the header claims to have.
        found: usize,
    },
    /// A piece of an IPv4 packet. RoCE is never fragmented.
    #[error("IPv4 fragment at byte {offset}, expected a whole packet")]
    Fragment {
        /// Where in the whole packet the piece belongs.
        offset: usize,
    },
    /// Not UDP.
    #[error("IP protocol {found}, expected 17 (UDP)")]
    Protocol {
        /// IPv4's protocol or IPv6's next header.
        found: u8,
    },
    /// The UDP length is less than the UDP header's or more than the IP packet holds.
    #[error("UDP length {found}, expected 8 to {limit}")]
    UdpLength {
        /// The field's value.
        found: usize,
        /// What the IP header leaves for UDP.
        limit: usize,
    },
}
