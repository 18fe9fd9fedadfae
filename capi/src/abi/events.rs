//! Asynchronous events.

use std::ffi::c_uint;

use super::layout;

/// `ibv_async_event`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AsyncEvent {
    /// A pointer to what it tells of, or the number of the port.
    pub(crate) element: u64,
    pub(crate) event_type: c_uint,
}
layout!(AsyncEvent, 16, event_type: 8);

/// `ibv_gid_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct GidEntry {
    pub(crate) gid: [u8; 16],
    pub(crate) gid_index: u32,
    pub(crate) port_num: u32,
    pub(crate) gid_type: u32,
    pub(crate) ndev_ifindex: u32,
}
layout!(GidEntry, 32, gid_index: 16, port_num: 20, gid_type: 24, ndev_ifindex: 28);

/// `IBV_GID_TYPE_ROCE_V2`.
pub(crate) const GID_TYPE_ROCE_V2: u32 = 2;
/// `IBV_GID_TYPE_SYSFS_ROCE_V2`.
pub(crate) const GID_TYPE_SYSFS_ROCE_V2: u32 = 1;
