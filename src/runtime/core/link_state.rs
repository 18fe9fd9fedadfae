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

/// What is known of the interfaces.
#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    /// Of each address that the device has, as it was seen last; those of which nothing can be known are
    /// not here.
    pub(super) states: SmallVec<[LinkState; 1]>,
    pub(super) next_look: Instant,
    pub(super) counters: LinkCounters,
}
