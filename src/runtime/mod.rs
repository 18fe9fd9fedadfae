//! Clock, threads, locks and wake-ups: where an engine and a port become a device.
//!
//! ```text
//! Device ── one address, or several: key table, GID table, name
//!   └─ Shards ── one, or several: which queue pair is where
//!        └─ Shard ── a lock, and who makes progress
//!             └─ Core ── Engine + Port + bursts on their way + completion rings
//! ```
//!
//! A turn **transmits first and receives last**: what is owed and wanted goes out, a bounded batch
//! comes in, timers run, completions move to their rings, sleepers wake. What it received is
//! acknowledged by the next turn or `post_send`, for an acknowledgement may ride in the reply's
//! burst, and one can stand for many (`delayed_ack`). While a thread polls, it leaves 50 µs after the answer at
//! the latest, or with the second poll in a row that finds nothing if there was no answer; else after
//! four milliseconds, or with the end of the device; and always before a completion channel announces
//! it. [`AckPolicy::BeforeCompletion`] is there for those who want it at once.
//!
//! Who takes turns is in `progress`.

mod clock;
mod core;
mod counters;
mod delayed_ack;
mod device;
mod down;
mod env;
#[cfg(test)]
mod hot_path;
mod lease;
mod log;
mod moderation;
mod open;
mod open_error;
mod opener;
mod peers;
mod progress;
mod queue;
mod registry;
mod ring;
mod rings;
mod shard;
mod shard_set;
mod shards;
mod signals;
#[cfg(test)]
mod wire_of_tests;
mod xrcd;

pub use self::core::LinkCounters;
pub use crate::sys::{PerProcess, generation};
pub use clock::{now, wall_clock};
pub use counters::DeviceCounters;
pub use down::Down;
pub use env::{EnvError, Environment, LogLevel, VARIABLES, Variable};
pub use log::log;
pub use moderation::Moderation;
pub use open::loopback_addresses;
pub use open_error::OpenError;
pub use registry::flush;
pub use xrcd::XrcdError;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use crate::sys::{SignalAction, change_signal_action};

pub(crate) use self::core::{AttachError, Core};
pub(crate) use crate::port::EventFd;
pub(crate) use crate::sync::notify::Armed;
pub(crate) use crate::sync::wakers::WakerKey;
pub(crate) use device::Device;
pub(crate) use open::{Address, DeviceConfig, random};
pub(crate) use queue::{OnSignal, Queue, Waited};
pub(crate) use registry::find as find_device;
pub(crate) use ring::{Announce, Ring, Stamped};
pub(crate) use rings::CqNumbers;
pub(crate) use shard::Shard;
pub(crate) use shard_set::{ShardSet, may_be_shards};
pub(crate) use shards::Shards;
pub(crate) use xrcd::{Xrcd, XrcdTable};

/// When what has arrived is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AckPolicy {
    /// With the reply, or behind several if the peer goes on without it; else when there is nothing
    /// else to do, and within four milliseconds. The peer's request completes a little later, and a
    /// round trip is shorter.
    #[default]
    Lazy,
    /// Before the completion can be seen here. Costs a system call a message.
    BeforeCompletion,
}
