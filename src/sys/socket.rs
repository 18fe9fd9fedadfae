//! Options and addresses of sockets that `socket2` lacks.

use std::ffi::c_int;
use std::io;
#[cfg(feature = "packet")]
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::length;

/// Whether a call failed because its descriptor is no socket any more: somebody else has closed it.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBADF | libc::ENOTSOCK))
}

/// Sets a socket option that is an `int`.
pub(crate) fn set_option(
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
pub(crate) fn attach_reuseport(
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

/// The value of a socket option that is an `int`.
pub(crate) fn option(socket: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let at: *mut c_int = &mut value;
    let mut len = length(size_of::<c_int>());
    // SAFETY: `at` points to `len` writable bytes, of which the kernel writes no more than that.
    let rc = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, at.cast(), &mut len) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Datagrams that the kernel has thrown away instead of queueing them on the socket.
pub(crate) fn drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;
    let mut info = [0_u32; DROPS + 1];
    let mut len = length(size_of_val(&info));
    let (fd, at) = (socket.as_raw_fd(), info.as_mut_ptr());
    // SAFETY: `at` points to `len` writable bytes, of which the kernel writes no more than that.
    let rc =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, at.cast(), &mut len) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(info[DROPS]) }
}

/// The user that the other end of a Unix socket was opened by.
pub(crate) fn user_of_peer(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let at: *mut libc::ucred = &mut who;
    let mut len = length(size_of::<libc::ucred>());
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: `at` points to `len` writable bytes, of which the kernel writes no more than that.
    let rc = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, at.cast(), &mut len) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(who.uid) }
}

/// Has a packet socket receive frames of this EtherType from an interface, and send to it.
#[cfg(feature = "packet")]
pub(crate) fn bind_to_link(
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
