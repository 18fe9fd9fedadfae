//! Filters of the commands that read captures.

use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

use clap::Args;
use softroce::ids::Qpn;

use crate::units;

/// Filters by queue pair, address and time.
#[derive(Args, Debug)]
pub struct SpanArgs {
    /// Only packets of this queue pair: to it, or from it where the packet names its sender.
    #[arg(long, value_name = "QPN", value_parser = units::qpn)]
    pub qpn: Vec<Qpn>,
    /// Only packets from or to this address.
    #[arg(long, value_name = "ADDRESS")]
    pub addr: Vec<IpAddr>,
    /// Only packets captured that long after the first of the file, or later.
    #[arg(long, value_name = "SECONDS", value_parser = units::moment)]
    pub from: Option<Duration>,
    /// Only packets captured that long after the first of the file, or earlier.
    #[arg(long, value_name = "SECONDS", value_parser = units::moment)]
    pub to: Option<Duration>,
}

impl SpanArgs {
    /// Returns the filters as the user has given them; empty without any.
    pub fn given(&self) -> String {
        let mut text = String::new();
        // A string takes whatever is written to it.
        for qpn in &self.qpn {
            let _ = write!(text, " --qpn {qpn}");
        }
        for addr in &self.addr {
            let _ = write!(text, " --addr {addr}");
        }
        for (name, time) in [("from", self.from), ("to", self.to)] {
            if let Some(time) = time {
                let _ = write!(text, " --{name} {}", time.as_secs_f64());
            }
        }
        text.trim_start().to_owned()
    }
}
