//! Captures of RoCEv2 traffic: reads, writes, dissects, checks and analyzes them.
//!
//! A module uses only modules below it; `tests/layering.rs` of the repository fails when one does not.
//!
//! | layer | modules | |
//! |---|---|---|
//! | 4 | [`check`] | the rules of RoCEv2, and the packets of a capture that break them |
//! | 4 | [`json`] | packets as objects of JSON |
//! | 4 | [`analyze`] | figures of each connection, and the causes of its delays |
//! | 3 | [`merge`] | captures of both ends of a path as one |
//! | 3 | [`flow`] | connections: the packets of each, and the role of each packet in it |
//! | 3 | [`display_filter`] | filters with the field names of Wireshark |
//! | 2 | [`dissect`](mod@dissect) | the RoCEv2 packets in an IP packet, and the verdicts on their ICRCs |
//! | 1 | [`file`](mod@file) | capture files: pcap and pcapng, compressed or not, as packets with their times |
//! | 0 | `hex` | bytes in hexadecimal |

#![deny(unsafe_code)]

pub mod analyze;
pub mod check;
pub mod display_filter;
pub mod dissect;
pub mod file;
pub mod flow;
mod hex;
pub mod json;
pub mod merge;

pub use dissect::{Extent, Icrc, IcrcCounts, RocePacket, dissect};
pub use file::{
    Annotator, Block, CaptureFile, Description, LinkType, NotIp, Packet, Patch, PcapFileHeader,
    ReadError, Reader, Record, SummaryPlace, Writer, decompressed,
};
pub use hex::hex;
