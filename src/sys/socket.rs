//! Socket options that `rustix` knows and `socket2` does not. Those that neither knows are in [`ffi`](super::ffi).

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};

/// Sets DF in packets of the socket: routers drop those that are too long.
pub(crate) fn forbid_fragments(socket: BorrowedFd<'_>, ip: IpAddr) -> io::Result<()> {
    Ok(match ip {
        IpAddr::V4(_) => sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DO),
        IpAddr::V6(_) => sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::DO),
    }?)
}

/// Returns the MTU of the path of a connected socket, in bytes.
pub(crate) fn path_mtu(socket: BorrowedFd<'_>, to: IpAddr) -> io::Result<usize> {
    let mtu = match to {
        IpAddr::V4(_) => sockopt::ip_mtu(socket),
        IpAddr::V6(_) => sockopt::ipv6_mtu(socket),
    }?;
    usize::try_from(mtu).map_err(io::Error::other)
}

/// Sets the size of the receive buffer in bytes, beyond the limit of the system too. The kernel doubles it.
///
/// # Errors
/// Without `CAP_NET_ADMIN`.
pub(crate) fn force_receive_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    /// The option is an `int`.
    const MAX_BYTES: usize = i32::MAX as usize;
    Ok(sockopt::set_socket_recv_buffer_size_force(socket, bytes.min(MAX_BYTES))?)
}
