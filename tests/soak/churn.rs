//! Objects that are created, used and destroyed repeatedly, on two permanent devices and on short-lived ones.

use std::fmt;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Wake, Waker};

use softroce::port::PortKind;
use softroce::verbs::*;

use crate::node::{QKEY, WAIT_LIMIT, all_access, pattern};

/// Length of a device's memory in bytes.
const MEMORY: usize = 1 << 17;

/// Number of objects per round: a device for ten queue pairs and a hundred regions.
const PAIRS: u64 = 18;
const REGIONS: u64 = 400;
const WINDOWS: u64 = 40;
const CANCELLED: u64 = 8;

/// Number of created and destroyed objects of each kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    devices: u64,
    queue_pairs: u64,
    regions: u64,
    windows: u64,
    channels: u64,
    announcements: u64,
    async_events: u64,
    futures: u64,
    messages: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { devices, queue_pairs, regions, windows, .. } = self;
        let Self { channels, announcements, async_events, futures, messages, .. } = self;
        write!(
            f,
            "{devices} devices, {queue_pairs} queue pairs, {regions} regions, {windows} windows, \
             {channels} channels, {announcements} announcements, {async_events} asynchronous events, \
             {futures} cancelled futures, {messages} messages"
        )
    }
}

/// A device with memory.
struct Side {
    ctx: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    mr: MemoryRegion,
}

/// A queue pair with its own completion queue.
struct End<'a> {
    side: &'a Side,
    qp: QueuePair,
    cq: CompletionQueue,
}

impl Side {
    fn open(options: OpenOptions) -> Self {
        let ctx = Context::open(options).unwrap();
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(64, None).unwrap());
        let mr = pd.alloc_mr(MEMORY, all_access() | Access::MW_BIND).unwrap();
        Self { ctx, pd, cq, mr }
    }

    /// Creates a queue pair of this type.
    fn end(&self, qp_type: QpType) -> End<'_> {
        let cq = self.ctx.create_cq(16, None).unwrap();
        let qp = self.pd.create_qp(&QpConfig { qp_type, ..QpConfig::rc(&cq) }).unwrap();
        End { side: self, qp, cq }
    }

    fn fill(&self, offset: usize, len: usize, seed: u64) -> Vec<u8> {
        let bytes = pattern(len, seed as u32);
        self.mr.write_at(offset, &bytes).unwrap();
        bytes
    }

    #[track_caller]
    fn assert_has(&self, offset: usize, expected: &[u8]) {
        let mut bytes = vec![0; expected.len()];
        self.mr.read_at(offset, &mut bytes).unwrap();
        assert!(bytes == expected, "damaged message at {offset}");
    }

    /// Takes and acknowledges events until this one arrives.
    fn take_event(&self, expected: AsyncEvent) {
        while *self.ctx.get_async_event(WAIT_LIMIT).unwrap() != expected {}
    }
}

/// Waits for the completion of a request.
#[track_caller]
fn expect(cq: &CompletionQueue, wr_id: u64, status: WcStatus) -> Completion {
    let completion = cq.wait_one(WAIT_LIMIT).unwrap();
    assert_eq!((completion.wr_id, completion.status), (wr_id, status));
    completion
}

/// Connects two queue pairs with each other.
fn connect(a: &End<'_>, b: &End<'_>) {
    a.qp.connect(&b.qp.endpoint(), &ConnectOptions::default()).unwrap();
    b.qp.connect(&a.qp.endpoint(), &ConnectOptions::default()).unwrap();
}

/// Offsets of a message at its sender, at its receiver, and of its copy.
const SOURCE: usize = 0;
const TARGET: usize = 32 << 10;
const BACK: usize = 64 << 10;
const WORD: usize = 96 << 10;

/// Sends a message and compares it; returns the number of messages.
fn send(from: &End<'_>, to: &End<'_>, seed: u64) -> u64 {
    let len = 1 + seed as usize % 5000;
    let sent = from.side.fill(SOURCE, len, seed);
    let room = to.side.mr.sge(TARGET..TARGET + len);
    to.qp.post_recv(RecvRequest::new(seed, room)).unwrap();
    from.qp.post_send(SendRequest::send(1, from.side.mr.sge(SOURCE..len)).signaled()).unwrap();
    expect(&from.cq, 1, WcStatus::Success);
    expect(&to.cq, seed, WcStatus::Success);
    to.side.assert_has(TARGET, &sent);
    1
}

/// Writes a message, reads it back and executes an atomic; returns the number of messages.
fn write_and_read(from: &End<'_>, to: &End<'_>, seed: u64) -> u64 {
    let len = 1 + seed as usize % 20_000;
    let sent = from.side.fill(SOURCE, len, seed);
    let run = |request: SendRequest| {
        let wr_id = request.wr_id;
        from.qp.post_send(request.signaled()).unwrap();
        expect(&from.cq, wr_id, WcStatus::Success);
    };
    let mr = &from.side.mr;
    run(SendRequest::write(1, mr.sge(SOURCE..len), to.side.mr.remote(TARGET)));
    to.side.assert_has(TARGET, &sent);
    run(SendRequest::read(2, mr.sge(BACK..BACK + len), to.side.mr.remote(TARGET)));
    from.side.assert_has(BACK, &sent);
    to.side.mr.write_at(WORD, &seed.to_ne_bytes()).unwrap();
    run(SendRequest::fetch_add(3, mr.sge(WORD..WORD + 8), to.side.mr.remote(WORD), 5));
    to.side.assert_has(WORD, &(seed + 5).to_ne_bytes());
    from.side.assert_has(WORD, &seed.to_ne_bytes());
    3
}

fn rc(a: &Side, b: &Side, seed: u64, counts: &mut Counts) {
    let (a, b) = (a.end(QpType::Rc), b.end(QpType::Rc));
    connect(&a, &b);
    counts.messages += send(&a, &b, seed) + write_and_read(&a, &b, seed) + send(&b, &a, seed);
    counts.queue_pairs += 2;
    a.qp.destroy().unwrap();
    a.cq.destroy().unwrap();
}

/// A channel announces a completion.
fn announced(a: &Side, b: &Side, seed: u64, counts: &mut Counts) {
    let channel = b.ctx.create_channel().unwrap();
    let cq = b.ctx.create_cq(16, Some(&channel)).unwrap();
    let qp = b.pd.create_qp(&QpConfig::rc(&cq)).unwrap();
    let (a, b) = (a.end(QpType::Rc), End { side: b, qp, cq });
    connect(&a, &b);
    b.cq.req_notify(false);
    counts.messages += send(&a, &b, seed);
    // The completion is announced, before or after it is polled.
    let event = channel.wait(WAIT_LIMIT).unwrap();
    assert_eq!(event.id(), b.cq.id());
    drop(event);
    let End { qp, cq, .. } = b;
    qp.destroy().unwrap();
    cq.destroy().unwrap();
    channel.destroy().unwrap();
    counts.queue_pairs += 2;
    counts.channels += 1;
    counts.announcements += 1;
}

fn uc(a: &Side, b: &Side, seed: u64, counts: &mut Counts) {
    let (a, b) = (a.end(QpType::Uc), b.end(QpType::Uc));
    connect(&a, &b);
    counts.messages += send(&a, &b, seed);
    counts.queue_pairs += 2;
}

fn ud(a: &Side, b: &Side, seed: u64, counts: &mut Counts) {
    let (a, b) = (a.end(QpType::Ud), b.end(QpType::Ud));
    for end in [&a, &b] {
        end.qp.activate(QKEY).unwrap();
    }
    let sent = a.side.fill(SOURCE, 900, seed);
    let room = b.side.mr.sge(TARGET..TARGET + 1024);
    b.qp.post_recv(RecvRequest::new(seed, room)).unwrap();
    let ah = a.side.pd.create_ah(AddressVector::to(b.qp.endpoint().gid)).unwrap();
    let message = SendRequest::send(1, a.side.mr.sge(SOURCE..900));
    a.qp.post_send(message.to(ah.target(b.qp.qpn(), QKEY)).signaled()).unwrap();
    expect(&a.cq, 1, WcStatus::Success);
    expect(&b.cq, seed, WcStatus::Success);
    b.side.assert_has(TARGET + GRH_LEN, &sent);
    counts.queue_pairs += 2;
    counts.messages += 1;
}

/// A shared receive queue, and its limit event.
fn srq(a: &Side, b: &Side, seed: u64, counts: &mut Counts) {
    let srq = b.pd.create_srq(&SrqConfig { max_wr: 8, max_sge: 1 }).unwrap();
    let cq = b.ctx.create_cq(16, None).unwrap();
    let qp = b.pd.create_qp(&QpConfig { srq: Some(&srq), ..QpConfig::rc(&cq) }).unwrap();
    let (a, b) = (a.end(QpType::Rc), End { side: b, qp, cq });
    connect(&a, &b);
    for wr_id in 0..2 {
        srq.post_recv(RecvRequest::new(wr_id, b.side.mr.sge(TARGET..TARGET + 1024))).unwrap();
    }
    srq.modify(SrqModify { limit: Some(2), ..SrqModify::default() }).unwrap();
    let sent = a.side.fill(SOURCE, 1024, seed);
    a.qp.post_send(SendRequest::send(1, a.side.mr.sge(SOURCE..1024)).signaled()).unwrap();
    expect(&a.cq, 1, WcStatus::Success);
    expect(&b.cq, 0, WcStatus::Success);
    b.side.assert_has(TARGET, &sent);
    b.side.take_event(AsyncEvent::SrqLimitReached(srq.srqn()));
    counts.queue_pairs += 2;
    counts.async_events += 1;
    counts.messages += 1;
}

fn xrc(a: &Side, b: &Side, seed: u64, counts: &mut Counts) {
    let a = a.end(QpType::XrcIni);
    let domain = b.ctx.open_xrcd(&XrcdOptions::default()).unwrap();
    let target = domain.create_target().unwrap();
    let cq = b.ctx.create_cq(16, None).unwrap();
    let srq = b.pd.create_xrc_srq(&SrqConfig::default(), &domain, &cq).unwrap();
    a.qp.connect(&target.endpoint(), &ConnectOptions::default()).unwrap();
    target.connect(&a.qp.endpoint(), &ConnectOptions::default()).unwrap();
    let sent = a.side.fill(SOURCE, 3000, seed);
    srq.post_recv(RecvRequest::new(seed, b.mr.sge(TARGET..TARGET + 3000))).unwrap();
    let message = SendRequest::send(1, a.side.mr.sge(SOURCE..3000)).to(srq.srqn());
    a.qp.post_send(message.signaled()).unwrap();
    expect(&a.cq, 1, WcStatus::Success);
    expect(&cq, seed, WcStatus::Success);
    b.assert_has(TARGET, &sent);
    counts.queue_pairs += 2;
    counts.messages += 1;
}

/// Queue pairs that fail by a WRITE with an invalid key, with further requests behind it.
fn refused(a: &Side, b: &Side, seed: u64, counts: &mut Counts) {
    let (a, b) = (a.end(QpType::Rc), b.end(QpType::Rc));
    connect(&a, &b);
    b.qp.post_recv(RecvRequest::new(seed, b.side.mr.sge(..64))).unwrap();
    let nowhere = RemoteAddr { rkey: Rkey(0xdead_be00), ..b.side.mr.remote(0) };
    for wr_id in 1..4 {
        let write = SendRequest::write(wr_id, a.side.mr.sge(..9000), nowhere);
        a.qp.post_send(write.signaled()).unwrap();
    }
    expect(&a.cq, 1, WcStatus::RemAccessErr);
    expect(&a.cq, 2, WcStatus::WrFlushErr);
    expect(&a.cq, 3, WcStatus::WrFlushErr);
    expect(&b.cq, seed, WcStatus::WrFlushErr);
    b.side.take_event(AsyncEvent::QpAccessErr(b.qp.qpn()));
    counts.queue_pairs += 2;
    counts.async_events += 1;
}

/// Queue pairs that are destroyed with messages in flight and posted receives.
fn abandoned(a: &Side, b: &Side, seed: u64, counts: &mut Counts) {
    let (a, b) = (a.end(QpType::Rc), b.end(QpType::Rc));
    connect(&a, &b);
    for wr_id in 0..4 {
        b.qp.post_recv(RecvRequest::new(wr_id, b.side.mr.sge(TARGET..BACK))).unwrap();
        a.qp.post_send(SendRequest::send(wr_id, a.side.mr.sge(SOURCE..TARGET))).unwrap();
        let read = SendRequest::read(wr_id, a.side.mr.sge(BACK..WORD), b.side.mr.remote(TARGET));
        a.qp.post_send(read.signaled()).unwrap();
    }
    if seed.is_multiple_of(2) {
        drop(b);
        drop(a);
    }
    counts.queue_pairs += 2;
}

/// A multicast group that is joined and left.
fn group(a: &Side, b: &Side, seed: u64, counts: &mut Counts) {
    let group = Gid::from(IpAddr::from([239, 7, 7, (seed % 16) as u8]));
    let ends = [a, b].map(|side| {
        let end = side.end(QpType::Ud);
        end.qp.activate(QKEY).unwrap();
        end.qp.attach_mcast(group).unwrap();
        end
    });
    if seed.is_multiple_of(2) {
        ends[0].qp.detach_mcast(group).unwrap();
    }
    counts.queue_pairs += 2;
}

type Kind = fn(&Side, &Side, u64, &mut Counts);

const KINDS: [Kind; 9] = [rc, announced, uc, ud, srq, xrc, refused, abandoned, group];

/// Regions of every kind, which the peer accesses by connected queue pairs.
fn regions(a: &End<'_>, b: &End<'_>, seed: u64, counts: &mut Counts) {
    for number in 0..REGIONS {
        let len = 1 + (seed * REGIONS + number) as usize % 30_000;
        let mr = b.side.pd.alloc_mr(len, all_access()).unwrap();
        if number.is_multiple_of(20) {
            let word = number.to_ne_bytes();
            let to = mr.remote(len.saturating_sub(8));
            let word = &word[..len.min(8)];
            let write = SendRequest::write(1, SendData::inline(word), to);
            a.qp.post_send(write.signaled()).unwrap();
            expect(&a.cq, 1, WcStatus::Success);
            let mut found = vec![0; word.len()];
            mr.read_at(len.saturating_sub(8), &mut found).unwrap();
            assert_eq!(found, word);
        }
        if number.is_multiple_of(2) {
            mr.deregister().unwrap();
        }
    }
    counts.messages += REGIONS.div_ceil(20);
    counts.regions += REGIONS;
}

/// Windows of both types: bound, written, and unbound in every possible way.
fn windows(a: &End<'_>, b: &End<'_>, seed: u64, counts: &mut Counts) {
    let mr = b.side.pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    for number in 0..WINDOWS {
        let mw_type = MwType::ALL[number as usize % 2];
        let mw = b.side.pd.alloc_mw(mw_type).unwrap();
        let info = mr.bind_info(..64, Access::REMOTE_WRITE);
        let rkey = match mw_type {
            MwType::Type1 => b.qp.bind_mw(7, SendFlags::SIGNALED, &mw, info).unwrap(),
            MwType::Type2 => {
                let rkey = mw.rkey().inc();
                b.qp.post_send(SendRequest::bind_mw(7, mw.id(), rkey, info).signaled()).unwrap();
                rkey
            }
        };
        expect(&b.cq, 7, WcStatus::Success);
        let word = SendData::inline(&(seed + number).to_ne_bytes());
        let write = SendRequest::write(1, word, RemoteAddr { addr: info.addr, rkey });
        a.qp.post_send(write.signaled()).unwrap();
        expect(&a.cq, 1, WcStatus::Success);
        assert_eq!(mr.load_u64(0), Ok(seed + number));
        if mw_type == MwType::Type2 && number.is_multiple_of(4) {
            b.qp.post_send(SendRequest::local_inv(8, rkey).signaled()).unwrap();
            expect(&b.cq, 8, WcStatus::Success);
        }
    }
    counts.messages += WINDOWS;
    counts.windows += WINDOWS;
    counts.regions += 1;
}

struct Task;

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

/// Tasks that stop waiting for a completion, and one that gets it.
fn futures(side: &Side, counts: &mut Counts) {
    let qp = side.pd.create_qp(&QpConfig::rc(&side.cq)).unwrap();
    qp.connect(&qp.endpoint(), &ConnectOptions::default()).unwrap();
    let poll_once = || {
        let waker = Waker::from(Arc::new(Task));
        pin!(side.cq.next()).poll(&mut TaskContext::from_waker(&waker)).is_ready()
    };
    for _ in 0..CANCELLED {
        assert!(!poll_once());
    }
    let write = SendRequest::write(9, SendData::inline(b"x"), side.mr.remote(0));
    qp.post_send(write.signaled()).unwrap();
    expect(&side.cq, 9, WcStatus::Success);
    counts.futures += CANCELLED;
    counts.queue_pairs += 1;
}

/// Two permanent devices, and the addresses of short-lived ones.
pub(crate) struct Churn {
    via: PortKind,
    sides: [Side; 2],
    addresses: Vec<IpAddr>,
    /// Number of rounds.
    pub(crate) rounds: u64,
    pub(crate) counts: Counts,
}

impl Churn {
    /// Opens two devices at the first two addresses.
    pub(crate) fn new(via: PortKind, addresses: &[IpAddr]) -> Self {
        let (stay, go) = addresses.split_at(2);
        let sides =
            [stay[0], stay[1]].map(|ip| Side::open(OpenOptions::default().ip(ip).via(via.clone())));
        Self { via, sides, addresses: go.to_vec(), rounds: 0, counts: Counts::default() }
    }

    /// Creates, uses and destroys objects of every kind.
    pub(crate) fn round(&mut self) {
        let (first, second, counts) = (&self.sides[0], &self.sides[1], &mut self.counts);
        let (seed, from_second) = (self.rounds, self.rounds % 2 == 1);
        let (a, b) = if from_second { (second, first) } else { (first, second) };
        for number in 0..PAIRS {
            KINDS[number as usize % KINDS.len()](a, b, seed * PAIRS + number, counts);
        }
        let (from, to) = (a.end(QpType::Rc), b.end(QpType::Rc));
        connect(&from, &to);
        regions(&from, &to, seed, counts);
        windows(&from, &to, seed, counts);
        counts.queue_pairs += 2;
        drop((from, to));
        futures(a, counts);
        self.devices();
        self.rounds += 1;
    }

    /// Opens devices, exchanges messages between them and a permanent one, and closes them in several orders.
    fn devices(&mut self) {
        for pair in 0..2 {
            let number = self.rounds * 2 + pair;
            let place = number as usize * 2 % self.addresses.len();
            let ips = [self.addresses[place], self.addresses[place + 1]];
            let mut options =
                ips.map(|ip| OpenOptions::default().ip(ip).via(self.via.clone())).into_iter();
            let c = Side::open(options.next().unwrap());
            let of_d = options.next().unwrap();
            let has_shards = self.via == PortKind::Udp && pair == 1;
            let d = Side::open(if has_shards { of_d.shards(2) } else { of_d });
            let (counts, stays) = (&mut self.counts, &self.sides[number as usize % 2]);
            rc(&c, &d, number, counts);
            rc(stays, &c, number, counts);
            abandoned(&d, stays, number, counts);
            counts.devices += 2;
            match number % 3 {
                0 => drop((c, d)),
                1 => drop((d, c)),
                _ => {
                    // The context is dropped first, and the memory last.
                    let Side { ctx, pd, cq, mr } = c;
                    drop(ctx);
                    drop((cq, pd));
                    drop((d, mr));
                }
            }
        }
    }
}
