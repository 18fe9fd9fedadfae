//! Ports: how packets reach the network.
//!
//! A [`Port`] has two sides. The [`Datapath`] takes [`Burst`](crate::net::Burst)s and delivers
//! [`RxBuffer`](crate::net::RxBuffer)s; a shard uses it in every turn. The [`Control`] side has addresses, multicast groups
//! and link state; a device uses it now and then. The engine does not know which kind of port it runs above.
//!
//! Each kind of port has a folder:
//!
//! | port | link |
//! |---|---|
//! | `udp::UdpPort` | UDP sockets, without privileges |
//! | `shm::ShmPort` | shared memory to other ports of this kind on this machine, otherwise the port below |
//! | `packet::PacketPort` | frames that it builds itself, with CAP_NET_RAW: it sees IP headers |
//! | `tap::TapPort` | a TAP interface, on which the port is a host of its own |
//! | [`sim::SimPort`] | a simulated network in virtual time |
//! | `CustomPort` | a port that a program brings |
//!
//! The folder `wrap` has ports that wrap other ports, most of them [`Middleware`] in the datapath:
//!
//! | wrapper | purpose |
//! |---|---|
//! | [`impair::Impair`] | injects seeded faults |
//! | [`capture::Capture`] | copies every packet to a [`Sink`] |
//! | `LivePort` | copies every packet to sinks that are attached while the port is in use |
//! | `ShardDemux` | hands misrouted datagrams to the shard of their queue pair |
//! | [`MultiHomedPort`] | joins the ports of several addresses |
//!
//! The folder `shared` has the code that several ports use. A kind of port uses these traits, `wrap` and `shared`, but no
//! other kind of port. The file `kind` lists the kinds.

#[cfg(feature = "runtime")]
mod config;
mod counters;
#[cfg(feature = "runtime")]
mod custom;
#[cfg(feature = "runtime")]
mod kind;
#[cfg(feature = "runtime")]
mod opener;
#[cfg(feature = "packet")]
pub mod packet;
mod shared;
#[cfg(feature = "runtime")]
pub mod shm;
pub mod sim;
#[cfg(feature = "tap")]
pub mod tap;
mod traits;
#[cfg(feature = "runtime")]
pub mod udp;
pub(crate) mod wrap;

#[cfg(all(test, feature = "runtime"))]
#[path = "../../tests/support/prerequisite.rs"]
mod prerequisite;

#[cfg(feature = "runtime")]
pub use crate::sys::wait_readable;
#[cfg(feature = "runtime")]
pub use config::PortConfig;
pub use counters::PortCounters;
#[cfg(feature = "runtime")]
pub use custom::{CustomPort, CustomPortError};
#[cfg(feature = "runtime")]
pub use kind::{PortKind, PortKindError};
#[cfg(feature = "runtime")]
pub(crate) use opener::{OpenPortError, PortOpener};
pub use shared::conditions::{BurstLoss, Conditions, Outages};
#[cfg(feature = "runtime")]
pub(crate) use shared::event_fd::EventFd;
pub use traits::{
    Control, Datapath, JoinError, LinkState, Port, PortInfo, SOURCE_PORTS, TransmitError,
};
pub use wrap::capture::{Direction, Sink};
pub use wrap::layer::{Layer, Middleware};
#[cfg(feature = "runtime")]
pub(crate) use wrap::live::{LiveCapture, LivePort};
pub use wrap::multi_homed::MultiHomedPort;
pub use wrap::{capture, impair};
