//! Cost of foreign packets: nanoseconds of the engine per datagram, and the goodput of a connection during a flood of
//! 200,000 datagrams per second, compared with the goodput without one.
//!
//! `cargo bench --bench foreign_packets`

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "it fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use softroce::net::{ROCE_PORT, RxBuffer, RxMeta};
use softroce::transport::outputs::DropReason;
use softroce::verbs::{
    Access, CompletionQueue, ConnectOptions, Context, MemoryRegion, OpenOptions, QpConfig,
    QueuePair, SendRequest, WcStatus,
};
use softroce::wire::icrc::Flow;
use support::script::{OURS, PEER, Script, rts_qp};

/// Datagrams per second.
const RATE: u64 = 200_000;
/// Datagrams per measurement of the engine alone.
const DATAGRAMS_PER_SLICE: u32 = 1000;
const SLICES: usize = 2000;
/// Duration of a goodput measurement.
const ROUND: Duration = Duration::from_millis(1500);
const ROUNDS: usize = 5;
const MESSAGE: usize = 64 << 10;
const DEPTH: u64 = 16;

/// Source of the foreign packets.
const FOREIGN_HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 66, 66, 66));

fn main() {
    if std::env::args().any(|arg| arg == "--test") {
        return; // `cargo test --benches` only wants it to compile.
    }
    engine();
    connection();
}

// ---- the engine alone ----

fn engine() {
    println!("engine, ns for each datagram of 64 bytes of payload:");
    let mut t = Script::responder(rts_qp());
    let other = SocketAddr::new([10, 0, 0, 66].into(), 0xc000);
    let peer = SocketAddr::new(PEER, 0xc000);
    let write = "SEND_ONLY psn=5 ackreq len=64";
    let elsewhere = "RC SEND_ONLY qp=0x000041 psn=5 len=64";
    for (name, line, source, damage) in [
        ("garbage", write, other, &[0, 1][..]),
        ("for an unknown queue pair", elsewhere, other, &[]),
        ("from another address", write, other, &[]),
        ("from the peer's address, ICRC wrong", write, peer, &[20, 50]),
    ] {
        let mut bytes = t.packet(line);
        Flow::new(source, SocketAddr::new(OURS, ROCE_PORT)).seal(0, &mut bytes);
        damage.iter().for_each(|at| bytes[*at] ^= 0xff);
        let meta = RxMeta { source, ..t.meta() };
        // The median is robust against other load on the machine.
        let mut slices: Vec<_> = (0..SLICES)
            .map(|_| {
                let start = Instant::now();
                for _ in 0..DATAGRAMS_PER_SLICE {
                    let rx = RxBuffer { data: &bytes, segment_len: bytes.len(), meta };
                    t.engine.handle_buffer(softroce::time::Instant::ZERO, rx);
                }
                start.elapsed()
            })
            .collect();
        slices.sort();
        let drops: u64 = DropReason::ALL.iter().map(|why| t.dropped(*why)).sum();
        assert!(
            drops >= u64::from(DATAGRAMS_PER_SLICE) * SLICES as u64,
            "{name}: they were not dropped"
        );
        let ns = slices[SLICES / 2].as_nanos() as f64 / f64::from(DATAGRAMS_PER_SLICE);
        println!("  {ns:6.1}  {name}");
    }
}

// ---- a connection ----

/// Two devices of this process with connected queue pairs.
struct Pair {
    near: Context,
    far: Context,
    cq: CompletionQueue,
    qps: [QueuePair; 2],
    regions: [MemoryRegion; 2],
}

impl Pair {
    fn new() -> Self {
        let [near, far] = [(); 2].map(|()| Context::open(OpenOptions::loopback()).unwrap());
        let (cq, far_cq) = (near.create_cq(64, None).unwrap(), far.create_cq(64, None).unwrap());
        let (pd, far_pd) = (near.alloc_pd(), far.alloc_pd());
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let regions = [&pd, &far_pd].map(|pd| pd.alloc_mr(MESSAGE, access).unwrap());
        let qps = [
            pd.create_qp(&QpConfig::rc(&cq)).unwrap(),
            far_pd.create_qp(&QpConfig::rc(&far_cq)).unwrap(),
        ];
        let options = ConnectOptions::default();
        qps[0].connect(&qps[1].endpoint(), &options).unwrap();
        qps[1].connect(&qps[0].endpoint(), &options).unwrap();
        Self { near, far, cq, qps, regions }
    }

    fn post(&self) {
        let [source, target] = &self.regions;
        let write = SendRequest::write(1, source.sge(..), target.remote(0)).signaled();
        self.qps[0].post_send(write).unwrap();
    }

    /// Returns the goodput of one round in bytes per second.
    fn goodput(&self) -> f64 {
        let start = Instant::now();
        let mut done = 0;
        (0..DEPTH).for_each(|_| self.post());
        while start.elapsed() < ROUND {
            if let Some(completion) = self.cq.poll_one() {
                assert_eq!(completion.status, WcStatus::Success);
                done += 1;
                self.post();
            }
        }
        let rate = (done * MESSAGE) as f64 / start.elapsed().as_secs_f64();
        for _ in 0..DEPTH {
            let rest = self.cq.wait_one(Duration::from_secs(20)).unwrap();
            assert_eq!(rest.status, WcStatus::Success);
        }
        rate
    }

    /// Returns the foreign packets that the far device's engine and the kernel have dropped.
    fn foreign_drops(&self) -> [u64; 2] {
        let info = self.far.device_info().unwrap();
        let drops = DropReason::ALL.iter().map(|why| info.counters.dropped(*why)).sum();
        [drops, info.port_counters.kernel_drops]
    }

    /// Returns a SEND to the far queue pair, or to one that does not exist.
    fn packet(&self, known: bool, source: SocketAddr) -> Vec<u8> {
        let t = Script::responder(rts_qp());
        let qpn = self.qps[1].qpn().value() ^ if known { 0 } else { 0x80_0000 };
        let mut bytes = t.packet("SEND_ONLY psn=5 len=64");
        bytes[5..8].copy_from_slice(&qpn.to_be_bytes()[1..]);
        Flow::new(source, SocketAddr::new(self.far.ip(), ROCE_PORT)).seal(0, &mut bytes);
        bytes
    }
}

/// Sends `bytes` to `to` until `stop`, at [`RATE`] or as fast as possible, and counts the packets.
fn flood(
    socket: &UdpSocket,
    to: SocketAddr,
    (bytes, paced): (&[u8], bool),
    (stop, sent): (&AtomicBool, &AtomicU64),
) {
    let start = Instant::now();
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let due = (start.elapsed().as_nanos() as u64).saturating_mul(RATE) / 1_000_000_000;
        if paced && due < count + 20 {
            thread::sleep(Duration::from_micros(50));
            continue;
        }
        let batch = if paced { due - count } else { 20 };
        for _ in 0..batch {
            // The packet is lost if the receiver has no room.
            let _ = socket.send_to(bytes, to);
        }
        count += batch;
    }
    sent.store(count, Ordering::Relaxed);
}

fn connection() {
    let pair = Pair::new();
    let socket = UdpSocket::bind((FOREIGN_HOST, 0)).unwrap();
    let (from, to) = (socket.local_addr().unwrap(), SocketAddr::new(pair.far.ip(), ROCE_PORT));
    println!("\nWRITEs of 64 KiB from {} to {}, medians of {ROUNDS}:", pair.near.ip(), to.ip());
    pair.goodput();
    for (name, bytes, paced) in [
        ("garbage", vec![0xff; 80], true),
        ("for an unknown queue pair", pair.packet(false, from), true),
        ("from another address", pair.packet(true, from), true),
        ("from another address, without a pause", pair.packet(true, from), false),
    ] {
        let mut shares: Vec<(f64, f64)> = Vec::new();
        let (mut rate, before) = (0.0, pair.foreign_drops());
        for _ in 0..ROUNDS {
            let quiet = pair.goodput();
            let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
            let flooded = thread::scope(|scope| {
                scope.spawn(|| flood(&socket, to, (&bytes, paced), (&stop, &sent)));
                let start = Instant::now();
                let flooded = pair.goodput();
                stop.store(true, Ordering::Relaxed);
                rate = start.elapsed().as_secs_f64();
                flooded
            });
            rate = sent.load(Ordering::Relaxed) as f64 / rate;
            shares.push((flooded / quiet, flooded));
        }
        shares.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ((share, flooded), now) = (shares[ROUNDS / 2], pair.foreign_drops());
        println!(
            "  {share:5.2} of the goodput left, {:.2} GB/s; {:.0} a second {name}; \
             dropped by the engine {}, by the kernel {}",
            flooded / 1e9,
            rate,
            now[0] - before[0],
            now[1] - before[1]
        );
    }
}
