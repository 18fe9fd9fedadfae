//! The system calls of the ports that no library we use has: batches of datagrams with control
//! messages, socket options, interfaces, waiting.
//!
//! Everything `unsafe` of `io` is here, behind functions that are safe to call.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong};
use std::io;
use std::iter;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use smallvec::SmallVec;

use super::cmsg::{Control, Name};
use crate::net::Burst;

/// Messages that one call sends or receives at most.
pub(super) const MAX_MESSAGES: usize = 16;

/// Bytes of the largest buffer that the kernel hands up: what an IP packet can hold.
const BUFFER_BYTES: usize = 65_536;

/// Where a burst goes and what the kernel is told beside.
#[derive(Clone, Debug, Default)]
pub(super) struct Envelope {
    pub(super) to: Name,
    pub(super) control: Control,
}

/// An empty message header. All zeros is one: null pointers and lengths of zero.
fn empty_message() -> libc::msghdr {
    // SAFETY: `msghdr` consists of integers and raw pointers, for which all zeros is a value.
    unsafe { mem::zeroed() }
}

/// A header that lends `envelope` and `data` to the kernel, which only reads them.
fn outgoing(envelope: &Envelope, iov: &mut libc::iovec) -> libc::msghdr {
    let (name, control) = (envelope.to.bytes(), envelope.control.bytes());
    let mut message = empty_message();
    message.msg_name = name.as_ptr().cast_mut().cast();
    message.msg_namelen = length(name.len());
    message.msg_iov = iov;
    message.msg_iovlen = 1;
    if !control.is_empty() {
        message.msg_control = control.as_ptr().cast_mut().cast();
        message.msg_controllen = length(control.len());
    }
    message
}

/// A length in the type that the C library has for it, none of which is too small for ours.
fn length<T: TryFrom<usize> + Default>(len: usize) -> T {
    T::try_from(len).unwrap_or_default()
}

fn lent(data: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() }
}

// The three calls that one small datagram waits for are made past the C library, where they are
// cancellation points. That saves a tenth of a poll, and no thread is cancelled in the middle of a
// turn, with the device locked.

/// `sendto`.
fn send_to(fd: RawFd, data: &[u8], to: &[u8]) -> io::Result<usize> {
    let (at, name, flags) = (data.as_ptr(), to.as_ptr(), libc::MSG_DONTWAIT);
    // SAFETY: `at` and `name` point to borrowed bytes of the lengths given, which are only read.
    let n = unsafe { libc::syscall(libc::SYS_sendto, fd, at, data.len(), flags, name, to.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// `sendmsg`.
///
/// # Safety
///
/// What `message` points to can be read for as long as it says.
unsafe fn send_message(fd: RawFd, message: &libc::msghdr) -> io::Result<usize> {
    let (at, flags) = (ptr::from_ref(message), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    // SAFETY: the caller has seen to what `message` points to, and the kernel only reads that.
    let n = unsafe { libc::syscall(libc::SYS_sendmsg, fd, at, flags) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// `recvmsg`.
///
/// # Safety
///
/// What `message` points to is nobody else's, is plain bytes, and can be written for as long as it
/// says.
unsafe fn receive_message(fd: RawFd, message: &mut libc::msghdr) -> io::Result<usize> {
    let (at, flags) = (ptr::from_mut(message), libc::MSG_DONTWAIT);
    // SAFETY: the caller has seen to what `message` points to; the kernel keeps to the lengths in it.
    let n = unsafe { libc::syscall(libc::SYS_recvmsg, fd, at, flags) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Whether a call failed because its descriptor is no socket any more: somebody else has closed it.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBADF | libc::ENOTSOCK))
}

/// Sends one message, without waiting.
pub(super) fn send_one(socket: BorrowedFd<'_>, envelope: &Envelope, data: &[u8]) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    if envelope.control.bytes().is_empty() {
        // This is faster than `sendmsg` by a twentieth of what a small datagram takes.
        return send_to(fd, data, envelope.to.bytes()).map(drop);
    }
    let mut iov = lent(data);
    let message = outgoing(envelope, &mut iov);
    // SAFETY: the name, the data and the control bytes that `message` points to are borrowed until
    // this function returns, with the lengths given.
    unsafe { send_message(fd, &message) }.map(drop)
}

/// Sends up to [`MAX_MESSAGES`] messages, one an envelope, without waiting. Returns how many the
/// kernel took; the error is the first message's.
pub(super) fn send_many(
    socket: BorrowedFd<'_>,
    envelopes: &[Envelope],
    bursts: &[Burst],
) -> io::Result<usize> {
    let mut iovs = [lent(&[]); MAX_MESSAGES];
    let mut messages = [libc::mmsghdr { msg_hdr: empty_message(), msg_len: 0 }; MAX_MESSAGES];
    let mut count: c_uint = 0;
    let parts = envelopes.iter().zip(bursts).zip(&mut iovs).zip(&mut messages);
    for (((envelope, burst), iov), message) in parts {
        *iov = lent(burst.data());
        message.msg_hdr = outgoing(envelope, iov);
        count += 1;
    }
    let (fd, first) = (socket.as_raw_fd(), messages.as_mut_ptr());
    // SAFETY: the first `count` of `messages` are filled in; what they point to is borrowed until
    // this function returns, with the lengths given. `sendmmsg` writes to `msg_len` only.
    let n = unsafe { libc::sendmmsg(fd, first, count, libc::MSG_DONTWAIT as _) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// A received message.
pub(super) struct Received<'a> {
    pub(super) from: &'a Name,
    pub(super) data: &'a [u8],
    pub(super) control: &'a Control,
}

/// Where messages are received: [`MAX_MESSAGES`] buffers, used again by each call.
#[derive(Debug)]
pub(super) struct Inbox {
    memory: Box<[u8]>,
    slots: Box<[Slot]>,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    name: Name,
    control: Control,
    len: usize,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            // Pages are touched when a datagram needs them.
            memory: vec![0; MAX_MESSAGES * BUFFER_BYTES].into_boxed_slice(),
            slots: vec![Slot::default(); MAX_MESSAGES].into_boxed_slice(),
        }
    }

    /// Receives up to `most` messages, without waiting, and returns how many there were.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
        if most <= 1 { self.receive_one(socket) } else { self.receive_many(socket, most) }
    }

    /// The messages of the last [`receive`](Self::receive).
    pub(super) fn messages(&self, count: usize) -> impl Iterator<Item = Received<'_>> {
        let buffers = self.memory.chunks(BUFFER_BYTES);
        self.slots.iter().zip(buffers).take(count).map(|(slot, buffer)| Received {
            from: &slot.name,
            data: buffer.get(..slot.len).unwrap_or_default(),
            control: &slot.control,
        })
    }

    fn receive_one(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let Some(slot) = self.slots.first_mut() else { return Ok(0) };
        let mut iov = room(&mut self.memory[..BUFFER_BYTES]);
        let mut message = incoming(slot, &mut iov);
        // SAFETY: `message` points to a name, a buffer and a control buffer that are borrowed
        // exclusively until this function returns, and gives their sizes. They hold plain bytes.
        let n = unsafe { receive_message(socket.as_raw_fd(), &mut message) }?;
        slot.filled(&message, n);
        Ok(1)
    }

    fn receive_many(&mut self, socket: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
        let mut iovs = [lent(&[]); MAX_MESSAGES];
        let mut messages = [libc::mmsghdr { msg_hdr: empty_message(), msg_len: 0 }; MAX_MESSAGES];
        let mut count: c_uint = 0;
        let buffers = self.memory.chunks_mut(BUFFER_BYTES);
        let parts = self.slots.iter_mut().zip(buffers).zip(&mut iovs).zip(&mut messages);
        for (((slot, buffer), iov), message) in parts.take(most) {
            *iov = room(buffer);
            message.msg_hdr = incoming(slot, iov);
            count += 1;
        }
        let (fd, first) = (socket.as_raw_fd(), messages.as_mut_ptr());
        let flags = libc::MSG_DONTWAIT as _;
        // SAFETY: as in `receive_one`, for each of the first `count` of `messages`, which point to
        // different slots and buffers. A null timeout is none.
        let n = unsafe { libc::recvmmsg(fd, first, count, flags, ptr::null_mut()) };
        let Ok(n) = usize::try_from(n) else { return Err(io::Error::last_os_error()) };
        for (slot, message) in self.slots.iter_mut().zip(&messages).take(n) {
            slot.filled(&message.msg_hdr, message.msg_len as usize);
        }
        Ok(n)
    }
}

impl Slot {
    fn filled(&mut self, message: &libc::msghdr, len: usize) {
        self.len = len;
        #[expect(clippy::unnecessary_cast, reason = "the type differs between C libraries")]
        self.control.set_len(message.msg_controllen as usize);
    }
}

/// A header that lends `slot` to the kernel to be written.
fn incoming(slot: &mut Slot, iov: &mut libc::iovec) -> libc::msghdr {
    let mut message = empty_message();
    let name = slot.name.room();
    message.msg_namelen = length(name.len());
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_iov = iov;
    message.msg_iovlen = 1;
    let control = slot.control.room();
    message.msg_controllen = length(control.len());
    message.msg_control = control.as_mut_ptr().cast();
    message
}

fn room(buffer: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() }
}

/// Sets a socket option that is an `int`.
pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    let at: *const c_int = &value;
    let len = length(size_of::<c_int>());
    // SAFETY: `at` points to `len` bytes that live until the call returns; the kernel reads them.
    let rc = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, at.cast(), len) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has the sockets of a group (`SO_REUSEPORT`) chosen by a program. It sees what has arrived behind the UDP
/// header, and returns the place of a socket in the order in which they were bound.
pub(super) fn attach_reuseport(
    socket: BorrowedFd<'_>,
    program: &[socket2::SockFilter],
) -> io::Result<()> {
    // The kernel reads the program, and `SockFilter` is a transparent `sock_filter`.
    let filter = program.as_ptr().cast_mut().cast();
    let program = libc::sock_fprog { len: length(program.len()), filter };
    let at: *const libc::sock_fprog = &program;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF);
    let len = length(size_of::<libc::sock_fprog>());
    // SAFETY: `at` points to `len` bytes that live until the call returns, and the program that they point
    // to is borrowed as long, with its length; the kernel reads both.
    let rc = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, at.cast(), len) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has a packet socket receive frames of this EtherType from an interface, and send to it.
#[cfg(feature = "packet")]
pub(super) fn bind_to_link(
    socket: BorrowedFd<'_>,
    interface: u32,
    ethertype: u16,
) -> io::Result<()> {
    // SAFETY: `sockaddr_ll` consists of integers, for which all zeros is a value.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = length(usize::try_from(libc::AF_PACKET).unwrap_or_default());
    address.sll_protocol = ethertype.to_be();
    address.sll_ifindex = c_int::try_from(interface).map_err(io::Error::other)?;
    let at: *const libc::sockaddr_ll = &address;
    let len = length(size_of::<libc::sockaddr_ll>());
    // SAFETY: `at` points to `len` bytes that live until the call returns; the kernel reads them.
    let rc = unsafe { libc::bind(socket.as_raw_fd(), at.cast(), len) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The value of a socket option that is an `int`.
pub(super) fn option(socket: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let at: *mut c_int = &mut value;
    let mut len = length(size_of::<c_int>());
    // SAFETY: `at` points to `len` writable bytes, of which the kernel writes no more than that.
    let rc = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, at.cast(), &mut len) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Datagrams that the kernel has thrown away instead of queueing them on the socket.
pub(super) fn drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;
    let mut info = [0_u32; DROPS + 1];
    let mut len = length(size_of_val(&info));
    let (fd, at) = (socket.as_raw_fd(), info.as_mut_ptr());
    // SAFETY: `at` points to `len` writable bytes, of which the kernel writes no more than that.
    let rc =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, at.cast(), &mut len) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(info[DROPS]) }
}

/// A network interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Interface {
    pub(super) index: u32,
    pub(super) mtu: usize,
    /// It is up, and has a carrier.
    pub(super) running: bool,
}

/// The interface that holds `ip`, or `None` when none does. Every address of the loopback network
/// is held, not only the one that is configured.
pub(super) fn interface_of(ip: IpAddr, socket: BorrowedFd<'_>) -> io::Result<Option<Interface>> {
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
pub(super) fn interface_named(name: &str, socket: BorrowedFd<'_>) -> io::Result<Option<Interface>> {
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
pub(super) fn frames_dropped(name: &str) -> io::Result<Option<u32>> {
    let list = AddressList::read()?;
    let mut entries = list.iter().filter(|entry| entry.name().to_bytes() == name.as_bytes());
    Ok(entries.find_map(Entry::dropped_when_sent))
}

/// Whether an interface has this very address.
#[cfg(feature = "tap")]
pub(super) fn is_of_host(ip: IpAddr) -> io::Result<bool> {
    Ok(AddressList::read()?.iter().any(|entry| entry.ip() == Some(ip)))
}

/// Attaches `/dev/net/tun` to the TAP with this name, which is made if there is none, and returns how it is
/// called: in the name `%d` stands for a number. Frames have a `virtio_net_hdr`.
#[cfg(feature = "tap")]
pub(super) fn attach_tap(tun: BorrowedFd<'_>, name: &str) -> io::Result<String> {
    let mut request = named(name.as_bytes());
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags.try_into().map_err(io::Error::other)?;
    // SAFETY: TUNSETIFF takes an `ifreq`, in which it reads the flags and fills in the name.
    unsafe { ask_interface(tun, libc::TUNSETIFF as _, &mut request) }?;
    Ok(name_in(&request))
}

/// How the TAP is called that `/dev/net/tun` is attached to.
#[cfg(feature = "tap")]
pub(super) fn tap_name(tun: BorrowedFd<'_>) -> io::Result<String> {
    let mut request = named(&[]);
    // SAFETY: TUNGETIFF takes an `ifreq`, in which it fills in name and flags.
    unsafe { ask_interface(tun, libc::TUNGETIFF as _, &mut request) }?;
    Ok(name_in(&request))
}

/// Has the kernel leave to us what these flags name (`TUN_F_*`) in frames from a TAP.
#[cfg(feature = "tap")]
pub(super) fn offload_tap(tun: BorrowedFd<'_>, flags: c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes a number.
    let rc =
        unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETOFFLOAD as _, c_ulong::from(flags)) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Frames that the queue of an interface has room for.
#[cfg(feature = "tap")]
pub(super) fn queue_len(name: &str, socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut request = named(name.as_bytes());
    // SAFETY: SIOCGIFTXQLEN takes an `ifreq`, in which it fills in a number.
    unsafe { ask_interface(socket, libc::SIOCGIFTXQLEN as _, &mut request) }?;
    // SAFETY: the call has succeeded, so a number is the member that the kernel has written.
    let len = unsafe { request.ifr_ifru.ifru_metric };
    usize::try_from(len).map_err(io::Error::other)
}

/// Sets how many frames the queue of an interface has room for.
#[cfg(feature = "tap")]
pub(super) fn set_queue_len(name: &str, frames: usize, socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut request = named(name.as_bytes());
    request.ifr_ifru.ifru_metric = frames.try_into().map_err(io::Error::other)?;
    // SAFETY: SIOCSIFTXQLEN takes an `ifreq`, in which it reads a number.
    unsafe { ask_interface(socket, libc::SIOCSIFTXQLEN as _, &mut request) }
}

/// Sets the MTU of an interface.
#[cfg(feature = "tap")]
pub(super) fn set_mtu(name: &str, mtu: usize, socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut request = named(name.as_bytes());
    request.ifr_ifru.ifru_mtu = mtu.try_into().map_err(io::Error::other)?;
    // SAFETY: SIOCSIFMTU takes an `ifreq`, in which it reads the MTU.
    unsafe { ask_interface(socket, libc::SIOCSIFMTU as _, &mut request) }
}

/// Gives an interface another link address, one of those that are assigned locally: above all others, and
/// otherwise the one that it has.
#[cfg(feature = "tap")]
pub(super) fn raise_link_address(name: &str, socket: BorrowedFd<'_>) -> io::Result<()> {
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
pub(super) fn set_link_up(name: &str, socket: BorrowedFd<'_>) -> io::Result<()> {
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
pub(super) fn add_to_bridge(
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

/// Waits until one of the descriptors is readable, for at most `timeout` (`None`: for ever). Returns
/// whether one is; it may also return early with `false`, when a signal came in.
///
/// # Errors
///
/// When the kernel refuses to wait: too many descriptors.
pub fn wait_readable(descriptors: &[RawFd], timeout: Option<Duration>) -> io::Result<bool> {
    let poll = |fd: &RawFd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 };
    let mut polls: SmallVec<[libc::pollfd; 8]> = descriptors.iter().map(poll).collect();
    let timeout = timeout.map(|time| libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos() as _,
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let (first, count) = (polls.as_mut_ptr(), length(polls.len()));
    // SAFETY: `first` points to `count` entries that live until the call returns; the timeout is
    // null or lives as long; a null signal mask leaves the signals as they are.
    let n = unsafe { libc::ppoll(first, count, timeout, ptr::null()) };
    if n >= 0 {
        return Ok(n > 0);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) }
}

/// Descriptors of which one asks at once which are readable, however many there are.
#[derive(Debug)]
pub(super) struct Readiness(OwnedFd);

impl Readiness {
    /// Of no descriptor yet.
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: the call takes a number.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened `fd`, and nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Adds a descriptor, which is told by `token`. It is out again when it is closed, by every process that has it.
    pub(super) fn add(&self, descriptor: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as _, u64: token };
        let (set, fd) = (self.0.as_raw_fd(), descriptor.as_raw_fd());
        // SAFETY: `event` lives until the call returns; the kernel only reads it.
        let rc = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &mut event) };
        if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Takes a descriptor out.
    pub(super) fn remove(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let (set, fd) = (self.0.as_raw_fd(), descriptor.as_raw_fd());
        // SAFETY: the call takes numbers; of an event it needs none.
        let rc = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_DEL, fd, ptr::null_mut()) };
        if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The tokens of some that are readable. Those of the others come in later calls.
    pub(super) fn readable(&self) -> io::Result<SmallVec<[u64; 16]>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
        let (first, most) = (events.as_mut_ptr(), length(events.len()));
        // SAFETY: `first` points to `most` entries, of which the kernel fills in some.
        let n = unsafe { libc::epoll_wait(self.0.as_raw_fd(), first, most, 0) };
        let Ok(n) = usize::try_from(n) else { return Err(io::Error::last_os_error()) };
        Ok(events.iter().take(n).map(|event| event.u64).collect())
    }
}

impl AsRawFd for Readiness {
    /// Readable when one of them is.
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Sends bytes over a Unix socket, and a descriptor with the first of them, without waiting.
pub(super) fn send_descriptor(
    socket: BorrowedFd<'_>,
    data: &[u8],
    descriptor: BorrowedFd<'_>,
) -> io::Result<usize> {
    let mut control = Control::default();
    let number = descriptor.as_raw_fd().to_ne_bytes();
    control.push(libc::SOL_SOCKET, libc::SCM_RIGHTS, &number);
    let (mut iov, control) = (lent(data), control.bytes());
    let mut message = empty_message();
    message.msg_iov = &mut iov;
    message.msg_iovlen = 1;
    message.msg_control = control.as_ptr().cast_mut().cast();
    message.msg_controllen = length(control.len());
    // SAFETY: the data and the control bytes that `message` points to are borrowed until this function
    // returns, with the lengths given.
    unsafe { send_message(socket.as_raw_fd(), &message) }
}

/// Receives bytes from a Unix socket, without waiting, and the first of the descriptors that come with them.
/// Returns how many bytes there were.
pub(super) fn receive_descriptor(
    socket: BorrowedFd<'_>,
    to: &mut [u8],
) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut control = Control::default();
    let mut iov = room(to);
    let mut message = empty_message();
    message.msg_iov = &mut iov;
    message.msg_iovlen = 1;
    let space = control.room();
    message.msg_controllen = length(space.len());
    message.msg_control = space.as_mut_ptr().cast();
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: `message` points to a buffer and a control buffer that are borrowed exclusively until this function
    // returns, and gives their sizes. They hold plain bytes.
    let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, flags) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    #[expect(clippy::unnecessary_cast, reason = "the type differs between C libraries")]
    control.set_len(message.msg_controllen as usize);
    let of_descriptors = |(level, kind, data)| {
        ((level, kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS)).then_some(data)
    };
    let numbers =
        control.iter().filter_map(of_descriptors).flat_map(|data: &[u8]| data.as_chunks::<4>().0);
    // SAFETY: the kernel has just opened each of them, and nobody else knows it.
    let mut all =
        numbers.map(|number| unsafe { OwnedFd::from_raw_fd(RawFd::from_ne_bytes(*number)) });
    let first = all.next();
    // What nobody has asked for is closed.
    all.for_each(drop);
    Ok((n, first))
}

/// The user that the other end of a Unix socket was opened by.
pub(super) fn user_of_peer(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let at: *mut libc::ucred = &mut who;
    let mut len = length(size_of::<libc::ucred>());
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: `at` points to `len` writable bytes, of which the kernel writes no more than that.
    let rc = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, at.cast(), &mut len) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(who.uid) }
}

/// The user that this process acts for.
pub(super) fn user() -> u32 {
    // SAFETY: the call takes nothing, and always succeeds.
    unsafe { libc::geteuid() }
}

/// Nanoseconds since the system was started: what the standard library's clock says, without the
/// arithmetic around it. A poll that finds nothing reads it once.
pub(crate) fn monotonic() -> u64 {
    nanos_of(libc::CLOCK_MONOTONIC)
}

/// How long processors have worked for this process.
pub(crate) fn processor_time() -> Duration {
    Duration::from_nanos(nanos_of(libc::CLOCK_PROCESS_CPUTIME_ID))
}

fn nanos_of(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a place for what the call returns. Every system has these clocks.
    unsafe { libc::clock_gettime(clock, &mut time) };
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or_default() * 1_000_000_000 + nanos.unwrap_or_default()
}

/// Opens a counter that can be waited on: it is readable while it is not zero, and a read of its 8
/// bytes sets it back to zero.
pub(crate) fn event_fd() -> io::Result<OwnedFd> {
    // SAFETY: the call takes two numbers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened `fd`, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Has `hook` run when the process exits by `exit` or by the end of `main`. Other threads may still
/// run then.
pub(crate) fn at_exit(hook: extern "C" fn()) {
    // SAFETY: `hook` is a function of the type that is asked for, and functions stay. Without
    // memory for the entry it is not run, and what it would send is sent again by the peer's timer.
    let _ = unsafe { libc::atexit(hook) };
}

/// Has hooks run by `fork`: `before` it, and when it is made in the parent and in the child, where there
/// is the calling thread only.
pub(crate) fn at_fork(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: functions of the type that is asked for. The only error is out of memory.
    let _ = unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
}
