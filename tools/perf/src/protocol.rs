//! The control protocol of a test, and the options that must match on both sides.

use std::fmt::Display;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use softroce::ids::{Mtu, Rkey};
use softroce::verbs::{Endpoint, Limits, RemoteAddr, Srqn};
use softroce_cli::{LoadArgs, MAX_MESSAGE, MAX_QPS, Measure, Test};

use crate::ceiling::Measurement;
use crate::control::Control;
use crate::measure::Run;
use crate::plan::Kind;

/// Version of the control protocol. Every change of a message changes it.
const PROTOCOL_VERSION: u32 = 5;

/// First message of each side. Later versions may add fields, but not change these.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    roce: String,
    test: String,
    /// Version of the protocol; sides without this field have version 1.
    #[serde(default = "first", rename = "agreement")]
    version: u32,
}

const fn first() -> u32 {
    1
}

impl Hello {
    /// Returns the message of this side.
    pub fn new(test: &str) -> Self {
        let roce = env!("CARGO_PKG_VERSION").to_owned();
        Self { roce, test: test.to_owned(), version: PROTOCOL_VERSION }
    }

    /// Checks that both sides have one version of the protocol and one test.
    pub fn check(&self, theirs: &Self) -> anyhow::Result<()> {
        let (ours, other) = (self.version, theirs.version);
        ensure!(
            ours == other,
            "the other side is roce {} with version {other} of the control protocol, expected {ours}: install the \
             same version of roce on both sides",
            theirs.roce
        );
        let (ours, other) = (&self.test, &theirs.test);
        ensure!(
            ours == other,
            "the other side runs {other}, expected {ours}: start both sides with the same test"
        );
        Ok(())
    }
}

/// Exchanges the first messages.
pub fn exchange_hello(control: &mut Control, test: Test) -> anyhow::Result<()> {
    control.set_timeout(Some(Duration::from_secs(10)))?;
    let ours = Hello::new(test.name());
    control.send(&ours)?;
    ours.check(&control.receive()?)?;
    control.set_timeout(None)
}

/// Request of the active side to the listening one.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Take part in a measurement of raw UDP.
    Ceiling(Measurement),
    /// Create queue pairs and connect them to these. The reply is a [`Reply`] with [`Connected`].
    Connect(Connect),
    /// Take part in a row of the test. When the side is ready, the reply is an empty [`Reply`].
    Run(Run),
    /// The active side has sent this number of messages in the row. When the other side has finished too, it sends a
    /// [`Report`](crate::measure::Report).
    Finish { sent: u64 },
    /// Return the counters of the device. The reply is a [`Reply`] with their values by name.
    Counters,
}

/// Reply to a request: its result, or why it failed.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply<T> {
    Yes(T),
    No(String),
}

impl<T> Reply<T> {
    pub fn of(result: anyhow::Result<T>) -> Self {
        match result {
            Ok(value) => Self::Yes(value),
            Err(e) => Self::No(format!("{e:#}")),
        }
    }

    pub fn yes(self) -> anyhow::Result<T> {
        match self {
            Self::Yes(value) => Ok(value),
            Self::No(why) => bail!("the other side: {why}"),
        }
    }
}

/// Load and queue pairs of the active side.
#[derive(Debug, Serialize, Deserialize)]
pub struct Connect {
    pub constraints: Constraints,
    pub load: Load,
    pub active: SideInfo,
}

/// MTU and queue pairs of the listening side.
#[derive(Debug, Serialize, Deserialize)]
pub struct Connected {
    /// Bytes.
    pub mtu: usize,
    pub listening: SideInfo,
}

/// Queue pairs and memory of a side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SideInfo {
    /// Endpoint of each queue pair, as [`Endpoint`] is formatted.
    endpoints: Vec<String>,
    /// XRC: endpoint of each target, and the number of the shared receive queue.
    xrc: Option<(Vec<String>, u32)>,
    addr: u64,
    rkey: u32,
    /// Receive buffer of the socket, in bytes.
    pub receive_buffer: u64,
}

impl SideInfo {
    pub fn new(
        endpoints: Vec<Endpoint>,
        xrc: Option<(Vec<Endpoint>, Srqn)>,
        memory: RemoteAddr,
        receive_buffer: u64,
    ) -> Self {
        let write = |endpoint: Endpoint| endpoint.to_string();
        let xrc =
            xrc.map(|(targets, srqn)| (targets.into_iter().map(write).collect(), srqn.value()));
        let endpoints = endpoints.into_iter().map(write).collect();
        Self { endpoints, xrc, addr: memory.addr, rkey: memory.rkey.0, receive_buffer }
    }

    pub fn endpoints(&self) -> anyhow::Result<Vec<Endpoint>> {
        parsed(&self.endpoints)
    }

    /// Returns the XRC targets, and the shared receive queue of the messages.
    pub fn targets(&self) -> anyhow::Result<(Vec<Endpoint>, Srqn)> {
        let (targets, srqn) = self.xrc.as_ref().context("the other side names no XRC targets")?;
        Ok((parsed(targets)?, Srqn::new(*srqn)))
    }

    /// Returns the address of the byte at `offset` of the memory.
    #[inline]
    pub fn remote(&self, offset: usize) -> RemoteAddr {
        RemoteAddr { addr: self.addr.wrapping_add(offset as u64), rkey: Rkey(self.rkey) }
    }
}

fn parsed(endpoints: &[String]) -> anyhow::Result<Vec<Endpoint>> {
    let parsed = endpoints.iter().map(|text| text.parse());
    parsed.collect::<Result<_, _>>().context("the other side's queue pairs")
}

/// Options of one side, which those of the other side must match.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Constraints {
    /// Name of the transport service.
    connection: Option<String>,
    /// Path MTU, in bytes.
    mtu: Option<usize>,
    /// Largest path MTU that the interface carries, in bytes.
    active_mtu: usize,
    size: Option<usize>,
    qps: Option<u32>,
}

impl Constraints {
    pub fn of(args: &LoadArgs, active_mtu: Mtu) -> Self {
        Self {
            connection: args.connection.map(|transport| transport.name().to_owned()),
            mtu: args.mtu.map(Mtu::bytes),
            active_mtu: active_mtu.bytes(),
            size: args.size,
            qps: args.qp,
        }
    }

    /// Returns the constraints of an active side; they hold for options that the listening side leaves out.
    pub fn of_active(args: &LoadArgs, active_mtu: Mtu, load: &Load) -> Self {
        Self {
            connection: Some(load.kind.transport.name().to_owned()),
            size: (!args.all).then_some(load.longest),
            qps: Some(load.qps),
            ..Self::of(args, active_mtu)
        }
    }

    /// Returns the path MTU of both sides; called on the listening side.
    pub fn agree(&self, active: &Self) -> anyhow::Result<Mtu> {
        agreed("connection", self.connection.as_deref(), active.connection.as_deref())?;
        agreed("size", self.size, active.size)?;
        agreed("queue pair", self.qps, active.qps)?;
        let carried = self.active_mtu.min(active.active_mtu);
        let bytes = agreed("MTU", self.mtu, active.mtu)?.unwrap_or(carried);
        ensure!(bytes <= carried, "MTU {bytes}: the interfaces carry {carried}");
        Mtu::from_bytes(bytes).with_context(|| format!("MTU {bytes}: there is none of this size"))
    }
}

/// Returns the value that either side has; both must have the same.
fn agreed<T: Display + PartialEq>(
    what: &str,
    here: Option<T>,
    there: Option<T>,
) -> anyhow::Result<Option<T>> {
    match (here, there) {
        (Some(here), Some(there)) if here != there => {
            bail!(
                "{what} mismatch: {here} there, {there} here; start both sides with the same value"
            )
        }
        (here, there) => Ok(here.or(there)),
    }
}

/// Receive requests over all queue pairs of UC and UD, which lose messages that find none: enough for one to two
/// milliseconds in which this side is not scheduled.
const UNRELIABLE_RX_DEPTH: u32 = 4096;

/// The load as both sides must know it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Load {
    pub kind: Kind,
    pub qps: u32,
    /// Bytes of the longest message.
    pub longest: usize,
    pub tx_depth: u32,
    /// Depth of the receive queue of each queue pair, or of the shared one.
    pub rx_depth: u32,
    /// Send requests of one call of `post_send`.
    pub post_list: u32,
    /// Messages for which there is one completion.
    pub cq_mod: u32,
    pub inline_size: u32,
    pub events: bool,
    /// Exponent of the ACK timeout.
    pub qp_timeout: u8,
}

/// Messages for which there is one completion, unless the options say otherwise; perftest's default.
const DEFAULT_CQ_MOD: u32 = 100;

/// Longest message with the default above, in bytes; longer ones have a completion each, as in perftest.
const LONGEST_MODERATED: usize = 8192;

/// Maximum depth of a shared receive queue.
const MAX_SHARED_RX_DEPTH: u32 = 16384;

impl Load {
    /// Returns the load of a test with messages up to `longest` bytes.
    pub fn of(args: &LoadArgs, kind: Kind, longest: usize) -> Self {
        let queues = &args.queues;
        let may_be_inline = kind.measure == Measure::Latency && !kind.verb.is_answered();
        let small = if may_be_inline { 220 } else { 0 };
        let qps = args.qp.unwrap_or(1);
        let rx_depth = if kind.is_unreliable() { UNRELIABLE_RX_DEPTH / qps } else { 0 };
        let cq_mod = queues.cq_mod.unwrap_or(match (queues.post_list, longest) {
            (1, ..=LONGEST_MODERATED) => DEFAULT_CQ_MOD,
            (1, _) => 1,
            (list, _) => list,
        });
        Self {
            kind,
            qps,
            longest,
            tx_depth: queues.tx_depth,
            rx_depth: queues.rx_depth.unwrap_or(match kind.shared {
                true => (rx_depth.max(512) * qps).min(MAX_SHARED_RX_DEPTH),
                false => rx_depth.max(512),
            }),
            post_list: queues.post_list,
            cq_mod: cq_mod.min(queues.tx_depth),
            inline_size: queues.inline_size.unwrap_or(small),
            events: args.events,
            qp_timeout: args.qp_timeout,
        }
    }

    /// Checks what memory is allocated for. The load of the other side comes from the network.
    ///
    /// # Errors
    ///
    /// No device or no option permits the load.
    pub fn check(&self, limits: &Limits) -> anyhow::Result<()> {
        let Self { qps, longest, inline_size, .. } = *self;
        let most = limits.max_inline_data;
        ensure!(
            inline_size <= most,
            "--inline-size {inline_size}: the device takes {most} bytes at most"
        );
        ensure!((1..=MAX_QPS).contains(&qps), "{qps} queue pairs: expected 1 to {MAX_QPS}");
        ensure!(
            longest <= MAX_MESSAGE,
            "a message of {longest} bytes: expected {MAX_MESSAGE} at most"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use softroce::verbs::{Context, OpenOptions};

    use super::*;
    use softroce_cli::{AtomicType, Transport, Verb};

    const CONSTRAINTS: Constraints =
        Constraints { connection: None, mtu: None, active_mtu: 4096, size: None, qps: None };

    #[test]
    fn mtu_is_that_of_either_option_or_of_both_interfaces() {
        let small = Constraints { active_mtu: 1024, ..CONSTRAINTS };
        assert_eq!(small.agree(&CONSTRAINTS).unwrap(), Mtu::Mtu1024);
        let wants_512 = Constraints { mtu: Some(512), ..CONSTRAINTS };
        assert_eq!(small.agree(&wants_512).unwrap(), Mtu::Mtu512);
        assert_eq!(wants_512.agree(&small).unwrap(), Mtu::Mtu512);
    }

    #[test]
    fn different_options_are_named() {
        let error =
            |here: Constraints, there: Constraints| here.agree(&there).unwrap_err().to_string();
        let mtu = |bytes| Constraints { mtu: Some(bytes), ..CONSTRAINTS };
        let expected = "MTU mismatch: 1024 there, 4096 here; start both sides with the same value";
        assert_eq!(error(mtu(1024), mtu(4096)), expected);
        let small = Constraints { active_mtu: 1024, ..CONSTRAINTS };
        assert_eq!(error(small, mtu(4096)), "MTU 4096: the interfaces carry 1024");
        let size = |bytes| Constraints { size: Some(bytes), ..CONSTRAINTS };
        let expected = "size mismatch: 64 there, 65536 here; start both sides with the same value";
        assert_eq!(error(size(64), size(65536)), expected);
        let over = |name: &str| Constraints { connection: Some(name.into()), ..CONSTRAINTS };
        let expected =
            "connection mismatch: uc there, rc here; start both sides with the same value";
        assert_eq!(error(over("uc"), over("rc")), expected);
    }

    #[test]
    fn load_of_the_other_side_is_limited() {
        let context = Context::open(OpenOptions::loopback()).unwrap();
        let limits = context.device_info().unwrap().limits;
        let kind = Kind {
            verb: Verb::Send,
            measure: Measure::Bandwidth,
            transport: Transport::Rc,
            atomic: AtomicType::default(),
            bidirectional: false,
            shared: false,
        };
        let load = Load {
            kind,
            qps: MAX_QPS,
            longest: MAX_MESSAGE,
            tx_depth: 128,
            rx_depth: 512,
            post_list: 1,
            cq_mod: 1,
            inline_size: limits.max_inline_data,
            events: false,
            qp_timeout: 14,
        };
        load.check(&limits).unwrap();
        let error = |load: Load| load.check(&limits).unwrap_err().to_string();
        let expected = "--inline-size 4294967295: the device takes 1024 bytes at most";
        assert_eq!(error(Load { inline_size: u32::MAX, ..load }), expected);
        let expected = "0 queue pairs: expected 1 to 16384";
        assert_eq!(error(Load { qps: 0, ..load }), expected);
        let expected = "a message of 2147483648 bytes: expected 2147483647 at most";
        assert_eq!(error(Load { longest: MAX_MESSAGE + 1, ..load }), expected);
    }

    #[test]
    fn protocol_versions_must_match() {
        let ours = Hello::new("send-bw");
        let old: Hello = serde_json::from_str(r#"{"roce":"0.0.9","test":"send-bw"}"#).unwrap();
        assert_eq!(
            ours.check(&old).unwrap_err().to_string(),
            "the other side is roce 0.0.9 with version 1 of the control protocol, expected 5: install the same \
             version of roce on both sides"
        );
        assert!(ours.check(&Hello::new("send-bw")).is_ok());
    }
}
