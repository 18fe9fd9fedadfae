//! State and counters of the devices of this user.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use softroce::runtime::control::{Client, Request, SocketName, sockets};
use softroce_perf::clock::now;

/// Longest wait for the states of all devices together.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// Wait for a device that comes behind devices which have used up the time: it has had time to reply.
const LATE_TIMEOUT: Duration = Duration::from_millis(5);

/// Maximum length of a reply: a device with a hundred thousand queue pairs.
const MAX_REPLY_BYTES: usize = 64 << 20;

/// State of a device, as its process reports it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    /// The device's name.
    pub(crate) device: String,
    /// Its first address.
    pub(crate) ip: IpAddr,
    /// Kind of its ports.
    pub(crate) via: String,
    /// Number of its process.
    pub(crate) pid: u32,
    /// Name of its program.
    pub(crate) program: String,
    /// Number of its shards.
    #[serde(default)]
    pub(crate) shards: u32,
    /// Number of captures of its packets.
    #[serde(default)]
    pub(crate) captures: u32,
    /// Time of the process in nanoseconds.
    #[serde(default)]
    pub(crate) time_ns: u64,
    /// Counters that are not 0.
    #[serde(default)]
    pub(crate) counters: BTreeMap<String, u64>,
    /// Its listeners of the connection manager.
    #[serde(default)]
    pub(crate) listeners: Vec<ListenerStatus>,
    /// Its queue pairs.
    #[serde(default)]
    pub(crate) qps: Vec<QpStatus>,
}

/// A listener of the connection manager.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ListenerStatus {
    /// Name of its port space.
    pub(crate) port_space: String,
    /// Its port.
    pub(crate) port: u16,
}

/// State of a queue pair.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct QpStatus {
    /// Its number.
    pub(crate) qp: u32,
    /// Its transport service.
    #[serde(rename = "type")]
    pub(crate) qp_type: String,
    /// Its state.
    pub(crate) state: String,
    /// Address of the peer, of a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<IpAddr>,
    /// Queue pair of the peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer_qp: Option<u32>,
    /// Unfinished send requests.
    pub(crate) posted_sends: u64,
    /// Packets without acknowledgement.
    pub(crate) outstanding_packets: u64,
    /// Counters that are not 0.
    pub(crate) counters: BTreeMap<String, u64>,
}

/// Reply of a device that refuses a request.
#[derive(Deserialize)]
struct Refusal {
    error: String,
}

/// Connects to a device of a running process.
pub(super) fn connect(name: SocketName) -> anyhow::Result<Connection> {
    let Client { connection, pid } = Client::connect(name)?;
    // A child that has the sockets of its parent keeps the name of a process that has ended.
    ensure!(
        pid == 0 || Path::new("/proc").join(pid.to_string()).exists(),
        "process {pid} has ended"
    );
    connection.set_nonblocking(false)?;
    Ok(Connection { stream: connection, pid, received: Vec::new() })
}

/// A connection to a control socket.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: UnixStream,
    /// Number of the process in this namespace; 0 if it has none here.
    pid: u32,
    /// Bytes behind the last line.
    pub(super) received: Vec<u8>,
}

impl Connection {
    pub(super) fn request(&mut self, request: &Request) -> anyhow::Result<()> {
        Ok(self.stream.write_all(format!("{request}\n").as_bytes())?)
    }

    /// Receives the reply to a request.
    pub(super) fn reply(&mut self, until: Instant) -> anyhow::Result<Status> {
        let line = self.line(until)?;
        if let Ok(Refusal { error }) = serde_json::from_slice(&line) {
            bail!("{error}");
        }
        let status: Status = serde_json::from_slice(&line).context("the reply of the device")?;
        // The process knows its number in its own namespace only.
        let pid = if self.pid == 0 { status.pid } else { self.pid };
        Ok(Status { pid, ..status })
    }

    fn line(&mut self, until: Instant) -> anyhow::Result<Vec<u8>> {
        let mut chunk = [0; 16 << 10];
        let mut seen = 0;
        loop {
            if let Some(at) = self.received[seen..].iter().position(|byte| *byte == b'\n') {
                let rest = self.received.split_off(seen + at + 1);
                return Ok(std::mem::replace(&mut self.received, rest));
            }
            seen = self.received.len();
            ensure!(seen <= MAX_REPLY_BYTES, "a reply of more than {MAX_REPLY_BYTES} bytes");
            let left = until.saturating_duration_since(now());
            ensure!(seen == 0 || !left.is_zero(), "the device does not reply");
            self.stream.set_read_timeout(Some(left.max(LATE_TIMEOUT)))?;
            match self.stream.read(&mut chunk) {
                Ok(0) => bail!("the device has ended the connection"),
                Ok(len) => self.received.extend_from_slice(&chunk[..len]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    bail!("the device does not reply")
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Connections to all devices of this user.
#[derive(Debug, Default)]
pub(crate) struct Statuses(BTreeMap<SocketName, Connection>);

impl Statuses {
    /// Returns the state of each device that replies. Devices of other users, and processes that have ended or do not
    /// run, are left out.
    pub(crate) fn query(&mut self) -> anyhow::Result<BTreeMap<SocketName, Status>> {
        let names = sockets().context("/proc/net/unix")?;
        self.0.retain(|name, _| names.contains(name));
        for name in names {
            if !self.0.contains_key(&name)
                && let Ok(connection) = connect(name)
            {
                self.0.insert(name, connection);
            }
        }
        // All devices work on their replies at the same time.
        self.0.retain(|_, connection| connection.request(&Request::Status).is_ok());
        let until = now() + STATUS_TIMEOUT;
        let mut found = BTreeMap::new();
        self.0.retain(|name, connection| match connection.reply(until) {
            Ok(status) => {
                found.insert(*name, status);
                true
            }
            Err(_) => false,
        });
        Ok(found)
    }
}
