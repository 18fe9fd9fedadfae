//! Size of a socket's receive buffer.

use std::io;
use std::os::fd::AsFd;

use socket2::Socket;

use crate::port::config::PortConfig;
use crate::sys;

/// Requests a receive buffer of `wanted` bytes as the kernel counts them, by default [`PortConfig::RECEIVE_BUFFER`].
/// Without privileges the kernel grants up to `rmem_max`.
pub(in crate::port) fn size_receive_buffer(
    socket: &Socket,
    wanted: Option<usize>,
) -> io::Result<()> {
    // The kernel doubles the value, for its own overhead.
    let ask = wanted.unwrap_or(PortConfig::RECEIVE_BUFFER).div_ceil(2);
    match sys::force_receive_buffer(socket.as_fd(), ask) {
        Ok(()) => Ok(()),
        Err(_) => socket.set_recv_buffer_size(ask),
    }
}
