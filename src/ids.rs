//! Identifiers of RDMA objects.
//!
//! Each kind has its own type, so that the compiler rejects a key in place of a queue pair number.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A queue pair number, 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Qpn(u32);

impl Qpn {
    /// Queue pair 1, the general services interface, for connection management.
    pub const GSI: Self = Self(1);
    /// Destination of all multicast packets.
    pub const MULTICAST: Self = Self(0xff_ffff);
    /// Number of low bits that contain the shard.
    pub const SHARD_BITS: u32 = 6;
    /// Maximum number of shards at an address.
    pub const SHARDS: u8 = 1 << Self::SHARD_BITS;

    /// Returns the number with the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & 0xff_ffff)
    }

    /// Returns the 24-bit value.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the shard of the queue pair, among those that share its address. The general services interface
    /// belongs to shard 0.
    pub const fn shard(self) -> u8 {
        let [low, ..] = self.0.to_le_bytes();
        if self.0 == Self::GSI.0 { 0 } else { low & (Self::SHARDS - 1) }
    }
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

/// The number of a shared receive queue, 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Srqn(u32);

impl Srqn {
    /// Returns the number with the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & 0xff_ffff)
    }

    /// Returns the 24-bit value.
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Srqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Srqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

macro_rules! key {
    ($(#[$doc:meta])* $name:ident($int:ty), $width:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub $int);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("0x{:0", $width, "x}"), self.0)
            }
        }
    };
}

key! {
    /// A local key: identifies a region in work requests of this host.
    Lkey(u32), "8"
}
key! {
    /// A remote key: identifies a region or window in requests of peers.
    Rkey(u32), "8"
}
impl Rkey {
    /// Returns the key with the next variant: the low byte incremented, the other bytes unchanged. Binding a window
    /// again requires a new variant (`ibv_inc_rkey(3)`).
    #[doc(alias = "ibv_inc_rkey")]
    pub const fn inc(self) -> Self {
        self.with_variant(self.variant().wrapping_add(1))
    }

    /// Returns the variant, the low byte.
    pub const fn variant(self) -> u8 {
        let [variant, ..] = self.0.to_le_bytes();
        variant
    }

    /// Returns the key of the same region or window with another low byte, which the consumer may choose.
    pub const fn with_variant(self, variant: u8) -> Self {
        let [_, a, b, c] = self.0.to_le_bytes();
        Self(u32::from_le_bytes([variant, a, b, c]))
    }
}

key! {
    /// A queue key. A UD queue pair accepts only packets that carry its key.
    QKey(u32), "8"
}
impl QKey {
    /// Returns whether it is a controlled queue key (bit 31), which requires privilege (IBTA vol 1, §10.2.5).
    pub const fn is_controlled(self) -> bool {
        self.0 >> 31 == 1
    }
}

key! {
    /// A partition key. Bit 15 marks a full member.
    PKey(u16), "4"
}

impl PKey {
    /// Full member of the default partition. Every RoCE port has this key, because RoCE has no subnet manager to
    /// assign others.
    pub const DEFAULT: Self = Self(0xffff);

    /// Returns the partition without the membership bit.
    pub const fn partition(self) -> u16 {
        self.0 & 0x7fff
    }

    /// Returns whether members with these two keys may communicate: same partition, not both limited (IBTA vol 1,
    /// §10.9.3).
    pub const fn matches(self, other: Self) -> bool {
        self.partition() == other.partition() && (self.0 | other.0) & 0x8000 != 0
    }
}

/// A global identifier. In RoCEv2 it is an IP address: IPv6 as it is, IPv4 mapped to
/// `::ffff:a.b.c.d`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Empty entry of a GID table: all zeros.
    pub const EMPTY: Self = Self([0; 16]);

    /// Returns the IP address.
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Self(v6.octets()),
        }
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(ip: Ipv4Addr) -> Self {
        IpAddr::V4(ip).into()
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(ip: Ipv6Addr) -> Self {
        IpAddr::V6(ip).into()
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self.0), f)
    }
}

/// A path MTU: the maximum payload of a packet, without headers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    #[doc(alias = "IBV_MTU_256")]
    Mtu256 = 1,
    /// 512 bytes.
    #[doc(alias = "IBV_MTU_512")]
    Mtu512 = 2,
    /// 1024 bytes, the largest for an interface MTU of 1500.
    #[doc(alias = "IBV_MTU_1024")]
    Mtu1024 = 3,
    /// 2048 bytes.
    #[doc(alias = "IBV_MTU_2048")]
    Mtu2048 = 4,
    /// 4096 bytes.
    #[doc(alias = "IBV_MTU_4096")]
    Mtu4096 = 5,
}

impl Mtu {
    /// Every MTU, in ascending order.
    pub const ALL: [Self; 5] =
        [Self::Mtu256, Self::Mtu512, Self::Mtu1024, Self::Mtu2048, Self::Mtu4096];

    /// Bytes of the interface MTU reserved for headers: IPv6 header or GRH (40), UDP (8), BTH (12), XRCETH (4),
    /// AtomicETH (28) and ICRC (4), as in Linux.
    pub const OVERHEAD: usize = 96;

    /// Returns the size in bytes.
    pub const fn bytes(self) -> usize {
        128 << (self as u8)
    }

    /// Returns the MTU of exactly this size, or `None`.
    pub fn from_bytes(bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    /// Returns the MTU with this code of `enum ibv_mtu`, 1 to 5, or `None`.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| *mtu as u8 == code)
    }

    /// Returns the largest MTU for an interface MTU of `link` bytes, or `None` if even 256 is too large.
    pub fn for_link(link: usize) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|mtu| mtu.bytes() + Self::OVERHEAD <= link)
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes())
    }
}

/// Number of a protection domain in its device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PdId(pub u32);

/// Number of an XRC domain in its device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct XrcdId(pub u32);

/// Number of a completion queue in its device.
///
/// The type has no default, because every number may be in use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CqId(pub u32);

/// Number of a memory window in its device: the upper 24 bits of all its keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MwId(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consumer_chooses_only_the_low_byte_of_a_key() {
        assert_eq!(Rkey(0x1234_5678).inc(), Rkey(0x1234_5679));
        assert_eq!(Rkey(0x1234_56ff).inc(), Rkey(0x1234_5600));
        assert_eq!(Rkey(0x1234_5678).with_variant(1), Rkey(0x1234_5601));
        assert_eq!(Rkey(0x1234_5678).variant(), 0x78);
    }

    #[test]
    fn link_mtu_1500_gives_1024_and_4192_gives_4096() {
        assert_eq!(Mtu::for_link(1500), Some(Mtu::Mtu1024));
        assert_eq!(Mtu::for_link(4191), Some(Mtu::Mtu2048));
        assert_eq!(Mtu::for_link(4192), Some(Mtu::Mtu4096));
        assert_eq!(Mtu::for_link(65536), Some(Mtu::Mtu4096));
        assert_eq!(Mtu::for_link(300), None);
    }

    #[test]
    fn gids_are_ip_addresses() {
        let v4: IpAddr = "10.0.0.1".parse().unwrap();
        let v6: IpAddr = "fe80::1".parse().unwrap();
        assert_eq!(Gid::from(v4).to_string(), "::ffff:10.0.0.1");
        assert_eq!((Gid::from(v4).ip(), Gid::from(v6).ip()), (v4, v6));
    }

    #[test]
    fn two_limited_members_do_not_match() {
        assert!(PKey(0xffff).matches(PKey(0x7fff)));
        assert!(!PKey(0x7fff).matches(PKey(0x7fff)));
        assert!(!PKey(0x8001).matches(PKey(0x8002)));
    }
}
