//! One end of a connection with all that it needs.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::process;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use softroce::port::udp;
use softroce::runtime::OpenError;
use softroce::verbs::*;

/// How long something may take that takes a few microseconds, on a machine with other things to do.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(20);

/// Bytes of a node's memory.
pub(crate) const MEMORY_BYTES: usize = 1 << 20;

/// The key of UD queue pairs.
pub(crate) const QKEY: QKey = QKey(0x1111_1111);

/// Bytes of each of their receives.
pub(crate) const RECV_BYTES: usize = 256;

/// An address of the loopback network that no other test uses, nor another run of the tests.
pub(crate) fn fresh_ip() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Processes that were started one after the other begin far from each other (Fibonacci hashing).
    let first = process::id().wrapping_mul(0x9e37_79b1) >> 9;
    let place = first + NEXT.fetch_add(1, Ordering::Relaxed);
    Ipv4Addr::from(0x7f80_0000 | place & 0x007f_ffff).into()
}

/// A process that is being started holds, for a moment, the sockets of this one. Taken to write by
/// who starts one, and to read by who closes an address and opens it again.
pub(crate) static PROCESS_START_LOCK: RwLock<()> = RwLock::new(());

/// Opens a device of its own.
pub(crate) fn open() -> Context {
    // Where another process of these tests begins is as good as random: it may be in the middle of ours.
    let mut opened = (0..4).map(|_| Context::open(OpenOptions::default().ip(fresh_ip())));
    let is_ours = |opened: &Result<_, _>| {
        !matches!(opened, Err(Error::Open(OpenError::Port(udp::OpenError::InUse { .. }))))
    };
    opened.find(is_ours).unwrap().unwrap()
}

/// Opens a device with the address `::1`, and perhaps others, and with it the turn to use that address: there is one, and
/// tests run at the same time. `None` where this machine has no IPv6.
pub(crate) fn open_ipv6_loopback(options: OpenOptions) -> Option<(File, Context)> {
    let turn = std::env::temp_dir().join("softroce-test-ipv6-loopback");
    // Never cut, should it be another file.
    let turn = File::options().append(true).create(true).open(turn).unwrap();
    turn.lock().unwrap();
    match Context::open(options) {
        Err(Error::Open(OpenError::Port(
            udp::OpenError::NotLocal { .. } | udp::OpenError::Os { .. },
        ))) => None,
        opened => Some((turn, opened.unwrap())),
    }
}

/// Opens a device of its own in a certain way.
pub(crate) fn open_with(options: OpenOptions) -> Context {
    Context::open(options.ip(fresh_ip())).unwrap()
}

/// One end of a connection.
pub(crate) struct Node {
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    pub(crate) mr: MemoryRegion,
    pub(crate) pd: ProtectionDomain,
    pub(crate) ctx: Context,
}

/// Everything that peers may be allowed to do.
pub(crate) fn all_access() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// One attempt, of 4.3 seconds: what is not answered fails, and not because the machine is busy.
pub(crate) fn single_attempt() -> ConnectOptions {
    let timeout = AckTimeout::new(20).unwrap();
    ConnectOptions { timeout, retry_cnt: 0, ..ConnectOptions::default() }
}

/// A UD queue pair, with what else a [`Node`] has, that takes `receives` messages.
pub(crate) fn datagrams(ctx: Context, receives: u64) -> Node {
    let mut node = Node::on(ctx);
    node.qp = node.pd.create_qp(&QpConfig::ud(&node.cq)).unwrap();
    node.qp.activate(QKEY).unwrap();
    for wr_id in 0..receives {
        let at = wr_id as usize * RECV_BYTES;
        node.recv(wr_id, at..at + RECV_BYTES);
    }
    node
}

impl Node {
    /// An end that is not connected yet.
    pub(crate) fn on(ctx: Context) -> Self {
        let cq = ctx.create_cq(256, None).unwrap();
        Self::with_cq(ctx, cq)
    }

    /// The same, whose requests end in `cq`.
    pub(crate) fn with_cq(ctx: Context, cq: CompletionQueue) -> Self {
        let pd = ctx.alloc_pd();
        let mr = pd.alloc_mr(MEMORY_BYTES, all_access()).unwrap();
        let qp = pd.create_qp(&QpConfig::rc(&cq)).unwrap();
        Self { qp, cq, mr, pd, ctx }
    }

    /// Connects two ends with each other.
    pub(crate) fn connect(&self, peer: &Self, options: &ConnectOptions) {
        self.qp.connect(&peer.qp.endpoint(), options).unwrap();
        peer.qp.connect(&self.qp.endpoint(), options).unwrap();
    }

    /// Two connected ends, each on a device of its own.
    pub(crate) fn pair() -> (Self, Self) {
        Self::pair_on(open(), open())
    }

    /// Two connected ends on these devices, or this device.
    pub(crate) fn pair_on(a: Context, b: Context) -> (Self, Self) {
        let (a, b) = (Self::on(a), Self::on(b));
        a.connect(&b, &ConnectOptions::default());
        (a, b)
    }

    /// Posts a receive request for `range` of the memory.
    pub(crate) fn recv(&self, wr_id: u64, range: std::ops::Range<usize>) {
        self.qp.post_recv(RecvRequest::new(wr_id, self.mr.sge(range))).unwrap();
    }

    /// Posts a send request whose success is announced.
    pub(crate) fn send(&self, request: SendRequest) {
        self.qp.post_send(request.signaled()).unwrap();
    }

    /// The next completion.
    pub(crate) fn next(&self) -> Completion {
        self.cq.wait_one(WAIT_LIMIT).unwrap()
    }

    /// What became of the next request: its number, and how it ended.
    pub(crate) fn end(&self) -> (u64, WcStatus) {
        let completion = self.next();
        (completion.wr_id, completion.status)
    }

    /// Runs a request and expects it to succeed.
    pub(crate) fn run(&self, request: SendRequest) {
        let expected = (request.wr_id, WcStatus::Success);
        self.send(request);
        assert_eq!(self.end(), expected);
    }

    /// Bytes of the memory.
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.mr.read_at(offset, &mut bytes).unwrap();
        bytes
    }

    /// Fills part of the memory with bytes that follow from `seed`, and returns them.
    pub(crate) fn fill(&self, offset: usize, len: usize, seed: u32) -> Vec<u8> {
        let bytes = pattern(len, seed);
        self.mr.write_at(offset, &bytes).unwrap();
        bytes
    }

    /// The next asynchronous event.
    pub(crate) fn event(&self) -> AsyncEvent {
        self.ctx.wait_event(WAIT_LIMIT).unwrap()
    }
}

/// Bytes without a short period.
pub(crate) fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}
