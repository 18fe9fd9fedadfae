//! A connection between a queue pair of ours and one of rxe.

use std::net::IpAddr;
use std::time::Duration;

use softroce::engine::{InitAttr, Peer as Path, RtrAttr, RtsAttr};
use softroce::io::impair::Impairments;
use softroce::net::AddressVector;
use softroce::verbs::*;

use super::peer::{Peer, PeerCompletion, Piece, pattern};

/// Bytes of memory at either end: sources in the first half, targets in the second.
pub(crate) const MEMORY: usize = 4 << 20;
pub(crate) const TARGET: usize = MEMORY / 2;

/// How long anything may take: the guest's processor is emulated and shared.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What a connection is made with.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) family: Family,
    pub(crate) mtu: Mtu,
    /// Of both sides.
    pub(crate) psn: u32,
    /// What each side lets the other do: ours, theirs.
    pub(crate) access: [Access; 2],
    pub(crate) options: ConnectOptions,
    pub(crate) impair: Option<Impairments>,
}

/// The network between us, with the addresses that `tools/rxe-vm` gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    Ipv4,
    Ipv6,
}

impl Family {
    fn ours(self) -> IpAddr {
        let text = match self {
            Self::Ipv4 => "10.77.0.1",
            Self::Ipv6 => "fd77::1",
        };
        text.parse().unwrap()
    }

    /// Which GID of rxe0 is of this family.
    fn gid_index(self) -> u8 {
        match self {
            Self::Ipv4 => 1,
            Self::Ipv6 => 2,
        }
    }
}

/// Everything that a peer may be allowed.
pub(crate) fn all() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            family: Family::Ipv4,
            mtu: Mtu::Mtu1024,
            // Soon wraps.
            psn: 0xff_fff0,
            access: [all() - Access::LOCAL_WRITE; 2],
            options: ConnectOptions { max_rd_atomic: 4, ..ConnectOptions::default() },
            impair: None,
        }
    }
}

/// Both ends, connected.
pub(crate) struct Pair {
    pub(crate) ctx: Context,
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePair,
    pub(crate) mr: MemoryRegion,
    pub(crate) peer: Peer,
}

impl Pair {
    pub(crate) fn new(setup: Setup) -> Self {
        let Setup { family, mtu, psn, access, options, impair } = setup;
        let mut open = OpenOptions::default().ip(family.ours());
        if let Some(impairments) = impair {
            open = open.impair(impairments);
        }
        let ctx = Context::open(open).unwrap();
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(512, None).unwrap());
        let mr = pd.alloc_mr(MEMORY, all()).unwrap();
        let qp = pd.create_qp(&QpConfig::rc(&cq)).unwrap();
        let mut peer = Peer::open(family.gid_index(), MEMORY, all(), psn);
        let options = ConnectOptions { path_mtu: Some(mtu), ..options };
        let ours = Endpoint { psn: Psn::new(psn), ..qp.endpoint() };
        peer.connect(&ours, &ConnectOptions { access: access[1], ..options });
        connect(&qp, &ours, &peer.endpoint, &ConnectOptions { access: access[0], ..options });
        Self { ctx, pd, cq, qp, mr, peer }
    }

    /// Our next completion.
    pub(crate) fn ours(&self) -> Completion {
        self.cq.wait_one(PATIENCE).expect("a completion of ours")
    }

    /// The peer's next completion.
    pub(crate) fn theirs(&mut self) -> PeerCompletion {
        self.peer.poll(PATIENCE).expect("a completion of the peer")
    }

    pub(crate) fn fill(&self, at: usize, bytes: usize, seed: u32) {
        self.mr.write_at(at, &pattern_of(bytes, seed)).unwrap();
    }

    pub(crate) fn check(&self, at: usize, bytes: usize, seed: u32) {
        let mut found = vec![0; bytes];
        self.mr.read_at(at, &mut found).unwrap();
        let expected = pattern_of(bytes, seed);
        let differs = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        assert_eq!(differs, None, "the first byte that differs, of {bytes}");
    }
}

/// `bytes` at `at`, in `n` pieces.
pub(crate) fn pieces(at: usize, bytes: usize, n: usize, lkey: u32) -> Vec<Piece> {
    let bound = |piece: usize| bytes * piece / n;
    (0..n).map(|piece| (at + bound(piece), bound(piece + 1) - bound(piece), lkey)).collect()
}

fn pattern_of(bytes: usize, seed: u32) -> Vec<u8> {
    (0..u32::try_from(bytes).unwrap()).map(|at| pattern(seed, at)).collect()
}

/// As `QueuePair::connect`, with a PSN of the test's choice.
fn connect(qp: &QueuePair, ours: &Endpoint, theirs: &Endpoint, options: &ConnectOptions) {
    qp.modify(InitAttr::Connected { access: options.access }).unwrap();
    let path_mtu = options.path_mtu.unwrap();
    let av = AddressVector::to(theirs.gid);
    qp.modify(RtrAttr::Rc {
        peer: Path { av, dest_qpn: theirs.qpn, rq_psn: theirs.psn, path_mtu },
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
