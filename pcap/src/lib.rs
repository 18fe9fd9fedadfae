//! Captures of RoCEv2 traffic: read them, write them, take them apart.
//!
//! | module | |
//! |---|---|
//! | [`reader`] | pcap and pcapng in, IP packets with their times out |
//! | [`writer`] | pcapng out, nanoseconds, one interface |
//! | [`link`] | what stands before the IP header in a frame |
//! | [`dissect`](mod@dissect) | the RoCEv2 packet in an IP packet, and whether its ICRC holds |

#![deny(unsafe_code)]

pub mod dissect;
pub mod link;
pub mod reader;
pub mod writer;

pub use dissect::{Icrc, RocePacket, dissect};
pub use link::{LinkType, NotIp};
pub use reader::{Packet, ReadError, Reader};
pub use writer::{Direction, Writer};
