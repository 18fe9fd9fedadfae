//! A node: a device with the objects for one side of a connection.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::process;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use softroce::port::udp;
use softroce::runtime::OpenError;
use softroce::verbs::*;

/// Time limit of waits for events that normally take microseconds, on a busy machine.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(20);

/// Size of a node's memory in bytes.
pub(crate) const MEMORY_BYTES: usize = 1 << 20;

/// Queue key of UD queue pairs.
pub(crate) const QKEY: QKey = QKey(0x1111_1111);

/// Length in bytes of each UD receive request.
pub(crate) const RECV_BYTES: usize = 256;

/// Returns a loopback address that no other test and no other run of the tests uses.
pub(crate) fn fresh_ip() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Fibonacci hashing: consecutive process numbers give distant addresses.
    let first = process::id().wrapping_mul(0x9e37_79b1) >> 9;
    let place = first + NEXT.fetch_add(1, Ordering::Relaxed);
    Ipv4Addr::from(0x7f80_0000 | place & 0x007f_ffff).into()
}

/// Lock for process starts, which inherit the sockets of this process for a moment. Tests that start a process
/// write-lock it; tests that close and reopen an address read-lock it.
pub(crate) static PROCESS_START_LOCK: RwLock<()> = RwLock::new(());

/// Opens a device at a fresh address.
pub(crate) fn open() -> Context {
    // The addresses of other test processes are random, so one may conflict.
    let mut opened = (0..4).map(|_| Context::open(OpenOptions::default().ip(fresh_ip())));
    let is_ours = |opened: &Result<_, _>| {
        !matches!(opened, Err(Error::Open(OpenError::Port(udp::OpenError::InUse { .. }))))
    };
    opened.find(is_ours).unwrap().unwrap()
}

/// Opens a device with the address `::1`, and perhaps others, and returns it with a file lock, because tests in
/// parallel share this address. `None` on machines without IPv6.
pub(crate) fn open_ipv6_loopback(options: OpenOptions) -> Option<(File, Context)> {
    let turn = std::env::temp_dir().join("softroce-test-ipv6-loopback");
    // Does not truncate an existing file.
    let turn = File::options().append(true).create(true).open(turn).unwrap();
    turn.lock().unwrap();
    match Context::open(options) {
        Err(Error::Open(OpenError::Port(
            udp::OpenError::NotLocal { .. } | udp::OpenError::Os { .. },
        ))) => None,
        opened => Some((turn, opened.unwrap())),
    }
}

/// Opens a device at a fresh address with these options.
pub(crate) fn open_with(options: OpenOptions) -> Context {
    Context::open(options.ip(fresh_ip())).unwrap()
}

/// One side of a connection.
pub(crate) struct Node {
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    pub(crate) mr: MemoryRegion,
    pub(crate) pd: ProtectionDomain,
    pub(crate) ctx: Context,
}

/// Returns all access rights for peers.
pub(crate) fn all_access() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// Returns options with a single attempt of 4.3 seconds, which is sufficient on a busy machine.
pub(crate) fn single_attempt() -> ConnectOptions {
    let timeout = AckTimeout::new(20).unwrap();
    ConnectOptions { timeout, retry_cnt: 0, ..ConnectOptions::default() }
}

/// Creates a node with a UD queue pair that has `receives` receive requests.
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
    /// Creates an unconnected node.
    pub(crate) fn on(ctx: Context) -> Self {
        let cq = ctx.create_cq(256, None).unwrap();
        Self::with_cq(ctx, cq)
    }

    /// Creates an unconnected node with this completion queue.
    pub(crate) fn with_cq(ctx: Context, cq: CompletionQueue) -> Self {
        let pd = ctx.alloc_pd();
        let mr = pd.alloc_mr(MEMORY_BYTES, all_access()).unwrap();
        let qp = pd.create_qp(&QpConfig::rc(&cq)).unwrap();
        Self { qp, cq, mr, pd, ctx }
    }

    /// Connects two nodes.
    pub(crate) fn connect(&self, peer: &Self, options: &ConnectOptions) {
        self.qp.connect(&peer.qp.endpoint(), options).unwrap();
        peer.qp.connect(&self.qp.endpoint(), options).unwrap();
    }

    /// Creates two connected nodes, each with its own device.
    pub(crate) fn pair() -> (Self, Self) {
        Self::pair_on(open(), open())
    }

    /// Creates two connected nodes on these devices, which may be the same.
    pub(crate) fn pair_on(a: Context, b: Context) -> (Self, Self) {
        let (a, b) = (Self::on(a), Self::on(b));
        a.connect(&b, &ConnectOptions::default());
        (a, b)
    }

    /// Posts a receive request for `range` of the memory.
    pub(crate) fn recv(&self, wr_id: u64, range: std::ops::Range<usize>) {
        self.qp.post_recv(RecvRequest::new(wr_id, self.mr.sge(range))).unwrap();
    }

    /// Posts a signaled send request.
    pub(crate) fn send(&self, request: SendRequest) {
        self.qp.post_send(request.signaled()).unwrap();
    }

    /// Returns the next completion.
    pub(crate) fn next(&self) -> Completion {
        self.cq.wait_one(WAIT_LIMIT).unwrap()
    }

    /// Returns the number and the status of the next completion.
    pub(crate) fn end(&self) -> (u64, WcStatus) {
        let completion = self.next();
        (completion.wr_id, completion.status)
    }

    /// Runs a request and expects success.
    pub(crate) fn run(&self, request: SendRequest) {
        let expected = (request.wr_id, WcStatus::Success);
        self.send(request);
        assert_eq!(self.end(), expected);
    }

    /// Returns bytes of the memory.
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.mr.read_at(offset, &mut bytes).unwrap();
        bytes
    }

    /// Fills part of the memory with bytes generated from `seed`, and returns them.
    pub(crate) fn fill(&self, offset: usize, len: usize, seed: u32) -> Vec<u8> {
        let bytes = pattern(len, seed);
        self.mr.write_at(offset, &bytes).unwrap();
        bytes
    }

    /// Returns the next asynchronous event.
    pub(crate) fn event(&self) -> AsyncEvent {
        self.ctx.wait_event(WAIT_LIMIT).unwrap()
    }
}

/// Returns bytes without a short period.
pub(crate) fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}
