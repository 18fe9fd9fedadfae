//! Ports: how packets reach the network.
//!
//! A [`Port`] has two sides. The [`Datapath`] takes [`Burst`](crate::net::Burst)s and delivers
//! [`RxBuffer`](crate::net::RxBuffer)s; a shard uses it in every turn. The [`Control`] side has addresses, multicast groups
//! and link state; a device uses it now and then. The engine does not know which kind of port it runs above.
//!
//! | port | link |
//! |---|---|
//! | `udp::UdpPort` | UDP sockets, without privileges |
//! | `shm::ShmPort` | shared memory to other ports of its kind on this machine, otherwise the port below |
//! | `packet::PacketPort` | frames that it builds itself, with CAP_NET_RAW: it sees IP headers |
//! | `tap::TapPort` | a TAP interface, on which the port is a host of its own |
//! | [`several::Several`] | the ports of several addresses |
//! | [`sim::SimPort`] | a simulated network in virtual time |
//! | `CustomPort` | a port that a program brings |
//!
//! A [`Middleware`] takes part in the datapath above a port:
//!
//! | middleware | purpose |
//! |---|---|
//! | [`impair::Impair`] | injects seeded faults |
//! | [`capture::Capture`] | copies every packet to a [`Sink`] |
//! | `sorted::Sorted` | hands misrouted datagrams to the shard of their queue pair |
//!
//! Kinds of port know these traits and the folder `shared`, and not each other. The file `kind` lists them.

pub mod capture;
#[cfg(feature = "runtime")]
mod config;
mod counters;
#[cfg(feature = "runtime")]
mod custom;
#[cfg(feature = "runtime")]
mod event_fd;
pub mod impair;
#[cfg(feature = "runtime")]
mod kind;
mod layer;
#[cfg(feature = "runtime")]
mod opener;
#[cfg(feature = "packet")]
pub mod packet;
mod port;
pub mod several;
mod shared;
#[cfg(feature = "runtime")]
pub mod shm;
pub mod sim;
#[cfg(feature = "runtime")]
pub mod sorted;
#[cfg(feature = "tap")]
pub mod tap;
#[cfg(feature = "runtime")]
pub mod udp;

#[cfg(all(test, feature = "runtime"))]
#[path = "../../tests/support/prerequisite.rs"]
mod prerequisite;

#[cfg(feature = "runtime")]
pub use crate::sys::wait_readable;
pub use capture::{Direction, Sink};
#[cfg(feature = "runtime")]
pub use config::PortConfig;
pub use counters::PortCounters;
#[cfg(feature = "runtime")]
pub use custom::{CustomPort, CustomPortError};
#[cfg(feature = "runtime")]
pub(crate) use event_fd::{EventFd, EventFdSignal};
#[cfg(feature = "runtime")]
pub use kind::{PortKind, PortKindError};
pub use layer::{Layer, Middleware};
#[cfg(feature = "runtime")]
pub(crate) use opener::{OpenPortError, Opener};
pub use port::{
    Control, Datapath, JoinError, LinkState, Port, PortInfo, SOURCE_PORTS, TransmitError,
};
pub use shared::conditions::{Bursts, Conditions, Outages};
