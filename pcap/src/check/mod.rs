//! Checks captured traffic against the rules of RoCEv2.
//!
//! ```text
//!  frame ─▶ dissect ─▶ ICRC ──bad──▶ finding
//!                       │ good, or cut and unknown
//!                       ├─▶ packet: header, lengths, operands
//!                       └─▶ flow::Tracker ─▶ events ─▶ judge ─▶ findings
//! ```
//!
//! Every receiver drops a packet with a bad ICRC, so no other rule applies to it. Facts that packets
//! missing from the capture may explain are notes: see [`Severity::Note`].

mod checker;
mod finding;
mod found;
mod judge;
mod loss;
mod online;
mod packet;
mod rule;

pub use checker::{Checker, Counts};
pub use finding::{Finding, Party, Severity};
pub use loss::{Loss, Notice};
pub use online::OnlineCheck;
pub use rule::Rule;
