//! `roce run`: its options.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use softroce::port::PortKind;
use softroce::port::impair::Impairments;

use super::units;

/// Run a program that uses RDMA, unchanged, on softroce instead of hardware.
///
/// The program finds softroce's libibverbs in the place of the system's: one device, softroce0, of RoCEv2.
/// Nothing is installed, and programs that were started otherwise see nothing of it. Each process takes an
/// address of its own, 127.0.0.1, 127.0.0.2, …, unless --ip says another; so a client and a server on one
/// machine need no options:
///
///   roce run -- ib_write_bw & roce run -- ib_write_bw localhost
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The address of the device, which one process at a time can have; several, with commas between or
    /// each with --ip, are the GID table in that order [default: the first free of 127.0.0.1, 127.0.0.2, …].
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub(crate) ip: Vec<IpAddr>,
    /// The name of the device [default: softroce0].
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Write what the program sends and receives to a pcapng file. %p stands for the number of the
    /// process: of several that write to one file, the last wins.
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Do to packets, both ways, what a bad network does: loss=0.01,delay=1ms,seed=7; see
    /// docs/IMPAIRMENTS.md.
    #[arg(long, value_name = "SPEC", value_parser = spec)]
    pub(crate) impair: Option<String>,
    /// Send and receive by udp, shm, packet or tap:NAME,ip=ADDRESS/PREFIX, as other commands have it: UDP
    /// sockets; shared memory on this machine; packet sockets; a TAP interface, on which one process is a host of
    /// its own [default: udp].
    #[arg(long, value_name = "PORT")]
    pub(crate) via: Option<PortKind>,
    /// Receive buffer of the socket [default: as large as allowed, up to 8 MiB].
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    pub(crate) rcvbuf: Option<usize>,
    /// Judge what the program sends and receives by the rules of RoCE when it has ended, as `roce check` does,
    /// and tell on standard error; the exit status is 1 where it would be 0 and something violates them. Until
    /// then all of it is in temporary files, so let the program be short.
    #[arg(long, conflicts_with_all = ["pcap", "env"])]
    pub(crate) check: bool,
    /// Print the variables that do it, for a shell to evaluate, and run nothing.
    #[arg(long)]
    pub(crate) env: bool,
    /// The program and its arguments.
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required_unless_present = "env",
        conflicts_with = "env"
    )]
    pub(crate) command: Vec<OsString>,
}

/// A text that says what is to happen to packets; the program will read it.
fn spec(text: &str) -> Result<String, String> {
    text.parse::<Impairments>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}
