//! The GID table: slots for the device's addresses, which may be temporarily empty.

use std::net::IpAddr;

#[cfg(feature = "runtime")]
use crate::engine::Config;
use crate::engine::Engine;
use crate::ids::Gid;

/// Minimum number of slots in the GID table of a device. Adapters list each address several times, for the versions of
/// RoCE, and programs have indices from 0 to 3 built in.
pub const MIN_GID_TABLE_LEN: usize = 4;

/// Returns the GID table of a device with these addresses. The address with index `n` has GID index `n`. The addresses
/// repeat in the same order, until the table has [`MIN_GID_TABLE_LEN`] slots.
pub fn gid_table(addresses: &[IpAddr]) -> Vec<Gid> {
    let len = if addresses.is_empty() { 0 } else { addresses.len().max(MIN_GID_TABLE_LEN) };
    addresses.iter().copied().map(Gid::from).cycle().take(len).collect()
}

#[cfg(feature = "runtime")]
impl Config {
    /// Returns the number of addresses in the GID table.
    pub(crate) fn address_count(&self) -> usize {
        let gids = &self.gids;
        let is_first =
            |index: usize, gid: &Gid| gids.iter().position(|other| other == gid) == Some(index);
        gids.iter().enumerate().filter(|(index, gid)| is_first(*index, gid)).count()
    }
}

impl Engine {
    /// Records that an address of the device was removed or added again. An empty slot of the GID
    /// table stays reserved for its address, and no new path may use it. Existing paths keep it;
    /// the port may then fail to send their packets.
    pub fn set_gid_present(&mut self, index: usize, is_present: bool) {
        self.empty_gids.retain(|empty| *empty != index);
        if !is_present {
            self.empty_gids.push(index);
        }
    }

    /// Returns the GID with this index; `None` if its slot is empty or does not exist.
    pub fn gid(&self, index: usize) -> Option<Gid> {
        let gid = self.config.gids.get(index).copied();
        gid.filter(|_| !self.empty_gids.contains(&index))
    }

    /// Records that an address of the device was removed or added again, for each of its slots.
    #[cfg(feature = "runtime")]
    pub(crate) fn set_address_present(&mut self, ip: IpAddr, is_present: bool) {
        for index in 0..self.config.gids.len() {
            if self.config.gids[index].ip() == ip {
                self.set_gid_present(index, is_present);
            }
        }
    }
}
