//! Address leases: the right of a device to its addresses.

use std::fmt;
use std::net::IpAddr;
use std::sync::OnceLock;

use crate::sync::exit_list::ExitListIndex;

/// Registry of addresses that leases belong to.
pub(super) trait LeaseRegistry: Send + Sync {
    /// Ends a lease. All sockets at its addresses are closed by then.
    fn release(&self, ips: &[IpAddr], at_exit: Option<ExitListIndex>);
}

/// Right to the only device of this process at some addresses. It ends when the device's sockets are closed.
pub(crate) struct AddressLease {
    ips: Vec<IpAddr>,
    generation: u32,
    registry: &'static dyn LeaseRegistry,
    /// Entry of the device in the list of those that send when the process ends.
    at_exit: OnceLock<ExitListIndex>,
}

impl AddressLease {
    pub(super) fn new(
        ips: &[IpAddr],
        generation: u32,
        registry: &'static dyn LeaseRegistry,
    ) -> Self {
        Self { ips: ips.to_vec(), generation, registry, at_exit: OnceLock::new() }
    }

    /// Returns the addresses.
    pub(super) fn ips(&self) -> &[IpAddr] {
        &self.ips
    }

    /// Returns the generation of the process that has the lease.
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// Stores the device's entry in the exit list. It is set once.
    pub(super) fn keep(&self, at_exit: ExitListIndex) {
        let _ = self.at_exit.set(at_exit);
    }
}

impl Drop for AddressLease {
    fn drop(&mut self) {
        self.registry.release(&self.ips, self.at_exit.take());
    }
}

impl fmt::Debug for AddressLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressLease").field("ips", &self.ips).finish_non_exhaustive()
    }
}

#[cfg(test)]
impl AddressLease {
    /// Returns a lease of a shard without a device.
    pub(super) fn of_tests(ip: impl Into<IpAddr>) -> Self {
        struct NoRegistry;
        impl LeaseRegistry for NoRegistry {
            fn release(&self, _: &[IpAddr], _: Option<ExitListIndex>) {}
        }
        Self::new(&[ip.into()], crate::sys::generation(), &NoRegistry)
    }
}
