//! The transport services: RC, XRC, UC and UD.
//!
//! The halves of a queue pair handle events and build packets, without sockets, threads or clocks. For each input they
//! borrow parts of the engine.
//!
//! | module | |
//! |---|---|
//! | [`work`] | work requests and completions |
//! | [`outputs`] | completions and events on their way out |
//! | `counters` | what is counted, reasons for drops among it |
//! | `rc` | reliable connection, and the extended one |
//! | `uc` | unreliable connection |
//! | `ud` | unreliable datagram |
//! | `send_queue` | unfinished send requests |
//! | `send_budget` | how much of that a burst may take |
//! | `send_state` | which of their packets may leave |
//! | `wqe` | a send request on its way |
//! | `inbound` | a SEND or WRITE that arrives packet by packet |
//! | `message` | the packets of a SEND or WRITE that leaves |
//! | `fault` | what follows from every kind of invalid request |
//! | `segment` | how a message falls into packets |
//! | `build` | packets into bursts |
//! | `window` | how much may be on its way to one address |
//! | `in_flight` | what of that one queue pair has sent |
//! | `recv` | the receive queue |
//! | `srq` | receive queues that queue pairs share |
//! | `connection` | what both halves share |

pub(crate) mod build;
pub(crate) mod connection;
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
