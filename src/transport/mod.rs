//! The transport services: RC, XRC, UC and UD.
//!
//! Both halves of a queue pair handle events and build packets, without sockets, threads or clocks.
//! For each input they borrow parts of the engine.
//!
//! | module | |
//! |---|---|
//! | [`work`] | work requests and completions |
//! | [`outputs`] | queues of completions and events |
//! | `counters` | counters and drop reasons |
//! | `rc` | reliable connection, and the extended one |
//! | `uc` | unreliable connection |
//! | `ud` | unreliable datagram |
//! | `send_queue` | unfinished send requests |
//! | `send_budget` | admission of packets to a burst |
//! | `send_state` | permission to send, by queue pair state |
//! | `wqe` | send work queue elements |
//! | `inbound` | reception of SENDs and WRITEs |
//! | `message` | request packets of SENDs and WRITEs |
//! | `fault` | transport errors and their consequences |
//! | `segment` | segmentation of messages into packets |
//! | `build` | building of packets in bursts |
//! | `window` | limit on the data in flight to one address |
//! | `in_flight` | bursts in flight of one queue pair |
//! | `recv` | the receive queue |
//! | `srq` | shared receive queues |
//! | `connection` | connection attributes |
//! | `context` | the parts of an engine that queue pairs share |

pub(crate) mod build;
pub(crate) mod connection;
pub(crate) mod context;
pub(crate) mod counters;
pub(crate) mod fault;
pub(crate) mod in_flight;
pub(crate) mod inbound;
pub(crate) mod message;
pub mod outputs;
pub(crate) mod rc;
pub(crate) mod recv;
pub(crate) mod segment;
pub(crate) mod send_budget;
pub(crate) mod send_queue;
pub(crate) mod send_state;
pub(crate) mod srq;
pub(crate) mod uc;
pub(crate) mod ud;
pub mod window;
pub mod work;
pub(crate) mod wqe;
