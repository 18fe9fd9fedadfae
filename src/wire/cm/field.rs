//! Typed bit fields of connection manager messages.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ids::{Gid, Mtu, PKey, QKey, Qpn};
use crate::psn::Psn;

use super::Path;
use super::ids::{CommId, Guid, ServiceId};

/// Value of a field for display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// A boolean.
    Flag(bool),
    /// A count, a code or an exponent.
    Number(u64),
    /// An identifier, with its number of hexadecimal digits.
    Name(u64, usize),
    /// An IP address.
    Address(IpAddr),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Flag(flag) => write!(f, "{}", u8::from(flag)),
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(number, digits) => write!(f, "0x{number:0digits$x}"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

/// A type of fields, converted from and to bits. The last bit is the lowest.
pub(super) trait Field: Copy {
    fn from_bits(bits: u128) -> Self;
    fn to_bits(self) -> u128;
    fn value(self) -> Value;
}

/// A sequence of bits in a message: one field, or a structure of several.
pub(super) trait BitField {
    /// Reads `len` bits from bit `at` on, in transmission order.
    fn read(bytes: &[u8], at: usize, len: usize) -> Self;
    /// Writes `len` bits from bit `at` on.
    fn write(&self, bytes: &mut [u8], at: usize, len: usize);
    fn show(&self, name: &'static str, show: &mut dyn FnMut(&'static str, Value));
}

/// Returns whether `len` bits from a bit of a byte on can be a field: whole bytes, or bits of as many bytes as a `u128` has.
pub(super) const fn is_possible(bit: usize, len: usize) -> bool {
    let is_whole = bit == 0 && len.is_multiple_of(8);
    is_whole || bit + len <= u128::BITS as usize
}

/// Place of a field's bits in the bytes that have them.
#[derive(Clone, Copy)]
struct Place {
    /// Number of the first byte.
    first: usize,
    /// Number of bytes, at most those of a `u128`.
    bytes: usize,
    /// Number of bits behind the field in its last byte.
    behind: usize,
    /// Bits of the field, as low as they can be.
    mask: u128,
}

impl Place {
    /// Number of bytes of the bits of a field.
    const MAX: usize = size_of::<u128>();

    #[inline]
    const fn new(at: usize, len: usize) -> Self {
        let (first, end) = (at / 8, at + len);
        let bytes = end.div_ceil(8) - first;
        Self { first, bytes, behind: (first + bytes) * 8 - end, mask: u128::MAX >> (128 - len) }
    }
}

impl<T: Field> BitField for T {
    #[inline]
    fn read(bytes: &[u8], at: usize, len: usize) -> Self {
        let Place { first, bytes: count, behind, mask } = Place::new(at, len);
        let mut bits = [0; Place::MAX];
        let from = bytes.get(first..).unwrap_or_default().iter().take(count);
        for (to, from) in bits.iter_mut().skip(Place::MAX - count).zip(from) {
            *to = *from;
        }
        Self::from_bits(u128::from_be_bytes(bits) >> behind & mask)
    }

    #[inline]
    fn write(&self, bytes: &mut [u8], at: usize, len: usize) {
        let Place { first, bytes: count, behind, mask } = Place::new(at, len);
        let bits = ((self.to_bits() & mask) << behind).to_be_bytes();
        let mask = (mask << behind).to_be_bytes();
        let from = bits.iter().zip(&mask).skip(Place::MAX - count);
        for (to, (bits, mask)) in bytes.iter_mut().skip(first).zip(from) {
            *to = *to & !mask | bits;
        }
    }

    fn show(&self, name: &'static str, show: &mut dyn FnMut(&'static str, Value)) {
        show(name, self.value());
    }
}

/// Shows only the first of two consecutive paths, because RoCE does not use alternate paths.
impl BitField for Path {
    fn read(bytes: &[u8], at: usize, len: usize) -> Self {
        Self::parse(bytes.get(at / 8..(at + len) / 8).unwrap_or_default())
    }

    fn write(&self, bytes: &mut [u8], at: usize, _len: usize) {
        if let Some(bytes) = bytes.get_mut(at / 8..).and_then(<[u8]>::first_chunk_mut) {
            Self::write(self, bytes);
        }
    }

    fn show(&self, name: &'static str, show: &mut dyn FnMut(&'static str, Value)) {
        if name == "primary" {
            self.each_field(show);
        }
    }
}

/// Implements [`Field`] for integer types.
macro_rules! fields {
    ($($type:ty: $int:ty, $new:expr, $get:expr, $value:expr;)*) => {$(
        impl Field for $type {
            fn from_bits(bits: u128) -> Self {
                // The field is not wider than the integer.
                $new(<$int>::try_from(bits).unwrap_or_default())
            }

            fn to_bits(self) -> u128 {
                u128::from($get(self))
            }

            fn value(self) -> Value {
                $value(u64::from($get(self)))
            }
        }
    )*};
}

const fn same<T: Copy>(value: T) -> T {
    value
}

fields! {
    u8: u8, same, same, Value::Number;
    u16: u16, same, same, Value::Number;
    u32: u32, same, same, Value::Number;
    Qpn: u32, Qpn::new, Qpn::value, |n| Value::Name(n, 6);
    Psn: u32, Psn::new, Psn::value, Value::Number;
    QKey: u32, QKey, |key: QKey| key.0, |n| Value::Name(n, 8);
    PKey: u16, PKey, |key: PKey| key.0, |n| Value::Name(n, 4);
    CommId: u32, CommId, |id: CommId| id.0, |n| Value::Name(n, 8);
    ServiceId: u64, ServiceId, |id: ServiceId| id.0, |n| Value::Name(n, 16);
    Guid: u64, Guid, |guid: Guid| guid.0, |n| Value::Name(n, 16);
}

impl Field for bool {
    fn from_bits(bits: u128) -> Self {
        bits != 0
    }

    fn to_bits(self) -> u128 {
        u128::from(self)
    }

    fn value(self) -> Value {
        Value::Flag(self)
    }
}

impl Field for Gid {
    fn from_bits(bits: u128) -> Self {
        Self(bits.to_be_bytes())
    }

    fn to_bits(self) -> u128 {
        u128::from_be_bytes(self.0)
    }

    fn value(self) -> Value {
        Value::Address(self.ip())
    }
}

/// An unassigned code parses as `None`, which is written as 0.
impl Field for Option<Mtu> {
    fn from_bits(bits: u128) -> Self {
        u8::try_from(bits).ok().and_then(Mtu::from_code)
    }

    fn to_bits(self) -> u128 {
        self.map_or(0, |mtu| u128::from(mtu as u8))
    }

    fn value(self) -> Value {
        Value::Number(self.map_or(0, |mtu| mtu.bytes() as u64))
    }
}

/// An address in the format of rdma_cm: IPv4 in the last four bytes, after zeros.
impl Field for IpAddr {
    fn from_bits(bits: u128) -> Self {
        match u32::try_from(bits) {
            Ok(v4) => Ipv4Addr::from(v4).into(),
            Err(_) => Ipv6Addr::from(bits).into(),
        }
    }

    fn to_bits(self) -> u128 {
        match self {
            Self::V4(v4) => u32::from(v4).into(),
            Self::V6(v6) => v6.into(),
        }
    }

    fn value(self) -> Value {
        Value::Address(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a field bit by bit.
    fn bits_of(bytes: &[u8], at: usize, len: usize) -> u128 {
        let bit = |at: usize| u128::from(bytes[at / 8] >> (7 - at % 8) & 1);
        (at..at + len).fold(0, |bits, at| bits << 1 | bit(at))
    }

    #[test]
    fn every_place_is_read_and_written_without_its_neighbours() {
        let bytes: [u8; 6] = [0xa5, 0x3c, 0x96, 0x0f, 0x71, 0xe2];
        for (at, len) in (0..16).flat_map(|at| (1..=32).map(move |len| (at, len))) {
            let read: u32 = BitField::read(&bytes, at, len);
            assert_eq!(u128::from(read), bits_of(&bytes, at, len), "bit {at}, {len} bits");
            let mut written = bytes;
            // Bits that the field does not have are not written.
            (!read).write(&mut written, at, len);
            for bit in 0..48 {
                let is_field = (at..at + len).contains(&bit);
                let changes = bits_of(&written, bit, 1) != bits_of(&bytes, bit, 1);
                assert_eq!(changes, is_field, "bit {at}, {len} bits: bit {bit}");
            }
        }
    }

    #[test]
    fn missing_bytes_are_zeros_and_are_not_written() {
        let mut bytes = [0xff; 3];
        let read: u32 = BitField::read(&bytes, 12, 32);
        assert_eq!(read, 0xfff0_0000);
        0_u32.write(&mut bytes, 12, 32);
        assert_eq!(bytes, [0xff, 0xf0, 0]);
        let nothing: Gid = BitField::read(&[], 0, 128);
        assert_eq!(nothing, Gid([0; 16]));
    }
}
