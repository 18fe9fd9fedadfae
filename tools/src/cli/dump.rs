//! `roce dump`: its options.

use std::path::PathBuf;

use clap::Args;
use softroce::ids::Qpn;
use softroce::wire::Opcode;

use super::{SpanArgs, units};

/// Print a capture, one line a packet.
///
/// A line has the packet's number in the file as Wireshark counts, seconds since the first packet,
/// addresses, transport and operation with its fields, what the connection manager says in it, and
/// the verdict on the ICRC. Bursts that were captured before they were cut up are taken apart where
/// ICRCs prove how.
#[derive(Args, Debug)]
pub(crate) struct DumpArgs {
    /// A pcap or pcapng file, also compressed with gzip or zstd; - for standard input.
    pub(crate) file: PathBuf,
    /// Only packets to this queue pair, or from it where the packet says so (UD).
    #[arg(long, value_name = "QPN", value_parser = units::qpn)]
    pub(crate) qp: Vec<Qpn>,
    /// Only packets whose operation begins so: SEND, WRITE_FIRST, ACK, NAK, RNR_NAK.
    #[arg(long, value_name = "NAME", value_parser = operation)]
    pub(crate) opcode: Vec<String>,
    #[command(flatten)]
    pub(crate) span: SpanArgs,
    /// An object of JSON a packet.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the packets to this pcapng file instead, each with its line as a comment, which
    /// Wireshark and tshark show.
    #[arg(short, long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) write: Option<PathBuf>,
}

/// What a line has in place of the names ACKNOWLEDGE and ATOMIC_ACKNOWLEDGE.
const ACKNOWLEDGEMENTS: [&str; 8] =
    ["ACK", "RNR_NAK", "NAK_PSN", "NAK_INV", "NAK_ACCESS", "NAK_OP", "NAK_RD", "ATOMIC_ACK"];

/// The beginning of the name of an operation, in capitals.
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
    fn an_operation_is_the_beginning_of_a_name() {
        for known in ["send", "WRITE_LAST_IMM", "Nak", "RNR_NAK", "CNP", "FETCH"] {
            assert_eq!(operation(known), Ok(known.to_ascii_uppercase()));
        }
        for unknown in ["", "SENT", "WRITE_LAST_IMMEDIATE", "RC SEND"] {
            assert!(operation(unknown).is_err(), "{unknown}");
        }
    }
}
