//! The device that this process opened without naming an address.

use std::sync::{MutexGuard, PoisonError, Weak};

use crate::runtime::device::Device;
use crate::sync::Mutex;

static OWN: Mutex<Weak<Device>> = Mutex::new(Weak::new());

/// The device, if there is one. Keeps other threads from opening it.
pub(super) type Held = MutexGuard<'static, Weak<Device>>;

/// Returns the device, and keeps other threads from opening it until the result is dropped.
pub(super) fn hold() -> Held {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}
