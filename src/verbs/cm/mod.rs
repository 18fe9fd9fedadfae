//! The connection manager: connections between programs by address and port, as with Linux' rdma_cm.
//!
//! A server has a [`Listener`], and a client calls [`connect`]; both get a [`Connection`], which moves its queue pair
//! through its states. UD has [`ServiceListener`] and [`look_up`]. Each of them waits, polls, or is a future, and has a
//! descriptor.
//!
//! Below them are the calls of `librdmacm`: an [`Id`] with its states, and an [`EventChannel`] for its events. The agent
//! in [`crate::cm`] sends and receives the messages.

mod channel;
mod connection;
mod device;
mod error;
mod event;
mod id;
mod inner;
mod listener;
mod lookup;
mod next;
mod options;
mod ports;

pub use channel::{Event, EventChannel};
pub use connection::{Connecting, Connection, ConnectionEvent, connect};
pub use device::Opener;
pub use error::Error;
pub use event::{ConnectParam, EventKind, MulticastGroup, MulticastId};
pub use inner::Id;
pub use listener::{Incoming, Listener};
pub use lookup::{LookUp, Query, Service, ServiceListener, look_up};
pub use next::NextEvent;
pub use options::{Accept, Connect};

pub use crate::cm::{
    BindError, CmPath, Ece, Offer, PortSpace, RejectReason, Reply, Request, ServiceReply,
    ServiceRequest, SidrStatus,
};
