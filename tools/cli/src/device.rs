//! Options of every command that opens a device.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use softroce::ids::PKey;
use softroce::port::PortKind;
use softroce::port::impair::Impairments;

use crate::units;

/// Device options; the environment supplies those that are not given (see the end of `roce --help`).
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Device")]
pub struct DeviceArgs {
    /// Address of this side. Several, with commas between them or each with --ip, become the GID table in that order
    /// [default: with a HOST the one that leads to it, else the first free of 127.0.0.1, 127.0.0.2, …].
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub ip: Vec<IpAddr>,
    /// Name of the device. There is one: softroce0, unless SOFTROCE_NAME gives another name.
    #[arg(short = 'd', long, visible_alias = "name", value_name = "NAME")]
    pub ib_dev: Option<String>,
    /// Port of the device. There is one: 1.
    #[arg(short = 'i', long, value_name = "PORT", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..=1))]
    pub ib_port: u8,
    /// P_Key table of the port. Queue pairs use the first. Bit 15 marks a full member; limited members communicate
    /// with full members only [default: 0xffff].
    #[arg(long, value_name = "KEY", value_delimiter = ',', value_parser = units::pkey)]
    pub pkey: Vec<PKey>,
    /// Write sent and received packets to a pcapng file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub pcap: Option<PathBuf>,
    /// Impair packets in both directions as a bad network does: loss=0.01,delay=1ms,seed=7. Also dup, reorder,
    /// corrupt, burst, burst-len, burst-loss, outage, every, truncate, mark, mark-above, jitter, rate, queue,
    /// refuse, dir: docs/IMPAIRMENTS.md.
    #[arg(long, value_name = "SPEC")]
    pub impair: Option<Impairments>,
    /// Port of the device: udp, UDP sockets; shm, shared memory between programs of this machine that use it too,
    /// and UDP sockets to others; packet, packet sockets, which need CAP_NET_RAW and carry whole IP packets; or
    /// tap:NAME,ip=ADDRESS/PREFIX, a TAP interface on which the device is a host of its own, with addresses that
    /// this machine does not have. Further fields of tap: more ip=, gateway=ADDRESS, mac=MAC [default: derived from
    /// the address], bridge=NAME. A TAP interface that does not exist is created, which needs CAP_NET_ADMIN, and
    /// added to that bridge [default: udp].
    #[arg(long, value_name = "PORT")]
    pub via: Option<PortKind>,
    /// Number of shards of the device: 1, 2, 4, 8, 16, 32 or 64. Each has a lock, a thread and a socket, so traffic
    /// of several threads or peers uses several CPUs [default: 1].
    #[arg(long, value_name = "COUNT")]
    pub shards: Option<u8>,
    /// Receive buffer of the socket [default: as large as allowed, up to 8 MiB].
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    pub rcvbuf: Option<usize>,
}
