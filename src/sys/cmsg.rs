//! Socket addresses and control messages as the Linux kernel lays them out.
//!
//! A control message is a length (of a word), a level, a type, and data padded to a word:
//!
//! ```text
//! 0               8        12       16
//! | cmsg_len      | level  | type   | data … | padding |
//! ```

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// `AF_INET` and `AF_INET6` of Linux, in the width that a `sockaddr` has for them.
const IPV4: libc::sa_family_t = 2;
const IPV6: libc::sa_family_t = 10;

const WORD: usize = size_of::<usize>();
const CMSG_HEADER_BYTES: usize = WORD + 8;

/// Bytes for control messages: four with an `int` each.
const CONTROL_BYTES: usize = 4 * (CMSG_HEADER_BYTES + WORD);

/// A `sockaddr_in` or `sockaddr_in6`.
#[derive(Clone, Debug, Default)]
#[repr(C, align(4))]
pub(crate) struct Name {
    bytes: [u8; 28],
}

impl Name {
    /// The bytes for the kernel to read.
    pub(crate) fn bytes(&self) -> &[u8] {
        let len = if self.family() == IPV4 { 16 } else { self.bytes.len() };
        &self.bytes[..len]
    }

    /// The bytes for the kernel to write.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Returns the address; `None` if it is not an IP address.
    pub(crate) fn get(&self) -> Option<SocketAddr> {
        let [_, _, p0, p1, a0, a1, a2, a3, rest @ ..] = self.bytes;
        let port = u16::from_be_bytes([p0, p1]);
        match self.family() {
            IPV4 => Some((Ipv4Addr::new(a0, a1, a2, a3), port).into()),
            IPV6 => {
                let (ip, scope) = rest.split_at(16);
                let ip = Ipv6Addr::from(<[u8; 16]>::try_from(ip).ok()?);
                let scope = u32::from_ne_bytes(scope.try_into().ok()?);
                Some(SocketAddrV6::new(ip, port, 0, scope).into())
            }
            _ => None,
        }
    }

    /// Sets the address. The scope is used for link-local IPv6 addresses.
    pub(crate) fn set(&mut self, ip: IpAddr, port: u16, scope: u32) {
        let family = if ip.is_ipv4() { IPV4 } else { IPV6 };
        self.bytes = [0; 28];
        self.bytes[..2].copy_from_slice(&family.to_ne_bytes());
        self.bytes[2..4].copy_from_slice(&port.to_be_bytes());
        match ip {
            IpAddr::V4(ip) => self.bytes[4..8].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => {
                self.bytes[8..24].copy_from_slice(&ip.octets());
                if ip.is_unicast_link_local() {
                    self.bytes[24..].copy_from_slice(&scope.to_ne_bytes());
                }
            }
        }
    }

    fn family(&self) -> libc::sa_family_t {
        libc::sa_family_t::from_ne_bytes([self.bytes[0], self.bytes[1]])
    }
}

/// Control messages to or from the kernel.
#[derive(Clone, Debug)]
#[repr(C, align(8))]
pub(crate) struct Control {
    bytes: [u8; CONTROL_BYTES],
    len: usize,
}

impl Default for Control {
    fn default() -> Self {
        Self { bytes: [0; CONTROL_BYTES], len: 0 }
    }
}

impl Control {
    /// The messages for the kernel to read.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns the bytes for the kernel to write; [`set_len`](Self::set_len) takes their number.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.len = 0;
        &mut self.bytes
    }

    /// Sets the number of bytes that the kernel wrote.
    pub(crate) fn set_len(&mut self, len: usize) {
        self.len = len.min(CONTROL_BYTES);
    }

    /// Removes all messages.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends a message. One that does not fit is left out; four of an `int` do.
    pub(crate) fn push(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        let end = CMSG_HEADER_BYTES + data.len();
        let room = &mut self.bytes[self.len..];
        debug_assert!(end.next_multiple_of(WORD) <= room.len(), "too many control messages");
        let Some(message) = room.get_mut(..end.next_multiple_of(WORD)) else { return };
        message[..WORD].copy_from_slice(&end.to_ne_bytes());
        message[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        message[WORD + 4..CMSG_HEADER_BYTES].copy_from_slice(&kind.to_ne_bytes());
        message[CMSG_HEADER_BYTES..end].copy_from_slice(data);
        message[end..].fill(0);
        self.len += message.len();
    }

    /// Returns the messages: level, type and data.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (c_int, c_int, &[u8])> {
        let mut rest = self.bytes();
        std::iter::from_fn(move || {
            let (len, after) = rest.split_first_chunk()?;
            let (level, after) = after.split_first_chunk()?;
            let (kind, _) = after.split_first_chunk()?;
            let len = usize::from_ne_bytes(*len);
            let data = rest.get(CMSG_HEADER_BYTES..len)?;
            rest = rest.get(len.next_multiple_of(WORD)..).unwrap_or_default();
            Some((c_int::from_ne_bytes(*level), c_int::from_ne_bytes(*kind), data))
        })
    }
}

/// Returns the value of a message that holds an `int`, or a byte as `IP_TOS` does.
pub(crate) fn integer(data: &[u8]) -> Option<c_int> {
    match data {
        [byte] => Some(c_int::from(*byte)),
        _ => data.first_chunk().map(|bytes| c_int::from_ne_bytes(*bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushed_messages_can_be_read() {
        let mut control = Control::default();
        control.push(1, 2, &7_i32.to_ne_bytes());
        control.push(3, 4, &[9]);
        assert_eq!(control.bytes().len(), 2 * (CMSG_HEADER_BYTES + WORD));
        let read: Vec<_> = control.iter().map(|(l, k, data)| (l, k, integer(data))).collect();
        assert_eq!(read, [(1, 2, Some(7)), (3, 4, Some(9))]);
        control.clear();
        assert_eq!(control.iter().count(), 0);
    }

    #[test]
    fn nonsense_lengths_end_the_list() {
        for len in [0, 3, CMSG_HEADER_BYTES - 1, CMSG_HEADER_BYTES + WORD + 1, usize::MAX - WORD] {
            let mut control = Control::default();
            control.push(1, 2, &[0; 4]);
            control.bytes[..WORD].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(control.iter().count(), 0, "{len}");
        }
    }

    #[test]
    fn names_hold_addresses() {
        assert_eq!([IPV4, IPV6].map(c_int::from), [libc::AF_INET, libc::AF_INET6]);
        let mut name = Name::default();
        assert_eq!(name.get(), None);
        name.set("10.1.2.3".parse().unwrap(), 4791, 0);
        assert_eq!((name.bytes().len(), name.get()), (16, "10.1.2.3:4791".parse().ok()));
        name.set("fe80::1".parse().unwrap(), 1, 3);
        assert_eq!((name.bytes().len(), name.get()), (28, "[fe80::1%3]:1".parse().ok()));
        name.set("2001:db8::1".parse().unwrap(), 1, 3);
        assert_eq!(name.get(), "[2001:db8::1]:1".parse().ok(), "no scope for a global address");
    }
}
