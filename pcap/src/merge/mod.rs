//! Captures of both ends of a path as one: which packets were seen at both, which were lost on the way.
//!
//! ```text
//!  a ─▶ Survey ─┐                          a ─┐
//!               ├─▶ Alignment (clocks) ─▶     ├─▶ Merger ─▶ MergedPacket, in the order of sending
//!  b ─▶ Survey ─┘                          b ─┘
//! ```
//!
//! Each file is read twice. A [`Survey`] samples packets by a hash of their headers, so that both files sample the
//! same ones. An [`Alignment`] follows from the times of packets in both files: the shortest delay in each direction
//! bounds the offset of the clocks from one side, as NTP does, and the line through the medians of time windows has
//! the drift. A [`Merger`] joins the two copies of each packet.
//!
//! Memory is bounded: 2^15 packets of each sample, and [`MAX_PENDING_BYTES`] of packets that wait for their copy.

mod alignment;
mod fingerprint;
mod merger;
mod segment;
mod survey;

pub use alignment::{Alignment, MergeError};
pub use merger::{Fate, MAX_PENDING_BYTES, MergedPacket, Merger, PathCounts, Sighting};
pub use survey::Survey;
