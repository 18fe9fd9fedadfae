//! The GID table: slots for the device's addresses, which may be temporarily empty.

use crate::engine::Engine;
use crate::ids::Gid;

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
}
