//! `roce run`: its options.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use softroce::port::PortKind;
use softroce::port::impair::Impairments;

use crate::units;

/// Run a program that uses RDMA, unchanged, on softroce instead of hardware.
///
/// The program loads softroce's libibverbs instead of the system's: it sees one device, softroce0, of RoCEv2.
/// Nothing is installed, and other programs are not affected. Each process takes an address of its own,
/// 127.0.0.1, 127.0.0.2, …, unless --ip names one; so a client and a server on one machine need no options:
///
///   roce run -- ib_write_bw & roce run -- ib_write_bw localhost
///
/// The exit status is that of the program; 127 when the program is not found, 126 when it cannot be executed.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Address of the device, which only one process at a time can have. Several, with commas between them or each
    /// with --ip, become the GID table in that order [default: the first free of 127.0.0.1, 127.0.0.2, …].
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub ip: Vec<IpAddr>,
    /// Name that the program sees for the device [default: softroce0].
    #[arg(short = 'd', long, visible_alias = "name", value_name = "NAME")]
    pub ib_dev: Option<String>,
    /// Write the packets of the program to a pcapng file. %p stands for the process ID: of several processes that
    /// write to one file, the last wins.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub pcap: Option<PathBuf>,
    /// Impair packets in both directions as a bad network does: loss=0.01,delay=1ms,seed=7; see
    /// docs/IMPAIRMENTS.md.
    #[arg(long, value_name = "SPEC", value_parser = impairments)]
    pub impair: Option<String>,
    /// Port of the device: udp, UDP sockets; shm, shared memory between programs of this machine; packet, packet
    /// sockets; tap:NAME,ip=ADDRESS/PREFIX, a TAP interface, on which one process is a host of its own
    /// [default: udp].
    #[arg(long, value_name = "PORT")]
    pub via: Option<PortKind>,
    /// Receive buffer of the socket [default: as large as allowed, up to 8 MiB].
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    pub rcvbuf: Option<usize>,
    /// Check the packets of the program when it has ended, as `roce check` does, and print findings on standard
    /// error. The exit status is 1 instead of 0 after a violation. Until then all packets are in temporary files,
    /// so use it for short runs. Signals are passed on to the program.
    #[arg(long, conflicts_with_all = ["pcap", "env"])]
    pub check: bool,
    /// When the program ends with an error, print why on standard error: the first call that was refused or request
    /// that failed, its reason, and what people do about it.
    #[arg(long, conflicts_with = "env")]
    pub explain: bool,
    /// Print the environment variables for a shell to evaluate, and run nothing.
    #[arg(long)]
    pub env: bool,
    /// Of a command that `roce run` has started itself: kill the program when this process, its parent, ends.
    #[arg(long, value_name = "PID", hide = true)]
    pub ends_with: Option<u32>,
    /// The program and its arguments.
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required_unless_present = "env",
        conflicts_with = "env",
        value_hint = ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}

/// Parses impairments; returns the text, which the program will read.
fn impairments(text: &str) -> Result<String, String> {
    text.parse::<Impairments>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}
