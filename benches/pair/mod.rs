//! Two connected engines without a network.

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use softroce::engine::{
    Config, Engine, InitAttr, Peer, QpAttr, QpCap, QpInit, QpType, RtrAttr, RtsAttr,
};
use softroce::ids::{CqId, Gid, Mtu, PdId, Qpn};
use softroce::mem::{Access, HostMemory, Memory, Region};
use softroce::net::{AddressVector, Burst, RxBuffer, RxMeta};
use softroce::psn::Psn;
use softroce::time::{AckTimeout, Instant, RnrTimer};
use softroce::transport::work::{RecvRequest, RemoteAddr, SendOp, SendRequest, Sge};

const LEN: usize = 1 << 20;
const WINDOW: u64 = 4 << 20;

/// Depth of the queues with a single connection.
const DEPTH: u32 = 1024;

/// Outstanding READs and atomics, in each direction.
const MAX_READS: u8 = 128;

struct Side {
    engine: Engine,
    region: Arc<Region>,
    ip: IpAddr,
    /// Queue pairs, each connected to that with the same index at the other side.
    qpns: Vec<Qpn>,
}

impl Side {
    fn new(last: u8, connections: u32) -> Option<Self> {
        let ip = IpAddr::from([10, 0, 0, last]);
        let memory = Arc::new(Memory::new([last; 32]));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = memory.register(PdId(1), HostMemory::alloc(LEN).ok()?, None, access).ok()?;
        let config =
            Config { receive_buffer: WINDOW, peer_receive_buffer: WINDOW, ..Config::new(ip) };
        let mut engine = Engine::new(config, memory, [last; 32]);
        let depth = DEPTH.div_ceil(connections).max(16);
        let init = QpInit {
            qp_type: QpType::Rc,
            pd: PdId(1),
            send_cq: Some(CqId(1)),
            recv_cq: Some(CqId(2)),
            cap: QpCap { max_send_wr: depth, max_recv_wr: depth, ..QpCap::default() },
            sq_sig_all: true,
            srq: None,
            send_ops: None,
            xrcd: None,
        };
        let create = |_| engine.create_qp(Instant::ZERO, init).ok();
        let qpns = (0..connections).map(create).collect::<Option<_>>()?;
        Some(Self { engine, region, ip, qpns })
    }

    fn connect(&mut self, to: &Self, mtu: Mtu) -> Option<()> {
        for (qpn, dest_qpn) in self.qpns.clone().into_iter().zip(to.qpns.iter().copied()) {
            self.connect_one(qpn, to.ip, dest_qpn, mtu)?;
        }
        Some(())
    }

    fn connect_one(&mut self, qpn: Qpn, to: IpAddr, dest_qpn: Qpn, mtu: Mtu) -> Option<()> {
        let attrs: [QpAttr; 3] = [
            InitAttr::Connected { access: self.region.access() }.into(),
            RtrAttr::Rc {
                peer: Peer {
                    av: AddressVector::to(Gid::from(to)),
                    dest_qpn,
                    rq_psn: Psn::new(0),
                    path_mtu: mtu,
                },
                max_dest_rd_atomic: MAX_READS,
                min_rnr_timer: RnrTimer::default(),
            }
            .into(),
            RtsAttr::Rc {
                sq_psn: Psn::new(0),
                timeout: AckTimeout::new(14)?,
                retry_cnt: 7,
                rnr_retry: 7,
                max_rd_atomic: MAX_READS,
            }
            .into(),
        ];
        for attr in attrs {
            self.engine.modify_qp(Instant::ZERO, qpn, &attr, |_, port| port).ok()?;
        }
        Some(())
    }

    fn sge(&self, length: u32) -> Sge {
        Sge { addr: self.region.addr(), length, lkey: self.region.lkey() }
    }
}

/// Two hosts and their connections.
pub(crate) struct Pair {
    a: Side,
    b: Side,
    burst: Burst,
    /// Connection of the next request.
    next_send: usize,
    next_recv: usize,
}

impl Pair {
    pub(crate) fn new(mtu: Mtu, connections: u32) -> Option<Self> {
        let (mut a, mut b) = (Side::new(1, connections)?, Side::new(2, connections)?);
        a.connect(&b, mtu)?;
        b.connect(&a, mtu)?;
        Some(Self { a, b, burst: Burst::new(), next_send: 0, next_recv: 0 })
    }

    /// Exchanges bursts in both directions until there are no more.
    pub(crate) fn run(&mut self) {
        while carry(&mut self.a.engine, &mut self.b.engine, &mut self.burst)
            || carry(&mut self.b.engine, &mut self.a.engine, &mut self.burst)
        {}
        while let Some(completion) = self.a.engine.poll_completion() {
            black_box(completion);
        }
        while let Some(completion) = self.b.engine.poll_completion() {
            black_box(completion);
        }
    }

    /// Posts `count` requests: as a list to the only connection, or round-robin.
    pub(crate) fn post(&mut self, op: SendOp, length: u32, count: u64) {
        let sge = self.a.sge(length);
        let requests = (0..count).map(|wr_id| SendRequest::new(wr_id, op, sge));
        let posted = match &self.a.qpns[..] {
            [qpn] => self.a.engine.post_sends(Instant::ZERO, *qpn, requests).1,
            qpns => requests.into_iter().try_for_each(|request| {
                let qpn = qpns[self.next_send];
                self.next_send = (self.next_send + 1) % qpns.len();
                self.a.engine.post_send(Instant::ZERO, qpn, request)
            }),
        };
        assert!(posted.is_ok(), "{posted:?}");
    }

    /// Posts `count` receive requests in the same way.
    pub(crate) fn post_recv(&mut self, length: u32, count: u64) {
        let sge = self.b.sge(length);
        let requests = (0..count).map(|wr_id| RecvRequest::new(wr_id, sge));
        let posted = match &self.b.qpns[..] {
            [qpn] => self.b.engine.post_recvs(Instant::ZERO, *qpn, requests).1,
            qpns => requests.into_iter().try_for_each(|request| {
                let qpn = qpns[self.next_recv];
                self.next_recv = (self.next_recv + 1) % qpns.len();
                self.b.engine.post_recv(Instant::ZERO, qpn, request)
            }),
        };
        assert!(posted.is_ok(), "{posted:?}");
    }

    /// Returns the memory of the other side.
    pub(crate) fn remote(&self) -> RemoteAddr {
        RemoteAddr { addr: self.b.region.addr(), rkey: self.b.region.rkey() }
    }
}

/// Delivers all bursts. Returns whether there were any.
fn carry(from: &mut Engine, to: &mut Engine, burst: &mut Burst) -> bool {
    let mut any = false;
    while from.poll_transmit(Instant::ZERO, burst) {
        any = true;
        let meta = RxMeta {
            source: SocketAddr::new(burst.path.source, burst.path.source_port),
            destination: burst.path.destination,
            traffic_class: 0,
            hop_limit: 64,
            ipv4: None,
            may_omit_icrc: false,
        };
        let segment_len = burst.segment_len();
        to.handle_buffer(Instant::ZERO, RxBuffer { data: burst.data(), segment_len, meta });
    }
    any
}
