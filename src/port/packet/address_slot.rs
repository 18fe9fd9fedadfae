//! Several processes at one address, each with a share of the queue pair numbers.
//!
//! The low 6 bits of a queue pair number name a slot of the address. Each packet port has one slot: its sockets receive
//! packets to queue pairs of that slot, and its engine assigns no other numbers. A process holds a
//! [lease](crate::port::shared::name_lease) of its slot.
//!
//! ```text
//!   0 ── softroce/10.1.0.1/0 ── queue pairs …000000, and number 1, the general services interface
//!   1 ── softroce/10.1.0.1/1 ── queue pairs …000001, without number 1
//!   …
//!  63 ── softroce/10.1.0.1/63
//! ```
//!
//! A process takes the lowest slot that is free at all of its addresses. Multicast does not depend on slots: each
//! process joins its groups by sockets of its own.

use std::io;
use std::net::IpAddr;

use super::open_error::OpenError;
use crate::ids::Qpn;
use crate::port::opener::OpenPortError;
use crate::port::shared::name_lease::NameLease;
use crate::port::shared::open_error::OpenError as AddressError;

/// Slot of a packet port, at one address or several.
#[derive(Debug)]
pub struct AddressSlot {
    shard: u8,
    /// Its leases, one for each address.
    _claims: Vec<NameLease>,
}

impl AddressSlot {
    /// Takes the lowest slot that is free at each of these addresses.
    ///
    /// # Errors
    ///
    /// [`OpenError::Full`] if there is none, [`InUse`](AddressError::InUse) if UDP ports share one of the addresses, or
    /// the error of the system.
    pub fn take(ips: &[IpAddr]) -> Result<Self, OpenPortError> {
        for shard in 0..Qpn::SHARDS {
            let claim = |ip: &IpAddr| NameLease::slot(*ip, shard).map_err(|error| (*ip, error));
            match ips.iter().map(claim).collect() {
                Ok(claims) => {
                    // The UDP ports of a device have the lease of the whole address.
                    if let Some(ip) = ips.iter().find(|ip| NameLease::is_whole(**ip)) {
                        return Err(AddressError::in_use(*ip).into());
                    }
                    return Ok(Self { shard, _claims: claims });
                }
                Err((_, error)) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err((ip, source)) => {
                    return Err(OpenError::Os { ip, what: "claiming a place", source }.into());
                }
            }
        }
        Err(OpenError::Full { ips: ips.to_vec() }.into())
    }

    /// Returns the low bits of its queue pair numbers: see [`Qpn::shard`].
    pub fn shard(&self) -> u8 {
        self.shard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn port_takes_the_lowest_slot_free_at_all_addresses() {
        let [a, b] = [ip("198.51.100.1"), ip("2001:db8::1")];
        let first = AddressSlot::take(&[a]).unwrap();
        let second = AddressSlot::take(&[b, a]).unwrap();
        let third = AddressSlot::take(&[b]).unwrap();
        let shards = [&first, &second, &third].map(AddressSlot::shard);
        assert_eq!(shards, [0, 1, 0], "what could not be had of two was given back");
        drop(first);
        assert_eq!(AddressSlot::take(&[a]).unwrap().shard(), 0);
        drop(third);
        assert_eq!(AddressSlot::take(&[a, b]).unwrap().shard(), 0);
    }

    #[test]
    fn address_has_64_slots() {
        let a = ip("198.51.100.2");
        let all: Vec<_> = (0..64).map(|_| AddressSlot::take(&[a]).unwrap()).collect();
        assert!(all.iter().map(AddressSlot::shard).eq(0..64));
        assert_eq!(
            AddressSlot::take(&[a]).unwrap_err().to_string(),
            "all 64 slots at 198.51.100.2 are taken: each packet port there has one, and with it the \
             queue pair numbers that end in its number"
        );
    }
}
