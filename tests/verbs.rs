//! Tests of the verbs over loopback sockets.
//!
//! No test sleeps or checks a duration. Tests wait for expected events, with a limit that only a failure reaches.
//! Each test has its own addresses, so tests can run in parallel.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

#[allow(dead_code, unreachable_pub, reason = "each test uses its part")]
#[path = "support/choice.rs"]
mod choice;
#[path = "verbs/completions.rs"]
mod completions;
#[path = "verbs/connections.rs"]
mod connections;
#[path = "verbs/connections_process.rs"]
mod connections_process;
#[path = "verbs/control.rs"]
mod control;
#[path = "verbs/counters.rs"]
mod counters;
#[path = "verbs/datagrams.rs"]
mod datagrams;
#[path = "verbs/destruction.rs"]
mod destruction;
#[path = "verbs/errors.rs"]
mod errors;
#[path = "verbs/faults.rs"]
mod faults;
#[path = "verbs/frames.rs"]
mod frames;
#[path = "verbs/ip_id_rewrite.rs"]
mod ip_id_rewrite;
#[path = "verbs/lifetime.rs"]
mod lifetime;
#[path = "verbs/link_state.rs"]
mod link_state;
#[path = "verbs/memory.rs"]
mod memory;
#[path = "verbs/multi_homed.rs"]
mod multi_homed;
#[path = "verbs/multicast.rs"]
mod multicast;
#[path = "verbs/name_conflict.rs"]
mod name_conflict;
#[path = "verbs/node.rs"]
mod node;
#[path = "verbs/operations.rs"]
mod operations;
#[path = "verbs/partitions.rs"]
mod partitions;
#[path = "verbs/peer_process.rs"]
mod peer_process;
#[path = "verbs/ports.rs"]
mod ports;
#[path = "support/prerequisite.rs"]
mod prerequisite;
#[path = "verbs/process.rs"]
mod process;
#[path = "verbs/progress.rs"]
mod progress;
#[path = "verbs/shards.rs"]
mod shards;
#[path = "verbs/shared_address.rs"]
mod shared_address;
#[path = "verbs/sharing.rs"]
mod sharing;
#[cfg(feature = "tap")]
#[path = "verbs/taps.rs"]
mod taps;
#[path = "verbs/tasks.rs"]
mod tasks;
#[path = "verbs/windows.rs"]
mod windows;
#[allow(dead_code, reason = "each user takes its part")]
#[path = "support/within.rs"]
mod within;
#[path = "verbs/xrc.rs"]
mod xrc;
