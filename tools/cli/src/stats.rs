//! `roce stats`: its options.

use clap::{Args, ValueEnum};

use crate::{InputArgs, SpanArgs};

/// Print statistics of captures as tables.
///
/// The tables are conversations, opcodes, sizes (of messages), latencies (of messages and acknowledgements, as
/// percentiles), recovery (retransmissions and their causes, timeouts, losses), naks, cm (messages of the connection
/// managers), handshakes, and intervals (share of RoCEv2 in each second; each interval becomes longer in a capture of
/// more than ten minutes).
///
/// Times are those at the point of capture. Packets with a bad ICRC count as lost, as they do for a receiver.
#[derive(Args, Debug)]
pub struct StatsArgs {
    #[command(flatten)]
    pub input: InputArgs,
    /// Print only this table; may be repeated.
    #[arg(long, value_enum, value_name = "TABLE")]
    pub table: Vec<TableName>,
    #[command(flatten)]
    pub span: SpanArgs,
    /// Output: text; csv, each table with a header, with an empty line between tables; json, one object a file.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = StatsFormat::Text)]
    pub format: StatsFormat,
    /// Same as --format json.
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
}

/// How tables are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum StatsFormat {
    Text,
    Csv,
    Json,
}

/// A table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum TableName {
    Conversations,
    Opcodes,
    Sizes,
    Latencies,
    Recovery,
    Naks,
    Cm,
    Handshakes,
    Intervals,
}

impl StatsArgs {
    /// Returns the format that the options ask for.
    pub fn format(&self) -> StatsFormat {
        if self.json { StatsFormat::Json } else { self.format }
    }

    /// Returns the tables that the options ask for.
    pub fn tables(&self) -> &[TableName] {
        if self.table.is_empty() { TableName::value_variants() } else { &self.table }
    }
}

impl TableName {
    /// Returns the name, which is also the key of JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conversations => "conversations",
            Self::Opcodes => "opcodes",
            Self::Sizes => "sizes",
            Self::Latencies => "latencies",
            Self::Recovery => "recovery",
            Self::Naks => "naks",
            Self::Cm => "cm",
            Self::Handshakes => "handshakes",
            Self::Intervals => "intervals",
        }
    }
}
