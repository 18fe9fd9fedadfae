//! The results of a test.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;
use softroce::verbs::{Endpoint, Mtu};
use softroce_cli::PingpongArgs;

use crate::output::{self, json_line};

/// Number of messages.
#[derive(Clone, Copy, Default, Serialize)]
pub(super) struct Score {
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Messages that differ from what was sent, if they were compared.
    pub(super) damaged: u64,
}

#[derive(Serialize)]
pub(super) struct Report {
    transport: &'static str,
    local: Address,
    remote: Address,
    size: usize,
    mtu: usize,
    iterations: u64,
    #[serde(flatten)]
    score: Score,
    #[serde(flatten)]
    speed: Option<Speed>,
    #[serde(skip)]
    timeout: Duration,
}

/// Speed of a complete test.
#[derive(Serialize)]
struct Speed {
    seconds: f64,
    usec_per_iter: f64,
    mbit_per_s: f64,
}

#[derive(Serialize)]
struct Address {
    gid: String,
    qpn: u32,
    psn: u32,
}

impl From<&Endpoint> for Address {
    fn from(endpoint: &Endpoint) -> Self {
        let gid = endpoint.gid.to_string();
        Self { gid, qpn: endpoint.qpn.value(), psn: endpoint.psn.value() }
    }
}

impl Report {
    /// Returns the report; `took` is `None` for an incomplete test.
    pub(super) fn new(
        args: &PingpongArgs,
        mtu: Mtu,
        [mine, theirs]: [&Endpoint; 2],
        score: Score,
        took: Option<Duration>,
    ) -> Self {
        let (iterations, size) = (args.load.iters, args.size());
        let speed = took.map(|took| {
            let seconds = took.as_secs_f64();
            Speed {
                seconds,
                usec_per_iter: seconds * 1e6 / iterations as f64,
                mbit_per_s: size as f64 * iterations as f64 * 2.0 * 8e-6 / seconds,
            }
        });
        Self {
            transport: args.connection.name(),
            local: mine.into(),
            remote: theirs.into(),
            size,
            mtu: mtu.bytes(),
            iterations,
            score,
            speed,
            timeout: args.load.timeout,
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.speed.is_some()
    }

    /// Returns whether all messages arrived unchanged.
    pub(super) fn is_perfect(&self) -> bool {
        self.is_complete() && self.score.damaged == 0
    }

    pub(super) fn print(&self, json: bool) -> anyhow::Result<()> {
        let mut out = output::stdout();
        if json {
            return Ok(json_line(&mut out, self)?);
        }
        for (whose, Address { gid, qpn, psn }) in [("local", &self.local), ("remote", &self.remote)]
        {
            let whose = format!("{whose} address:");
            writeln!(out, "  {whose:<15} LID 0x0000, QPN 0x{qpn:06x}, PSN 0x{psn:06x}, GID {gid}")?;
        }
        let Score { sent, received, damaged } = self.score;
        let iterations = self.iterations;
        match &self.speed {
            Some(Speed { seconds, usec_per_iter, mbit_per_s }) => {
                let bytes = self.size as u64 * iterations * 2;
                writeln!(out, "{bytes} bytes in {seconds:.2} seconds = {mbit_per_s:.2} Mbit/sec")?;
                writeln!(
                    out,
                    "{iterations} iters in {seconds:.2} seconds = {usec_per_iter:.2} usec/iter"
                )?;
            }
            None => {
                let (transport, timeout) = (self.transport, self.timeout.as_secs_f64());
                writeln!(out, "{sent} of {iterations} messages sent, {received} received")?;
                writeln!(
                    out,
                    "then no message arrived for {timeout} s: {transport} does not retransmit lost messages"
                )?;
                if received == 0 {
                    writeln!(
                        out,
                        "start the other side with the same transport service, size and MTU"
                    )?;
                }
            }
        }
        if damaged > 0 {
            writeln!(out, "{damaged} messages differ from what was sent")?;
        }
        Ok(())
    }
}
