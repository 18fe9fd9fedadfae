//! The connection manager of a device, sans-IO: it establishes and ends connections by messages between queue pairs 1
//! (IBTA vol 1, §12), as Linux' `ib_cm` does.
//!
//! An [`Agent`] handles management datagrams, calls and timers, and produces management datagrams and events. Time is
//! an argument and randomness a seed. It knows queue pairs only by number: the caller changes their states, with the
//! attributes from [`Agent::qp_attr`].
//!
//! ```text
//!   active                                    passive
//!   connect()     ── REQ ──►                  Event::Request
//!                                             QP: INIT, RTR, RTS; accept()
//!   Event::Reply  ◄── REP ──
//!   QP: RTR, RTS
//!   establish()   ── RTU ──►                  Event::Established
//!                     …
//!   disconnect()  ── DREQ ─►                  Event::Disconnected
//!                                             disconnect()
//!   Event::Disconnected  ◄─ DREP ──
//!   Event::TimewaitExit                       Event::TimewaitExit
//! ```

mod active;
mod agent;
mod attr;
mod confirmations;
mod conn;
mod counters;
mod ending;
mod error;
mod listeners;
mod outputs;
mod passive;
mod port_space;
mod reason;
mod retransmit;
mod route;
mod services;
mod sidr;
mod state;
mod table;
mod timers;
mod types;

pub use agent::Agent;
pub use attr::{RDMA_UDP_QKEY, initial_attr};
pub use counters::Counters;
pub use error::Error;
pub use port_space::{Bind, BindError, BindId, DeviceNumber, PortRules, PortSpace, PortTable};
pub use reason::RejectReason;
pub use route::path;
pub use state::State;
pub use types::{
    Accept, AgentConfig, CmPath, ConnId, Connect, Ece, Event, Listen, Offer, Reject, Reply,
    Request, ServiceReply, ServiceRequest, SidrReply, SidrRequest, SidrStatus,
};

pub use crate::engine::{MadPath, OutgoingMad, ReceivedMad};
pub use crate::net::IpVersion;
pub use crate::wire::cm::{CommId, Guid, IpHeader, ServiceId};
