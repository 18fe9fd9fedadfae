//! Network interfaces: the holder of an address, and settings of a TAP.

use std::ffi::{CStr, c_int, c_uint};
use std::io;
use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::ptr;

use super::ffi::{InterfaceCall, InterfaceRequest};

/// A network interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) mtu: usize,
    /// It is up, and has a carrier.
    pub(crate) running: bool,
}

/// The interface that holds `ip`, or `None` when none does. Every address of the loopback network
/// is held, not only the one that is configured.
pub(crate) fn interface_of(ip: IpAddr, socket: BorrowedFd<'_>) -> io::Result<Option<Interface>> {
    let list = AddressList::read()?;
    let exact = list.iter().find(|entry| entry.ip() == Some(ip));
    let Some(entry) = exact.or_else(|| list.iter().find(|entry| entry.is_loopback_for(ip))) else {
        return Ok(None);
    };
    let name = entry.name();
    // SAFETY: `name` is a C string that `list` owns.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    let running = entry.is_running();
    Ok(Some(Interface { index, mtu: interface_mtu(name, socket)?, running }))
}

fn interface_mtu(name: &CStr, socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut request = InterfaceRequest::new(name.to_bytes());
    request.call(socket, InterfaceCall::MTU)?;
    usize::try_from(request.number()).map_err(io::Error::other)
}

/// The interface with this name, or `None` when there is none.
#[cfg(feature = "tap")]
pub(crate) fn interface_named(name: &str, socket: BorrowedFd<'_>) -> io::Result<Option<Interface>> {
    let list = AddressList::read()?;
    let Some(entry) = list.iter().find(|entry| entry.name().to_bytes() == name.as_bytes()) else {
        return Ok(None);
    };
    // SAFETY: `name` is a C string that `list` owns.
    let index = unsafe { libc::if_nametoindex(entry.name().as_ptr()) };
    let running = entry.has_carrier();
    Ok(Some(Interface { index, mtu: interface_mtu(entry.name(), socket)?, running }))
}

/// Frames that found no room in the queue of an interface; `None` when there is none of this name.
#[cfg(feature = "tap")]
pub(crate) fn frames_dropped(name: &str) -> io::Result<Option<u32>> {
    let list = AddressList::read()?;
    let mut entries = list.iter().filter(|entry| entry.name().to_bytes() == name.as_bytes());
    Ok(entries.find_map(Entry::dropped_when_sent))
}

/// Whether an interface has this very address.
#[cfg(feature = "tap")]
pub(crate) fn is_of_host(ip: IpAddr) -> io::Result<bool> {
    Ok(AddressList::read()?.iter().any(|entry| entry.ip() == Some(ip)))
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

/// Gives an interface another link address, one of those that are assigned locally: above all others, and
/// otherwise the one that it has.
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

/// The addresses of all interfaces, as `getifaddrs` lists them.
struct AddressList(*mut libc::ifaddrs);

impl AddressList {
    fn read() -> io::Result<Self> {
        let mut list = ptr::null_mut();
        // SAFETY: `list` is a place for the pointer that the call returns.
        let rc = unsafe { libc::getifaddrs(&mut list) };
        if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(list)) }
    }

    fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        // SAFETY: null, or the first entry of a list that lives as long as `self`.
        let first = unsafe { self.0.as_ref() };
        // SAFETY: as above, for the next entry.
        iter::successors(first, |entry| unsafe { entry.ifa_next.as_ref() }).map(Entry)
    }
}

impl Drop for AddressList {
    fn drop(&mut self) {
        // SAFETY: the list is from `getifaddrs`, is freed once, and no entry outlives it.
        unsafe { libc::freeifaddrs(self.0) }
    }
}

/// One address of one interface.
#[derive(Clone, Copy)]
struct Entry<'a>(&'a libc::ifaddrs);

impl<'a> Entry<'a> {
    fn name(self) -> &'a CStr {
        // SAFETY: every entry has a name, a C string that lives as long as the list.
        unsafe { CStr::from_ptr(self.0.ifa_name) }
    }

    fn ip(self) -> Option<IpAddr> {
        socket_ip(self.0.ifa_addr)
    }

    fn is_running(self) -> bool {
        let both = (libc::IFF_UP | libc::IFF_RUNNING) as c_uint;
        self.0.ifa_flags & both == both
    }

    /// It is up, and there is somebody at the other end: at once, where [`is_running`](Self::is_running)
    /// follows a little later.
    #[cfg(feature = "tap")]
    fn has_carrier(self) -> bool {
        let both = (libc::IFF_UP | libc::IFF_LOWER_UP) as c_uint;
        self.0.ifa_flags & both == both
    }

    /// What could not be sent, by the interface's statistics, which come with its link address.
    #[cfg(feature = "tap")]
    fn dropped_when_sent(self) -> Option<u32> {
        // The place of `tx_dropped` in `rtnl_link_stats` of `linux/if_link.h`, which begins with numbers of
        // packets, bytes, errors and drops, each received and sent.
        const TX_DROPPED: usize = 7;
        // SAFETY: null, or a `sockaddr` of the list.
        let family = c_int::from(unsafe { self.0.ifa_addr.as_ref() }?.sa_family);
        let at: *const [u32; TX_DROPPED + 1] = self.0.ifa_data.cast_const().cast();
        if family != libc::AF_PACKET || at.is_null() {
            return None;
        }
        // SAFETY: for a link address the list has those statistics there, which are longer than this.
        let [.., dropped] = unsafe { ptr::read_unaligned(at) };
        Some(dropped)
    }

    fn is_loopback_for(self, ip: IpAddr) -> bool {
        let loopback = self.0.ifa_flags & libc::IFF_LOOPBACK as c_uint != 0;
        loopback && ip.is_loopback() && self.ip().is_some_and(|own| own.is_ipv4() == ip.is_ipv4())
    }
}

/// The address in a `sockaddr` that `getifaddrs` points to, which may be null.
fn socket_ip(at: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: null, or a `sockaddr` of the list.
    let family = c_int::from(unsafe { at.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            let at: *const libc::sockaddr_in = at.cast();
            // SAFETY: the family says that it is a `sockaddr_in`.
            let address = unsafe { ptr::read_unaligned(at) };
            Some(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            let at: *const libc::sockaddr_in6 = at.cast();
            // SAFETY: the family says that it is a `sockaddr_in6`.
            let address = unsafe { ptr::read_unaligned(at) };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}
