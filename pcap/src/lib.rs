//! Captures of RoCEv2 traffic: read them, write them, take them apart, hold them against the rules.
//!
//! | module | |
//! |---|---|
//! | [`reader`] | pcap and pcapng in, IP packets with their times out |
//! | [`decompressed`] | the same out of gzip and zstd |
//! | [`writer`] | pcapng out, nanoseconds, comments |
//! | [`CaptureFile`] | what a device sends and receives, into a file |
//! | [`link`] | what stands before the IP header in a frame |
//! | [`dissect`](mod@dissect) | the RoCEv2 packet in an IP packet, and whether its ICRC holds |
//! | [`burst`] | the packets of a datagram that was captured before it was cut up |
//! | [`flow`] | connections: which packets belong together, and what each of them does there |
//! | [`analyze`] | what connections did, and what their time went into |
//! | [`check`] | the rules of RoCEv2, and what of a capture breaks them |

#![deny(unsafe_code)]

pub mod analyze;
pub mod burst;
pub mod check;
mod compressed;
pub mod dissect;
mod file;
pub mod flow;
mod input;
pub mod link;
pub mod reader;
pub mod writer;

pub use burst::Extent;
pub use compressed::decompressed;
pub use dissect::{Icrc, IcrcCounts, RocePacket, dissect};
pub use file::CaptureFile;
pub use link::{LinkType, NotIp};
pub use reader::{Packet, ReadError, Reader};
pub use writer::{Record, Writer};
