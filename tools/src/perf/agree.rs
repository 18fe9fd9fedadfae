//! What the two sides of a test tell each other, and what they must agree on.

use std::fmt::Display;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use softroce::ids::{Mtu, Rkey};
use softroce::verbs::{Endpoint, RemoteAddr, Srqn};

use super::measure::Run;
use super::plan::Kind;
use crate::ceiling::Order;
use crate::cli::{LoadArgs, Measure, Test};
use crate::control::Control;

/// The number of this agreement: another one for every change to what the sides tell each other.
const AGREEMENT: u32 = 5;

/// The first word of each side. What is in it may be added to, but not changed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Greeting {
    roce: String,
    test: String,
    /// Sides that do not tell have the first.
    #[serde(default = "first")]
    agreement: u32,
}

const fn first() -> u32 {
    1
}

impl Greeting {
    /// Ours.
    pub(super) fn new(test: &str) -> Self {
        let roce = env!("CARGO_PKG_VERSION").to_owned();
        Self { roce, test: test.to_owned(), agreement: AGREEMENT }
    }

    /// Whether both sides can go on.
    pub(super) fn meet(&self, theirs: &Self) -> anyhow::Result<()> {
        let (ours, other) = (self.agreement, theirs.agreement);
        ensure!(
            ours == other,
            "the other side is roce {} and speaks agreement {other} of roce perf, this one {ours}: \
             take the same version on both sides",
            theirs.roce
        );
        let (ours, other) = (&self.test, &theirs.test);
        ensure!(ours == other, "the other side was started for {other}, this one for {ours}");
        Ok(())
    }
}

/// Checks that both sides were started for the same test.
pub(super) fn greet(control: &mut Control, test: Test) -> anyhow::Result<()> {
    control.set_patience(Some(Duration::from_secs(10)))?;
    let ours = Greeting::new(test.name());
    control.send(&ours)?;
    ours.meet(&control.receive()?)?;
    control.set_patience(None)
}

/// What the active side asks of the listening one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// Its part in a raw UDP measurement.
    Ceiling(Order),
    /// Queue pairs, connected to these. Answered by an [`Answer`] of [`Connected`].
    Connect(Connect),
    /// Its part in a row of the test. Answered by an [`Answer`] of nothing when it is ready.
    Run(Run),
    /// The active side has sent so many messages of the row, and is through. Answered by a
    /// [`Report`](super::measure::Report) when the other side is through as well.
    Finish { sent: u64 },
    /// The counters of its device. Answered by an [`Answer`] of [`Values`](crate::counters::Values).
    Counters,
}

/// Yes, or why not.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer<T> {
    Yes(T),
    No(String),
}

impl<T> Answer<T> {
    pub(super) fn of(result: anyhow::Result<T>) -> Self {
        match result {
            Ok(value) => Self::Yes(value),
            Err(e) => Self::No(format!("{e:#}")),
        }
    }

    pub(super) fn yes(self) -> anyhow::Result<T> {
        match self {
            Self::Yes(value) => Ok(value),
            Self::No(why) => bail!("the other side: {why}"),
        }
    }
}

/// What is needed to connect.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Connect {
    pub(super) wishes: Wishes,
    pub(super) load: Load,
    pub(super) active: Introduction,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Connected {
    /// Bytes.
    pub(super) mtu: usize,
    pub(super) listening: Introduction,
}

/// How a side may be reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Introduction {
    /// Of each queue pair, as [`Endpoint`] is written.
    endpoints: Vec<String>,
    /// XRC: of each target, likewise, and the number of the shared receive queue.
    xrc: Option<(Vec<String>, u32)>,
    addr: u64,
    rkey: u32,
    /// Of its socket.
    pub(super) receive_buffer: u64,
}

impl Introduction {
    pub(super) fn new(
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

    pub(super) fn endpoints(&self) -> anyhow::Result<Vec<Endpoint>> {
        parsed(&self.endpoints)
    }

    /// XRC: the targets, and the queue that messages are for.
    pub(super) fn targets(&self) -> anyhow::Result<(Vec<Endpoint>, Srqn)> {
        let (targets, srqn) = self.xrc.as_ref().context("the other side names no XRC targets")?;
        Ok((parsed(targets)?, Srqn::new(*srqn)))
    }

    /// The byte at `offset` of its memory.
    pub(super) fn remote(&self, offset: usize) -> RemoteAddr {
        RemoteAddr { addr: self.addr.wrapping_add(offset as u64), rkey: Rkey(self.rkey) }
    }
}

fn parsed(endpoints: &[String]) -> anyhow::Result<Vec<Endpoint>> {
    let parsed = endpoints.iter().map(|text| text.parse());
    parsed.collect::<Result<_, _>>().context("the other side's queue pairs")
}

/// Options of one side that the other side must not contradict.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Wishes {
    /// Of the transport service.
    connection: Option<String>,
    /// Bytes.
    mtu: Option<usize>,
    /// What the interface carries.
    active_mtu: usize,
    size: Option<usize>,
    qps: Option<u32>,
}

impl Wishes {
    pub(super) fn of(args: &LoadArgs, active_mtu: Mtu) -> Self {
        Self {
            connection: args.connection.map(|transport| transport.name().to_owned()),
            mtu: args.mtu.map(Mtu::bytes),
            active_mtu: active_mtu.bytes(),
            size: args.size,
            qps: args.qp,
        }
    }

    /// The same of an active side. Its values hold for options that the other side leaves out.
    pub(super) fn of_active(args: &LoadArgs, active_mtu: Mtu, load: &Load) -> Self {
        Self {
            connection: Some(load.kind.transport.name().to_owned()),
            size: (!args.all).then_some(load.longest),
            qps: Some(load.qps),
            ..Self::of(args, active_mtu)
        }
    }

    /// The MTU that both sides are content with, from the point of view of the listening side.
    pub(super) fn agree(&self, active: &Self) -> anyhow::Result<Mtu> {
        agreed("connection", self.connection.as_deref(), active.connection.as_deref())?;
        agreed("size", self.size, active.size)?;
        agreed("queue pair", self.qps, active.qps)?;
        let carried = self.active_mtu.min(active.active_mtu);
        let bytes = agreed("MTU", self.mtu, active.mtu)?.unwrap_or(carried);
        ensure!(bytes <= carried, "MTU {bytes}: the interfaces carry {carried}");
        Mtu::from_bytes(bytes).with_context(|| format!("MTU {bytes}: there is none of this size"))
    }
}

/// What either side wishes; both may not wish differently.
fn agreed<T: Display + PartialEq>(
    what: &str,
    here: Option<T>,
    there: Option<T>,
) -> anyhow::Result<Option<T>> {
    match (here, there) {
        (Some(here), Some(there)) if here != there => {
            bail!("{what} mismatch: this side was started with {here}, yours with {there}")
        }
        (here, there) => Ok(here.or(there)),
    }
}

/// Receive requests of all queue pairs over UC and UD, where a message that finds none is lost: what
/// arrives in a millisecond or two in which this side is not scheduled.
const UNRELIABLE_RECEIVES: u32 = 4096;

/// What both sides must know of the load.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Load {
    pub(super) kind: Kind,
    pub(super) qps: u32,
    /// Bytes of the longest message.
    pub(super) longest: usize,
    pub(super) tx_depth: u32,
    /// Of each queue pair, or of the queue that they share.
    pub(super) rx_depth: u32,
    /// Send requests of one call of `post_send`.
    pub(super) post_list: u32,
    /// Messages for which there is one completion.
    pub(super) cq_mod: u32,
    pub(super) inline_size: u32,
    pub(super) events: bool,
    /// Exponent of the ACK timeout.
    pub(super) qp_timeout: u8,
}

/// Messages for which there is one completion, unless the options say otherwise; perftest's default.
const DEFAULT_CQ_MOD: u32 = 100;

/// Longest message with the default above, in bytes; longer ones have a completion each, as in perftest.
const LONGEST_MODERATED: usize = 8192;

/// Receive requests of one queue at most.
const MOST_RECEIVES: u32 = 16384;

impl Load {
    /// Of a test with messages up to `longest` bytes.
    pub(super) fn of(args: &LoadArgs, kind: Kind, longest: usize) -> Self {
        let queues = &args.queues;
        let may_be_inline = kind.measure == Measure::Latency && !kind.verb.is_answered();
        let small = if may_be_inline { 220 } else { 0 };
        let qps = args.qp.unwrap_or(1);
        let rx_depth = if kind.is_unreliable() { UNRELIABLE_RECEIVES / qps } else { 0 };
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
                true => (rx_depth.max(512) * qps).min(MOST_RECEIVES),
                false => rx_depth.max(512),
            }),
            post_list: queues.post_list,
            cq_mod: cq_mod.min(queues.tx_depth),
            inline_size: queues.inline_size.unwrap_or(small),
            events: args.events,
            qp_timeout: args.qp_timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WISHES: Wishes =
        Wishes { connection: None, mtu: None, active_mtu: 4096, size: None, qps: None };

    #[test]
    fn the_mtu_is_what_either_side_wants_or_both_carry() {
        let small = Wishes { active_mtu: 1024, ..WISHES };
        assert_eq!(small.agree(&WISHES).unwrap(), Mtu::Mtu1024);
        let wants_512 = Wishes { mtu: Some(512), ..WISHES };
        assert_eq!(small.agree(&wants_512).unwrap(), Mtu::Mtu512);
        assert_eq!(wants_512.agree(&small).unwrap(), Mtu::Mtu512);
    }

    #[test]
    fn contradictions_are_named() {
        let error = |here: Wishes, there: Wishes| here.agree(&there).unwrap_err().to_string();
        let mtu = |bytes| Wishes { mtu: Some(bytes), ..WISHES };
        let expected = "MTU mismatch: this side was started with 1024, yours with 4096";
        assert_eq!(error(mtu(1024), mtu(4096)), expected);
        let small = Wishes { active_mtu: 1024, ..WISHES };
        assert_eq!(error(small, mtu(4096)), "MTU 4096: the interfaces carry 1024");
        let size = |bytes| Wishes { size: Some(bytes), ..WISHES };
        let expected = "size mismatch: this side was started with 64, yours with 65536";
        assert_eq!(error(size(64), size(65536)), expected);
        let over = |name: &str| Wishes { connection: Some(name.into()), ..WISHES };
        let expected = "connection mismatch: this side was started with uc, yours with rc";
        assert_eq!(error(over("uc"), over("rc")), expected);
    }

    #[test]
    fn sides_that_do_not_speak_the_same_say_so() {
        let ours = Greeting::new("send-bw");
        let old: Greeting = serde_json::from_str(r#"{"roce":"0.0.9","test":"send-bw"}"#).unwrap();
        assert_eq!(
            ours.meet(&old).unwrap_err().to_string(),
            "the other side is roce 0.0.9 and speaks agreement 1 of roce perf, this one 5: take the \
             same version on both sides"
        );
        assert!(ours.meet(&Greeting::new("send-bw")).is_ok());
    }
}
