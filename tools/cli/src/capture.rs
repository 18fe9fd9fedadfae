//! `roce capture`: its options.

use std::fmt;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use softroce::runtime::control::CaptureFilter;

use crate::capture_filter;

/// Name that stands for all devices of this user, those opened later included.
pub const ALL_DEVICES: &str = "softroce";

/// Capture the packets of devices of running programs to a pcapng file.
///
/// The programs need no option: each softroce device has a control socket for its user. A capture has the packets as
/// the device sends and receives them, those through shared memory and within one process included, with valid ICRCs.
/// It never delays a device: packets that find its buffer full are counted as dropped. The capture ends with its
/// device, with SIGINT, or when the reader of a FIFO closes it.
#[derive(Args, Debug)]
pub struct CaptureArgs {
    /// Device to capture: its name, the number of its process or its address, as -D lists them; softroce for all
    /// devices of this user, those opened later included.
    #[arg(short, long, value_name = "DEVICE", default_value = "softroce", value_parser = selection)]
    pub interface: Selection,
    /// File to write; - for standard output.
    #[arg(short, long, value_name = "FILE", required_unless_present = "list_devices", value_hint = ValueHint::FilePath)]
    pub write: Option<PathBuf>,
    /// Only packets to these queue pairs, and from or to these addresses: 'host 10.0.0.2 and qp 17 or qp 18'.
    #[arg(short, long, value_name = "FILTER", default_value = "", hide_default_value = true, value_parser = capture_filter::parse)]
    pub filter: CaptureFilter,
    /// Number of bytes of each packet, from its IP header; 0 for all.
    #[arg(short, long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    pub snaplen: u32,
    /// End after this number of packets.
    #[arg(short, long, value_name = "COUNT")]
    pub count: Option<u64>,
    /// Begin another file, with a number and the time in its name, after filesize:KB or duration:SECONDS, and keep
    /// files:NUMBER; may be repeated.
    #[arg(short = 'b', long, value_name = "CONDITION")]
    pub ring_buffer: Vec<String>,
    /// List the devices of this user, and exit.
    #[arg(short = 'D', long, conflicts_with = "write")]
    pub list_devices: bool,
    /// With -D: print one object of JSON for each device.
    #[arg(long, requires = "list_devices")]
    pub json: bool,
    /// Do not print the number of packets at the end.
    #[arg(short, long)]
    pub quiet: bool,
}

impl CaptureArgs {
    /// Returns the filter with the length of packets.
    pub fn filter(&self) -> CaptureFilter {
        let snap_len = Some(self.snaplen).filter(|bytes| *bytes > 0);
        CaptureFilter { snap_len, ..self.filter.clone() }
    }
}

/// Selection of devices to capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selection {
    /// All devices of this user, those opened later included.
    All,
    /// The device with this name, process number or address.
    One(String),
}

impl Selection {
    /// Parses the value of an option.
    pub fn named(text: &str) -> Self {
        match text {
            ALL_DEVICES | "any" => Self::All,
            _ => Self::One(text.to_owned()),
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => ALL_DEVICES,
            Self::One(name) => name,
        })
    }
}

fn selection(text: &str) -> Result<Selection, String> {
    Ok(Selection::named(text))
}
