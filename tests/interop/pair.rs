//! A local queue pair and one of the peer, connected to each other.

use std::fmt::Display;
use std::time::Duration;

use softroce::engine::{InitAttr, Peer as Path, RtrAttr, RtsAttr};
use softroce::net::AddressVector;
use softroce::port::impair::Impairments;
use softroce::verbs::*;

use super::peer::{Peer, PeerCompletion, Piece, pattern};

/// Length of the memory of each side, in bytes: sources in the first half, targets in the second.
pub(crate) const MEMORY_BYTES: usize = 4 << 20;
pub(crate) const TARGET: usize = MEMORY_BYTES / 2;

/// Time limit of all waits: the guest's processor is emulated and shared.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Attributes of the pair.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) service: QpType,
    pub(crate) mtu: Mtu,
    /// PSNs of both sides.
    pub(crate) psn: u32,
    /// Access rights that each side grants: local, peer.
    pub(crate) access: [Access; 2],
    pub(crate) options: ConnectOptions,
    pub(crate) impair: Option<Impairments>,
    /// Depth of the shared receive queue of each side, if the queue pairs use one.
    pub(crate) shared: Option<u32>,
}

/// Transports of kernel rxe.
pub(crate) const SERVICES: [QpType; 3] = [QpType::Rc, QpType::Uc, QpType::Ud];

/// Returns all access rights.
pub(crate) fn all() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// Returns a timeout of 4.096 µs × 2^n. Eight of them with 18 are 8.6 s, because a guest on a busy machine may stall.
pub(crate) fn timeout(exponent: u8) -> AckTimeout {
    AckTimeout::new(exponent).unwrap()
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            service: QpType::Rc,
            mtu: Mtu::Mtu1024,
            // The PSN wraps soon.
            psn: 0xff_fff0,
            access: [all() - Access::LOCAL_WRITE; 2],
            options: ConnectOptions {
                max_rd_atomic: 4,
                timeout: timeout(18),
                ..Default::default()
            },
            impair: None,
            shared: None,
        }
    }
}

/// Queue key of UD queue pairs.
pub(crate) const QKEY: QKey = QKey(0x1234_5678);

/// Both sides, in RTS.
pub(crate) struct Pair {
    pub(crate) ctx: Context,
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePair,
    pub(crate) mr: MemoryRegion,
    pub(crate) peer: Peer,
    /// Target of messages to the peer, for UD.
    pub(crate) target: Option<SendTarget>,
    /// Number of packets with which the peer was woken.
    pub(crate) wakes: u64,
}

impl Pair {
    pub(crate) fn new(setup: Setup) -> Self {
        let Setup { service, mtu, psn, access, options, impair, shared } = setup;
        let max_wr = shared.unwrap_or(0);
        let mut peer = Peer::open_sharing(service, MEMORY_BYTES, all(), psn, max_wr);
        let mut open = OpenOptions::default().ip(peer.our_ip());
        if let Some(impairments) = impair {
            open = open.impair(impairments);
        }
        let ctx = Context::open(open).unwrap();
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(512, None).unwrap());
        let mr = pd.alloc_mr(MEMORY_BYTES, all()).unwrap();
        let config = match service {
            QpType::Uc => QpConfig::uc(&cq),
            QpType::Ud => QpConfig::ud(&cq),
            _ => QpConfig::rc(&cq),
        };
        let srq = shared
            .map(|max_wr| pd.create_srq(&SrqConfig { max_wr, ..SrqConfig::default() }).unwrap());
        let qp = pd.create_qp(&QpConfig { srq: srq.as_ref(), ..config }).unwrap();
        let ours = Endpoint { psn: Psn::new(psn), ..qp.endpoint() };
        let options = ConnectOptions { path_mtu: Some(mtu), ..options };
        let mut target = None;
        if service == QpType::Ud {
            peer.datagrams(QKEY);
            peer.aim(&ours, QKEY);
            activate(&qp, ours.psn);
            let ah = pd.create_ah(AddressVector::to(peer.endpoint.gid)).unwrap();
            target = Some(ah.target(peer.endpoint.qpn, QKEY).into());
        } else {
            peer.connect(&ours, &ConnectOptions { access: access[1], ..options });
            let options = ConnectOptions { access: access[0], ..options };
            connect(&qp, service, &ours, &peer.endpoint, &options);
        }
        Self { ctx, pd, cq, qp, mr, peer, target, wakes: 0 }
    }

    /// Creates another queue pair on each side with the shared receive queues, connected to each other.
    pub(crate) fn another(&mut self, setup: &Setup) -> (QueuePair, Endpoint) {
        let config = QpConfig { srq: self.qp.srq(), ..QpConfig::rc(&self.cq) };
        let qp = self.pd.create_qp(&config).unwrap();
        let ours = Endpoint { psn: Psn::new(setup.psn), ..qp.endpoint() };
        let options = ConnectOptions { path_mtu: Some(setup.mtu), ..setup.options };
        let theirs = self.peer.another(QpType::Rc);
        self.peer.connect(&ours, &ConnectOptions { access: setup.access[1], ..options });
        let options = ConnectOptions { access: setup.access[0], ..options };
        connect(&qp, QpType::Rc, &ours, &theirs, &options);
        (qp, theirs)
    }

    /// Posts a local receive request, to the shared queue if there is one.
    pub(crate) fn post_recv(&self, request: RecvRequest) {
        match self.qp.srq() {
            Some(srq) => srq.post_recv(request).unwrap(),
            None => self.qp.post_recv(request).unwrap(),
        }
    }

    /// Returns a send request to the peer.
    pub(crate) fn request(&self, id: u64, op: SendOp, data: impl Into<SendData>) -> SendRequest {
        SendRequest { to: self.target, ..SendRequest::new(id, op, data) }
    }

    /// Returns the next local completion.
    pub(crate) fn ours(&self) -> Completion {
        self.cq.wait_one(WAIT_LIMIT).expect("a completion of ours")
    }

    /// Returns the peer's next completion.
    pub(crate) fn theirs(&mut self) -> PeerCompletion {
        self.peer.poll(WAIT_LIMIT).expect("a completion of the peer")
    }

    /// Returns the next local completion of a UC message of the peer, or `None` if the message is lost.
    pub(crate) fn ours_over_uc(&mut self) -> Option<Completion> {
        if let Ok(done) = self.cq.wait_one(WAIT_LIMIT / 12) {
            return Some(done);
        }
        self.wake_peer();
        self.cq.wait_one(WAIT_LIMIT / 4).ok()
    }

    /// Returns the peer's next completion of a UC message, or `None` if the message is lost.
    pub(crate) fn theirs_over_uc(&mut self) -> Option<PeerCompletion> {
        self.peer.poll(WAIT_LIMIT / 12).or_else(|| {
            self.wake_peer();
            self.peer.poll(WAIT_LIMIT / 4)
        })
    }

    /// Kernel rxe sometimes, once in many hundred messages, leaves a UC send unfinished for a minute. It pauses until
    /// enough of its packets have left, and over UC no timer wakes it if it misses this event. A posted request does:
    /// here an empty WRITE, which has no other effect.
    fn wake_peer(&mut self) {
        println!("the peer is woken");
        self.wakes += 1;
        self.peer.post_send(3, &SendOp::Write { to: RemoteAddr::default() }, 0, &[]);
    }

    pub(crate) fn fill(&self, at: usize, bytes: usize, seed: u32) {
        self.mr.write_at(at, &pattern_of(bytes, seed)).unwrap();
    }

    pub(crate) fn check(&self, at: usize, bytes: usize, seed: u32) {
        assert_eq!(
            self.difference(at, bytes, seed),
            None,
            "the first byte that differs, of {bytes}"
        );
    }

    /// Returns whether the memory contains the bytes that [`check`](Self::check) expects.
    pub(crate) fn holds(&self, at: usize, bytes: usize, seed: u32) -> bool {
        self.difference(at, bytes, seed).is_none()
    }

    fn difference(&self, at: usize, bytes: usize, seed: u32) -> Option<usize> {
        let mut found = vec![0; bytes];
        self.mr.read_at(at, &mut found).unwrap();
        let expected = pattern_of(bytes, seed);
        found.iter().zip(&expected).position(|(found, expected)| found != expected)
    }
}

/// Reports that the peer does not support the tested feature: the run shows this line instead of a result.
pub(crate) fn not_tried(why: impl Display) {
    println!("not tried: {why}");
}

/// Returns `bytes` at `at` in `n` elements.
pub(crate) fn pieces(at: usize, bytes: usize, n: usize, lkey: u32) -> Vec<Piece> {
    let bound = |piece: usize| bytes * piece / n;
    (0..n).map(|piece| (at + bound(piece), bound(piece + 1) - bound(piece), lkey)).collect()
}

fn pattern_of(bytes: usize, seed: u32) -> Vec<u8> {
    (0..u32::try_from(bytes).unwrap()).map(|at| pattern(seed, at)).collect()
}

/// Connects as `QueuePair::connect`, with a PSN of the test's choice.
fn connect(
    qp: &QueuePair,
    service: QpType,
    ours: &Endpoint,
    theirs: &Endpoint,
    options: &ConnectOptions,
) {
    qp.modify(InitAttr::Connected { access: options.access }).unwrap();
    let path_mtu = options.path_mtu.unwrap();
    let av = AddressVector::to(theirs.gid);
    let peer = Path { av, dest_qpn: theirs.qpn, rq_psn: theirs.psn, path_mtu };
    if service == QpType::Uc {
        qp.modify(RtrAttr::Uc { peer }).unwrap();
        qp.modify(RtsAttr::Unreliable { sq_psn: ours.psn }).unwrap();
        return;
    }
    qp.modify(RtrAttr::Rc {
        peer,
        max_dest_rd_atomic: options.max_rd_atomic,
        min_rnr_timer: options.min_rnr_timer,
    })
    .unwrap();
    qp.modify(RtsAttr::Rc {
        sq_psn: ours.psn,
        timeout: options.timeout,
        retry_cnt: options.retry_cnt,
        rnr_retry: options.rnr_retry,
        max_rd_atomic: options.max_rd_atomic,
    })
    .unwrap();
}

/// Activates as `QueuePair::activate`, with a PSN of the test's choice.
fn activate(qp: &QueuePair, psn: Psn) {
    qp.modify(InitAttr::Datagram { qkey: QKEY }).unwrap();
    qp.modify(RtrAttr::Ud).unwrap();
    qp.modify(RtsAttr::Unreliable { sq_psn: psn }).unwrap();
}
