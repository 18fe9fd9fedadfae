//! Figures of the connections in a capture, and the causes of their delays, as `roce analyze` shows them.
//!
//! ```text
//!  frame ─▶ dissect ─▶ ICRC good ─▶ flow::Tracker ─▶ events ─▶ Stream ─▶ Flow ─▶ Reason
//! ```
//!
//! A [`Stream`] has the figures of the requests from one queue pair to another, with the answers; a
//! [`Flow`] is the one or two streams of a connection. [`Flow::reasons`] names the uses of its time, the
//! longest first.
//!
//! [`Limits`] bound the memory: flows beyond the limit are counted and not followed, the oldest packets
//! in flight are forgotten first, and series over time become coarser ([`Trace`]).
//!
//! | file | |
//! |---|---|
//! | `quantity`, `series`, `kind`, `figures` | numbers with their units, distributions, counts |
//! | `cm_exchange`, `stream`, `flow`, `reason` | the results |
//! | `composition` | opcodes, messages of the connection managers, traffic over time |
//! | `progress` | adds packets to a stream |
//! | `filter`, `analyzer` | takes the packets of a capture |

mod analyzer;
mod budget;
mod cm_exchange;
mod composition;
mod figures;
mod filter;
mod flow;
mod kind;
mod progress;
mod quantity;
mod reason;
mod series;
mod stream;

pub use analyzer::{Analysis, Analyzer, Counts, Limits};
pub use cm_exchange::{CmExchange, CmMessage};
pub use composition::{Composition, Interval, Intervals, OpcodeCount};
pub use figures::{Messages, Missing, Retransmissions, Waits};
pub use filter::Filter;
pub use flow::{Certainty, End, Flow};
pub use kind::{Kind, Line, Nak, Phase};
pub use quantity::{Count, Digits, Rate, Share, Size, Span};
pub use reason::{Reason, ReasonKind, RoundTrip};
pub use series::{Bins, Cell, Distribution, QUANTILES, Trace};
pub use stream::{InFlight, OverTime, Recovery, Stream, Traffic};
