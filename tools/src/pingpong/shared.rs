//! The tests with a shared receive queue: that of `ibv_srq_pingpong`, in which several RC queue pairs
//! take from one, and that of `ibv_xsrq_pingpong`, in which each message names it (XRC).
//!
//! Neither stock program fills its messages with anything, so there is nothing to look at in them.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use softroce::verbs::*;

use super::report::{Report, Score};
use super::setup::{RECV, SEND, mtu};
use super::words::{self, Words};
use crate::cli::{PingpongArgs, PingpongLoad, Transport};
use crate::clock;
use crate::completion::Waiter;
use crate::device::Opened;
use crate::exchange;

/// One side: its queue pairs, memory and counts.
struct Game<'a> {
    args: &'a PingpongArgs,
    seats: Vec<Seat>,
    /// The receiving end over XRC, beside the only seat.
    target: Option<XrcTarget>,
    srq: SharedReceiveQueue,
    waiter: Waiter,
    mtu: Mtu,
    mr: MemoryRegion,
    /// Receive requests posted.
    receives: u32,
}

/// A queue pair, and the requests that it waits for.
struct Seat {
    qp: QueuePair,
    /// Requests that must complete before it sends again.
    pending: u64,
    /// Over XRC, the queue that its messages are for.
    to: Option<Srqn>,
}

/// Runs a test to its end.
pub(super) fn play(
    args: &PingpongArgs,
    opened: &Opened,
    mut stream: TcpStream,
) -> anyhow::Result<Report> {
    let mut game = Game::new(args, opened)?;
    let is_client = args.host.is_some();
    let (theirs, begins) = match &game.target {
        None => (game.meet_all(&mut stream, is_client)?, is_client),
        // Here it is the side which listens that begins.
        Some(_) => (game.meet_target(&mut stream, is_client)?, !is_client),
    };
    let (score, took) = game.play(begins)?;
    // Until then our queue pairs answer.
    match game.target {
        None => exchange::part(stream),
        Some(_) => words::part(&mut stream, is_client)?,
    }
    let mine = game.seats[0].qp.endpoint();
    Ok(Report::new(args, game.mtu, [&mine, &theirs], score, Some(took)))
}

impl<'a> Game<'a> {
    fn new(args: &'a PingpongArgs, opened: &Opened) -> anyhow::Result<Self> {
        let ctx = &opened.context;
        let is_xrc = args.connection == Transport::Xrc;
        let seats = if is_xrc { 1 } else { args.qp };
        ensure!(
            seats <= args.load.rx_depth,
            "--rx-depth {}: {seats} queue pairs need a receive request each",
            args.load.rx_depth
        );
        let mtu = mtu(args, &ctx.device_info()?)?;
        let channel = if args.load.events { Some(ctx.create_channel()?) } else { None };
        // The test ends while messages of other queue pairs are still under way.
        let depth = args.load.rx_depth + 2 * seats;
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
        let seat = |_| Ok(Seat { qp: pd.create_qp(&config)?, pending: RECV, to: None });
        let seats = (0..seats).map(seat).collect::<Result<_, Error>>()?;
        let waiter = Waiter { cq, channel };
        let mut game = Self { args, seats, target, srq, waiter, mtu, mr, receives: 0 };
        game.post_receives()?;
        Ok(game)
    }

    /// As the stock programs set their queue pairs up.
    fn options(&self) -> ConnectOptions {
        ConnectOptions {
            sgid_index: self.args.load.gid_idx,
            path_mtu: Some(self.mtu),
            max_rd_atomic: 1,
            access: Access::empty(),
            ..ConnectOptions::default()
        }
    }

    /// Connects every queue pair to the one of the other side in its place; returns the first of those.
    fn meet_all(&mut self, stream: &mut TcpStream, is_client: bool) -> anyhow::Result<Endpoint> {
        let mine = self.seats.iter().map(|seat| seat.qp.endpoint_at(self.args.load.gid_idx));
        let mine = mine.collect::<Result<Vec<_>, _>>()?;
        let options = self.options();
        let connect = |theirs: &[Endpoint]| {
            let mut pairs = self.seats.iter().zip(theirs);
            Ok(pairs.try_for_each(|(seat, peer)| seat.qp.connect(peer, &options))?)
        };
        let theirs = words::exchange_all(stream, is_client, &mine, connect)?;
        theirs.first().copied().context("the other side has no queue pair")
    }

    /// The same over XRC.
    fn meet_target(&mut self, stream: &mut TcpStream, is_client: bool) -> anyhow::Result<Endpoint> {
        let options = self.options();
        let target = self.target.as_ref().context("no target")?;
        let seat = &mut self.seats[0];
        let Endpoint { gid, qpn: initiator, psn } = seat.qp.endpoint_at(self.args.load.gid_idx)?;
        let mine = Words { target: target.qpn(), initiator, psn, srqn: self.srq.srqn(), gid };
        let theirs = words::exchange(stream, is_client, &mine)?;
        let Words { gid, psn, .. } = theirs;
        let peer = Endpoint { gid, qpn: theirs.target, psn };
        seat.qp.connect(&peer, &options)?;
        target.connect(&Endpoint { qpn: theirs.initiator, ..peer }, &options)?;
        seat.to = Some(theirs.srqn);
        Ok(peer)
    }

    /// Plays until both counts are full.
    fn play(&mut self, begins: bool) -> anyhow::Result<(Score, Duration)> {
        let PingpongLoad { iters, timeout, .. } = self.args.load;
        if begins {
            (0..self.seats.len()).try_for_each(|seat| self.post_send(seat))?;
        }
        let mut score = Score::default();
        let start = clock::now();
        while score.sent < iters || score.received < iters {
            let completion = self.waiter.next(timeout)?;
            let seat = self.seat(&completion)?;
            let what = completion.wr_id;
            if what == SEND {
                score.sent += 1;
            } else {
                score.received += 1;
                self.receives -= 1;
                if self.receives <= u32::try_from(self.seats.len())? {
                    self.post_receives()?;
                }
            }
            self.seats[seat].pending &= !what;
            if score.sent < iters && self.seats[seat].pending == 0 {
                self.post_send(seat)?;
            }
        }
        Ok((score, clock::now() - start))
    }

    /// Returns the index of the seat that a completion is of.
    fn seat(&self, completion: &Completion) -> anyhow::Result<usize> {
        if self.target.is_some() {
            return Ok(0);
        }
        let qpn = completion.qpn;
        let found = self.seats.iter().position(|seat| seat.qp.qpn() == qpn);
        found.with_context(|| format!("a completion of queue pair {qpn}, which is not ours"))
    }

    fn post_send(&mut self, seat: usize) -> anyhow::Result<()> {
        let request = SendRequest::send(SEND, self.mr.sge(..self.args.size())).signaled();
        let seat = &mut self.seats[seat];
        seat.pending = SEND | RECV;
        Ok(seat.qp.post_send(match seat.to {
            Some(srqn) => request.to(srqn),
            None => request,
        })?)
    }

    fn post_receives(&mut self) -> anyhow::Result<()> {
        let size = self.args.size();
        let missing = self.args.load.rx_depth - self.receives;
        let request = || RecvRequest::new(RECV, self.mr.sge(size..2 * size));
        let (taken, result) = self.srq.post_recvs((0..missing).map(|_| request()));
        self.receives += u32::try_from(taken)?;
        Ok(result?)
    }
}
