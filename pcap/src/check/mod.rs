//! Holds captured traffic against the rules of RoCEv2.
//!
//! ```text
//!  frame ─▶ dissect ─▶ ICRC ──bad──▶ finding
//!                       │ good, or cut and unknown
//!                       ├─▶ packet: header, lengths, operands
//!                       └─▶ flow::Tracker ─▶ events ─▶ judge ─▶ findings
//! ```
//!
//! A packet with a bad ICRC is dropped by every receiver, so nothing else is asked of it. What a
//! capture does not hold is not held against anybody: see [`Severity::Note`].

mod checker;
mod finding;
mod found;
mod judge;
mod looped;
mod online;
mod packet;
mod rule;

pub use checker::{Checker, Counts};
pub use finding::{Finding, Severity, Who};
pub use online::OnlineCheck;
pub use rule::Rule;
