//! One side of a test: its memory and its queue pairs.

use std::time::Duration;

use anyhow::ensure;
use softroce::transport::outputs::DropReason;
use softroce::verbs::{
    AckTimeout, AddressVector, ConnectOptions, Context, Endpoint, GRH_LEN, Mtu, ProtectionDomain,
    QKey, QpCap, QpConfig, QueuePair, RecvRequest, SendData, SendTarget, SharedReceiveQueue,
    SrqConfig, XrcTarget, XrcdOptions,
};

use super::agree::{Introduction, Load};
use super::index::QpIndex;
use super::measure::Counted;
use super::memory::Memory;
use crate::cli::Transport;
use crate::completion::Waiter;

/// How long the other side may be silent in the middle of a test.
pub(super) const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// What UD messages of both sides carry.
const QKEY: QKey = QKey(0x1111_1111);

/// Number of every receive request; send requests are numbered from 1.
pub(super) const RECV: u64 = u64::MAX;

/// Memory and queue pairs. Each queue pair has a stretch of memory to send from and one to receive
/// into.
pub(super) struct Station {
    pub(super) load: Load,
    pub(super) qps: Vec<QueuePair>,
    pub(super) waiter: Waiter,
    pub(super) memory: Memory,
    /// The index of the GID that is used.
    sgid_index: u8,
    context: Context,
    pd: ProtectionDomain,
    /// Of each queue pair in `qps`.
    pub(super) indices: QpIndex,
    /// Over UD and XRC, the target of each of `qps`.
    addresses: Vec<SendTarget>,
    /// The receive queue that they share.
    srq: Option<SharedReceiveQueue>,
    /// Over XRC, the receiving end beside each of `qps`.
    targets: Vec<XrcTarget>,
    /// Receive requests that were posted to each queue pair; the first counts those of a shared queue.
    receives: Vec<u64>,
    /// Of a latency test, messages of all rows.
    pub(super) sent: u64,
    /// Of these, how many are known to be complete.
    pub(super) done: u64,
    before: Counted,
}

impl Station {
    pub(super) fn new(context: &Context, load: Load, sgid_index: u8) -> anyhow::Result<Self> {
        let qps = usize::try_from(load.qps)?;
        let pd = context.alloc_pd();
        let memory = Memory::new(&pd, qps, load.longest)?;
        let channel = if load.events { Some(context.create_channel()?) } else { None };
        let (sends, receives) = (load.tx_depth as usize, load.rx_depth as usize);
        let queues = if load.kind.shared { 1 } else { qps };
        let cq = context.create_cq(qps * sends + queues * receives, channel.as_ref())?;
        let is_xrc = load.kind.transport == Transport::Xrc;
        let config = SrqConfig { max_wr: load.rx_depth, max_sge: 1 };
        let (srq, targets) = if is_xrc {
            let domain = context.open_xrcd(&XrcdOptions::default())?;
            let targets = (0..qps).map(|_| domain.create_target()).collect::<Result<_, _>>()?;
            (Some(pd.create_xrc_srq(&config, &domain, &cq)?), targets)
        } else {
            let srq = load.kind.shared.then(|| pd.create_srq(&config)).transpose()?;
            (srq, Vec::new())
        };
        let cap = QpCap {
            max_send_wr: load.tx_depth,
            max_recv_wr: load.rx_depth,
            max_inline_data: load.inline_size,
            ..QpCap::default()
        };
        let service = match load.kind.transport {
            Transport::Rc => QpConfig::rc(&cq),
            Transport::Uc => QpConfig::uc(&cq),
            Transport::Ud => QpConfig::ud(&cq),
            Transport::Xrc => QpConfig::xrc(&cq),
        };
        let config = QpConfig { cap, srq: srq.as_ref().filter(|_| !is_xrc), ..service };
        let qps = (0..qps).map(|_| pd.create_qp(&config)).collect::<Result<Vec<_>, _>>()?;
        let numbers = qps.iter().map(QueuePair::qpn).enumerate();
        let receivers = targets.iter().map(XrcTarget::qpn).enumerate();
        Ok(Self {
            load,
            receives: vec![0; qps.len()],
            indices: QpIndex::new(numbers.chain(receivers)),
            qps,
            addresses: Vec::new(),
            srq,
            targets,
            waiter: Waiter { cq, channel },
            memory,
            sgid_index,
            context: context.clone(),
            pd,
            sent: 0,
            done: 0,
            before: Counted::default(),
        })
    }

    pub(super) fn introduce(&self) -> anyhow::Result<Introduction> {
        let receive_buffer = self.context.device_info()?.port.receive_buffer as u64;
        let endpoints = self.qps.iter().map(|qp| qp.endpoint_at(self.sgid_index));
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
        let targets = self.targets.iter().map(|target| target.endpoint_at(self.sgid_index));
        let targets = targets.collect::<Result<_, _>>()?;
        let is_xrc = self.load.kind.transport == Transport::Xrc;
        let xrc = self.srq.as_ref().filter(|_| is_xrc).map(|srq| (targets, srq.srqn()));
        Ok(Introduction::new(endpoints, xrc, self.memory.mr.remote(0), receive_buffer))
    }

    /// Connects each queue pair to the one of the other side with the same index.
    pub(super) fn connect(&mut self, theirs: &Introduction, mtu: Mtu) -> anyhow::Result<()> {
        let endpoints = theirs.endpoints()?;
        let (ours, count) = (self.qps.len(), endpoints.len());
        ensure!(count == ours, "the other side has {count} queue pairs, this one {ours}");
        if self.load.kind.transport == Transport::Ud {
            self.addresses =
                endpoints.iter().map(|there| self.target(there)).collect::<Result<_, _>>()?;
            return Ok(self.qps.iter().try_for_each(|qp| qp.activate(QKEY))?);
        }
        let options = ConnectOptions {
            sgid_index: self.sgid_index,
            path_mtu: Some(mtu),
            timeout: AckTimeout::new(self.load.qp_timeout).unwrap_or_default(),
            peer_receive_buffer: Some(theirs.receive_buffer),
            ..ConnectOptions::default()
        };
        if self.load.kind.transport == Transport::Xrc {
            return self.connect_xrc(theirs, &endpoints, &options);
        }
        for (qp, endpoint) in self.qps.iter().zip(&endpoints) {
            qp.connect(endpoint, &options)?;
        }
        Ok(())
    }

    /// Connects our initiators to their targets, and the other way round.
    fn connect_xrc(
        &mut self,
        theirs: &Introduction,
        initiators: &[Endpoint],
        options: &ConnectOptions,
    ) -> anyhow::Result<()> {
        let (targets, srqn) = theirs.targets()?;
        for (qp, target) in self.qps.iter().zip(&targets) {
            qp.connect(target, options)?;
        }
        for (target, initiator) in self.targets.iter().zip(initiators) {
            target.connect(initiator, options)?;
        }
        self.addresses = vec![srqn.into(); self.qps.len()];
        Ok(())
    }

    fn target(&self, there: &Endpoint) -> anyhow::Result<SendTarget> {
        let av = AddressVector { sgid_index: self.sgid_index, ..AddressVector::to(there.gid) };
        let way = self.pd.create_ah(av)?;
        Ok(way.target(there.qpn, QKEY).into())
    }

    /// Returns the target of a request, for transports that need one.
    pub(super) fn target_of(&self, qp: usize) -> Option<SendTarget> {
        self.addresses.get(qp).copied()
    }

    /// A message from the memory, or in the request if it is that small.
    pub(super) fn message(&self, offset: usize, size: usize) -> anyhow::Result<SendData> {
        if size > usize::try_from(self.load.inline_size)? {
            return Ok(self.memory.sge(offset, size).into());
        }
        let mut bytes = [0; 1024];
        let bytes = &mut bytes[..size];
        self.memory.mr.read_at(offset, bytes)?;
        Ok(SendData::inline(bytes))
    }

    /// Posts receive requests, as many as there may be, for messages of any size of this test, if
    /// it takes any.
    pub(super) fn fill_receive_queues(&mut self) -> anyhow::Result<()> {
        if !self.load.kind.takes_receives() {
            return Ok(());
        }
        let queues = if self.srq.is_some() { 1 } else { self.qps.len() };
        for qp in 0..queues {
            let missing = u64::from(self.load.rx_depth).saturating_sub(self.receives[qp]);
            self.post_recvs(qp, missing)?;
        }
        Ok(())
    }

    /// Posts a receive request, for this queue pair or to the queue that all share.
    pub(super) fn post_recv(&mut self, qp: usize) -> anyhow::Result<()> {
        self.post_recvs(qp, 1)
    }

    /// Posts `count` of them, which costs less in a list.
    pub(super) fn post_recvs(&mut self, qp: usize, count: u64) -> anyhow::Result<()> {
        let header = if self.load.kind.transport == Transport::Ud { GRH_LEN } else { 0 };
        let most = self.load.longest + header;
        let queue = if self.srq.is_some() { 0 } else { qp };
        let (before, qps) = (self.receives[queue], self.qps.len() as u64);
        let requests = (before..before + count).map(|at| {
            let (lane, at) = match self.srq {
                // Less than the number of queue pairs.
                Some(_) => (usize::try_from(at % qps).unwrap_or_default(), at / qps),
                None => (qp, at),
            };
            RecvRequest::new(RECV, self.memory.sge(self.memory.incoming(lane, at, most), most))
        });
        let (_, posted) = match &self.srq {
            Some(srq) => srq.post_recvs(requests),
            None => self.qps[qp].post_recvs(requests),
        };
        posted?;
        self.receives[queue] += count;
        Ok(())
    }

    /// Begins to count for a row.
    pub(super) fn start_row(&mut self) -> anyhow::Result<()> {
        self.before = self.counted()?;
        Ok(())
    }

    /// Returns the device's counts in this row.
    pub(super) fn counted_in_row(&self) -> anyhow::Result<Counted> {
        Ok(self.counted()?.since(self.before))
    }

    fn counted(&self) -> anyhow::Result<Counted> {
        let info = self.context.device_info()?;
        Ok(Counted {
            retransmits: info.counters.retransmitted,
            kernel_drops: info.port_counters.kernel_drops,
            without_receive: info.counters.dropped(DropReason::NoReceive),
        })
    }
}
