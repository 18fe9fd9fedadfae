//! State of the interfaces below a port.

use smallvec::SmallVec;

use crate::counter::counters;
use crate::port::LinkState;
use crate::time::Instant;

counters! {
    named "";
    /// What has become of the interface below a device.
    pub struct LinkCounters {
        link_downed: "Times that the interface stopped carrying packets, or lost the device's address; of several addresses, that none was left to send from.", rxe "link_downed";
    }
}

/// Known state of the interfaces.
#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    /// Last known state for each address of the device; an unknown one is absent.
    pub(super) states: SmallVec<[LinkState; 1]>,
    pub(super) next_poll: Instant,
    pub(super) counters: LinkCounters,
}
