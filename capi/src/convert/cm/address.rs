//! Socket addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use nix::libc::{AF_INET, AF_INET6, sa_family_t};

use crate::abi::{LongAddress, ShortAddress};
use crate::border::Errno;

/// `AF_IB`.
const AF_IB: u16 = 27;

/// Sizes of `sockaddr_in`, `sockaddr_in6` and `sockaddr_ib`, in bytes.
const IPV4_SIZE: u16 = 16;
const IPV6_SIZE: u16 = 28;
const IB_SIZE: u16 = 48;

/// An address in a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CmAddress {
    /// `sockaddr_in` or `sockaddr_in6`.
    Ip(SocketAddr),
    /// `sockaddr_ib`, and whether its GID is unspecified.
    Ib { is_any: bool },
}

impl CmAddress {
    /// Reads the address at the start of `bytes`. `None` for another family, 0 included.
    pub(crate) fn read(bytes: &[u8]) -> Option<(Self, u16)> {
        let (family, rest) = bytes.split_first_chunk()?;
        let family = u16::from_ne_bytes(*family);
        let (port, rest) = rest.split_first_chunk()?;
        let port = u16::from_be_bytes(*port);
        if family == family_of(AF_INET) {
            let (ip, _) = rest.split_first_chunk::<4>()?;
            return Some((Self::Ip((Ipv4Addr::from(*ip), port).into()), IPV4_SIZE));
        }
        if family == family_of(AF_INET6) {
            let (flow, rest) = rest.split_first_chunk()?;
            let (ip, rest) = rest.split_first_chunk::<16>()?;
            let (scope, _) = rest.split_first_chunk()?;
            let (flow, scope) = (u32::from_be_bytes(*flow), u32::from_ne_bytes(*scope));
            let v6 = SocketAddrV6::new(Ipv6Addr::from(*ip), port, flow, scope);
            return Some((Self::Ip(v6.into()), IPV6_SIZE));
        }
        if family == AF_IB {
            // Behind the P_Key, which stands where others have the port, and the flow label.
            let is_any = rest.get(4..20)?.iter().all(|byte| *byte == 0);
            return Some((Self::Ib { is_any }, IB_SIZE));
        }
        None
    }

    /// Reads an address of the size in the command.
    ///
    /// # Errors
    ///
    /// `EINVAL` for another family, or a size that does not belong to it.
    pub(crate) fn sized(bytes: &[u8], size: u16) -> Result<Self, Errno> {
        match Self::read(bytes) {
            Some((address, expected)) if expected == size => Ok(address),
            Some((_, expected)) => Err(Errno::invalid(format!(
                "an address of {size} bytes, and its family has {expected}"
            ))),
            None => Err(no_family()),
        }
    }

    /// Reads an address of any family.
    ///
    /// # Errors
    ///
    /// `EINVAL` for another family.
    pub(crate) fn any(bytes: &[u8]) -> Result<Self, Errno> {
        Self::read(bytes).map(|(address, _)| address).ok_or_else(no_family)
    }
}

fn no_family() -> Errno {
    Errno::invalid("the family of an address is neither AF_INET, AF_INET6 nor AF_IB")
}

/// Returns the family as an address has it.
fn family_of(family: i32) -> sa_family_t {
    sa_family_t::try_from(family).unwrap_or_default()
}

/// Returns the bytes of `sockaddr_in` or `sockaddr_in6`, and their number; zeros and 0 for no address.
fn bytes<const N: usize>(address: Option<SocketAddr>) -> ([u8; N], u16) {
    let mut bytes = [0; N];
    let Some(address) = address else { return (bytes, 0) };
    let mut at = 0;
    let mut append = |part: &[u8]| {
        if let Some(room) = bytes.get_mut(at..at + part.len()) {
            room.copy_from_slice(part);
        }
        at += part.len();
    };
    match address {
        SocketAddr::V4(v4) => {
            append(&family_of(AF_INET).to_ne_bytes());
            append(&v4.port().to_be_bytes());
            append(&v4.ip().octets());
            (bytes, IPV4_SIZE)
        }
        SocketAddr::V6(v6) => {
            append(&family_of(AF_INET6).to_ne_bytes());
            append(&v6.port().to_be_bytes());
            append(&v6.flowinfo().to_be_bytes());
            append(&v6.ip().octets());
            append(&v6.scope_id().to_ne_bytes());
            (bytes, IPV6_SIZE)
        }
    }
}

/// Returns an address as `sockaddr_in6` has room for it.
pub(crate) fn short(address: Option<SocketAddr>) -> ShortAddress {
    ShortAddress(bytes(address).0)
}

/// Returns an address as `sockaddr_storage` has room for it, and its size.
pub(crate) fn long(address: Option<SocketAddr>) -> (LongAddress, u16) {
    let (bytes, size) = bytes(address);
    (LongAddress(bytes), size)
}

/// Returns the `sockaddr_ib` of an IP address: its GID, and the service ID of a port in a port space.
pub(crate) fn ib(
    address: Option<SocketAddr>,
    service: Option<u64>,
    pkey: u16,
) -> (LongAddress, u16) {
    let mut bytes = [0; 128];
    let ip = address.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
    let gid = match ip {
        IpAddr::V4(v4) if v4.is_unspecified() => Ipv6Addr::UNSPECIFIED,
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mask = if service.is_some() { u64::MAX } else { 0 };
    for (at, part) in [
        (0, &AF_IB.to_ne_bytes()[..]),
        (2, &pkey.to_be_bytes()),
        (8, &gid.octets()),
        (24, &service.unwrap_or_default().to_be_bytes()),
        (32, &mask.to_be_bytes()),
    ] {
        if let Some(room) = bytes.get_mut(at..at + part.len()) {
            room.copy_from_slice(part);
        }
    }
    (LongAddress(bytes), IB_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_return_as_they_came() {
        for (text, size) in [("1.2.3.4:5", 16), ("[fd00::1]:65535", 28), ("0.0.0.0:0", 16)] {
            let address = text.parse().unwrap();
            let (long, written) = long(Some(address));
            assert_eq!(written, size);
            assert_eq!(CmAddress::sized(&long.0, size).unwrap(), CmAddress::Ip(address));
            assert_eq!(CmAddress::any(&short(Some(address)).0).unwrap(), CmAddress::Ip(address));
            assert!(CmAddress::sized(&long.0, size + 1).is_err());
        }
        let scoped = SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 0x12345, 3).into();
        assert_eq!(CmAddress::any(&short(Some(scoped)).0).unwrap(), CmAddress::Ip(scoped));
    }

    #[test]
    fn other_families_are_no_addresses() {
        assert!(CmAddress::any(&short(None).0).is_err());
        let mut unix = [0; 128];
        unix[0] = 1;
        assert!(CmAddress::any(&unix).is_err() && CmAddress::any(&[2, 0]).is_err());
    }

    #[test]
    fn infiniband_address_has_the_gid_and_the_service() {
        let (LongAddress(bytes), size) = ib(Some("127.0.0.1:0".parse().unwrap()), Some(7), 0xffff);
        assert_eq!(CmAddress::sized(&bytes, size).unwrap(), CmAddress::Ib { is_any: false });
        assert_eq!(
            (&bytes[2..4], &bytes[18..24]),
            (&[0xff; 2][..], &[0xff, 0xff, 127, 0, 0, 1][..])
        );
        assert_eq!(bytes[31], 7);
        let (LongAddress(bytes), _) = ib(None, None, 0);
        assert_eq!(CmAddress::any(&bytes).unwrap(), CmAddress::Ib { is_any: true });
    }
}
