//! Clock, threads, locks and wake-ups: where an engine and a port become a device.
//!
//! ```text
//! Device ── one or more addresses: key table, GID table, name
//!   └─ Shards ── one or more: the shard of each queue pair
//!        └─ Shard ── a lock, and the thread that makes progress
//!             └─ Core ── Engine + Port + pending bursts + completion rings
//! ```
//!
//! A turn **transmits first and receives last**: it sends pending packets, receives a bounded batch, runs timers,
//! delivers completions, and wakes sleeping threads. The next turn or `post_send` acknowledges the received messages,
//! because an acknowledgement may share a burst with the response, and one may cover many messages (`delayed_ack`).
//! While a thread polls, the acknowledgement leaves at the latest 50 µs after the response, or without a response at
//! the second poll in a row that finds nothing. Otherwise it leaves after at most four milliseconds, or when the device
//! is closed, and always before a completion channel is notified. [`AckPolicy::BeforeCompletion`] sends it at once.
//!
//! `progress` describes which thread takes turns, and [`control`] how other programs observe a device.

mod busy_poll;
mod clock;
pub(crate) mod cm;
pub mod control;
mod core;
mod counters;
mod delayed_ack;
mod device;
mod device_error;
mod env;
#[cfg(test)]
mod hot_path;
mod idle_backoff;
mod idle_yield;
mod last_times;
mod lease;
mod listener;
mod log;
mod moderation;
mod open;
mod open_error;
mod opener;
mod peers;
mod post_coalescing;
mod progress;
mod queue;
mod random;
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
pub use crate::sys::{PerProcess, generation, handle_faults, read_program, write_program};
pub use clock::{now, wall_clock};
pub use counters::DeviceCounters;
pub use device_error::DeviceError;
pub use env::{EnvError, Environment, LogLevel, VARIABLES, Variable};
pub use log::{is_log_level_set, is_logged, log};
pub use moderation::Moderation;
pub use open::loopback_addresses;
pub use open_error::OpenError;
pub use post_coalescing::PostPolicy;
pub use registry::flush;
pub use xrcd::XrcdError;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use crate::sys::{SignalAction, change_signal_action};

pub(crate) use self::core::{AttachError, Cm, Core};
pub(crate) use crate::port::EventFd;
pub(crate) use crate::sync::notify::Armed;
pub(crate) use crate::sync::wakers::WakerKey;
pub(crate) use device::Device;
pub(crate) use open::{Address, DeviceConfig, Observers, OwnAddress};
pub(crate) use queue::{OnSignal, Queue, WaitOutcome};
pub(crate) use random::random_word;
pub(crate) use registry::find as find_device;
pub(crate) use ring::{Announce, Ring, TimestampedCompletion};
pub(crate) use rings::CqNumbers;
pub(crate) use shard::Shard;
pub(crate) use shard_set::{ShardSet, may_be_shards};
pub(crate) use shards::Shards;
pub(crate) use signals::ends_call;
pub(crate) use xrcd::{Xrcd, XrcdTable};

/// Time at which received messages are acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AckPolicy {
    /// With the response, or after several if the peer continues without it; otherwise when there is nothing else to
    /// do, and within four milliseconds. The peer's request completes a little later, and a round trip is shorter.
    #[default]
    Lazy,
    /// Before the completion is visible here. Costs a system call for each message.
    BeforeCompletion,
}
