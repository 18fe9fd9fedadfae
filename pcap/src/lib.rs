//! Captures of RoCEv2 traffic: read them, write them.
//!
//! | module | |
//! |---|---|
//! | [`reader`] | pcap and pcapng in, IP packets with their times out |
//! | [`writer`] | pcapng out, nanoseconds, one interface |
//! | [`link`] | what stands before the IP header in a frame |

#![deny(unsafe_code)]

pub mod link;
pub mod reader;
pub mod writer;

pub use link::{LinkType, NotIp};
pub use reader::{Packet, ReadError, Reader};
pub use writer::{Direction, Writer};
