//! Two hosts with queue pairs of every transport between them. The input determines verbs, network faults and foreign
//! packets.
//!
//! Invariants: every work request completes at most once, and those of a queue pair in order; in ERR all of them
//! complete. After the faults end, every send request of a working queue pair completes. No access exceeds the
//! granted rights.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use softroce::engine::{QpAttr, QpState, QpType, SrqInit};
use softroce::ids::{Mtu, PdId, Qpn, Srqn};
use softroce::mem::Access;
use softroce::net::{AddressVector, BurstToken, ROCE_PORT, RxBuffer, RxMeta, TransmitErrorKind};
use softroce::port::sim::{BurstLoss, Conditions, FaultDecision, HostConfig};
use softroce::transport::work::{
    Completion, FlushPlacement, FlushTarget, RecvRequest, RemoteAddr, SendFlags, SendOp,
    SendRequest, SendTarget, UdTarget,
};
use softroce::wire::Transport;
use softroce::wire::icrc::Flow;

use crate::guarded::{Guarded, assert_tells_no_secret};
use crate::packet::{Draft, Pass};
use crate::support::{
    Link, PD, QKEY, RECV_CQ, SEND_CQ, World, full_access, init_attr, request, rtr_attr, rts_attr,
    sge,
};

const AREA: usize = 4 << 10;
const MAX_LINKS: usize = 6;

/// Longer than all retries together.
const SETTLE_TIME: Duration = Duration::from_secs(60);

/// Executes an input.
pub fn play(input: &[u8]) {
    let mut u = Unstructured::new(input);
    let mut hosts = Hosts::new();
    while !u.is_empty() && hosts.step(&mut u).is_ok() {
        hosts.check();
    }
    hosts.world.network.set_conditions(Conditions::default());
    hosts.world.run(SETTLE_TIME);
    hosts.check();
    hosts.assert_all_complete();
}

struct Hosts {
    world: World,
    /// Memory that peers may read and write, for each host.
    open: [Guarded; 2],
    secrets: Vec<Guarded>,
    ends: Vec<End>,
    srqs: [Option<Srqn>; 2],
    /// Outstanding requests, for each host.
    sends: [Ledger; 2],
    recvs: [Ledger; 2],
    last_wr_id: u64,
}

/// One queue pair.
#[derive(Clone, Copy)]
struct End {
    host: usize,
    qpn: Qpn,
    link: Link,
    /// Queue pair at the other host, and its shared receive queue for XRC requests.
    peer: Qpn,
    srqn: Srqn,
    /// Shared receive queue, if it uses one.
    takes_from: Option<Srqn>,
}

/// Outstanding requests.
#[derive(Default)]
struct Ledger {
    /// Queue of each request, and whether its success generates a completion.
    open: BTreeMap<u64, (Queue, bool)>,
    /// Last completed request of each queue pair.
    last: BTreeMap<Qpn, u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    Of(Qpn),
    Shared(Srqn),
}

impl Ledger {
    fn complete(&mut self, completion: &Completion, in_order: bool) {
        let wr_id = completion.wr_id;
        assert!(self.open.remove(&wr_id).is_some(), "{wr_id} completes twice or was not posted");
        let last = self.last.insert(completion.qpn, wr_id);
        assert!(!in_order || last.is_none_or(|last| last < wr_id), "{wr_id} after {last:?}");
    }

    fn forget(&mut self, queue: Queue) {
        self.open.retain(|_, (of, _)| *of != queue);
    }

    /// Returns whether a queue has outstanding requests that must complete.
    fn has(&self, queue: Queue) -> bool {
        self.open.values().any(|of| *of == (queue, true))
    }
}

impl Hosts {
    fn new() -> Self {
        let world = World::with(1, 2, HostConfig::default(), |_| {});
        world.network.observe(|sighting| {
            assert_tells_no_secret(sighting.datagram);
            FaultDecision::ByConditions
        });
        let memory = |host: usize| &world.nodes[host].memory;
        let open =
            [0, 1].map(|host| Guarded::new(memory(host), PD, AREA, 0x10_0000, full_access()));
        let secret = |host| {
            let other = PdId(PD.0 + 1);
            [
                Guarded::secret(memory(host), PD, 0x90_0000, Access::LOCAL_WRITE),
                Guarded::secret(memory(host), other, 0x10_0000, full_access()),
            ]
        };
        let secrets = [0, 1].into_iter().flat_map(secret).collect();
        let (sends, recvs) = (Default::default(), Default::default());
        Self { open, secrets, world, ends: vec![], srqs: [None; 2], sends, recvs, last_wr_id: 0 }
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let action: u8 = u.arbitrary()?;
        if action & 7 == 0 || self.ends.is_empty() {
            self.connect(u.arbitrary()?, u.arbitrary()?);
            return Ok(());
        }
        let end = self.ends[usize::from(action >> 3) % self.ends.len()];
        match action & 7 {
            1 | 2 => self.post_send(&end, u)?,
            3 => self.post_recv(&end, u.arbitrary()?),
            4 => self.world.run(Duration::from_micros(1 << (u.arbitrary::<u8>()? % 19))),
            5 => self.conditions(u)?,
            6 => self.inject(&end, u)?,
            _ => self.disturb(&end, u.arbitrary()?),
        }
        Ok(())
    }

    // ---- queue pairs ----

    fn connect(&mut self, kind: u8, tuning: u8) {
        if self.ends.len() >= 2 * MAX_LINKS {
            return;
        }
        let link = Link {
            mtu: [Mtu::Mtu256, Mtu::Mtu1024][usize::from(kind >> 3 & 1)],
            psn: [5, if kind & 0x10 == 0 { 5 } else { 0xff_fffe }],
            timeout: 8 + (tuning & 3),
            retry_cnt: tuning >> 2 & 7,
            // 7 would be unlimited.
            rnr_retry: (tuning >> 5).min(6),
            sq_sig_all: kind & 0x20 != 0,
            ..Link::default()
        };
        match kind & 7 {
            0..=2 => self.pair(Link { qp_type: QpType::Rc, ..link }, None),
            3 => self.pair(Link { qp_type: QpType::Uc, ..link }, None),
            4 => self.pair(Link { qp_type: QpType::Ud, ..link }, None),
            5 => self.xrc(&link),
            _ => {
                let srqs = [0, 1].map(|host| self.shared(host));
                self.pair(Link { qp_type: QpType::Rc, ..link }, Some(srqs));
            }
        }
    }

    fn shared(&mut self, host: usize) -> Srqn {
        let init = SrqInit { pd: PD, max_wr: 8, max_sge: 4, xrc: None };
        let engine = &mut self.world.nodes[host].engine;
        *self.srqs[host].get_or_insert_with(|| engine.create_srq(init).expect("room"))
    }

    fn pair(&mut self, link: Link, srqs: Option<[Srqn; 2]>) {
        let links = [0, 1].map(|host| Link { srq: srqs.map(|srqs| srqs[host]), ..link });
        let qpns = [0, 1].map(|host| self.world.create_qp(host, &links[host]));
        for host in [0, 1] {
            let psn = [link.psn[host], link.psn[1 - host]];
            let (qpn, peer) = (qpns[host], qpns[1 - host]);
            self.world.connect(host, qpn, (1 - host, peer), &links[host], psn);
            let (link, takes_from) = (Link { psn, ..links[host] }, links[host].srq);
            self.ends.push(End { host, qpn, link, peer, srqn: Srqn::default(), takes_from });
        }
    }

    fn xrc(&mut self, link: &Link) {
        let ends = self.world.xrc_pair(link, 8);
        for (host, (ours, theirs)) in [(ends[0], ends[1]), (ends[1], ends[0])].iter().enumerate() {
            let link = Link { psn: [link.psn[host], link.psn[1 - host]], ..*link };
            let end = End {
                host,
                qpn: ours.initiator,
                link: Link { qp_type: QpType::XrcIni, ..link },
                peer: theirs.target,
                srqn: theirs.srqn,
                takes_from: None,
            };
            let target = End {
                qpn: ours.target,
                link: Link { qp_type: QpType::XrcTgt, ..link },
                peer: theirs.initiator,
                takes_from: Some(ours.srqn),
                ..end
            };
            self.ends.extend([end, target]);
        }
    }

    fn state(&self, end: &End) -> Option<QpState> {
        self.world.nodes[end.host].engine.query_qp(end.qpn).map(|info| info.state)
    }

    // ---- requests ----

    fn post_send(&mut self, end: &End, u: &mut Unstructured<'_>) -> Result<()> {
        let (kind, len, at): (u8, u16, u16) = (u.arbitrary()?, u.arbitrary()?, u.arbitrary()?);
        let (len, at) = (usize::from(len) % (AREA / 2), usize::from(at) % (AREA / 2));
        let theirs = &self.open[1 - end.host].region;
        let rkey = if kind & 0x80 == 0 { theirs.rkey() } else { Default::default() };
        let to = RemoteAddr { addr: theirs.addr() + (at as u64 & !7), rkey };
        let flush = SendOp::Flush {
            target: FlushTarget::Range { at: to, length: len as u32 },
            placement: FlushPlacement::GLOBAL_VISIBILITY,
        };
        let (op, len) = match kind & 15 {
            0..=3 => (SendOp::Send, len),
            4 => (SendOp::SendImm { imm: 9 }, len),
            5..=7 => (SendOp::Write { to }, len),
            8 => (SendOp::WriteImm { to, imm: 9 }, len),
            9 | 10 => (SendOp::Read { from: to }, len),
            11 => (SendOp::FetchAdd { at: to, add: 1 }, 8),
            12 => (SendOp::CompareSwap { at: to, expect: 0, swap: 1 }, 8),
            13 => (SendOp::AtomicWrite { to }, 8),
            14 => (SendOp::SendInv { rkey }, len),
            _ => (flush, 0),
        };
        let piece = [sge(&self.open[end.host].region, at, len)];
        let pieces = if matches!(op, SendOp::Flush { .. }) { &piece[..0] } else { &piece };
        self.last_wr_id += 1;
        let mut request = request(self.last_wr_id, op, pieces);
        request.flags.set(SendFlags::FENCE, kind & 0x10 != 0);
        request.flags.set(SendFlags::SIGNALED, kind & 0x60 != 0);
        let to = match end.link.qp_type {
            QpType::Ud => Some(SendTarget::from(UdTarget {
                av: AddressVector::to(self.world.nodes[1 - end.host].ip.into()),
                qpn: end.peer,
                qkey: QKEY,
            })),
            QpType::XrcIni => Some(end.srqn.into()),
            _ => None,
        };
        let engine = &mut self.world.nodes[end.host].engine;
        let request = SendRequest { to, ..request };
        let announced = kind & 0x60 != 0 || end.link.sq_sig_all;
        if engine.post_send(self.world.now, end.qpn, request).is_ok() {
            let queue = (of(end), announced);
            self.sends[end.host].open.insert(self.last_wr_id, queue);
        }
        Ok(())
    }

    fn post_recv(&mut self, end: &End, len: u8) {
        let piece = sge(&self.open[end.host].region, AREA / 2, usize::from(len) * 8);
        self.last_wr_id += 1;
        let request = RecvRequest { wr_id: self.last_wr_id, sges: [piece].into_iter().collect() };
        let engine = &mut self.world.nodes[end.host].engine;
        let (posted, queue) = match end.takes_from {
            Some(srqn) => (engine.post_srq_recv(srqn, request).is_ok(), Queue::Shared(srqn)),
            None => {
                let posted = engine.post_recv(self.world.now, end.qpn, request);
                (posted.is_ok(), of(end))
            }
        };
        if posted {
            self.recvs[end.host].open.insert(self.last_wr_id, (queue, true));
        }
    }

    // ---- faults ----

    fn conditions(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let mut share = || Ok(f64::from(u.arbitrary::<u8>()? & 31) / 100.0);
        let conditions = Conditions {
            loss: share()?,
            duplicate: share()?,
            reorder: share()?,
            corrupt: share()?,
            truncate: share()?,
            mark: share()?,
            bursts: BurstLoss { begin: share()? / 10.0, ..BurstLoss::default() },
            refuse_send: share()?,
            delay: Duration::from_micros(5),
            ..Conditions::default()
        };
        self.world.network.set_conditions(conditions);
        Ok(())
    }

    /// Delivers a packet that no host has sent.
    fn inject(&mut self, end: &End, u: &mut Unstructured<'_>) -> Result<()> {
        let draft = Draft::take(u)?;
        let open = &self.open[end.host].region;
        let transport = match end.link.qp_type {
            QpType::Rc => Transport::Rc,
            QpType::Uc => Transport::Uc,
            QpType::Ud => Transport::Ud,
            QpType::XrcIni | QpType::XrcTgt => Transport::Xrc,
        };
        let pass = Pass {
            transport,
            qpn: end.qpn,
            open: (open.addr(), open.len() as u64),
            rkey: open.rkey(),
            qkey: QKEY,
            srqn: end.takes_from.unwrap_or_default(),
        };
        let from = if draft.is_from_peer() { 1 - end.host } else { end.host };
        let source = SocketAddr::new(self.world.nodes[from].ip, 0xc000);
        let destination = self.world.nodes[end.host].ip;
        let mut data = draft.bytes(&pass, 0);
        if draft.is_sealed() {
            Flow::new(source, SocketAddr::new(destination, ROCE_PORT)).seal(0, &mut data);
        }
        let meta = RxMeta {
            source,
            destination,
            traffic_class: 0,
            hop_limit: 64,
            ipv4: None,
            may_omit_icrc: false,
        };
        let rx = RxBuffer { data: &data, segment_len: data.len(), meta };
        self.world.nodes[end.host].engine.handle_buffer(self.world.now, rx);
        self.world.settle();
        Ok(())
    }

    fn disturb(&mut self, end: &End, kind: u8) {
        let now = self.world.now;
        self.drain();
        let engine = &mut self.world.nodes[end.host].engine;
        match kind & 7 {
            0 => {
                let (memory, at) = (&self.world.nodes[end.host].memory, 0x10_0000);
                self.open[end.host] = Guarded::new(memory, PD, AREA, at, full_access());
            }
            1 => drop(engine.modify_qp(now, end.qpn, &QpAttr::to(QpState::Err), |_, port| port)),
            2 => drop(engine.modify_qp(now, end.qpn, &QpAttr::to(QpState::Sqd), |_, port| port)),
            3 => drop(engine.modify_qp(now, end.qpn, &QpAttr::to(QpState::Rts), |_, port| port)),
            4 => {
                engine.destroy_qp(now, end.qpn);
                self.forget(end);
            }
            5 => engine.handle_cq_overflow(now, if kind & 8 == 0 { SEND_CQ } else { RECV_CQ }),
            6 => {
                let token = BurstToken(end.qpn.value().into());
                engine.handle_transmit_error(now, token, TransmitErrorKind::Unreachable);
            }
            _ => self.reset_and_reconnect(end),
        }
    }

    /// Takes a queue pair through RESET to RTS.
    fn reset_and_reconnect(&mut self, end: &End) {
        let now = self.world.now;
        let to_peer = self.world.nodes[1 - end.host].ip;
        let engine = &mut self.world.nodes[end.host].engine;
        let [sq_psn, rq_psn] = end.link.psn;
        let steps = [
            QpAttr::to(QpState::Reset),
            init_attr(&end.link).into(),
            rtr_attr(&end.link, to_peer, end.peer, rq_psn).into(),
            rts_attr(&end.link, sq_psn).into(),
        ];
        for step in steps {
            // The queue pair may have been destroyed.
            let _ = engine.modify_qp(now, end.qpn, &step, |_, port| port);
        }
        self.forget(end);
    }

    /// Removes the requests of a queue pair that will not complete.
    fn forget(&mut self, end: &End) {
        self.sends[end.host].forget(of(end));
        self.recvs[end.host].forget(of(end));
    }

    // ---- invariants ----

    /// Takes all completions.
    fn drain(&mut self) {
        for (host, node) in self.world.nodes.iter_mut().enumerate() {
            while let Some((cq, completion)) = node.engine.poll_completion() {
                let list = if cq == SEND_CQ { &mut node.sends } else { &mut node.recvs };
                list.push(completion);
            }
            for completion in node.sends.drain(..) {
                self.sends[host].complete(&completion, true);
            }
            for completion in node.recvs.drain(..) {
                self.recvs[host].complete(&completion, false);
            }
            node.events.clear();
        }
    }

    fn check(&mut self) {
        self.drain();
        self.open.iter().for_each(Guarded::assert_guards);
        self.secrets.iter().for_each(Guarded::assert_secret);
        for end in &self.ends {
            if self.state(end) == Some(QpState::Err) {
                let left = [&self.sends, &self.recvs].map(|all| all[end.host].has(of(end)));
                assert_eq!(left, [false; 2], "{} has failed, and requests are left", end.qpn);
            }
        }
    }

    /// Asserts that no request is outstanding.
    fn assert_all_complete(&self) {
        for end in &self.ends {
            if matches!(self.state(end), Some(QpState::Rts | QpState::Sqe)) {
                let left = self.sends[end.host].has(of(end));
                assert!(!left, "{} {} waits for ever", end.link.qp_type, end.qpn);
            }
        }
    }
}

fn of(end: &End) -> Queue {
    Queue::Of(end.qpn)
}
