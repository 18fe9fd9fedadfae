//! Leases of an address: names that one process has at a time.
//!
//! A process takes a lease by binding an abstract Unix socket. Its name belongs to the network namespace, as the
//! address does, and the kernel frees it when the process ends, in whatever way.
//!
//! ```text
//!   softroce/10.1.0.1/0 … softroce/10.1.0.1/63    the slots of packet ports
//!   softroce/10.1.0.1/udp                         all of them, for the UDP ports of one device
//!   softroce/10.1.0.1/shm                         where others find the port with shared memory
//! ```
//!
//! A process that takes the lease of one slot checks that no process has the lease of all, and the reverse. Each takes
//! its lease before it checks, so of two that start at once, at least one sees the other.

use std::fmt::Display;
use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::ids::Qpn;
use crate::sys::OwnDescriptor;

/// A lease, held until it is dropped.
#[derive(Debug)]
pub(in crate::port) struct NameLease(
    #[expect(dead_code, reason = "it is bound")] OwnDescriptor<UnixDatagram>,
);

impl NameLease {
    /// Takes the lease of one slot of packet ports.
    #[cfg(feature = "packet")]
    pub(in crate::port) fn slot(ip: IpAddr, shard: u8) -> io::Result<Self> {
        claim(ip, shard)
    }

    /// Takes the lease of the whole address, for UDP ports that share it.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if another process has this lease, or that of a slot.
    pub(in crate::port) fn whole(ip: IpAddr) -> io::Result<Self> {
        let whole = claim(ip, WHOLE)?;
        match (0..Qpn::SHARDS).any(|shard| is_claimed(ip, shard)) {
            true => Err(io::ErrorKind::AddrInUse.into()),
            false => Ok(whole),
        }
    }

    /// Returns whether UDP ports that share the address have it.
    #[cfg(feature = "packet")]
    pub(in crate::port) fn is_whole(ip: IpAddr) -> bool {
        is_claimed(ip, WHOLE)
    }
}

const WHOLE: &str = "udp";

/// Returns the name of a Unix socket for `what` at an address.
pub(in crate::port) fn socket_name(ip: IpAddr, what: impl Display) -> String {
    format!("softroce/{ip}/{what}")
}

fn name(ip: IpAddr, what: impl Display) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(socket_name(ip, what))
}

fn claim(ip: IpAddr, what: impl Display) -> io::Result<NameLease> {
    UnixDatagram::bind_addr(&name(ip, what)?).map(OwnDescriptor::new).map(NameLease)
}

fn is_claimed(ip: IpAddr, what: impl Display) -> bool {
    let reach = || UnixDatagram::unbound()?.connect_addr(&name(ip, what)?);
    reach().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_leased_as_a_whole_or_by_slots() {
        let ip: IpAddr = "198.51.100.7".parse().unwrap();
        let slot = claim(ip, 63).unwrap();
        let taken = |result: io::Result<NameLease>| result.unwrap_err().kind();
        assert_eq!(taken(NameLease::whole(ip)), io::ErrorKind::AddrInUse);
        assert!(!is_claimed(ip, WHOLE), "what could not be had was given back");
        drop(slot);
        let whole = NameLease::whole(ip).unwrap();
        assert!(is_claimed(ip, WHOLE));
        assert_eq!(taken(NameLease::whole(ip)), io::ErrorKind::AddrInUse);
        drop(whole);
        assert!(!is_claimed(ip, WHOLE));
    }
}
