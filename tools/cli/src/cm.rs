//! `roce cm`: connections by address and port.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::{DeviceArgs, units};

/// Connect by address and port, as rping does.
///
/// The other side may be `rping -s` or `rping -c` of rdma-core, on a host with rdma_rxe or an RDMA adapter, or under
/// `roce run`. The connection manager carries the addresses of both sides, so the command needs no TCP connection.
#[derive(Args, Debug)]
pub struct CmArgs {
    #[command(subcommand)]
    pub side: CmSide,
}

/// The sides of a connection.
#[derive(Subcommand, Debug)]
pub enum CmSide {
    Listen(CmListenArgs),
    Connect(CmConnectArgs),
}

/// Accept a connection and answer its pings, as rping -s does.
///
/// Reads the buffer of the client, and writes its content back.
#[derive(Args, Debug)]
pub struct CmListenArgs {
    /// Port; 0 is any free one.
    #[arg(short, long, default_value_t = 7174)]
    pub port: u16,
    /// Print the port once it accepts connections.
    #[arg(long)]
    pub announce: bool,
    /// Number of connections to accept, one after the other.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub connections: u64,
    #[command(flatten)]
    pub ping: CmPingArgs,
}

/// Connect and ping with verified data, as rping -c -V does.
///
/// Each ping is a READ of the server from the buffer of this side, and a WRITE of the same bytes back, which are
/// compared. The exit status is 1 if they differ.
#[derive(Args, Debug)]
pub struct CmConnectArgs {
    /// Host that listens.
    pub host: String,
    /// Port.
    #[arg(short, long, default_value_t = 7174)]
    pub port: u16,
    /// Number of pings; -C as in rping.
    #[arg(short = 'n', short_alias = 'C', long, value_name = "N", default_value_t = 10)]
    pub iters: u64,
    /// Bytes in a ping: rping takes 27 to 65,535.
    #[arg(short, long, short_alias = 'S', value_name = "BYTES", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(27..=65_535))]
    pub size: u32,
    #[command(flatten)]
    pub ping: CmPingArgs,
}

/// Options of both sides.
#[derive(Args, Debug)]
pub struct CmPingArgs {
    /// Time without an answer after which the command fails.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = units::seconds)]
    pub timeout: Duration,
    /// Check sent and received packets, as `roce check` does with captures; findings go to standard error, and the
    /// exit status is 1 after a violation.
    #[arg(long)]
    pub check: bool,
    /// Print the result as one object of JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub device: DeviceArgs,
}
