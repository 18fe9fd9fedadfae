//! The tests with a shared receive queue: `ibv_srq_pingpong`, in which several RC queue pairs share one, and
//! `ibv_xsrq_pingpong`, in which each message names one (XRC).
//!
//! Neither of rdma-core's programs defines the content of its messages, so it is not compared.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use softroce::verbs::*;
use softroce_cli::{PingpongArgs, PingpongLoad, Transport};
use softroce_perf::clock;
use softroce_perf::completion::Waiter;

use super::report::{Report, Score};
use super::setup::{RECV_WR_ID, SEND_WR_ID, mtu};
use super::shared_exchange::{self, XrcEndpoint};
use crate::device::OpenDevice;
use crate::exchange;

/// One side: its queue pairs, memory and counts.
struct SharedTest<'a> {
    args: &'a PingpongArgs,
    qps: Vec<TestQp>,
    /// XRC target, which receives for the only queue pair.
    target: Option<XrcTarget>,
    srq: SharedReceiveQueue,
    waiter: Waiter,
    mtu: Mtu,
    mr: MemoryRegion,
    /// Number of posted receive requests.
    receives: u32,
}

/// A queue pair, and its outstanding requests.
struct TestQp {
    qp: QueuePair,
    /// Requests that must complete before the queue pair sends again.
    pending: u64,
    /// Over XRC, the shared receive queue of the other side.
    to: Option<Srqn>,
}

/// Runs a test.
pub(super) fn play(
    args: &PingpongArgs,
    opened: &OpenDevice,
    mut stream: TcpStream,
) -> anyhow::Result<Report> {
    let mut test = SharedTest::new(args, opened)?;
    let is_client = args.host.is_some();
    let (theirs, begins) = match &test.target {
        None => (test.connect_all(&mut stream, is_client)?, is_client),
        // In this program the listening side sends first.
        Some(_) => (test.connect_xrc(&mut stream, is_client)?, !is_client),
    };
    let (score, took) = test.play(begins)?;
    // Until then this side acknowledges.
    match test.target {
        None => exchange::wait_for_close(stream),
        Some(_) => shared_exchange::wait_for_close(&mut stream, is_client)?,
    }
    let mine = test.qps[0].qp.endpoint();
    Ok(Report::new(args, test.mtu, [&mine, &theirs], score, Some(took)))
}

impl<'a> SharedTest<'a> {
    fn new(args: &'a PingpongArgs, opened: &OpenDevice) -> anyhow::Result<Self> {
        let ctx = &opened.context;
        let is_xrc = args.connection == Transport::Xrc;
        let qps = if is_xrc { 1 } else { args.qp };
        ensure!(
            qps <= args.load.rx_depth,
            "--rx-depth {}: {qps} queue pairs need a receive request each",
            args.load.rx_depth
        );
        let mtu = mtu(args, &ctx.device_info()?)?;
        let channel = if args.load.events { Some(ctx.create_channel()?) } else { None };
        // When the test ends, messages of other queue pairs are still in flight.
        let depth = args.load.rx_depth + 2 * qps;
        let cq = ctx.create_cq(usize::try_from(depth)?, channel.as_ref())?;
        let pd = ctx.alloc_pd();
        let mr = pd.alloc_mr(2 * args.size().max(1), Access::LOCAL_WRITE)?;
        let config = SrqConfig { max_wr: args.load.rx_depth, max_sge: 1 };
        let (srq, target) = if is_xrc {
            let domain = ctx.open_xrcd(&XrcdOptions::default())?;
            (pd.create_xrc_srq(&config, &domain, &cq)?, Some(domain.create_target()?))
        } else {
            (pd.create_srq(&config)?, None)
        };
        let cap = QpCap { max_send_wr: 1, ..QpCap::default() };
        let config = match is_xrc {
            true => QpConfig { cap, ..QpConfig::xrc(&cq) },
            false => QpConfig { cap, srq: Some(&srq), ..QpConfig::rc(&cq) },
        };
        let qp = |_| Ok(TestQp { qp: pd.create_qp(&config)?, pending: RECV_WR_ID, to: None });
        let qps = (0..qps).map(qp).collect::<Result<_, Error>>()?;
        let waiter = Waiter { cq, channel };
        let mut test = Self { args, qps, target, srq, waiter, mtu, mr, receives: 0 };
        test.post_receives()?;
        Ok(test)
    }

    /// Returns the connection parameters of rdma-core's programs.
    fn options(&self) -> ConnectOptions {
        ConnectOptions {
            sgid_index: self.args.load.gid_idx,
            path_mtu: Some(self.mtu),
            max_rd_atomic: 1,
            access: Access::empty(),
            ..ConnectOptions::default()
        }
    }

    /// Connects each queue pair to the one with the same index; returns the first of the other side.
    fn connect_all(&mut self, stream: &mut TcpStream, is_client: bool) -> anyhow::Result<Endpoint> {
        let mine = self.qps.iter().map(|qp| qp.qp.endpoint_at(self.args.load.gid_idx));
        let mine = mine.collect::<Result<Vec<_>, _>>()?;
        let options = self.options();
        let connect = |theirs: &[Endpoint]| {
            let mut pairs = self.qps.iter().zip(theirs);
            Ok(pairs.try_for_each(|(qp, peer)| qp.qp.connect(peer, &options))?)
        };
        let theirs = shared_exchange::exchange_all(stream, is_client, &mine, connect)?;
        theirs.first().copied().context("the other side has no queue pair")
    }

    /// Connects the queue pair and the target over XRC.
    fn connect_xrc(&mut self, stream: &mut TcpStream, is_client: bool) -> anyhow::Result<Endpoint> {
        let options = self.options();
        let target = self.target.as_ref().context("no target")?;
        let qp = &mut self.qps[0];
        let Endpoint { gid, qpn: initiator, psn } = qp.qp.endpoint_at(self.args.load.gid_idx)?;
        let mine = XrcEndpoint { target: target.qpn(), initiator, psn, srqn: self.srq.srqn(), gid };
        let theirs = shared_exchange::exchange(stream, is_client, &mine)?;
        let XrcEndpoint { gid, psn, .. } = theirs;
        let peer = Endpoint { gid, qpn: theirs.target, psn };
        qp.qp.connect(&peer, &options)?;
        target.connect(&Endpoint { qpn: theirs.initiator, ..peer }, &options)?;
        qp.to = Some(theirs.srqn);
        Ok(peer)
    }

    /// Exchanges messages until both counts are reached.
    fn play(&mut self, begins: bool) -> anyhow::Result<(Score, Duration)> {
        let PingpongLoad { iters, timeout, .. } = self.args.load;
        if begins {
            (0..self.qps.len()).try_for_each(|qp| self.post_send(qp))?;
        }
        let mut score = Score::default();
        let start = clock::now();
        while score.sent < iters || score.received < iters {
            let completion = self.waiter.next(timeout)?;
            let qp = self.qp(&completion)?;
            let what = completion.wr_id;
            if what == SEND_WR_ID {
                score.sent += 1;
            } else {
                score.received += 1;
                self.receives -= 1;
                if self.receives <= u32::try_from(self.qps.len())? {
                    self.post_receives()?;
                }
            }
            self.qps[qp].pending &= !what;
            if score.sent < iters && self.qps[qp].pending == 0 {
                self.post_send(qp)?;
            }
        }
        Ok((score, clock::now() - start))
    }

    /// Returns the index of the queue pair of a completion.
    fn qp(&self, completion: &Completion) -> anyhow::Result<usize> {
        if self.target.is_some() {
            return Ok(0);
        }
        let qpn = completion.qpn;
        let found = self.qps.iter().position(|qp| qp.qp.qpn() == qpn);
        found.with_context(|| format!("a completion of queue pair {qpn}, which is not ours"))
    }

    fn post_send(&mut self, qp: usize) -> anyhow::Result<()> {
        let request = SendRequest::send(SEND_WR_ID, self.mr.sge(..self.args.size())).signaled();
        let qp = &mut self.qps[qp];
        qp.pending = SEND_WR_ID | RECV_WR_ID;
        Ok(qp.qp.post_send(match qp.to {
            Some(srqn) => request.to(srqn),
            None => request,
        })?)
    }

    fn post_receives(&mut self) -> anyhow::Result<()> {
        let size = self.args.size();
        let missing = self.args.load.rx_depth - self.receives;
        let request = || RecvRequest::new(RECV_WR_ID, self.mr.sge(size..2 * size));
        let (taken, result) = self.srq.post_recvs((0..missing).map(|_| request()));
        self.receives += u32::try_from(taken)?;
        Ok(result?)
    }
}
