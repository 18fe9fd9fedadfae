//! Asynchronous events.

use std::ffi::c_uint;

use super::layout;

/// `ibv_async_event`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AsyncEvent {
    /// A pointer to the object of the event, or the number of the port.
    pub(crate) element: u64,
    pub(crate) event_type: c_uint,
}
layout!(AsyncEvent, 16, event_type: 8);
