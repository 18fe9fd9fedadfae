//! The GID table: slots for the device's addresses, which may be empty for a time.

use crate::engine::Engine;
use crate::ids::Gid;

impl Engine {
    /// An address of the device has gone, or has come back. Its slot of the GID table is its own
    /// meanwhile, and is empty: no new path leads from there. Paths that do stay, and what leaves by them
    /// is for the port to carry or to lose.
    pub fn set_gid_present(&mut self, index: usize, is_present: bool) {
        self.empty_gids.retain(|empty| *empty != index);
        if !is_present {
            self.empty_gids.push(index);
        }
    }

    /// The GID with this index; `None` when its slot is empty, or there is no such slot.
    pub fn gid(&self, index: usize) -> Option<Gid> {
        let gid = self.config.gids.get(index).copied();
        gid.filter(|_| !self.empty_gids.contains(&index))
    }
}
