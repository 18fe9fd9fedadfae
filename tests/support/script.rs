//! Packet scripts: one engine is under test, and every line is a packet to or from it at a virtual time.
//!
//! ```text
//! let mut t = Script::responder(rts_qp());
//! t.rx(0, "SEND_ONLY psn=5 ackreq len=64"); // no receive posted
//! t.tx(0, "RNR_NAK psn=5 msn=0 timer=0.64ms");
//! t.post_recv(64);
//! t.rx(640, "SEND_ONLY psn=5 ackreq len=64");
//! t.tx(640, "ACK psn=5 msn=1");
//! assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 64)]);
//! ```
//!
//! Times are microseconds and never decrease. Lines have the format of `softroce::wire::text`, except that `rkey=mem`
//! stands for the key of [`Script::mem`], and `srqn=ours` for [`Script::named`]. A packet must leave at the time in
//! the script, and a script must name every packet, completion and event; it fails if some are left at its end. Every
//! packet that leaves is also checked against the conventions that lines do not show ([`conventions`]).

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use softroce::engine::{
    Config, Engine, ModifyError, PostError, QpAttr, QpState, QpType, SrqInit, XrcSrq,
};
use softroce::ids::{CqId, Gid, Mtu, PdId, Qpn, Rkey, Srqn};
use softroce::mem::{Access, HostMemory, Memory, Region};
use softroce::net::{
    AddressVector, Burst, Ipv4Fields, Path, ROCE_PORT, RxBuffer, RxMeta, source_port,
};
use softroce::psn::Psn;
use softroce::time::Instant;
use softroce::transport::outputs::{AsyncEvent, DropReason};
use softroce::transport::work::{
    Completion, FlushPlacement, FlushTarget, RecvRequest, RemoteAddr, SendFlags, SendOp,
    SendRequest, Sge, UdTarget, WcOpcode, WcStatus,
};
use softroce::wire::icrc::{Flow, Verdict};
use softroce::wire::text::PacketLine;
use softroce::wire::{Datagram, Operation, Transport};

use super::{
    Link, PD, QKEY, RECV_CQ, SEND_CQ, XRCD, full_access, init_attr, line, pattern, qp_init,
    request, rtr_attr, rts_attr, sge,
};

/// Address of the engine under test.
pub const OURS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
/// Address of its peer, which the script simulates.
pub const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
/// Queue pair of the peer.
pub const PEER_QPN: Qpn = Qpn::new(0x12);
/// Shared receive queue of the peer, for XRC requests.
pub const PEER_SRQN: Srqn = Srqn::new(0x345);
/// Memory of the peer: `va=0x8000 rkey=0x00000100`.
pub const REMOTE: RemoteAddr = RemoteAddr { addr: 0x8000, rkey: Rkey(0x100) };

/// Returns the number of packets in each burst.
pub fn burst_lengths(sent: &[Sent]) -> Vec<usize> {
    sent.chunk_by(|a, b| a.burst == b.burst).map(<[_]>::len).collect()
}

/// Returns the attributes of a queue pair in RTS that expects and starts with PSN 5, with path MTU 256 and an ACK
/// timeout of 8.192 µs × 2^7 = 1048.576 µs.
pub fn rts_qp() -> Link {
    Link { mtu: Mtu::Mtu256, psn: [5, 5], ..Link::default() }
}

/// Returns the same attributes with another transport.
pub fn rts_qp_of(qp_type: QpType) -> Link {
    Link { qp_type, ..rts_qp() }
}

/// Returns the target of a UD message to this queue pair at [`PEER`].
pub fn target(qpn: Qpn) -> UdTarget {
    UdTarget { av: AddressVector::to(Gid::from(PEER)), qpn, qkey: QKEY }
}

/// Returns a successful completion.
pub fn ok(wr_id: u64, opcode: WcOpcode, byte_len: u32) -> Completion {
    Completion {
        wr_id,
        status: WcStatus::Success,
        opcode,
        byte_len,
        imm: None,
        invalidated: None,
        source_qp: None,
        ip_version: None,
        qpn: Qpn::default(),
        solicited: false,
    }
}

/// Returns a completion with an error, of which only ID and status are valid.
pub fn failed(wr_id: u64, status: WcStatus) -> Completion {
    Completion { status, solicited: true, ..ok(wr_id, WcOpcode::Send, 0) }
}

/// A script, its engine, and the outputs that were not named yet.
pub struct Script {
    pub engine: Engine,
    pub memory: Arc<Memory>,
    pub qpn: Qpn,
    pub link: Link,
    /// Shared receive queue of XRC requests, `srqn=ours`.
    pub named: Option<Srqn>,
    /// Memory that the peer may write, read and change by atomics: 64 KiB at `va=0x1000 rkey=mem`.
    pub mem: Arc<Region>,
    /// Source of SENDs and WRITEs, always from its start.
    pub data: Arc<Region>,
    /// Destination of responses, always at its start.
    pub answers: Arc<Region>,
    inbox: Arc<Region>,
    receives: usize,
    now: Instant,
    /// Sent datagrams that were not named yet.
    sent: VecDeque<Sent>,
    bursts: usize,
    /// Reused burst of the engine, as in a shard of the runtime.
    burst: Burst,
    sends: Vec<Completion>,
    recvs: Vec<Completion>,
    events: Vec<AsyncEvent>,
    unfinished: bool,
}

/// A sent datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    pub at: Instant,
    /// Number of the burst, the same for its datagrams.
    pub burst: usize,
    pub path: Path,
    pub bytes: Vec<u8>,
}

impl Sent {
    pub fn line(&self) -> String {
        PacketLine(&Datagram::parse(&self.bytes).unwrap()).to_string()
    }

    pub fn payload(&self) -> &[u8] {
        Datagram::parse(&self.bytes).unwrap().payload
    }

    pub fn psn(&self) -> Psn {
        Datagram::parse(&self.bytes).unwrap().bth.psn
    }
}

/// Length of each receive of the inbox, in bytes.
const RECEIVE: usize = 8 << 10;
const AREA: usize = 64 << 10;

impl Script {
    /// Creates a script with a responder under test.
    pub fn responder(link: Link) -> Self {
        Self::with(link, |_| {})
    }

    /// Creates a script with a requester under test.
    pub fn requester(link: Link) -> Self {
        Self::with(link, |_| {})
    }

    /// Creates a script with a responder without a reorder buffer.
    pub fn dropping(link: Link) -> Self {
        Self::with(link, |config| config.reorder_buffer = 0)
    }

    /// Creates a script with a queue pair in RTS on a device with other options.
    pub fn with(link: Link, tune: impl FnOnce(&mut Config)) -> Self {
        let mut script = Self::reset(link, tune);
        script.bring_to(QpState::Rts);
        script
    }

    /// Creates a script with a queue pair in RTS that uses a shared receive queue of `max_wr` requests.
    pub fn sharing(link: Link, max_wr: u32) -> Self {
        let init = SrqInit { pd: PD, max_wr, max_sge: 32, xrc: None };
        let mut script =
            Self::reset_with(link, |_| {}, |engine| Some(engine.create_srq(init).unwrap()));
        script.bring_to(QpState::Rts);
        script
    }

    /// Creates a script with an XRC target in RTS and a shared receive queue of 8 requests, for
    /// [`post_recv`](Self::post_recv).
    pub fn xrc_target() -> Self {
        let link = Link { qp_type: QpType::XrcTgt, xrcd: Some(XRCD), ..rts_qp() };
        let mut script = Self::with(link, |_| {});
        script.named = Some(script.create_xrc_srq(PD, RECV_CQ));
        script
    }

    /// Creates another shared receive queue for XRC requests.
    pub fn create_xrc_srq(&mut self, pd: PdId, cq: CqId) -> Srqn {
        let xrc = Some(XrcSrq { domain: XRCD, cq });
        self.engine.create_srq(SrqInit { pd, max_wr: 8, max_sge: 32, xrc }).unwrap()
    }

    /// Creates a script with a queue pair in RESET.
    pub fn reset(link: Link, tune: impl FnOnce(&mut Config)) -> Self {
        Self::reset_with(link, tune, |_| None)
    }

    fn reset_with(
        mut link: Link,
        tune: impl FnOnce(&mut Config),
        srq: impl FnOnce(&mut Engine) -> Option<Srqn>,
    ) -> Self {
        let memory = Arc::new(Memory::new([7; 32]));
        let mut config = Config::new(OURS);
        tune(&mut config);
        let mut engine = Engine::new(config, memory.clone(), [7; 32]);
        link.srq = srq(&mut engine);
        let qpn = engine.create_qp(Instant::ZERO, qp_init(&link)).unwrap();
        let area = |iova| {
            let host = HostMemory::alloc(AREA).unwrap();
            memory.register(PD, host, Some(iova), full_access()).unwrap()
        };
        let (mem, data) = (area(0x1000), area(0x10_0000));
        data.write_at(0, &pattern(0xda, AREA)).unwrap();
        let (answers, inbox) = (area(0x20_0000), area(0x30_0000));
        Self {
            engine,
            memory,
            qpn,
            link,
            named: None,
            mem,
            data,
            answers,
            inbox,
            receives: 0,
            now: Instant::ZERO,
            sent: VecDeque::new(),
            bursts: 0,
            burst: Burst::new(),
            sends: Vec::new(),
            recvs: Vec::new(),
            events: Vec::new(),
            unfinished: false,
        }
    }

    // ---- states ----

    pub fn modify(&mut self, attr: impl Into<QpAttr>) -> Result<(), ModifyError> {
        self.engine.modify_qp(self.now, self.qpn, &attr.into(), |_, wanted| wanted)
    }

    /// Takes the queue pair through its transitions to INIT, RTR, RTS or SQD.
    pub fn bring_to(&mut self, to: QpState) {
        for state in [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd] {
            if state as u8 > self.state() as u8 && state as u8 <= to as u8 {
                self.modify(self.step(state)).unwrap();
            }
        }
        assert_eq!(self.state(), to);
    }

    /// Returns the attributes of the transition to a state.
    pub fn step(&self, to: QpState) -> QpAttr {
        let [sq_psn, rq_psn] = self.link.psn;
        match to {
            QpState::Init => init_attr(&self.link).into(),
            QpState::Rtr => rtr_attr(&self.link, PEER, PEER_QPN, rq_psn).into(),
            QpState::Rts => rts_attr(&self.link, sq_psn).into(),
            _ => QpAttr::to(to),
        }
    }

    pub fn state(&self) -> QpState {
        self.engine.query_qp(self.qpn).unwrap().state
    }

    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.engine.counters().dropped(reason)
    }

    // ---- time ----

    /// Runs the engine until `us`: it sends, and then handles its timers in order.
    pub fn at(&mut self, us: u64) {
        let target = Instant::from_micros(us);
        assert!(target >= self.now, "{us} µs is in the past");
        while self.now < target {
            self.flush();
            let due = self.engine.poll_timeout().unwrap_or(target);
            self.now = due.clamp(self.now, target);
            self.engine.handle_timeout(self.now);
            if self.engine.poll_timeout() == Some(self.now) {
                panic!("a timer stands still at {:?}", self.now);
            }
        }
    }

    fn flush(&mut self) {
        while self.poll() {}
    }

    /// Takes one burst from the engine.
    fn poll(&mut self) -> bool {
        let wanted = self.engine.wants_to_transmit();
        if !self.engine.poll_transmit(self.now, &mut self.burst) {
            assert!(self.burst.is_empty(), "a burst that was not built holds packets");
            return false;
        }
        assert!(wanted, "who sleeps until the engine wants something oversleeps");
        self.bursts += 1;
        for (id, bytes) in (0..).zip(self.burst.segments()) {
            conventions(&self.link, &self.burst, id, bytes);
            let (at, path) = (self.now, self.burst.path);
            let sent = Sent { at, burst: self.bursts, path, bytes: bytes.to_vec() };
            self.sent.push_back(sent);
        }
        true
    }

    fn collect(&mut self) {
        while let Some((cq, mut completion)) = self.engine.poll_completion() {
            assert_eq!(completion.qpn, self.qpn);
            completion.qpn = Qpn::default();
            if completion.status != WcStatus::Success {
                (completion.opcode, completion.byte_len) = (WcOpcode::Send, 0);
            }
            match cq {
                SEND_CQ => self.sends.push(completion),
                _ => self.recvs.push(completion),
            }
        }
        self.events.extend(std::iter::from_fn(|| self.engine.poll_event()));
    }

    // ---- packets ----

    /// Delivers a packet.
    #[track_caller]
    pub fn rx(&mut self, us: u64, line: &str) {
        let bytes = self.packet(line);
        self.rx_bytes(us, &bytes);
    }

    /// Delivers packets in one buffer, as merged by GRO: all but the last have one length.
    #[track_caller]
    pub fn rx_merged(&mut self, us: u64, lines: &[&str]) {
        let packets: Vec<_> = lines.iter().map(|line| self.unsealed(line)).collect();
        let segment_len = packets[0].len();
        let mut data = Vec::new();
        for (id, mut packet) in (0..).zip(packets) {
            self.inbound().seal(id, &mut packet);
            data.extend(packet);
        }
        let meta = self.meta();
        self.at(us);
        self.engine.handle_buffer(self.now, RxBuffer { data: &data, segment_len, meta });
    }

    /// Delivers a datagram unchanged.
    pub fn rx_bytes(&mut self, us: u64, bytes: &[u8]) {
        let meta = self.meta();
        self.rx_meta(us, bytes, meta);
    }

    /// Delivers a datagram with these IP header fields.
    pub fn rx_meta(&mut self, us: u64, bytes: &[u8], meta: RxMeta) {
        self.at(us);
        let buffer = RxBuffer { data: bytes, segment_len: bytes.len(), meta };
        self.engine.handle_buffer(self.now, buffer);
    }

    /// Returns the datagram of a line, including the ICRC.
    pub fn packet(&self, line: &str) -> Vec<u8> {
        self.seal(self.unsealed(line))
    }

    /// Writes the ICRC to the end of a datagram.
    pub fn seal(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        self.inbound().seal(0, &mut bytes);
        bytes
    }

    fn unsealed(&self, line: &str) -> Vec<u8> {
        let line = line.replace("rkey=mem", &format!("rkey={}", self.mem.rkey()));
        let line = line.replace("srqn=ours", &format!("srqn={}", self.named.unwrap_or_default()));
        line::datagram_of(transport(&self.link), &line, self.qpn)
    }

    fn inbound(&self) -> Flow {
        Flow::new(self.meta().source, SocketAddr::new(OURS, ROCE_PORT))
    }

    /// Returns the IP header fields of the peer's packets.
    pub fn meta(&self) -> RxMeta {
        RxMeta {
            source: SocketAddr::new(PEER, source_port(0, PEER_QPN, self.qpn)),
            destination: OURS,
            traffic_class: 0,
            hop_limit: 64,
            ipv4: None,
            may_omit_icrc: false,
        }
    }

    /// Checks that the next packet leaves at this time, and is this one.
    #[track_caller]
    pub fn tx(&mut self, us: u64, line: &str) -> Sent {
        self.at(us);
        if self.sent.is_empty() {
            self.poll();
        }
        let Some(sent) = self.sent.pop_front() else {
            panic!("at {us} µs nothing leaves, not {line:?}");
        };
        let found = (sent.at.as_nanos().div_ceil(1000), sent.line());
        assert_eq!(found, (us, line.to_owned()), "(µs, packet); behind it: {:?}", self.lines());
        sent
    }

    /// Returns all packets that leave until then and were not named yet.
    pub fn all(&mut self, us: u64) -> Vec<Sent> {
        self.at(us);
        self.flush();
        self.sent.drain(..).collect()
    }

    /// Checks that no further packet leaves until then.
    #[track_caller]
    pub fn quiet(&mut self, us: u64) {
        self.at(us);
        self.flush();
        assert_eq!(self.lines(), Vec::<String>::new(), "by {us} µs");
    }

    fn lines(&self) -> Vec<String> {
        self.sent.iter().map(|sent| format!("{:?} {}", sent.at, sent.line())).collect()
    }

    // ---- completions and events ----

    pub fn sends(&mut self) -> Vec<Completion> {
        self.collect();
        std::mem::take(&mut self.sends)
    }

    pub fn recvs(&mut self) -> Vec<Completion> {
        self.collect();
        std::mem::take(&mut self.recvs)
    }

    pub fn events(&mut self) -> Vec<AsyncEvent> {
        self.collect();
        std::mem::take(&mut self.events)
    }

    /// Ends the script without checking for further outputs.
    pub fn leave(mut self) {
        self.unfinished = true;
    }

    // ---- receiving ----

    /// Posts a receive of `len` bytes. They are numbered from 1.
    pub fn post_recv(&mut self, len: usize) -> u64 {
        let at = self.receives % (AREA / RECEIVE) * RECEIVE;
        let sges = [sge(&self.inbox, at, len)];
        self.post_recv_sges(if len == 0 { &[] } else { &sges }).unwrap()
    }

    pub fn post_recv_sges(&mut self, sges: &[Sge]) -> Result<u64, PostError> {
        let wr_id = self.receives as u64 + 1;
        let recv = RecvRequest { wr_id, sges: sges.iter().copied().collect() };
        match self.named.or(self.link.srq) {
            None => self.engine.post_recv(self.now, self.qpn, recv)?,
            Some(srqn) => self.engine.post_srq_recv(srqn, recv)?,
        }
        self.receives += 1;
        Ok(wr_id)
    }

    /// Returns the contents of a receive.
    pub fn received(&self, wr_id: u64, len: usize) -> Vec<u8> {
        let at = (wr_id as usize - 1) % (AREA / RECEIVE) * RECEIVE;
        bytes(&self.inbox, at, len)
    }

    // ---- sending ----

    pub fn post(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.engine.post_send(self.now, self.qpn, request)
    }

    /// Posts a signaled request for the first `len` bytes of [`data`](Self::data), or of [`answers`](Self::answers)
    /// for requests with a response.
    pub fn post_op(&mut self, wr_id: u64, op: SendOp, len: usize) {
        self.post_flags(wr_id, op, len, SendFlags::SIGNALED);
    }

    pub fn post_flags(&mut self, wr_id: u64, op: SendOp, len: usize, flags: SendFlags) {
        let region = if op.has_result() { &self.answers } else { &self.data };
        let piece = [sge(region, 0, len)];
        let sges = if matches!(op, SendOp::Flush { .. }) { &piece[..0] } else { &piece };
        let to = match self.link.qp_type {
            QpType::Ud => Some(target(PEER_QPN).into()),
            QpType::XrcIni => Some(PEER_SRQN.into()),
            _ => None,
        };
        self.post(SendRequest { flags, to, ..request(wr_id, op, sges) }).unwrap();
    }

    pub fn send(&mut self, wr_id: u64, len: usize) {
        self.post_op(wr_id, SendOp::Send, len);
    }

    /// Posts a WRITE to [`REMOTE`].
    pub fn write(&mut self, wr_id: u64, len: usize) {
        self.post_op(wr_id, SendOp::Write { to: REMOTE }, len);
    }

    /// Posts a READ from [`REMOTE`].
    pub fn read(&mut self, wr_id: u64, len: usize) {
        self.post_op(wr_id, SendOp::Read { from: REMOTE }, len);
    }

    /// Posts an atomic at [`REMOTE`].
    pub fn fetch_add(&mut self, wr_id: u64, add: u64) {
        self.post_op(wr_id, SendOp::FetchAdd { at: REMOTE, add }, 8);
    }

    /// Posts a FLUSH of `length` bytes at [`REMOTE`], with global visibility.
    pub fn flush_remote(&mut self, wr_id: u64, length: u32) {
        let target = FlushTarget::Range { at: REMOTE, length };
        let placement = FlushPlacement::GLOBAL_VISIBILITY;
        self.post_op(wr_id, SendOp::Flush { target, placement }, 0);
    }

    /// Returns the bytes of [`data`](Self::data) that the last request sends.
    pub fn sent_data(&self, range: std::ops::Range<usize>) -> Vec<u8> {
        bytes(&self.data, range.start, range.len())
    }

    /// Returns the bytes that a response has written.
    pub fn answer(&self, len: usize) -> Vec<u8> {
        bytes(&self.answers, 0, len)
    }

    /// Registers another region in this domain.
    pub fn region(&self, len: usize, iova: u64, access: Access) -> Arc<Region> {
        self.memory.register(PD, HostMemory::alloc(len).unwrap(), Some(iova), access).unwrap()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if self.unfinished || std::thread::panicking() {
            return;
        }
        self.flush();
        self.collect();
        let left = (self.lines(), &self.sends[..], &self.recvs[..], &self.events[..]);
        let nothing = (Vec::<String>::new(), &[][..], &[][..], &[][..]);
        assert_eq!(left, nothing, "the script does not name these");
    }
}

/// Returns bytes of a region.
pub fn bytes(region: &Region, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read_at(at, &mut bytes).unwrap();
    bytes
}

fn transport(link: &Link) -> Transport {
    match link.qp_type {
        QpType::Rc => Transport::Rc,
        QpType::Uc => Transport::Uc,
        QpType::Ud => Transport::Ud,
        QpType::XrcIni | QpType::XrcTgt => Transport::Xrc,
    }
}

/// Checks the conventions for every sent packet that lines do not show: addresses, ICRC, reserved bits, MigReq,
/// padding, full packets, and where AckReq and the solicited bit may be set (PKT-01, PKT-15, PKT-16, PKT-18, REQ-06,
/// REQ-41).
fn conventions(link: &Link, burst: &Burst, id: u16, bytes: &[u8]) {
    let path = &burst.path;
    let is_connected = link.qp_type != QpType::Ud;
    if is_connected {
        assert_eq!((path.source, path.destination), (OURS, PEER));
    }
    assert!(path.source_port >= 0xc000, "UDP source port {:#x}", path.source_port);
    let flow =
        Flow::new((path.source, path.source_port).into(), (path.destination, ROCE_PORT).into());
    let fields = Ipv4Fields { id, dont_fragment: true };
    let seen = path.source.is_ipv4().then_some(fields);
    assert_eq!(flow.check(seen, 0, bytes), Verdict::Good, "ICRC");

    let packet = Datagram::parse(bytes).unwrap();
    let (bth, opcode) = (packet.bth, packet.bth.opcode);
    let line = PacketLine(&packet);
    assert_eq!(opcode.transport(), transport(link), "{line}");
    assert!(bth.dest_qp == PEER_QPN || !is_connected, "{line}: to {}", bth.dest_qp);
    assert_eq!((bytes[4], bytes[8] & 0x7f), (0, 0), "{line}: FECN, BECN and reserved bits");
    assert!(bth.migreq, "{line}: MigReq");
    let pad = usize::from(bth.pad);
    assert_eq!(pad, packet.payload.len().wrapping_neg() % 4, "{line}: padding");
    let padding = &bytes[bytes.len() - 4 - pad..bytes.len() - 4];
    assert!(padding.iter().all(|byte| *byte == 0), "{line}: padding is not zero");
    let (len, mtu) = (packet.payload.len(), link.mtu.bytes());
    if opcode.position().is_end() {
        assert!(len <= mtu, "{line}: longer than the path MTU");
    } else {
        assert_eq!(len, mtu, "{line}: not full");
    }
    let acknowledged = opcode.is_request() && matches!(link.qp_type, QpType::Rc | QpType::XrcIni);
    assert!(!bth.ack_req || acknowledged, "{line}: AckReq in a packet without acknowledgement");
    let notifies = match opcode.operation() {
        Operation::Send => opcode.position().is_end(),
        Operation::Write => opcode.has_imm(),
        _ => false,
    };
    assert!(!bth.solicited || notifies, "{line}: solicited");
}
