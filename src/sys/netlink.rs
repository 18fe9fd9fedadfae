//! Messages of `netlink(7)`: a header, a body of a length fixed by the type, and attributes.
//!
//! ```text
//! nlmsghdr   0 length u32   4 type u16   6 flags u16   8 sequence u32   12 port id u32
//! nlattr     0 length u16, of the attribute without padding   2 type u16   4 value   padding to 4 bytes
//! ```
//!
//! Numbers have the byte order of the machine.

use std::io;
use std::iter;

use libc::c_int;
use socket2::{Domain, Protocol, Socket, Type};

/// Length in bytes of a `nlmsghdr`.
pub(super) const HEADER_LEN: usize = 16;

/// Length in bytes of the length and the type of an attribute, and the alignment of attributes.
const ATTRIBUTE_HEADER_LEN: usize = 4;

/// Bits of an attribute's type that are flags (`NLA_F_NESTED`, `NLA_F_NET_BYTEORDER` of `linux/netlink.h`).
const ATTRIBUTE_FLAGS: u16 = 0xc000;

/// `NLM_F_REQUEST` of `linux/netlink.h`.
pub(super) const REQUEST: u16 = 1;

/// `NLMSG_ERROR` of `linux/netlink.h`.
pub(super) const ERROR: u16 = 2;

/// Opens a socket of a netlink protocol (`NETLINK_ROUTE`, …), which does not wait.
pub(super) fn open(protocol: c_int) -> io::Result<Socket> {
    let domain = Domain::from(libc::AF_NETLINK);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::from(protocol)))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A received message, which may be cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    /// Type of the message.
    pub(super) kind: u16,
    /// Sequence number of the request that it answers.
    pub(super) sequence: u32,
    /// Body and attributes.
    pub(super) body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Parses a message; `None` without a whole header.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (kind, sequence) = (u16_at(bytes, 4)?, u32_at(bytes, 8)?);
        Some(Self { kind, sequence, body: bytes.get(HEADER_LEN..)? })
    }
}

/// Returns types and values of attributes, up to the first that is cut.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    iter::from_fn(move || {
        let (len, kind) = (usize::from(u16_at(bytes, 0)?), u16_at(bytes, 2)?);
        let value = bytes.get(ATTRIBUTE_HEADER_LEN..len)?;
        bytes = bytes.get(len.next_multiple_of(ATTRIBUTE_HEADER_LEN)..).unwrap_or_default();
        Some((kind & !ATTRIBUTE_FLAGS, value))
    })
}

/// Returns a request: a header, `body`, and attributes with their types.
#[cfg(any(feature = "packet", test))]
pub(super) fn request(
    kind: u16,
    sequence: u32,
    body: &[u8],
    attributes: &[(u16, &[u8])],
) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    bytes.extend(body);
    for (kind, value) in attributes {
        bytes.extend(u16::try_from(ATTRIBUTE_HEADER_LEN + value.len()).unwrap_or(0).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(*value);
        bytes.resize(bytes.len().next_multiple_of(ATTRIBUTE_HEADER_LEN), 0);
    }
    let len = u32::try_from(bytes.len()).unwrap_or(0);
    bytes[0..4].copy_from_slice(&len.to_ne_bytes());
    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    bytes
}

/// Returns the 16-bit number at an offset; `None` if the bytes end before it.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// Returns the 32-bit number at an offset; `None` if the bytes end before it.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_parsed_back_and_padding_is_no_value() {
        let bytes = request(26, 7, &[9; 12], &[(1, &[1, 2, 3]), (0x8004, &[]), (2, &[4; 4])]);
        assert_eq!(u32_at(&bytes, 0), Some(48));
        assert_eq!(bytes.len(), 48);
        let message = Message::parse(&bytes).unwrap();
        assert_eq!((message.kind, message.sequence), (26, 7));
        assert_eq!(message.body[..12], [9; 12]);
        let found: Vec<_> = attributes(&message.body[12..]).collect();
        assert_eq!(found, [(1, &[1, 2, 3][..]), (4, &[][..]), (2, &[4; 4][..])]);
    }

    #[test]
    fn attributes_end_at_the_first_that_is_cut() {
        let whole = request(0, 0, &[], &[(1, &[1; 8]), (2, &[2; 5])]);
        let of = |len: usize| attributes(&whole[HEADER_LEN..len]).count();
        let counts: Vec<_> = (HEADER_LEN..=whole.len()).map(of).collect();
        let expected: Vec<_> = [0; 12].into_iter().chain([1; 9]).chain([2; 4]).collect();
        assert_eq!(counts, expected);
        for header_len in 0..HEADER_LEN {
            assert!(Message::parse(&whole[..header_len]).is_none(), "{header_len} bytes");
        }
    }

    #[test]
    fn attribute_shorter_than_its_header_ends_the_list() {
        for len in 0..4_u16 {
            let [low, high] = len.to_ne_bytes();
            assert_eq!(attributes(&[low, high, 1, 0, 0, 0, 0, 0]).count(), 0, "length {len}");
        }
    }
}
