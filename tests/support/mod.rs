//! Engines on a simulated network, in virtual time.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

pub mod choice;
pub mod line;
pub mod replay;
pub mod script;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use softroce::engine::{
    Config, Engine, InitAttr, Peer, QpAttr, QpCap, QpInit, QpState, QpType, RtrAttr, RtsAttr,
    SendOps, SrqInit, XrcSrq,
};
use softroce::ids::{CqId, Gid, Mtu, PdId, QKey, Qpn, Rkey, Srqn, XrcdId};
use softroce::mem::{Access, HostMemory, Memory, Region};
use softroce::net::{AddressVector, Burst, ROCE_PORT, RxBuffer, RxMeta};
use softroce::port::sim::{Conditions, HostConfig, Network, SimPort};
use softroce::port::{Control, Datapath, SOURCE_PORTS};
use softroce::psn::Psn;
use softroce::time::{AckTimeout, Instant, RnrTimer};
use softroce::transport::outputs::AsyncEvent;
use softroce::transport::work::{
    Completion, RecvRequest, RemoteAddr, SendData, SendFlags, SendOp, SendRequest, Sge,
};
use softroce::wire::icrc::Flow;

pub const PD: PdId = PdId(1);
pub const SEND_CQ: CqId = CqId(1);
pub const RECV_CQ: CqId = CqId(2);

/// Returns all access rights.
pub fn full_access() -> Access {
    Access::LOCAL_WRITE
        | Access::REMOTE_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_ATOMIC
        | Access::FLUSH_GLOBAL
}

/// Returns conditions with this loss, and with corruption, duplicates and reordering.
pub fn lossy(loss: f64) -> Conditions {
    Conditions {
        loss,
        duplicate: loss / 2.0,
        reorder: loss,
        corrupt: loss / 2.0,
        delay: Duration::from_micros(5),
        jitter: if loss > 0.0 { Duration::from_micros(1) } else { Duration::ZERO },
        refuse_send: 0.05,
        ..Conditions::default()
    }
}

/// Makes the network of every fourth seed the memory of one host: nothing is damaged, and ICRCs are omitted.
pub fn some_in_memory(seed: u64, conditions: Conditions) -> (Conditions, bool) {
    match seed % 4 {
        3 => (Conditions { corrupt: 0.0, truncate: 0.0, ..conditions }, true),
        _ => (conditions, false),
    }
}

/// Sets the reorder buffer by the seed: large, small, or none.
pub fn some_reorder(seed: u64) -> impl Fn(&mut Config) {
    move |config| match seed % 3 {
        0 => {}
        1 => config.reorder_buffer = 4000,
        _ => config.reorder_buffer = 0,
    }
}

/// A host: an engine, its port, and its outputs.
pub struct Node {
    pub ip: IpAddr,
    pub engine: Engine,
    pub memory: Arc<Memory>,
    pub port: SimPort,
    pub sends: Vec<Completion>,
    pub recvs: Vec<Completion>,
    pub events: Vec<AsyncEvent>,
    /// Reused burst of the engine, as in a shard of the runtime.
    burst: Burst,
    /// Whether the port has refused `burst` so far.
    is_refused: bool,
    /// Time until which the host is not scheduled.
    stalled_until: Instant,
}

impl Node {
    fn new(
        network: &Network,
        seed: u64,
        ip: [u8; 4],
        host: HostConfig,
        tune: impl Fn(&mut Config),
    ) -> Self {
        let mut key = [ip[3] - 1; 32];
        let ip = IpAddr::from(ip);
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let memory = Arc::new(Memory::new(key));
        let mut config = Config::new(ip);
        config.receive_buffer = host.receive_buffer as u64;
        config.reorder_buffer = config.receive_buffer;
        tune(&mut config);
        Self {
            ip,
            engine: Engine::new(config, memory.clone(), key),
            memory,
            port: network.host_with(ip, host),
            sends: Vec::new(),
            recvs: Vec::new(),
            events: Vec::new(),
            burst: Burst::new().omitting_icrcs(host.omits_icrcs),
            is_refused: false,
            stalled_until: Instant::ZERO,
        }
    }

    /// Registers a region at a fixed virtual address, so that packets do not depend on the allocator.
    pub fn region(&self, len: usize, iova: u64, access: Access) -> Arc<Region> {
        let memory = HostMemory::alloc(len).unwrap();
        self.memory.register(PD, memory, Some(iova), access).unwrap()
    }

    /// Handles all events of this time. Returns whether there were any.
    pub fn turn(&mut self, now: Instant) -> bool {
        if now < self.stalled_until {
            return false;
        }
        let mut active = false;
        self.engine.handle_timeout(now);
        loop {
            if !std::mem::take(&mut self.is_refused) {
                let wanted = self.engine.wants_to_transmit();
                if !self.engine.poll_transmit(now, &mut self.burst) {
                    let Some(host) = self.engine.poll_backlog() else { break };
                    let waiting = self.port.receive_queue_bytes(now, host);
                    self.engine.handle_backlog(now, host, waiting);
                    continue;
                }
                assert!(wanted, "who sleeps until the engine wants something oversleeps");
            }
            match self.port.transmit(now, std::slice::from_ref(&self.burst)) {
                Ok(0) => {
                    self.is_refused = true;
                    break;
                }
                Ok(_) => active = true,
                Err(error) => {
                    self.engine.handle_transmit_error(now, self.burst.token, error.kind);
                }
            }
        }
        let engine = &mut self.engine;
        let received = self.port.receive(now, &mut |rx| engine.handle_buffer(now, rx)).unwrap();
        active |= received > 0;
        while let Some((cq, completion)) = self.engine.poll_completion() {
            match cq {
                SEND_CQ => self.sends.push(completion),
                _ => self.recvs.push(completion),
            }
        }
        while let Some(event) = self.engine.poll_event() {
            self.events.push(event);
        }
        active || self.engine.wants_to_transmit() && !self.is_refused
    }
}

/// Hosts on a network, and the time.
pub struct World {
    pub now: Instant,
    pub network: Network,
    pub nodes: Vec<Node>,
}

impl World {
    /// Creates `hosts` hosts on a network without faults.
    pub fn new(seed: u64, hosts: u8) -> Self {
        Self::with(seed, hosts, HostConfig::default(), |_| {})
    }

    pub fn with(seed: u64, hosts: u8, host: HostConfig, tune: impl Fn(&mut Config)) -> Self {
        Self::in_net([10, 0, 0], seed, hosts, host, tune)
    }

    /// Creates hosts with addresses of this network, from 1 on.
    pub fn in_net(
        [a, b, c]: [u8; 3],
        seed: u64,
        hosts: u8,
        host: HostConfig,
        tune: impl Fn(&mut Config),
    ) -> Self {
        let network = Network::new(seed);
        let conditions = Conditions { delay: Duration::from_micros(5), ..Conditions::default() };
        network.set_conditions(conditions);
        let nodes = (1..=hosts).map(|d| Node::new(&network, seed, [a, b, c, d], host, &tune));
        let nodes = nodes.collect();
        Self { now: Instant::ZERO, network, nodes }
    }

    /// Handles all events of the present time.
    pub fn settle(&mut self) {
        while self.nodes.iter_mut().fold(false, |active, node| node.turn(self.now) | active) {}
    }

    /// Suspends a host: it receives nothing, and its timers expire unnoticed.
    pub fn stall(&mut self, node: usize, time: Duration) {
        self.nodes[node].stalled_until = self.now + time;
    }

    /// Advances to the time of the next event. Returns false when there is none.
    pub fn advance(&mut self) -> bool {
        let next = |node: &Node| {
            let wakes = Some(node.stalled_until).filter(|until| *until > self.now);
            let wanted = [node.engine.poll_timeout(), node.port.poll_timeout(), wakes];
            Some(wanted.into_iter().flatten().min()?.max(node.stalled_until))
        };
        match self.nodes.iter().filter_map(next).min() {
            Some(at) => {
                self.now = self.now.max(at);
                true
            }
            None => false,
        }
    }

    /// Runs until there are no more events, or until `limit`.
    pub fn run(&mut self, limit: Duration) {
        let end = self.now + limit;
        loop {
            self.settle();
            if !self.advance() || self.now >= end {
                break;
            }
        }
    }
}

/// Attributes of a connected pair.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub mtu: Mtu,
    pub psn: [u32; 2],
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub rd_atomic: u8,
    pub cap: QpCap,
    pub access: Access,
    pub sq_sig_all: bool,
    pub send_ops: Option<SendOps>,
    pub qp_type: QpType,
    pub srq: Option<Srqn>,
    pub xrcd: Option<XrcdId>,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            mtu: Mtu::Mtu1024,
            psn: [100, 200],
            timeout: 8,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            rd_atomic: 4,
            cap: QpCap { max_send_sge: 32, max_recv_sge: 32, ..QpCap::default() },
            access: full_access(),
            sq_sig_all: false,
            send_ops: None,
            qp_type: QpType::Rc,
            srq: None,
            xrcd: None,
        }
    }
}

impl World {
    pub fn create_qp(&mut self, node: usize, link: &Link) -> Qpn {
        self.nodes[node].engine.create_qp(self.now, qp_init(link)).unwrap()
    }

    pub fn modify(&mut self, node: usize, qpn: Qpn, attr: impl Into<QpAttr>) {
        let attr = attr.into();
        self.nodes[node].engine.modify_qp(self.now, qpn, &attr, |_, wanted| wanted).unwrap();
    }

    /// Takes a queue pair from RESET to RTS.
    pub fn connect(&mut self, node: usize, qpn: Qpn, to: (usize, Qpn), link: &Link, psn: [u32; 2]) {
        self.modify(node, qpn, init_attr(link));
        self.modify(node, qpn, rtr_attr(link, self.nodes[to.0].ip, to.1, psn[1]));
        self.modify(node, qpn, rts_attr(link, psn[0]));
    }

    /// Creates two connected queue pairs, on hosts 0 and 1.
    pub fn pair(&mut self, link: &Link) -> [Qpn; 2] {
        let qps = [self.create_qp(0, link), self.create_qp(1, link)];
        self.connect(0, qps[0], (1, qps[1]), link, link.psn);
        self.connect(1, qps[1], (0, qps[0]), link, [link.psn[1], link.psn[0]]);
        qps
    }

    /// Attaches a queue pair to a multicast group, which its port joins if necessary.
    pub fn attach(&mut self, node: usize, qpn: Qpn, group: IpAddr) {
        let Node { engine, port, .. } = &mut self.nodes[node];
        if engine.attach_mcast(qpn, group.into()).unwrap() {
            port.join(group).unwrap();
        }
    }

    /// Detaches a queue pair from a multicast group, which its port leaves if necessary.
    pub fn detach(&mut self, node: usize, qpn: Qpn, group: IpAddr) {
        let Node { engine, port, .. } = &mut self.nodes[node];
        engine.detach_mcast(qpn, group.into()).unwrap();
        while let Some(group) = engine.poll_left_group() {
            port.leave(group);
        }
    }

    pub fn post_send(&mut self, node: usize, qpn: Qpn, request: SendRequest) {
        self.nodes[node].engine.post_send(self.now, qpn, request).unwrap();
    }

    pub fn post_recv(&mut self, node: usize, qpn: Qpn, wr_id: u64, sges: &[Sge]) {
        let request = RecvRequest { wr_id, sges: sges.iter().copied().collect() };
        self.nodes[node].engine.post_recv(self.now, qpn, request).unwrap();
    }

    pub fn state(&self, node: usize, qpn: Qpn) -> QpState {
        self.nodes[node].engine.query_qp(qpn).unwrap().state
    }
}

pub fn qp_init(link: &Link) -> QpInit {
    QpInit {
        qp_type: link.qp_type,
        pd: PD,
        send_cq: Some(SEND_CQ),
        recv_cq: Some(RECV_CQ),
        cap: link.cap,
        sq_sig_all: link.sq_sig_all,
        srq: link.srq,
        send_ops: link.send_ops,
        xrcd: link.xrcd,
    }
}

/// One end of XRC traffic in both directions.
#[derive(Clone, Copy, Debug)]
pub struct XrcEnd {
    /// Initiator, connected to the other end's target.
    pub initiator: Qpn,
    pub target: Qpn,
    /// Shared receive queue for requests of the other end.
    pub srqn: Srqn,
}

/// XRC domain of every host.
pub const XRCD: XrcdId = XrcdId(1);

impl World {
    /// Creates two ends on hosts 0 and 1, each with a shared receive queue of `max_wr` requests.
    pub fn xrc_pair(&mut self, link: &Link, max_wr: u32) -> [XrcEnd; 2] {
        let ini = Link { qp_type: QpType::XrcIni, ..*link };
        let tgt = Link { qp_type: QpType::XrcTgt, xrcd: Some(XRCD), ..*link };
        let ends = [0, 1].map(|node: usize| {
            let xrc = Some(XrcSrq { domain: XRCD, cq: RECV_CQ });
            let init = SrqInit { pd: PD, max_wr, max_sge: 32, xrc };
            let srqn = self.nodes[node].engine.create_srq(init).unwrap();
            let (initiator, target) = (self.create_qp(node, &ini), self.create_qp(node, &tgt));
            XrcEnd { initiator, target, srqn }
        });
        for (node, end) in ends.into_iter().enumerate() {
            let (other, psn) = (ends[1 - node], [link.psn[node], link.psn[1 - node]]);
            self.connect(node, end.initiator, (1 - node, other.target), &ini, psn);
            self.connect(node, end.target, (1 - node, other.initiator), &tgt, psn);
        }
        ends
    }
}

/// Queue key of UD queue pairs.
pub const QKEY: QKey = QKey(0x1234);

pub fn init_attr(link: &Link) -> InitAttr {
    match link.qp_type {
        QpType::Ud => InitAttr::Datagram { qkey: QKEY },
        _ => InitAttr::Connected { access: link.access },
    }
}

pub fn rtr_attr(link: &Link, peer: IpAddr, dest_qpn: Qpn, rq_psn: u32) -> RtrAttr {
    let peer = Peer {
        av: AddressVector::to(Gid::from(peer)),
        dest_qpn,
        rq_psn: Psn::new(rq_psn),
        path_mtu: link.mtu,
    };
    match link.qp_type {
        QpType::Rc | QpType::XrcTgt => RtrAttr::Rc {
            peer,
            max_dest_rd_atomic: link.rd_atomic,
            min_rnr_timer: RnrTimer::new(link.min_rnr_timer).unwrap(),
        },
        QpType::Uc | QpType::XrcIni => RtrAttr::Uc { peer },
        QpType::Ud => RtrAttr::Ud,
    }
}

pub fn rts_attr(link: &Link, sq_psn: u32) -> RtsAttr {
    let (sq_psn, timeout) = (Psn::new(sq_psn), AckTimeout::new(link.timeout).unwrap());
    match link.qp_type {
        QpType::XrcTgt => RtsAttr::XrcTgt { sq_psn, timeout },
        QpType::Rc | QpType::XrcIni => RtsAttr::Rc {
            sq_psn,
            timeout,
            retry_cnt: link.retry_cnt,
            rnr_retry: link.rnr_retry,
            max_rd_atomic: link.rd_atomic,
        },
        QpType::Uc | QpType::Ud => RtsAttr::Unreliable { sq_psn },
    }
}

/// Returns a scatter/gather element from `offset` on.
pub fn sge(region: &Region, offset: usize, length: usize) -> Sge {
    Sge { addr: region.addr() + offset as u64, length: length as u32, lkey: region.lkey() }
}

/// Returns a remote address in a region.
pub fn remote(region: &Region, offset: usize) -> RemoteAddr {
    RemoteAddr { addr: region.addr() + offset as u64, rkey: region.rkey() }
}

/// Returns a remote address with another key.
pub fn remote_with(region: &Region, offset: usize, rkey: Rkey) -> RemoteAddr {
    RemoteAddr { rkey, ..remote(region, offset) }
}

/// Returns a signaled send request.
pub fn request(wr_id: u64, op: SendOp, sges: &[Sge]) -> SendRequest {
    let data = SendData::Sges(sges.iter().copied().collect());
    SendRequest { wr_id, op, data, flags: SendFlags::SIGNALED, to: None }
}

/// Seals a datagram and delivers it.
pub fn receive(engine: &mut Engine, now: Instant, from: IpAddr, to: IpAddr, mut bytes: Vec<u8>) {
    let source = SocketAddr::new(from, *SOURCE_PORTS.start());
    Flow::new(source, SocketAddr::new(to, ROCE_PORT)).seal(0, &mut bytes);
    let meta = RxMeta {
        source,
        destination: to,
        traffic_class: 0,
        hop_limit: 64,
        ipv4: None,
        may_omit_icrc: false,
    };
    engine.handle_buffer(now, RxBuffer { data: &bytes, segment_len: bytes.len(), meta });
}

/// Returns bytes that identify their origin.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (seed.wrapping_mul(31).wrapping_add(i * 7 + i / 251)) as u8).collect()
}
