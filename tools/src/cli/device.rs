//! Options of every command that moves packets: which device, and what happens to its packets.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use softroce::ids::PKey;
use softroce::port::PortKind;
use softroce::port::impair::Impairments;

use super::units;

/// What is not said here, the environment may say; see the end of `roce --help`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Device")]
pub(crate) struct DeviceArgs {
    /// Our address; several, with commas between or each with --ip, are the GID table in that order
    /// [default: with a HOST the one that leads to it, else the first free of 127.0.0.1, 127.0.0.2, …].
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub(crate) ip: Vec<IpAddr>,
    /// The device's name. There is one, softroce0 unless SOFTROCE_NAME says otherwise.
    #[arg(short = 'd', long, value_name = "NAME")]
    pub(crate) ib_dev: Option<String>,
    /// The device's port. There is one, 1.
    #[arg(short = 'i', long, value_name = "PORT", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..=1))]
    pub(crate) ib_port: u8,
    /// The partition of the queue pairs, by its P_Key; of several it is the first, and the port belongs to
    /// all. Bit 15 marks a full member; limited ones talk to full ones alone [default: 0xffff].
    #[arg(long, value_name = "KEY", value_delimiter = ',', value_parser = units::pkey)]
    pub(crate) pkey: Vec<PKey>,
    /// Write what is sent and received to a pcapng file, as it is on the wire.
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Do to packets, both ways, what a bad network does:
    /// loss=0.01,delay=1ms,seed=7. Also dup, reorder, corrupt, burst, burst-len, burst-loss,
    /// outage, every, truncate, mark, mark-above, jitter, rate, queue, refuse, dir: docs/IMPAIRMENTS.md.
    #[arg(long, value_name = "SPEC")]
    pub(crate) impair: Option<Impairments>,
    /// Send and receive by UDP sockets (udp); through shared memory between programs of this machine that have
    /// it too, and by UDP sockets elsewhere (shm); by packet sockets, which need CAP_NET_RAW and see whole packets
    /// (packet); or on a TAP interface, as a host of its own on that link, with addresses that this machine does
    /// not have: tap:NAME,ip=ADDRESS/PREFIX. What may follow: more addresses, gateway=ADDRESS, mac=MAC
    /// [default: one that follows from the address], bridge=NAME. A TAP that does not exist is made, which needs
    /// CAP_NET_ADMIN, and put into that bridge [default: udp].
    #[arg(long, value_name = "PORT")]
    pub(crate) via: Option<PortKind>,
    /// Shards of the device, each with a lock, a thread and a socket, so that the traffic of several threads or
    /// peers takes several CPUs: 1, 2, 4, 8, 16, 32 or 64 [default: 1].
    #[arg(long, value_name = "COUNT")]
    pub(crate) shards: Option<u8>,
    /// Receive buffer of the socket [default: as large as allowed, up to 8 MiB].
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    pub(crate) rcvbuf: Option<usize>,
}
