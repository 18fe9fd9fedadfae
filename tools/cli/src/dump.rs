//! `roce dump`: its options.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use softroce::wire::Opcode;
use softroce_pcap::display_filter::{DisplayFilter, Field};

use crate::SpanArgs;

/// Print a capture, one line a packet.
///
/// A line has the number of the packet in the file as Wireshark counts, seconds since the first packet, addresses,
/// transport and operation with every header field, messages of the connection manager, and the verdict on the
/// ICRC. A capture on the sending host may hold bursts that the kernel has not segmented yet; they are split where
/// ICRCs prove the boundaries.
#[derive(Args, Debug)]
pub struct DumpArgs {
    /// pcap or pcapng files, also compressed with gzip or zstd; - for standard input.
    #[arg(required_unless_present = "interface", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Print the packets of this device of a running program, as they come: its name, the number of its process or its
    /// address, as `roce capture -D` lists them; softroce for all devices of this user.
    #[arg(short, long, value_name = "DEVICE", conflicts_with = "files")]
    pub interface: Option<String>,
    /// Only packets of operations that begin with this text: SEND, WRITE_FIRST, ACK, NAK, RNR_NAK.
    #[arg(long, value_name = "OPERATION", value_parser = operation)]
    pub opcode: Vec<String>,
    /// Only packets that match this display filter, in the language and with the field names of Wireshark:
    /// 'infiniband.bth.destqp == 0x11 && infiniband.aeth.syndrome.opcode == 3'.
    #[arg(short = 'Y', long, value_name = "EXPR", value_parser = filter)]
    pub display_filter: Option<DisplayFilter>,
    #[command(flatten)]
    pub span: SpanArgs,
    /// Print one object of JSON for each packet.
    #[arg(long)]
    pub json: bool,
    /// Output as tshark's: fields, the values of each --field separated by tabs; json, a list of all fields or of each
    /// --field.
    #[arg(short = 'T', long = "type", value_enum, value_name = "FORMAT", conflicts_with_all = ["json", "write"])]
    pub type_: Option<FieldFormat>,
    /// Field to print, by its name in Wireshark; may be repeated.
    #[arg(short = 'e', long, value_name = "FIELD", value_parser = field, requires = "type_")]
    pub field: Vec<Field>,
    /// Write the packets to this pcapng file instead, each with its line as a comment, which Wireshark and tshark
    /// show.
    #[arg(short, long, value_name = "FILE", conflicts_with = "json", value_hint = ValueHint::FilePath)]
    pub write: Option<PathBuf>,
}

/// How fields are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FieldFormat {
    Fields,
    Json,
}

impl DumpArgs {
    /// Returns the fields to print.
    pub fn fields(&self) -> &[Field] {
        if self.field.is_empty() { Field::ALL } else { &self.field }
    }

    /// Returns the filters as the user has given them; empty without any.
    pub fn filters(&self) -> String {
        let opcodes =
            self.opcode.iter().map(|opcode| format!("--opcode {opcode} ")).collect::<String>();
        let filter = self.display_filter.as_ref();
        let filter = filter.map_or(String::new(), |filter| format!("-Y '{filter}' "));
        format!("{opcodes}{filter}{}", self.span.given()).trim_end().to_owned()
    }
}

/// Parses a display filter.
fn filter(text: &str) -> Result<DisplayFilter, String> {
    text.parse().map_err(|error: softroce_pcap::display_filter::FilterError| error.to_string())
}

/// Parses the name of a field.
fn field(text: &str) -> Result<Field, String> {
    Field::named(text).ok_or_else(|| {
        let last = text.rsplit('.').next().unwrap_or_default();
        let near: Vec<_> =
            Field::ALL.iter().map(Field::name).filter(|name| name.contains(last)).collect();
        match near.is_empty() {
            true => "expected a field such as infiniband.bth.destqp, ip.src or frame.number".into(),
            false => format!("expected a field such as {}", near.join(", ")),
        }
    })
}

/// Operations that a line shows in place of ACKNOWLEDGE and ATOMIC_ACKNOWLEDGE.
const ACKNOWLEDGEMENTS: [&str; 8] =
    ["ACK", "RNR_NAK", "NAK_PSN", "NAK_INV", "NAK_ACCESS", "NAK_OP", "NAK_RD", "ATOMIC_ACK"];

/// Parses the beginning of the name of an operation; returns it in capitals.
fn operation(text: &str) -> Result<String, String> {
    let wanted = text.to_ascii_uppercase();
    let mut names = Opcode::ALL.iter().map(|opcode| opcode.name()).chain(ACKNOWLEDGEMENTS);
    match !wanted.is_empty() && names.any(|name| name.starts_with(&wanted)) {
        true => Ok(wanted),
        false => Err("expected the beginning of a name such as SEND_ONLY, READ_REQUEST, \
                      COMPARE_SWAP, ACK, NAK_PSN, RNR_NAK"
            .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_is_the_beginning_of_a_name() {
        for known in ["send", "WRITE_LAST_IMM", "Nak", "RNR_NAK", "CNP", "FETCH"] {
            assert_eq!(operation(known), Ok(known.to_ascii_uppercase()));
        }
        for unknown in ["", "SENT", "WRITE_LAST_IMMEDIATE", "RC SEND"] {
            assert!(operation(unknown).is_err(), "{unknown}");
        }
    }
}
