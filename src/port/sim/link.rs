//! Links of the simulated network.

use std::net::IpAddr;
use std::time::Duration;

use crate::ids::Gid;
use crate::port::shared::conditions::Conditions;
use crate::port::shared::emulated_link::EmulatedLink;

/// One direction between two hosts.
pub(super) struct Link {
    /// Conditions of this link, if it does not use those of the network.
    pub(super) conditions: Option<Conditions>,
    pub(super) way: EmulatedLink,
}

impl Link {
    pub(super) fn new(seed: u64, from: IpAddr, to: IpAddr) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..20].copy_from_slice(&Gid::from(from).0[4..]);
        bytes[20..].copy_from_slice(&Gid::from(to).0[4..]);
        Self { conditions: None, way: EmulatedLink::new(bytes, Duration::from_micros(20)) }
    }
}
