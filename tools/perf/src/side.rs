//! One side of a test: its memory and queue pairs.

use std::time::Duration;

use anyhow::ensure;
use softroce::transport::outputs::DropReason;
use softroce::verbs::{
    AckTimeout, AddressVector, ConnectOptions, Context, Endpoint, GRH_LEN, Mtu, ProtectionDomain,
    QKey, QpCap, QpConfig, QueuePair, RecvRequest, SendTarget, SharedReceiveQueue, SrqConfig,
    XrcTarget, XrcdOptions,
};
use softroce_cli::Transport;

use crate::completion::Waiter;
use crate::index::QpIndex;
use crate::measure::Counted;
use crate::memory::Memory;
use crate::protocol::{Load, SideInfo};

/// Time without a message from the other side after which a test fails.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// Q_Key of both sides.
const QKEY: QKey = QKey(0x1111_1111);

/// Work request ID of receive requests; send requests count from 1.
pub const RECV_WR_ID: u64 = u64::MAX;

/// Memory and queue pairs. Each queue pair has an area of memory to send from and one to receive to.
pub struct Side {
    pub load: Load,
    pub qps: Vec<QueuePair>,
    pub waiter: Waiter,
    pub(crate) memory: Memory,
    /// Index of the GID in use.
    sgid_index: u8,
    context: Context,
    pd: ProtectionDomain,
    /// Index of each queue pair and target.
    pub(crate) indices: QpIndex,
    /// Over UD and XRC, the destination of each of `qps`.
    addresses: Vec<SendTarget>,
    /// Shared receive queue.
    srq: Option<SharedReceiveQueue>,
    /// Over XRC, the target beside each of `qps`.
    targets: Vec<XrcTarget>,
    /// Number of receive requests posted to each queue pair; the first also counts those of a shared queue.
    receives: Vec<u64>,
    /// Messages sent in all rows of a latency test.
    pub sent: u64,
    /// Messages known to be complete.
    pub done: u64,
    before: Counted,
}

impl Side {
    pub fn new(context: &Context, load: Load, sgid_index: u8) -> anyhow::Result<Self> {
        let qps = usize::try_from(load.qps)?;
        let pd = context.alloc_pd();
        let memory = Memory::new(&pd, qps, load.longest, usize::try_from(load.inline_size)?)?;
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

    pub fn info(&self) -> anyhow::Result<SideInfo> {
        let receive_buffer = self.context.device_info()?.port.receive_buffer as u64;
        let endpoints = self.qps.iter().map(|qp| qp.endpoint_at(self.sgid_index));
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
        let targets = self.targets.iter().map(|target| target.endpoint_at(self.sgid_index));
        let targets = targets.collect::<Result<_, _>>()?;
        let is_xrc = self.load.kind.transport == Transport::Xrc;
        let xrc = self.srq.as_ref().filter(|_| is_xrc).map(|srq| (targets, srq.srqn()));
        Ok(SideInfo::new(endpoints, xrc, self.memory.mr.remote(0), receive_buffer))
    }

    /// Connects each queue pair to the one with the same index on the other side.
    pub fn connect(&mut self, theirs: &SideInfo, mtu: Mtu) -> anyhow::Result<()> {
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

    /// Connects initiators to targets in both directions.
    fn connect_xrc(
        &mut self,
        theirs: &SideInfo,
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

    /// Returns the destination of a request, on services that need one.
    #[inline]
    pub fn target_of(&self, qp: usize) -> Option<SendTarget> {
        self.addresses.get(qp).copied()
    }

    /// Fills the receive queues with requests that hold any message of the test, if it consumes any.
    pub fn fill_receive_queues(&mut self) -> anyhow::Result<()> {
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

    /// Posts a receive request to this queue pair or to the shared queue.
    pub fn post_recv(&mut self, qp: usize) -> anyhow::Result<()> {
        self.post_recvs(qp, 1)
    }

    /// Posts `count` receive requests as a list, which costs less.
    pub fn post_recvs(&mut self, qp: usize, count: u64) -> anyhow::Result<()> {
        let header = if self.load.kind.transport == Transport::Ud { GRH_LEN } else { 0 };
        let most = self.load.longest + header;
        let queue = if self.srq.is_some() { 0 } else { qp };
        let (before, qps) = (self.receives[queue], self.qps.len() as u64);
        let requests = (before..before + count).map(|at| {
            let (qp, at) = match self.srq {
                // The remainder is less than the number of queue pairs.
                Some(_) => (usize::try_from(at % qps).unwrap_or_default(), at / qps),
                None => (qp, at),
            };
            RecvRequest::new(RECV_WR_ID, self.memory.sge(self.memory.incoming(qp, at, most), most))
        });
        let (_, posted) = match &self.srq {
            Some(srq) => srq.post_recvs(requests),
            None => self.qps[qp].post_recvs(requests),
        };
        posted?;
        self.receives[queue] += count;
        Ok(())
    }

    /// Starts the counts of a row.
    pub fn start_row(&mut self) -> anyhow::Result<()> {
        self.before = self.counted()?;
        Ok(())
    }

    /// Returns the counts of the device in this row.
    pub fn counted_in_row(&self) -> anyhow::Result<Counted> {
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
