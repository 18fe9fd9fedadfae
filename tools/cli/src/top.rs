//! `roce top`: its options.

use clap::{Args, ValueEnum};

/// Show the devices and queue pairs of all running programs of this user, live.
///
/// A line for each device, followed by its queue pairs: bits per second sent and received, messages per second, mean
/// bytes of a message on the wire, packets without acknowledgement, and, since the start, retransmitted packets, RNR
/// NAKs and congestion notification packets. Numbers that grow are colored.
///
/// Keys: q quits, ? shows all keys, s and S change the sort key, r reverses, / filters, d hides queue pairs.
#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    /// Seconds between two samples.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub interval: u16,
    /// Sort devices, and the queue pairs of each, by this column.
    #[arg(short, long, value_enum, value_name = "COLUMN", default_value_t = SortKey::Tx)]
    pub sort: SortKey,
    /// Only lines with this text, or below a device with it.
    #[arg(short, long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub filter: String,
    /// Print two samples' difference once, in place of the live view.
    #[arg(long)]
    pub once: bool,
    /// With --once: print one object of JSON with all counters.
    #[arg(long, requires = "once")]
    pub json: bool,
}

/// A column to sort by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SortKey {
    Pid,
    Tx,
    Rx,
    Messages,
    Size,
    Outstanding,
    Retransmitted,
    Rnr,
    Cnp,
}

impl SortKey {
    /// Returns the column at a distance from this one.
    pub fn step(self, by: isize) -> Self {
        let all = Self::value_variants();
        let len = all.len().cast_signed();
        let at = all.iter().position(|key| *key == self).unwrap_or_default().cast_signed();
        all[(at + by).rem_euclid(len).unsigned_abs()]
    }
}
