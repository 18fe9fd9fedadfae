//! Captures of RoCEv2 traffic: read them, write them, take them apart.
//!
//! | module | |
//! |---|---|
//! | [`reader`] | pcap and pcapng in, IP packets with their times out |
//! | [`writer`] | pcapng out, nanoseconds, one interface |
//! | [`CaptureFile`] | what a device sends and receives, into a file |
//! | [`link`] | what stands before the IP header in a frame |
//! | [`dissect`](mod@dissect) | the RoCEv2 packet in an IP packet, and whether its ICRC holds |

#![deny(unsafe_code)]

pub mod dissect;
mod file;
pub mod link;
pub mod reader;
pub mod writer;

pub use dissect::{Icrc, RocePacket, dissect};
pub use file::CaptureFile;
pub use link::{LinkType, NotIp};
pub use reader::{Packet, ReadError, Reader};
pub use writer::Writer;
