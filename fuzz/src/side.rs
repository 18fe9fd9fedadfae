//! One engine with one queue pair. The input determines packets of its peer and of foreign hosts, and requests.
//!
//! Besides the checks of packet scripts, it checks after each input that a dropped packet changes nothing and causes
//! no response, that requests complete once, in order and no more than were posted, and that no access exceeds the
//! granted rights.

use std::net::{IpAddr, SocketAddr};

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use softroce::engine::{QpAttr, QpState, QpType};
use softroce::ids::{Mtu, PdId};
use softroce::mem::Access;
use softroce::net::{ROCE_PORT, RxBuffer};
use softroce::time::Instant;
use softroce::transport::outputs::{Counters, DropReason};
use softroce::transport::work::{
    Completion, FlushPlacement, FlushTarget, SendFlags, SendOp, SendRequest,
};
use softroce::wire::Transport;
use softroce::wire::icrc::{Flow, Verdict};

use crate::guarded::{Guarded, assert_tells_no_secret};
use crate::packet::{Draft, Pass};
use crate::support::script::{OURS, PEER_QPN, PEER_SRQN, REMOTE, Script, rts_qp_of, target};
use crate::support::{Link, PD, QKEY, full_access, request, sge};

const FOREIGN_HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 66));
const AREA: usize = 4 << 10;

/// Maximum number of response packets to one packet: four READs of the whole region, 128 FLUSHes, and the requests
/// posted before. Foreign packets cause no more.
const MAX_RESPONSES: usize = 4 * AREA / 256 + 128 + 1024;

/// Role of the engine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Responder,
    Requester,
}

/// Executes an input.
pub fn play(role: Role, input: &[u8]) {
    let mut u = Unstructured::new(input);
    let mut side = Side::new(role, u.arbitrary().unwrap_or_default());
    while !u.is_empty() && side.step(&mut u).is_ok() {}
    side.check();
    side.t.leave();
}

struct Side {
    t: Script,
    role: Role,
    us: u64,
    /// Memory for WRITEs and READs of the peer, for responses, and for messages.
    open: [Guarded; 3],
    secrets: [Guarded; 2],
    sends: Queue,
    recvs: Queue,
}

/// Work requests, numbered from 1.
#[derive(Default)]
struct Queue {
    posted: u64,
    done: u64,
}

impl Queue {
    fn take(&mut self, completions: &[Completion]) {
        for completion in completions {
            self.done += 1;
            assert_eq!(completion.wr_id, self.done, "in order, and once");
            assert!(self.done <= self.posted, "more than were posted");
        }
    }
}

impl Side {
    fn new(role: Role, kind: u8) -> Self {
        let mtu = [Mtu::Mtu256, Mtu::Mtu1024][usize::from(kind >> 2 & 1)];
        let link = |qp_type| Link { mtu, ..rts_qp_of(qp_type) };
        let with = |qp_type| Script::with(link(qp_type), |config| config.active_mtu = mtu);
        let t = match (kind & 3, role) {
            (0, _) => with(QpType::Rc),
            (1, _) => with(QpType::Uc),
            (2, _) => with(QpType::Ud),
            (_, Role::Responder) => Script::xrc_target(),
            (_, Role::Requester) => with(QpType::XrcIni),
        };
        let secret = |pd, iova, access| Guarded::secret(&t.memory, pd, iova, access);
        let secrets = [
            secret(PD, 0x9_0000, Access::LOCAL_WRITE),
            secret(PdId(PD.0 + 1), 0x1000, full_access()),
        ];
        let open = [0x1000, 0x20_0000, 0x30_0000]
            .map(|iova| Guarded::new(&t.memory, PD, AREA, iova, full_access()));
        let (sends, recvs) = (Queue::default(), Queue::default());
        Self { t, role, us: 0, open, secrets, sends, recvs }
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let action: u8 = u.arbitrary()?;
        match action & 7 {
            0..=3 => {
                let draft = Draft::take(u)?;
                self.receive(&draft, 1 + (action >> 3 & 3));
            }
            4 => self.post_recv(u.arbitrary()?),
            5 if self.role == Role::Requester => self.post_send(u.arbitrary()?, u.arbitrary()?),
            5 | 6 => {
                let exponent = u.arbitrary::<u8>()? % 17;
                self.us += 1 << exponent;
                self.t.at(self.us);
            }
            _ => self.disturb(u.arbitrary()?),
        }
        self.check();
        Ok(())
    }

    // ---- foreign packets ----

    /// Delivers this many packets in one buffer.
    fn receive(&mut self, draft: &Draft, count: u8) {
        self.t.all(self.us);
        self.account();
        let mut meta = self.t.meta();
        if !draft.is_from_peer() {
            meta.source = SocketAddr::new(FOREIGN_HOST, 0xc000);
        }
        let flow = Flow::new(meta.source, SocketAddr::new(OURS, ROCE_PORT));
        let (mut data, mut segment_len, mut forbidden) = (Vec::new(), 0, 0);
        let is_foreign = !draft.is_from_peer() && self.t.link.qp_type != QpType::Ud;
        for place in 0..count {
            let mut bytes = draft.bytes(&self.pass(), place);
            if draft.is_sealed() {
                flow.seal(place.into(), &mut bytes);
            }
            let is_damaged = flow.check(meta.ipv4, place.into(), &bytes) == Verdict::Bad;
            // Queue pair 1 takes datagrams of every host.
            let is_for_gsi = bytes.get(5..8) == Some(&[0, 0, 1]);
            forbidden += u64::from(is_damaged || is_foreign && !is_for_gsi);
            segment_len = bytes.len();
            data.extend(bytes);
        }
        let (before, counted) = (self.contents(), self.t.engine.counters());
        let rx = RxBuffer { data: &data, segment_len, meta };
        let packets = if data.is_empty() { 1 } else { u64::from(count) };
        self.t.engine.handle_buffer(Instant::from_micros(self.us), rx);

        let now = self.t.engine.counters();
        assert_eq!(now.rx_packets - counted.rx_packets, packets);
        let sent = self.t.all(self.us);
        assert!(sent.len() <= MAX_RESPONSES, "{} packets for {packets}", sent.len());
        sent.iter().for_each(|sent| assert_tells_no_secret(&sent.bytes));
        let dropped = silent_drops(&now) - silent_drops(&counted);
        assert!(dropped >= forbidden.min(packets), "a packet was taken that is not the peer's");
        if dropped == packets {
            assert!(sent.is_empty(), "an answer to what was dropped");
            let completions = (self.t.sends(), self.t.recvs());
            assert_eq!(completions, (vec![], vec![]), "completions for what was dropped");
            assert!(self.contents() == before, "a write by what was dropped");
        }
    }

    fn pass(&self) -> Pass {
        let open = &self.open[0].region;
        let transport = match self.t.link.qp_type {
            QpType::Rc => Transport::Rc,
            QpType::Uc => Transport::Uc,
            QpType::Ud => Transport::Ud,
            QpType::XrcIni | QpType::XrcTgt => Transport::Xrc,
        };
        Pass {
            transport,
            qpn: self.t.qpn,
            open: (open.addr(), open.len() as u64),
            rkey: open.rkey(),
            qkey: QKEY,
            srqn: self.t.named.unwrap_or_default(),
        }
    }

    fn contents(&self) -> [Vec<u8>; 3] {
        std::array::from_fn(|area| self.open[area].bytes())
    }

    // ---- requests of the owner ----

    fn post_recv(&mut self, len: u8) {
        let (place, len) = (self.recvs.posted as usize % 4 * 1024, usize::from(len) * 4);
        let piece = [sge(&self.open[2].region, place, len)];
        if self.t.post_recv_sges(&piece).is_ok() {
            self.recvs.posted += 1;
        }
    }

    fn post_send(&mut self, kind: u8, len: u16) {
        let len = usize::from(len) % (AREA / 2);
        let flush = SendOp::Flush {
            target: FlushTarget::Range { at: REMOTE, length: len as u32 },
            placement: FlushPlacement::GLOBAL_VISIBILITY,
        };
        let (op, len) = match kind & 7 {
            0 => (SendOp::Send, len),
            1 => (SendOp::SendImm { imm: 7 }, len),
            2 => (SendOp::Write { to: REMOTE }, len),
            3 => (SendOp::Read { from: REMOTE }, len),
            4 => (SendOp::FetchAdd { at: REMOTE, add: 1 }, 8),
            5 => (SendOp::CompareSwap { at: REMOTE, expect: 0, swap: 1 }, 8),
            6 => (SendOp::AtomicWrite { to: REMOTE }, 8),
            _ => (flush, 0),
        };
        let piece = [sge(&self.open[1].region, 0, len)];
        let mut request = request(self.sends.posted + 1, op, &piece[..usize::from(kind & 7 != 7)]);
        request.flags.set(SendFlags::FENCE, kind & 8 != 0);
        let to = match self.t.link.qp_type {
            QpType::Ud => Some(target(PEER_QPN).into()),
            QpType::XrcIni => Some(PEER_SRQN.into()),
            _ => None,
        };
        if self.t.post(SendRequest { to, ..request }).is_ok() {
            self.sends.posted += 1;
        }
    }

    /// Deregisters memory, or changes the state of the queue pair.
    fn disturb(&mut self, kind: u8) {
        match kind & 3 {
            0 => {
                let area = usize::from(kind >> 2) % 3;
                let at = self.open[area].region.addr();
                self.open[area] = Guarded::new(&self.t.memory, PD, AREA, at, full_access());
            }
            1 => self.modify(QpState::Err),
            2 => self.reset_and_reconnect(),
            _ => {
                self.modify(QpState::Sqd);
                self.modify(QpState::Rts);
            }
        }
    }

    /// Requests a transition that the queue pair may refuse.
    fn modify(&mut self, to: QpState) {
        let _ = self.t.modify(QpAttr::to(to));
    }

    /// Takes the queue pair through RESET: posted requests end without completion.
    fn reset_and_reconnect(&mut self) {
        self.account();
        self.t.modify(QpAttr::to(QpState::Reset)).expect("from any state");
        self.t.bring_to(QpState::Rts);
        self.account();
        self.sends.done = self.sends.posted;
        if self.t.named.is_none() {
            self.recvs.done = self.recvs.posted;
        }
    }

    // ---- invariants ----

    fn account(&mut self) {
        self.sends.take(&self.t.sends());
        self.recvs.take(&self.t.recvs());
        self.t.events();
    }

    fn check(&mut self) {
        for sent in self.t.all(self.us) {
            assert_tells_no_secret(&sent.bytes);
        }
        self.account();
        self.open.iter().for_each(Guarded::assert_guards);
        self.secrets.iter().for_each(Guarded::assert_secret);
        if self.t.state() == QpState::Err {
            assert_eq!(self.sends.done, self.sends.posted, "every request ends");
            if self.t.named.is_none() {
                assert_eq!(self.recvs.done, self.recvs.posted, "every request ends");
            }
            self.reset_and_reconnect();
        }
    }
}

/// Returns the number of packets dropped without consequences. A reordered response is not among them, because it
/// causes a repeated request, nor is a request that queue pair 1 does not support, because it has a response.
fn silent_drops(counters: &Counters) -> u64 {
    let consequences = [DropReason::ResponseAhead, DropReason::MadUnsupported];
    let silent = |reason: &&DropReason| !consequences.contains(*reason);
    DropReason::ALL.iter().filter(silent).map(|reason| counters.dropped(*reason)).sum()
}
