//! Capture files: reads and writes them.
//!
//! | file | |
//! |---|---|
//! | `reader` | [`Reader`]: packets of pcap and pcapng, with their times |
//! | `blocks` | [`Block`]: parts of a file as they stand there |
//! | `annotator` | [`Annotator`]: copies of captures, with comments |
//! | `writer` | [`Writer`]: pcapng with nanoseconds and comments |
//! | `recording` | [`CaptureFile`]: packets of a device, written while it runs |
//! | `compressed` | [`decompressed`]: captures in gzip and zstd |
//! | `link` | [`LinkType`]: headers before the IP header |

mod annotator;
mod blocks;
mod compressed;
mod input;
mod link;
mod reader;
mod recording;
mod writer;

pub use annotator::{Annotator, Patch, SummaryPlace};
pub use blocks::{Block, Packet, PcapFileHeader};
pub use compressed::decompressed;
pub use link::{LinkType, NotIp};
pub use reader::{ReadError, Reader};
pub use recording::CaptureFile;
pub use writer::{Description, Record, Writer};
