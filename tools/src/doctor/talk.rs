//! What two doctors tell each other, a line of JSON a message:
//!
//! ```text
//!   visitor                                   listener
//!     │── Hello ──────────────────────────────▶│  opens its port
//!     │◀───────────────── Hello, or why not ───│
//!     │══ probes ═════════════════════════════▶│
//!     │◀═══════════════════════════ echoes ════│
//!     │── Ask::Seen ──────────────────────────▶│
//!     │◀────────────────────────────── Report ──│
//! ```

use std::net::IpAddr;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use softroce::ids::Mtu;

use super::probe::{Prober, Seen};

/// Who a side is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    /// The version of its command.
    pub(super) doctor: String,
    /// What the probes of this visit have in them; the visitor's is used.
    pub(super) token: u64,
    /// Where its port is.
    pub(super) ip: IpAddr,
    /// Bytes of RoCE payload that its interface carries.
    mtu: usize,
    /// Of its socket.
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
        Mtu::from_bytes(bytes)
            .with_context(|| format!("the other side says MTU {bytes}: there is none"))
    }
}

/// What the listener answers to a [`Hello`]: its own, or why it cannot help.
pub(super) type Welcome = Result<Hello, String>;

/// What a listener has seen since it was asked last.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) seen: Vec<Seen>,
    /// What its kernel believes the way back to carry.
    pub(super) path_mtu: Option<usize>,
}

/// What a visitor asks for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// A [`Report`].
    Seen,
}
