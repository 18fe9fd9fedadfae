//! Routes of the kernel.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use crate::net::ROCE_PORT;
use crate::sys;

/// Route of the kernel to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Source address that the kernel selects.
    pub source: IpAddr,
    /// Path MTU: the MTU of the interface or the route, or one that a router has reported lately.
    pub mtu: usize,
}

impl Route {
    /// Returns the route to `destination`, from `source` if it is given. Nothing is sent.
    ///
    /// # Errors
    ///
    /// There is no route, or `source` is not an address of this machine.
    pub fn to(destination: IpAddr, source: Option<IpAddr>) -> io::Result<Self> {
        let any: IpAddr = match destination {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind(SocketAddr::new(source.unwrap_or(any), 0))?;
        // The kernel reports these for connected sockets only.
        socket.connect(SocketAddr::new(destination, ROCE_PORT))?;
        let mtu = sys::path_mtu(socket.as_fd(), destination)?;
        Ok(Self { source: socket.local_addr()?.ip(), mtu })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_this_machine_is_its_loopback_interface() {
        let mtu = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        // No IP packet is longer than its length field allows.
        let mtu = mtu.trim().parse::<usize>().unwrap().min(0xffff);
        let to = "127.1.2.3".parse().unwrap();
        let source = "127.0.0.1".parse().unwrap();
        assert_eq!(Route::to(to, None).unwrap(), Route { source, mtu });
        let source = "127.3.2.1".parse().unwrap();
        assert_eq!(Route::to(to, Some(source)).unwrap(), Route { source, mtu });
    }

    #[test]
    fn an_address_of_somebody_else_is_no_source() {
        let stranger = "192.0.2.1".parse().unwrap();
        let error = Route::to("127.0.0.1".parse().unwrap(), Some(stranger)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }
}
