//! Capture files: reads and writes them.
//!
//! | file | |
//! |---|---|
//! | `reader` | [`Reader`]: packets of pcap and pcapng, with their times |
//! | `writer` | [`Writer`]: pcapng with nanoseconds and comments |
//! | `recording` | [`CaptureFile`]: packets of a device, written while it runs |
//! | `compressed` | [`decompressed`]: captures in gzip and zstd |
//! | `link` | [`LinkType`]: headers before the IP header |

mod compressed;
mod input;
mod link;
mod reader;
mod recording;
mod writer;

pub use compressed::decompressed;
pub use link::{LinkType, NotIp};
pub use reader::{Packet, ReadError, Reader};
pub use recording::CaptureFile;
pub use writer::{Record, Writer};
