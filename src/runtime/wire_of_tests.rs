//! Two shards' worth of engine and port without sockets, threads or clock, for the tests.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use crate::engine::{Config, Engine, InitAttr, Peer, QpCap, QpInit, QpType, RtrAttr, RtsAttr};
use crate::ids::{CqId, Gid, Mtu, PdId, Qpn};
use crate::mem::{Access, HostMemory, Memory, Region};
use crate::net::{AddressVector, Burst, MAX_BURST_SEGMENTS, RxBuffer, RxMeta, TransmitErrorKind};
use crate::port::{Control, Datapath, LinkState, PortCounters, PortInfo, TransmitError};
use crate::psn::Psn;
use crate::runtime::core::Core;
use crate::runtime::queue::Queue;
use crate::runtime::ring::{Announce, Ring};
use crate::runtime::shard_set::ShardSet;
use crate::runtime::{AckPolicy, PostPolicy};
use crate::time::{AckTimeout, Instant, RnrTimer};
use crate::transport::outputs::AsyncEvent;
use crate::transport::work::{Completion, RemoteAddr, Sge, WcOpcode, WcStatus};

/// Calls of a port, and its responses.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    /// `"tx 2"` is a burst of two datagrams that was taken, `"rx"` a buffer handed up.
    pub(crate) log: Vec<String>,
    /// Buffers to receive.
    pub(crate) inbox: VecDeque<(Vec<u8>, usize, RxMeta)>,
    /// The port has no room for bursts.
    pub(crate) busy: bool,
    /// Time of the next attempt.
    pub(crate) retry_at: Option<Instant>,
    /// The port refuses the next burst with this error.
    pub(crate) refuses: Option<TransmitErrorKind>,
    /// The next receive fails, with this number of the system's.
    pub(crate) receive_error: Option<i32>,
    /// What the interfaces below have become, in order.
    pub(crate) links: VecDeque<LinkState>,
}

pub(crate) type Shared = Arc<Mutex<Wire>>;

struct TestPort {
    ip: IpAddr,
    own: Shared,
    peer: Shared,
}

impl Datapath for TestPort {
    fn transmit(&mut self, _: Instant, bursts: &[Burst]) -> Result<usize, TransmitError> {
        let mut own = self.own.lock().unwrap();
        if own.busy {
            return Ok(0);
        }
        for (taken, burst) in bursts.iter().enumerate() {
            if let Some(kind) = own.refuses.take() {
                return Err(TransmitError { taken, kind });
            }
            own.log.push(format!("tx {}", burst.len()));
            let path = burst.path;
            let meta = RxMeta {
                source: (path.source, path.source_port).into(),
                destination: path.destination,
                traffic_class: 0,
                hop_limit: 64,
                ipv4: None,
                may_omit_icrc: false,
            };
            let buffer = (burst.data().to_vec(), burst.segment_len(), meta);
            self.peer.lock().unwrap().inbox.push_back(buffer);
        }
        Ok(bursts.len())
    }

    fn send_last(&mut self, burst: &Burst) {
        self.own.lock().unwrap().log.push(format!("last {}", burst.len()));
    }

    fn receive(&mut self, _: Instant, sink: &mut dyn FnMut(RxBuffer<'_>)) -> io::Result<usize> {
        let mut own = self.own.lock().unwrap();
        if let Some(errno) = own.receive_error.take() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let Some((data, segment_len, meta)) = own.inbox.pop_front() else { return Ok(0) };
        own.log.push("rx".into());
        sink(RxBuffer { data: &data, segment_len, meta });
        Ok(1)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.own.lock().unwrap().retry_at
    }

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

impl Control for TestPort {
    fn source_port(&mut self, _: IpAddr, wanted: u16) -> u16 {
        wanted
    }

    fn poll_link(&mut self) -> Option<LinkState> {
        self.own.lock().unwrap().links.pop_front()
    }

    fn info(&self) -> PortInfo {
        PortInfo {
            ip: self.ip,
            interface: 0,
            link_mtu: 65_536,
            gso: true,
            max_burst_segments: MAX_BURST_SEGMENTS,
            max_batch_bytes: usize::MAX,
            gro: true,
            receive_buffer: 1 << 20,
            sees_ip_header: false,
            omits_icrcs: false,
        }
    }
}

/// A message has arrived.
pub(crate) fn completion(solicited: bool) -> Completion {
    Completion {
        wr_id: 0,
        status: WcStatus::Success,
        opcode: WcOpcode::Recv,
        byte_len: 0,
        imm: None,
        invalidated: None,
        source_qp: None,
        ip_version: None,
        qpn: Qpn::new(2),
        solicited,
    }
}

/// One end of a connection.
pub(crate) struct End {
    pub(crate) core: Core,
    pub(crate) wire: Shared,
    pub(crate) ring: Arc<Ring>,
    pub(crate) events: Arc<Queue<AsyncEvent>>,
    pub(crate) cq: CqId,
    pub(crate) qpn: Qpn,
    qp_type: QpType,
    pub(crate) region: Arc<Region>,
}

/// Logs an announcement in a wire's log.
struct Log(Shared);

impl Announce for Log {
    fn announce(&self) -> ShardSet {
        self.0.lock().unwrap().log.push("announce".into());
        ShardSet::EMPTY
    }

    fn needs_waiter(&self) -> bool {
        false
    }

    fn close(&self) {}
}

/// Two connected ends, each with a completion queue of `depth`.
pub(crate) fn pair(policy: AckPolicy, depth: usize) -> (End, End) {
    pair_of(QpType::Rc, policy, depth)
}

/// The same over UC.
pub(crate) fn unacknowledged_pair(depth: usize) -> (End, End) {
    pair_of(QpType::Uc, AckPolicy::Lazy, depth)
}

fn pair_of(qp_type: QpType, policy: AckPolicy, depth: usize) -> (End, End) {
    let wires = (Shared::default(), Shared::default());
    let mut a = End::new(1, qp_type, policy, depth, &wires.0, &wires.1);
    let mut b = End::new(2, qp_type, policy, depth, &wires.1, &wires.0);
    let (to_b, to_a) = ((ip(2), b.qpn), (ip(1), a.qpn));
    a.connect(to_b);
    b.connect(to_a);
    (a, b)
}

fn ip(host: u8) -> IpAddr {
    [10, 255, 0, host].into()
}

const NOW: Instant = Instant::ZERO;

impl End {
    fn new(
        host: u8,
        qp_type: QpType,
        policy: AckPolicy,
        depth: usize,
        own: &Shared,
        peer: &Shared,
    ) -> Self {
        let memory = Arc::new(Memory::new([host; 32]));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let host_memory = HostMemory::alloc(1 << 20).unwrap();
        let region = memory.register(PdId(1), host_memory, Some(0), access).unwrap();
        let engine = Engine::new(Config::new(ip(host)), memory, [host; 32]);
        let port = TestPort { ip: ip(host), own: Arc::clone(own), peer: Arc::clone(peer) };
        let mut core = Core::new(engine, Box::new(port), policy, PostPolicy::default());
        let events = Arc::new(Queue::new(16));
        let announce = Box::new(Log(Arc::clone(own)));
        let ring = Arc::new(Ring::new(depth, false, Some(announce), Arc::clone(&events)));
        let cq = CqId(0);
        core.rings.enter(cq, Arc::clone(&ring));
        let cap = QpCap::default();
        let init = QpInit {
            qp_type,
            pd: PdId(1),
            send_cq: Some(cq),
            recv_cq: Some(cq),
            cap,
            sq_sig_all: false,
            srq: None,
            send_ops: None,
            xrcd: None,
        };
        let qpn = core.create_qp(NOW, init, &events).unwrap();
        Self { core, wire: Arc::clone(own), ring, events, cq, qpn, qp_type, region }
    }

    fn connect(&mut self, (ip, dest_qpn): (IpAddr, Qpn)) {
        let init = InitAttr::Connected { access: Access::REMOTE_WRITE };
        let peer = Peer {
            av: AddressVector::to(Gid::from(ip)),
            dest_qpn,
            rq_psn: Psn::new(0),
            path_mtu: Mtu::Mtu4096,
        };
        let sq_psn = Psn::new(0);
        let (rtr, rts) = match self.qp_type {
            QpType::Rc => (
                RtrAttr::Rc { peer, max_dest_rd_atomic: 1, min_rnr_timer: RnrTimer::default() },
                RtsAttr::Rc {
                    sq_psn,
                    timeout: AckTimeout::new(14).unwrap(),
                    retry_cnt: 7,
                    rnr_retry: 7,
                    max_rd_atomic: 1,
                },
            ),
            _ => (RtrAttr::Uc { peer }, RtsAttr::Unreliable { sq_psn }),
        };
        for attr in [init.into(), rtr.into(), rts.into()] {
            self.core.modify_qp(NOW, self.qpn, &attr).unwrap();
        }
    }

    /// Returns the first `length` bytes of its memory.
    pub(crate) fn sge(&self, length: u32) -> Sge {
        Sge { addr: 0, length, lkey: self.region.lkey() }
    }

    /// Returns the first byte of its memory, as the peer names it.
    pub(crate) fn remote(&self) -> RemoteAddr {
        RemoteAddr { addr: 0, rkey: self.region.rkey() }
    }

    /// Returns the calls of its port since the last call of this.
    pub(crate) fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.wire.lock().unwrap().log)
    }

    /// Makes the announcements that follow the release of the lock.
    pub(crate) fn announce(&mut self) {
        if let Some(notices) = self.core.take_notices() {
            notices.due.announce();
        }
    }
}
