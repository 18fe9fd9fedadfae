//! Network interfaces: which holds an address, and what a TAP is told.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong};
use std::io;
use std::iter;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

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
    let mut request = named(name.to_bytes());
    // SAFETY: SIOCGIFMTU takes an `ifreq`, in which it fills in the MTU.
    unsafe { ask_interface(socket, libc::SIOCGIFMTU as _, &mut request) }?;
    // SAFETY: the call has succeeded, so the MTU is the member that the kernel has written.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    usize::try_from(mtu).map_err(io::Error::other)
}

/// What is asked of the interface with this name.
fn named(name: &[u8]) -> libc::ifreq {
    // SAFETY: `ifreq` is integers and a union of them and raw pointers: all zeros is a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays zero, which ends the name.
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name) {
        *to = *from as c_char;
    }
    request
}

/// # Safety
///
/// `call` is one that takes an `ifreq` with a terminated name, and points to nothing from there.
unsafe fn ask_interface(
    fd: BorrowedFd<'_>,
    call: c_ulong,
    request: &mut libc::ifreq,
) -> io::Result<()> {
    // SAFETY: the caller has seen to it that the call takes this pointer, which lives until it returns.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), call as _, ptr::from_mut(request)) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
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

/// Attaches `/dev/net/tun` to the TAP with this name, which is made if there is none, and returns how it is
/// called: in the name `%d` stands for a number. Frames have a `virtio_net_hdr`.
#[cfg(feature = "tap")]
pub(crate) fn attach_tap(tun: BorrowedFd<'_>, name: &str) -> io::Result<String> {
    let mut request = named(name.as_bytes());
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags.try_into().map_err(io::Error::other)?;
    // SAFETY: TUNSETIFF takes an `ifreq`, in which it reads the flags and fills in the name.
    unsafe { ask_interface(tun, libc::TUNSETIFF as _, &mut request) }?;
    Ok(name_in(&request))
}

/// How the TAP is called that `/dev/net/tun` is attached to.
#[cfg(feature = "tap")]
pub(crate) fn tap_name(tun: BorrowedFd<'_>) -> io::Result<String> {
    let mut request = named(&[]);
    // SAFETY: TUNGETIFF takes an `ifreq`, in which it fills in name and flags.
    unsafe { ask_interface(tun, libc::TUNGETIFF as _, &mut request) }?;
    Ok(name_in(&request))
}

/// Has the kernel leave to us what these flags name (`TUN_F_*`) in frames from a TAP.
#[cfg(feature = "tap")]
pub(crate) fn offload_tap(tun: BorrowedFd<'_>, flags: c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes a number.
    let rc =
        unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETOFFLOAD as _, c_ulong::from(flags)) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Frames that the queue of an interface has room for.
#[cfg(feature = "tap")]
pub(crate) fn queue_len(name: &str, socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut request = named(name.as_bytes());
    // SAFETY: SIOCGIFTXQLEN takes an `ifreq`, in which it fills in a number.
    unsafe { ask_interface(socket, libc::SIOCGIFTXQLEN as _, &mut request) }?;
    // SAFETY: the call has succeeded, so a number is the member that the kernel has written.
    let len = unsafe { request.ifr_ifru.ifru_metric };
    usize::try_from(len).map_err(io::Error::other)
}

/// Sets how many frames the queue of an interface has room for.
#[cfg(feature = "tap")]
pub(crate) fn set_queue_len(name: &str, frames: usize, socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut request = named(name.as_bytes());
    request.ifr_ifru.ifru_metric = frames.try_into().map_err(io::Error::other)?;
    // SAFETY: SIOCSIFTXQLEN takes an `ifreq`, in which it reads a number.
    unsafe { ask_interface(socket, libc::SIOCSIFTXQLEN as _, &mut request) }
}

/// Sets the MTU of an interface.
#[cfg(feature = "tap")]
pub(crate) fn set_mtu(name: &str, mtu: usize, socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut request = named(name.as_bytes());
    request.ifr_ifru.ifru_mtu = mtu.try_into().map_err(io::Error::other)?;
    // SAFETY: SIOCSIFMTU takes an `ifreq`, in which it reads the MTU.
    unsafe { ask_interface(socket, libc::SIOCSIFMTU as _, &mut request) }
}

/// Gives an interface another link address, one of those that are assigned locally: above all others, and
/// otherwise the one that it has.
#[cfg(feature = "tap")]
pub(crate) fn raise_link_address(name: &str, socket: BorrowedFd<'_>) -> io::Result<()> {
    /// Unicast, and assigned locally.
    const FIRST: u8 = 0xfe;
    let mut request = named(name.as_bytes());
    // SAFETY: SIOCGIFHWADDR takes an `ifreq`, in which it fills in the address.
    unsafe { ask_interface(socket, libc::SIOCGIFHWADDR as _, &mut request) }?;
    // SAFETY: the call has succeeded, so the address is the member that the kernel has written.
    let mut address = unsafe { request.ifr_ifru.ifru_hwaddr };
    address.sa_data[0] = c_char::from_ne_bytes([FIRST]);
    request.ifr_ifru.ifru_hwaddr = address;
    // SAFETY: SIOCSIFHWADDR takes an `ifreq`, in which it reads the address.
    unsafe { ask_interface(socket, libc::SIOCSIFHWADDR as _, &mut request) }
}

/// Sets an interface up.
#[cfg(feature = "tap")]
pub(crate) fn set_link_up(name: &str, socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut request = named(name.as_bytes());
    // SAFETY: SIOCGIFFLAGS takes an `ifreq`, in which it fills in the flags.
    unsafe { ask_interface(socket, libc::SIOCGIFFLAGS as _, &mut request) }?;
    // SAFETY: the call has succeeded, so the flags are the member that the kernel has written.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    let up = libc::c_short::try_from(libc::IFF_UP).map_err(io::Error::other)?;
    request.ifr_ifru.ifru_flags = flags | up;
    // SAFETY: SIOCSIFFLAGS takes an `ifreq`, in which it reads the flags.
    unsafe { ask_interface(socket, libc::SIOCSIFFLAGS as _, &mut request) }
}

/// Puts an interface into a bridge.
#[cfg(feature = "tap")]
pub(crate) fn add_to_bridge(
    bridge: &str,
    interface: u32,
    socket: BorrowedFd<'_>,
) -> io::Result<()> {
    /// `SIOCBRADDIF` of `linux/sockios.h`.
    const ADD: c_ulong = 0x89a2;
    let mut request = named(bridge.as_bytes());
    request.ifr_ifru.ifru_ifindex = interface.try_into().map_err(io::Error::other)?;
    // SAFETY: the call takes an `ifreq`, in which it reads the number of an interface.
    unsafe { ask_interface(socket, ADD, &mut request) }
}

/// The name that the kernel has filled in.
#[cfg(feature = "tap")]
fn name_in(request: &libc::ifreq) -> String {
    let bytes = request.ifr_name.iter().take_while(|byte| **byte != 0);
    let bytes: Vec<u8> = bytes.map(|byte| byte.to_ne_bytes()[0]).collect();
    String::from_utf8_lossy(&bytes).into_owned()
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
