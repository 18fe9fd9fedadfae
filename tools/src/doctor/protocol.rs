//! The control protocol of two doctors, one line of JSON for each message:
//!
//! ```text
//!   active                                    listening
//!     │── Hello ──────────────────────────────▶│  opens its port
//!     │◀───────────────── Hello, or an error ──│
//!     │══ probes ═════════════════════════════▶│
//!     │◀═══════════════════════════ echoes ════│
//!     │── Request::Report ────────────────────▶│
//!     │◀────────────────────────────── Report ──│
//! ```

use std::net::IpAddr;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use softroce::ids::Mtu;

use super::probe::{Prober, ReceivedProbe};

/// Identity of a side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    /// Version of the command.
    pub(super) doctor: String,
    /// Identifier in the probes of this session; that of the active side is used.
    pub(super) token: u64,
    /// Address of the port.
    pub(super) ip: IpAddr,
    /// Largest RoCE payload that the interface carries, in bytes.
    mtu: usize,
    /// Receive buffer of the socket, in bytes.
    pub(super) receive_buffer: usize,
}

impl Hello {
    pub(super) fn new(prober: &Prober, token: u64) -> anyhow::Result<Self> {
        let info = prober.info();
        let mtu = Mtu::for_link(info.link_mtu);
        let mtu = mtu.with_context(|| {
            format!(
                "the interface of {} carries no RoCE packet: its MTU is {}",
                info.ip, info.link_mtu
            )
        })?;
        Ok(Self {
            doctor: env!("CARGO_PKG_VERSION").to_owned(),
            token,
            ip: info.ip,
            mtu: mtu.bytes(),
            receive_buffer: info.receive_buffer,
        })
    }

    pub(super) fn mtu(&self) -> anyhow::Result<Mtu> {
        let bytes = self.mtu;
        Mtu::from_bytes(bytes).with_context(|| {
            format!("the other side sent MTU {bytes}, expected 256, 512, 1024, 2048 or 4096")
        })
    }
}

/// Reply to a [`Hello`]: that of the listener, or why it cannot serve.
pub(super) type HelloReply = Result<Hello, String>;

/// Probes that a listener has received since its last report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) seen: Vec<ReceivedProbe>,
    /// Path MTU back, as the kernel there knows it.
    pub(super) path_mtu: Option<usize>,
}

/// Request to the listener.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Return a [`Report`].
    Report,
}
