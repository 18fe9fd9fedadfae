//! Network interfaces: the interface of an address, and settings of a TAP.
//!
//! `pnet` lists interfaces with their addresses and flags. It has neither MTUs nor the other settings, which are
//! requested by `ioctl`, nor statistics, which are in `/proc/net/dev`.

#[cfg(feature = "tap")]
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use pnet::datalink::{self, NetworkInterface};

use super::ffi::{InterfaceCall, InterfaceRequest};

/// A network interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) mtu: usize,
    /// The interface is up and has a carrier.
    pub(crate) running: bool,
}

/// Returns the interface with the address `ip`; `None` if there is none. The loopback interface has every address of
/// its network, not only the configured one.
///
/// # Errors
/// The system does not list its interfaces, or one is deleted meanwhile.
pub(crate) fn interface_of(ip: IpAddr, socket: BorrowedFd<'_>) -> io::Result<Option<Interface>> {
    let list = interfaces()?;
    let exact = list.iter().find(|interface| has_address(interface, ip));
    let Some(found) =
        exact.or_else(|| list.iter().find(|interface| is_loopback_for(interface, ip)))
    else {
        return Ok(None);
    };
    Ok(Some(Interface {
        index: found.index,
        mtu: interface_mtu(&found.name, socket)?,
        running: found.is_up() && found.is_running(),
    }))
}

fn interface_mtu(name: &str, socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut request = InterfaceRequest::new(name.as_bytes());
    request.call(socket, InterfaceCall::MTU)?;
    usize::try_from(request.number()).map_err(io::Error::other)
}

/// Lists the interfaces. Every network namespace has one at least, `lo`.
fn interfaces() -> io::Result<Vec<NetworkInterface>> {
    let list = datalink::interfaces();
    // An empty list is a failure. `pnet` drops the error, and the C library still has it.
    if list.is_empty() { Err(io::Error::last_os_error()) } else { Ok(list) }
}

fn has_address(interface: &NetworkInterface, ip: IpAddr) -> bool {
    interface.ips.iter().any(|network| network.ip() == ip)
}

fn is_loopback_for(interface: &NetworkInterface, ip: IpAddr) -> bool {
    let has_family = || interface.ips.iter().any(|own| own.is_ipv4() == ip.is_ipv4());
    interface.is_loopback() && ip.is_loopback() && has_family()
}

/// Returns the interface with this name; `None` if there is none.
///
/// # Errors
/// As [`interface_of`].
#[cfg(feature = "tap")]
pub(crate) fn interface_named(name: &str, socket: BorrowedFd<'_>) -> io::Result<Option<Interface>> {
    let list = interfaces()?;
    let Some(found) = list.iter().find(|interface| interface.name == name) else {
        return Ok(None);
    };
    Ok(Some(Interface {
        index: found.index,
        mtu: interface_mtu(&found.name, socket)?,
        // A carrier shows at once, `is_running` follows a little later.
        running: found.is_up() && found.is_lower_up(),
    }))
}

/// Returns the number of frames dropped for lack of space in the queue of an interface; `None` if no interface has this
/// name.
///
/// # Errors
/// The statistics cannot be read.
#[cfg(feature = "tap")]
pub(crate) fn frames_dropped(name: &str) -> io::Result<Option<u64>> {
    Ok(dropped_of(&fs::read_to_string("/proc/thread-self/net/dev")?, name))
}

/// Returns the dropped frames of an interface from the text of `/proc/net/dev`.
///
/// A line is the name, a colon, and numbers: 8 of received frames, then packets, bytes, errors and drops of sent ones.
#[cfg(feature = "tap")]
fn dropped_of(statistics: &str, name: &str) -> Option<u64> {
    /// Position of the drops of sent frames among the numbers.
    const TX_DROPPED: usize = 11;
    let numbers = |line: &str| {
        let (found, numbers) = line.trim_start().rsplit_once(':')?;
        (found == name).then(|| numbers.split_whitespace().nth(TX_DROPPED)?.parse().ok())?
    };
    statistics.lines().find_map(numbers)
}

/// Returns whether an interface has exactly this address.
///
/// # Errors
/// The system does not list its interfaces.
pub(crate) fn is_of_host(ip: IpAddr) -> io::Result<bool> {
    Ok(interfaces()?.iter().any(|interface| has_address(interface, ip)))
}

/// Attaches `/dev/net/tun` to the TAP with this name, which the kernel creates if there is none, and returns its
/// name: in the argument `%d` stands for a number. Frames have a `virtio_net_hdr`.
#[cfg(feature = "tap")]
pub(crate) fn attach_tap(tun: BorrowedFd<'_>, name: &str) -> io::Result<String> {
    let mut request = InterfaceRequest::new(name.as_bytes());
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.set_flags(flags.try_into().map_err(io::Error::other)?);
    request.call(tun, InterfaceCall::ATTACH_TAP)?;
    Ok(request.name())
}

/// Returns the name of the TAP that `/dev/net/tun` is attached to.
#[cfg(feature = "tap")]
pub(crate) fn tap_name(tun: BorrowedFd<'_>) -> io::Result<String> {
    let mut request = InterfaceRequest::new(&[]);
    request.call(tun, InterfaceCall::TAP)?;
    Ok(request.name())
}

/// Returns the number of frames that the queue of an interface has room for.
#[cfg(feature = "tap")]
pub(crate) fn queue_len(name: &str, socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut request = InterfaceRequest::new(name.as_bytes());
    request.call(socket, InterfaceCall::QUEUE_LEN)?;
    usize::try_from(request.number()).map_err(io::Error::other)
}

/// Sets how many frames the queue of an interface has room for.
#[cfg(feature = "tap")]
pub(crate) fn set_queue_len(name: &str, frames: usize, socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut request = InterfaceRequest::new(name.as_bytes());
    request.set_number(frames.try_into().map_err(io::Error::other)?);
    request.call(socket, InterfaceCall::SET_QUEUE_LEN)
}

/// Sets the MTU of an interface, in bytes.
#[cfg(feature = "tap")]
pub(crate) fn set_mtu(name: &str, mtu: usize, socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut request = InterfaceRequest::new(name.as_bytes());
    request.set_number(mtu.try_into().map_err(io::Error::other)?);
    request.call(socket, InterfaceCall::SET_MTU)
}

/// Sets the first byte of the link address of an interface, so that it is locally assigned and above all others.
#[cfg(feature = "tap")]
pub(crate) fn raise_link_address(name: &str, socket: BorrowedFd<'_>) -> io::Result<()> {
    /// Unicast, and assigned locally.
    const FIRST: u8 = 0xfe;
    let mut request = InterfaceRequest::new(name.as_bytes());
    request.call(socket, InterfaceCall::LINK_ADDRESS)?;
    request.set_first_of_link_address(FIRST);
    request.call(socket, InterfaceCall::SET_LINK_ADDRESS)
}

/// Sets an interface up.
#[cfg(feature = "tap")]
pub(crate) fn set_link_up(name: &str, socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut request = InterfaceRequest::new(name.as_bytes());
    request.call(socket, InterfaceCall::FLAGS)?;
    let up = libc::c_short::try_from(libc::IFF_UP).map_err(io::Error::other)?;
    request.set_flags(request.flags() | up);
    request.call(socket, InterfaceCall::SET_FLAGS)
}

/// Adds an interface to a bridge.
#[cfg(feature = "tap")]
pub(crate) fn add_to_bridge(
    bridge: &str,
    interface: u32,
    socket: BorrowedFd<'_>,
) -> io::Result<()> {
    let mut request = InterfaceRequest::new(bridge.as_bytes());
    request.set_number(interface.try_into().map_err(io::Error::other)?);
    request.call(socket, InterfaceCall::ADD_TO_BRIDGE)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn list_agrees_with_the_kernel() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for interface in interfaces().unwrap() {
            let setting = |name| {
                let path = format!("/sys/class/net/{}/{name}", interface.name);
                fs::read_to_string(path).map(|text| text.trim().to_owned())
            };
            // Labels of addresses have names too, and no directory.
            let Ok(index) = setting("ifindex") else { continue };
            assert_eq!(index, interface.index.to_string());
            let mtu = interface_mtu(&interface.name, socket.as_fd()).unwrap();
            assert_eq!(setting("mtu").unwrap(), mtu.to_string());
            // Of the flags, the lower 16 bits are those of the device.
            let flags = setting("flags").unwrap();
            let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap();
            let is_up = flags & libc::IFF_UP.cast_unsigned() != 0;
            assert_eq!(is_up, interface.is_up());
            for network in &interface.ips {
                let ip = network.ip();
                assert!(!ip.is_unspecified(), "{interface:?}");
                assert!(interface_of(ip, socket.as_fd()).unwrap().is_some(), "{ip}");
            }
        }
        assert_eq!(ipv6_addresses_of_list(), ipv6_addresses_of_kernel());
    }

    /// The IPv6 addresses with the indices of their interfaces.
    fn ipv6_addresses_of_list() -> Vec<(u32, Ipv6Addr)> {
        let list = interfaces().unwrap();
        let mut all = Vec::new();
        for interface in &list {
            for network in &interface.ips {
                if let IpAddr::V6(ip) = network.ip() {
                    all.push((interface.index, ip));
                }
            }
        }
        all.sort_unstable();
        all
    }

    /// The same from `/proc/net/if_inet6`: an address in hexadecimal, then the index.
    fn ipv6_addresses_of_kernel() -> Vec<(u32, Ipv6Addr)> {
        let text = fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
        let address = |line: &str| {
            let mut words = line.split_whitespace();
            let ip = u128::from_str_radix(words.next()?, 16).ok()?;
            let index = u32::from_str_radix(words.next()?, 16).ok()?;
            Some((index, Ipv6Addr::from_bits(ip)))
        };
        let mut all: Vec<_> = text.lines().filter_map(address).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn loopback_holds_its_whole_network() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let lo = interface_of(Ipv4Addr::LOCALHOST.into(), socket.as_fd()).unwrap().unwrap();
        let other = interface_of(Ipv4Addr::new(127, 9, 8, 7).into(), socket.as_fd()).unwrap();
        assert_eq!(other, Some(lo));
        let documentation = Ipv4Addr::new(203, 0, 113, 77).into();
        assert_eq!(interface_of(documentation, socket.as_fd()).unwrap(), None);
    }

    #[cfg(feature = "tap")]
    #[test]
    fn dropped_frames_are_those_of_the_sending_side() {
        let statistics = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       2    0    5    0     0          0         0      100       2    0    6    0     0       0          0
  tap1:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
";
        assert_eq!(dropped_of(statistics, "lo"), Some(6));
        assert_eq!(dropped_of(statistics, "tap1"), Some(12));
        assert_eq!(dropped_of(statistics, "tap"), None);
        assert_eq!(frames_dropped("no such name").unwrap(), None);
    }
}
