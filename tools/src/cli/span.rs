//! Which part of a capture is looked at.

use std::net::IpAddr;
use std::time::Duration;

use clap::Args;

use super::units;

/// Filters by address and time.
#[derive(Args, Debug)]
pub(crate) struct SpanArgs {
    /// Only packets from or to this address.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) addr: Vec<IpAddr>,
    /// Only packets that long after the first of the file, or later.
    #[arg(long, value_name = "SECONDS", value_parser = units::moment)]
    pub(crate) from: Option<Duration>,
    /// Only packets that long after the first of the file, or earlier.
    #[arg(long, value_name = "SECONDS", value_parser = units::moment)]
    pub(crate) to: Option<Duration>,
}
