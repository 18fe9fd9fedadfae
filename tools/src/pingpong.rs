//! `roce pingpong`: one message at a time, back and forth, with ourselves or with the stock program.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Serialize;
use softroce::engine::InitAttr;
use softroce::verbs::*;

use crate::cli::{PingpongArgs, Transport};
use crate::clock;
use crate::completion::Waiter;
use crate::device::Opened;
use crate::{Answer, exchange, tcp};

/// What a message consists of, as the stock program has it.
const FILL: u8 = 0x7b;

/// With `-c` the stock program wants a zero at the start of each of its pages.
const PAGE: usize = 4096;

/// The message of `size` bytes, as a side that checks wants it.
fn message(size: usize, checked: bool) -> Vec<u8> {
    let zero = |at: usize| checked && at.is_multiple_of(PAGE);
    (0..size).map(|at| if zero(at) { 0 } else { FILL }).collect()
}

/// How long the other side may be silent.
const PATIENCE: Duration = Duration::from_secs(10);

const SEND: u64 = 1;
const RECV: u64 = 2;

/// Runs the command.
pub(crate) fn run(args: &PingpongArgs) -> anyhow::Result<Answer> {
    let stream = match &args.host {
        Some(host) => tcp::connect(host, args.port, "pingpong")?,
        None => tcp::accept(args.port, args.announce)?,
    };
    let opened = args.device.open(Some(tcp::local_ip(&stream)?))?;
    let result = play(args, &opened, stream);
    // The capture is whole also when the game has failed.
    let finished = opened.finish();
    let report = result?;
    finished?;
    report.print(args.json)?;
    Ok(if report.damaged == 0 { Answer::Yes } else { Answer::No })
}

fn play(args: &PingpongArgs, opened: &Opened, mut stream: TcpStream) -> anyhow::Result<Report> {
    let mut player = Player::new(args, opened)?;
    let report = match args.host {
        Some(_) => player.begin(&mut stream),
        None => player.answer(&mut stream),
    }?;
    // Until then our queue pair answers.
    exchange::part(stream);
    Ok(report)
}

/// One side, and what it plays with.
struct Player<'a> {
    args: &'a PingpongArgs,
    qp: QueuePair,
    waiter: Waiter,
    /// The message sent, then the one received.
    mr: MemoryRegion,
    /// Receive requests posted.
    receives: u32,
}

#[derive(Serialize)]
struct Report {
    transport: &'static str,
    local: Address,
    remote: Address,
    size: usize,
    mtu: usize,
    iterations: u64,
    seconds: f64,
    usec_per_iter: f64,
    mbit_per_s: f64,
    /// Messages that were not as sent, if they were looked at.
    damaged: u64,
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

impl<'a> Player<'a> {
    fn new(args: &'a PingpongArgs, opened: &Opened) -> anyhow::Result<Self> {
        let ctx = &opened.context;
        let info = ctx.device_info()?;
        let gids = info.gids.len();
        ensure!(usize::from(args.gid_idx) < gids, "GID {}: there are {gids}", args.gid_idx);
        let (mtu, active) = (args.mtu, info.active_mtu);
        ensure!(mtu <= active, "MTU {mtu}: the interface of {} carries {active}", info.ip);
        let channel = if args.events { Some(ctx.create_channel()?) } else { None };
        let depth = usize::try_from(args.rx_depth)?.saturating_add(1);
        let cq = ctx.create_cq(depth, channel.as_ref())?;
        let pd = ctx.alloc_pd();
        let mr = pd.alloc_mr(2 * args.size.max(1), Access::LOCAL_WRITE)?;
        mr.write_at(0, &message(args.size, args.chk))?;
        let cap = QpCap { max_send_wr: 1, max_recv_wr: args.rx_depth, ..QpCap::default() };
        let service = match args.transport {
            Transport::Rc => QpConfig::rc(&cq),
            Transport::Uc => QpConfig::uc(&cq),
            Transport::Ud => QpConfig::ud(&cq),
        };
        let qp = pd.create_qp(&QpConfig { cap, ..service })?;
        qp.modify(InitAttr::Connected { access: Access::empty() })?;
        let mut player = Self { args, qp, waiter: Waiter { cq, channel }, mr, receives: 0 };
        player.post_receives()?;
        Ok(player)
    }

    /// The side with a HOST: sends the first message.
    fn begin(&mut self, stream: &mut TcpStream) -> anyhow::Result<Report> {
        let theirs = exchange::as_client(stream, &self.qp.endpoint())?;
        self.connect(&theirs)?;
        self.post_send()?;
        self.play(&theirs, SEND | RECV)
    }

    /// The side that listens.
    fn answer(&mut self, stream: &mut TcpStream) -> anyhow::Result<Report> {
        let mut theirs = None;
        exchange::as_server(stream, |peer| {
            self.connect(peer)?;
            theirs = Some(*peer);
            Ok(self.qp.endpoint())
        })?;
        let theirs = theirs.context("the client has not said who it is")?;
        self.play(&theirs, RECV)
    }

    /// As the stock program sets its queue pairs up: one READ, timeout 14, 7 retries.
    fn connect(&self, theirs: &Endpoint) -> anyhow::Result<()> {
        let options = ConnectOptions {
            path_mtu: Some(self.args.mtu),
            max_rd_atomic: 1,
            ..ConnectOptions::default()
        };
        Ok(self.qp.connect(theirs, &options)?)
    }

    /// Plays until both counts are full. `pending` are the requests whose end is awaited before the
    /// next message is sent.
    fn play(&mut self, theirs: &Endpoint, mut pending: u64) -> anyhow::Result<Report> {
        let PingpongArgs { size, iters, .. } = *self.args;
        let mut message = vec![0; size];
        let (mut sent, mut received, mut damaged) = (0, 0, 0);
        let start = clock::now();
        while sent < iters || received < iters {
            let completion = self.waiter.next(PATIENCE)?;
            let what = completion.wr_id;
            if what == SEND {
                sent += 1;
            } else {
                received += 1;
                if self.args.chk {
                    damaged += u64::from(!self.is_whole(&completion, &mut message)?);
                }
                self.receives -= 1;
                if self.receives <= 1 {
                    self.post_receives()?;
                }
            }
            pending &= !what;
            if sent < iters && pending == 0 {
                self.post_send()?;
                pending = SEND | RECV;
            }
        }
        let seconds = (clock::now() - start).as_secs_f64();
        Ok(Report {
            transport: "rc",
            local: Address::from(&self.qp.endpoint()),
            remote: theirs.into(),
            size,
            mtu: self.args.mtu.bytes(),
            iterations: iters,
            seconds,
            usec_per_iter: seconds * 1e6 / iters as f64,
            mbit_per_s: size as f64 * iters as f64 * 2.0 * 8e-6 / seconds,
            damaged,
        })
    }

    fn post_send(&self) -> anyhow::Result<()> {
        let message = self.mr.sge(..self.args.size);
        Ok(self.qp.post_send(SendRequest::send(SEND, message).signaled())?)
    }

    fn post_receives(&mut self) -> anyhow::Result<()> {
        let size = self.args.size;
        while self.receives < self.args.rx_depth {
            self.qp.post_recv(RecvRequest::new(RECV, self.mr.sge(size..2 * size)))?;
            self.receives += 1;
        }
        Ok(())
    }

    /// Whether a message is what both programs send, and nothing else. What was received is wiped, so
    /// that the next one cannot pass for it.
    fn is_whole(&self, completion: &Completion, message: &mut [u8]) -> anyhow::Result<bool> {
        let size = self.args.size;
        self.mr.read_at(size, message)?;
        self.mr.write_at(size, &vec![0; size])?;
        let is_right = |(at, byte): (usize, &u8)| *byte == FILL || *byte == 0 && at % PAGE == 0;
        Ok(usize::try_from(completion.byte_len)? == size
            && message.iter().enumerate().all(is_right))
    }
}

impl Report {
    fn print(&self, json: bool) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        if json {
            serde_json::to_writer(&mut out, self)?;
            return Ok(writeln!(out)?);
        }
        for (whose, Address { gid, qpn, psn }) in [("local", &self.local), ("remote", &self.remote)]
        {
            let whose = format!("{whose} address:");
            writeln!(out, "  {whose:<15} LID 0x0000, QPN 0x{qpn:06x}, PSN 0x{psn:06x}, GID {gid}")?;
        }
        let (seconds, iterations) = (self.seconds, self.iterations);
        let bytes = self.size as u64 * iterations * 2;
        writeln!(out, "{bytes} bytes in {seconds:.2} seconds = {:.2} Mbit/sec", self.mbit_per_s)?;
        writeln!(
            out,
            "{iterations} iters in {seconds:.2} seconds = {:.2} usec/iter",
            self.usec_per_iter
        )?;
        if self.damaged > 0 {
            writeln!(out, "{} messages were not as sent", self.damaged)?;
        }
        Ok(())
    }
}
