//! The test with one queue pair on each side, over RC, UC and UD.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, bail};
use softroce::engine::{InitAttr, RtrAttr, RtsAttr};
use softroce::verbs::*;
use softroce_cli::{PingpongArgs, PingpongLoad, Transport};
use softroce_perf::clock;
use softroce_perf::completion::Waiter;

use super::report::{Report, Score};
use super::setup::{RECV_WR_ID, SEND_WR_ID, mtu};
use crate::device::OpenDevice;
use crate::exchange;

/// Content of every byte of a message, as in rdma-core's programs.
const FILL_BYTE: u8 = 0x7b;

/// With `-c`, rdma-core's programs set the first byte of each page of this size to zero.
const PAGE_BYTES: usize = 4096;

/// Q_Key of `ibv_ud_pingpong`.
const QKEY: QKey = QKey(0x1111_1111);

/// Returns the message of `size` bytes; `checked` as a side with `-c` expects it.
fn message(size: usize, checked: bool) -> Vec<u8> {
    let zero = |at: usize| checked && at.is_multiple_of(PAGE_BYTES);
    (0..size).map(|at| if zero(at) { 0 } else { FILL_BYTE }).collect()
}

/// One side: its queue pair, memory and counts.
pub(super) struct PingPong<'a> {
    args: &'a PingpongArgs,
    pd: ProtectionDomain,
    qp: QueuePair,
    /// Endpoint of this side.
    mine: Endpoint,
    waiter: Waiter,
    mtu: Mtu,
    /// Destination of messages over UD.
    target: Option<UdTarget>,
    /// The message to send, then the receive buffer.
    mr: MemoryRegion,
    /// Bytes in a message.
    size: usize,
    /// Bytes before the message in the receive buffer.
    header: usize,
    /// Number of posted receive requests.
    receives: u32,
}

impl<'a> PingPong<'a> {
    pub(super) fn new(args: &'a PingpongArgs, opened: &OpenDevice) -> anyhow::Result<Self> {
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
        let mut test =
            Self { args, pd, qp, mine, waiter, mtu, target: None, mr, size, header, receives: 0 };
        test.post_receives()?;
        Ok(test)
    }

    /// Runs the side with a HOST, which sends the first message.
    pub(super) fn begin(&mut self, stream: &mut TcpStream) -> anyhow::Result<Report> {
        let theirs = exchange::as_client(stream, &self.mine)?;
        self.connect(&theirs)?;
        self.post_send()?;
        self.play(&theirs, SEND_WR_ID | RECV_WR_ID)
    }

    /// Runs the listening side.
    pub(super) fn answer(&mut self, stream: &mut TcpStream) -> anyhow::Result<Report> {
        let mut theirs = None;
        exchange::as_server(stream, |peer| {
            self.connect(peer)?;
            theirs = Some(*peer);
            Ok(self.mine)
        })?;
        let theirs = theirs.context("the client has not said who it is")?;
        self.play(&theirs, RECV_WR_ID)
    }

    /// Connects with the parameters of rdma-core's programs: one READ, timeout 14, 7 retries.
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

    /// Exchanges messages until both counts are reached, or none arrives for the timeout on an unreliable service.
    /// `pending` are the requests that must complete before the next message is sent.
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
            if what == SEND_WR_ID {
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
                pending = SEND_WR_ID | RECV_WR_ID;
            }
        }
        Ok(self.report(theirs, score, Some(clock::now() - start)))
    }

    fn report(&self, theirs: &Endpoint, score: Score, took: Option<Duration>) -> Report {
        Report::new(self.args, self.mtu, [&self.mine, theirs], score, took)
    }

    fn post_send(&self) -> anyhow::Result<()> {
        let request = SendRequest::send(SEND_WR_ID, self.mr.sge(..self.size)).signaled();
        Ok(self.qp.post_send(match self.target {
            Some(target) => request.to(target),
            None => request,
        })?)
    }

    fn post_receives(&mut self) -> anyhow::Result<()> {
        let place = self.size..2 * self.size + self.header;
        while self.receives < self.args.load.rx_depth {
            self.qp.post_recv(RecvRequest::new(RECV_WR_ID, self.mr.sge(place.clone())))?;
            self.receives += 1;
        }
        Ok(())
    }

    /// Returns whether a message has the expected bytes. Clears the buffer, so that the next message is not taken for
    /// this one.
    fn is_whole(&self, completion: &Completion, message: &mut [u8]) -> anyhow::Result<bool> {
        let at = self.size + self.header;
        self.mr.read_at(at, message)?;
        self.mr.write_at(at, &vec![0; self.size])?;
        let is_right =
            |(at, byte): (usize, &u8)| *byte == FILL_BYTE || *byte == 0 && at % PAGE_BYTES == 0;
        Ok(usize::try_from(completion.byte_len)? == self.header + self.size
            && message.iter().enumerate().all(is_right))
    }
}

/// Access of the peer: SEND only.
const CONNECTED: InitAttr = InitAttr::Connected { access: Access::empty() };
