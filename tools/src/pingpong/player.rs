//! The test with one queue pair on each side, over RC, UC and UD.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, bail};
use softroce::engine::{InitAttr, RtrAttr, RtsAttr};
use softroce::verbs::*;

use super::report::{Report, Score};
use super::setup::{RECV, SEND, mtu};
use crate::cli::{PingpongArgs, PingpongLoad, Transport};
use crate::clock;
use crate::completion::Waiter;
use crate::device::Opened;
use crate::exchange;

/// The bytes of a message, as the stock program has them.
const FILL: u8 = 0x7b;

/// With `-c` the stock program wants a zero at the start of each of its pages.
const PAGE: usize = 4096;

/// The key of `ibv_ud_pingpong`.
const QKEY: QKey = QKey(0x1111_1111);

/// The message of `size` bytes, as a side that checks wants it.
fn message(size: usize, checked: bool) -> Vec<u8> {
    let zero = |at: usize| checked && at.is_multiple_of(PAGE);
    (0..size).map(|at| if zero(at) { 0 } else { FILL }).collect()
}

/// One side: its queue pair, memory and counts.
pub(super) struct Player<'a> {
    args: &'a PingpongArgs,
    pd: ProtectionDomain,
    qp: QueuePair,
    /// The endpoint that the other side learns.
    mine: Endpoint,
    waiter: Waiter,
    mtu: Mtu,
    /// Where messages go, over UD.
    target: Option<UdTarget>,
    /// The message sent, then the place of the one received.
    mr: MemoryRegion,
    /// Bytes that a message has.
    size: usize,
    /// Bytes before the message where it is received.
    header: usize,
    /// Receive requests posted.
    receives: u32,
}

impl<'a> Player<'a> {
    pub(super) fn new(args: &'a PingpongArgs, opened: &Opened) -> anyhow::Result<Self> {
        let ctx = &opened.context;
        let info = ctx.device_info()?;
        let (size, mtu) = (args.size(), mtu(args, &info)?);
        let channel = if args.load.events { Some(ctx.create_channel()?) } else { None };
        let depth = usize::try_from(args.load.rx_depth)?.saturating_add(1);
        let cq = ctx.create_cq(depth, channel.as_ref())?;
        let pd = ctx.alloc_pd();
        let (config, header, init) = match args.connection {
            Transport::Rc | Transport::Xrc => (QpConfig::rc(&cq), 0, CONNECTED),
            Transport::Uc => (QpConfig::uc(&cq), 0, CONNECTED),
            Transport::Ud => (QpConfig::ud(&cq), GRH_LEN, InitAttr::Datagram { qkey: QKEY }),
        };
        let mr = pd.alloc_mr(header + 2 * size.max(1), Access::LOCAL_WRITE)?;
        mr.write_at(0, &message(size, args.load.chk))?;
        let cap = QpCap { max_send_wr: 1, max_recv_wr: args.load.rx_depth, ..QpCap::default() };
        let qp = pd.create_qp(&QpConfig { cap, ..config })?;
        let mine = qp.endpoint_at(args.load.gid_idx)?;
        qp.modify(init)?;
        let waiter = Waiter { cq, channel };
        let mut player =
            Self { args, pd, qp, mine, waiter, mtu, target: None, mr, size, header, receives: 0 };
        player.post_receives()?;
        Ok(player)
    }

    /// The side with a HOST: sends the first message.
    pub(super) fn begin(&mut self, stream: &mut TcpStream) -> anyhow::Result<Report> {
        let theirs = exchange::as_client(stream, &self.mine)?;
        self.connect(&theirs)?;
        self.post_send()?;
        self.play(&theirs, SEND | RECV)
    }

    /// The side that listens.
    pub(super) fn answer(&mut self, stream: &mut TcpStream) -> anyhow::Result<Report> {
        let mut theirs = None;
        exchange::as_server(stream, |peer| {
            self.connect(peer)?;
            theirs = Some(*peer);
            Ok(self.mine)
        })?;
        let theirs = theirs.context("the client has not said who it is")?;
        self.play(&theirs, RECV)
    }

    /// As the stock program sets its queue pairs up: one READ, timeout 14, 7 retries.
    fn connect(&mut self, theirs: &Endpoint) -> anyhow::Result<()> {
        let sgid_index = self.args.load.gid_idx;
        if self.args.connection == Transport::Ud {
            let way = AddressVector { sgid_index, ..AddressVector::to(theirs.gid) };
            self.target = Some(self.pd.create_ah(way)?.target(theirs.qpn, QKEY));
            self.qp.modify(RtrAttr::Ud)?;
            let sq_psn = self.mine.psn;
            return Ok(self.qp.modify(RtsAttr::Unreliable { sq_psn })?);
        }
        let options = ConnectOptions {
            sgid_index,
            path_mtu: Some(self.mtu),
            max_rd_atomic: 1,
            ..ConnectOptions::default()
        };
        Ok(self.qp.connect(theirs, &options)?)
    }

    /// Plays until both counts are full, or nothing comes any more where messages may be lost.
    /// `pending` are the requests that must complete before the next message.
    fn play(&mut self, theirs: &Endpoint, mut pending: u64) -> anyhow::Result<Report> {
        let PingpongLoad { iters, timeout, .. } = self.args.load;
        let mut message = vec![0; self.size];
        let mut score = Score::default();
        let start = clock::now();
        while score.sent < iters || score.received < iters {
            let Some(completion) = self.waiter.next_within(timeout)? else {
                if self.args.connection == Transport::Rc {
                    bail!("nothing from the other side for {} s", timeout.as_secs_f64());
                }
                return Ok(self.report(theirs, score, None));
            };
            let what = completion.wr_id;
            if what == SEND {
                score.sent += 1;
            } else {
                score.received += 1;
                if self.args.load.chk {
                    score.damaged += u64::from(!self.is_whole(&completion, &mut message)?);
                }
                self.receives -= 1;
                if self.receives <= 1 {
                    self.post_receives()?;
                }
            }
            pending &= !what;
            if score.sent < iters && pending == 0 {
                self.post_send()?;
                pending = SEND | RECV;
            }
        }
        Ok(self.report(theirs, score, Some(clock::now() - start)))
    }

    fn report(&self, theirs: &Endpoint, score: Score, took: Option<Duration>) -> Report {
        Report::new(self.args, self.mtu, [&self.mine, theirs], score, took)
    }

    fn post_send(&self) -> anyhow::Result<()> {
        let request = SendRequest::send(SEND, self.mr.sge(..self.size)).signaled();
        Ok(self.qp.post_send(match self.target {
            Some(target) => request.to(target),
            None => request,
        })?)
    }

    fn post_receives(&mut self) -> anyhow::Result<()> {
        let place = self.size..2 * self.size + self.header;
        while self.receives < self.args.load.rx_depth {
            self.qp.post_recv(RecvRequest::new(RECV, self.mr.sge(place.clone())))?;
            self.receives += 1;
        }
        Ok(())
    }

    /// Whether a message has the bytes that both programs send, and no others. Wipes the received bytes,
    /// so that the next message cannot pass for this one.
    fn is_whole(&self, completion: &Completion, message: &mut [u8]) -> anyhow::Result<bool> {
        let at = self.size + self.header;
        self.mr.read_at(at, message)?;
        self.mr.write_at(at, &vec![0; self.size])?;
        let is_right = |(at, byte): (usize, &u8)| *byte == FILL || *byte == 0 && at % PAGE == 0;
        Ok(usize::try_from(completion.byte_len)? == self.header + self.size
            && message.iter().enumerate().all(is_right))
    }
}

/// The peer may send, and nothing else.
const CONNECTED: InitAttr = InitAttr::Connected { access: Access::empty() };
