//! What the protocol costs without a network: two engines, one burst handed to the other.
//!
//! `cargo bench --bench engine`

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use softroce::engine::{
    Config, Engine, InitAttr, Peer, QpAttr, QpCap, QpInit, QpType, RtrAttr, RtsAttr,
};
use softroce::ids::{CqId, Gid, Mtu, PdId, Qpn};
use softroce::mem::{Access, HostMemory, Memory, Region};
use softroce::net::{AddressVector, Burst, RxBuffer, RxMeta};
use softroce::psn::Psn;
use softroce::time::{AckTimeout, Instant, RnrTimer};
use softroce::transport::work::{
    RecvRequest, RemoteAddr, SendData, SendFlags, SendOp, SendRequest, Sge,
};

const LEN: usize = 1 << 20;
const WINDOW: u64 = 4 << 20;

struct Side {
    engine: Engine,
    region: Arc<Region>,
    ip: IpAddr,
    qpn: Qpn,
}

impl Side {
    fn new(last: u8) -> Option<Self> {
        let ip = IpAddr::from([10, 0, 0, last]);
        let memory = Arc::new(Memory::new([last; 32]));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = memory.register(PdId(1), HostMemory::alloc(LEN).ok()?, None, access).ok()?;
        let config =
            Config { receive_buffer: WINDOW, peer_receive_buffer: WINDOW, ..Config::new(ip) };
        let mut engine = Engine::new(config, memory, [last; 32]);
        let init = QpInit {
            qp_type: QpType::Rc,
            pd: PdId(1),
            send_cq: CqId(1),
            recv_cq: CqId(2),
            cap: QpCap { max_send_wr: 1024, max_recv_wr: 1024, ..QpCap::default() },
            sq_sig_all: true,
            srq: None,
            send_ops: None,
            xrcd: None,
        };
        let qpn = engine.create_qp(Instant::ZERO, init).ok()?;
        Some(Self { engine, region, ip, qpn })
    }

    fn connect(&mut self, to: &Self, mtu: Mtu) -> Option<()> {
        let attrs: [QpAttr; 3] = [
            InitAttr::Connected { access: self.region.access() }.into(),
            RtrAttr::Rc {
                peer: Peer {
                    av: AddressVector::to(Gid::from(to.ip)),
                    dest_qpn: to.qpn,
                    rq_psn: Psn::new(0),
                    path_mtu: mtu,
                },
                max_dest_rd_atomic: 16,
                min_rnr_timer: RnrTimer::default(),
            }
            .into(),
            RtsAttr::Rc {
                sq_psn: Psn::new(0),
                timeout: AckTimeout::new(14)?,
                retry_cnt: 7,
                rnr_retry: 7,
                max_rd_atomic: 16,
            }
            .into(),
        ];
        for attr in attrs {
            self.engine.modify_qp(Instant::ZERO, self.qpn, &attr, |port| port).ok()?;
        }
        Some(())
    }

    fn sge(&self, length: u32) -> Sge {
        Sge { addr: self.region.addr(), length, lkey: self.region.lkey() }
    }
}

struct Pair {
    a: Side,
    b: Side,
    burst: Burst,
    packets: u64,
}

impl Pair {
    fn new(mtu: Mtu) -> Option<Self> {
        let (mut a, mut b) = (Side::new(1)?, Side::new(2)?);
        a.connect(&b, mtu)?;
        b.connect(&a, mtu)?;
        Some(Self { a, b, burst: Burst::new(), packets: 0 })
    }

    /// Carries bursts both ways until there are no more.
    fn run(&mut self) {
        loop {
            let there = carry(&mut self.a.engine, &mut self.b.engine, &mut self.burst);
            let back = carry(&mut self.b.engine, &mut self.a.engine, &mut self.burst);
            self.packets += there + back;
            if there + back == 0 {
                break;
            }
        }
        while let Some(completion) = self.a.engine.poll_completion() {
            black_box(completion);
        }
        while let Some(completion) = self.b.engine.poll_completion() {
            black_box(completion);
        }
    }

    fn post(&mut self, op: SendOp, length: u32, count: u64) {
        let data = SendData::Sges([self.a.sge(length)].into_iter().collect());
        for wr_id in 0..count {
            let request =
                SendRequest { wr_id, op, data: data.clone(), flags: SendFlags::empty(), to: None };
            let posted = self.a.engine.post_send(Instant::ZERO, self.a.qpn, request);
            debug_assert!(posted.is_ok());
        }
    }

    fn post_recv(&mut self, length: u32, count: u64) {
        for wr_id in 0..count {
            let sges = [self.b.sge(length)].into_iter().collect();
            let posted =
                self.b.engine.post_recv(Instant::ZERO, self.b.qpn, RecvRequest { wr_id, sges });
            debug_assert!(posted.is_ok());
        }
    }

    fn remote(&self) -> RemoteAddr {
        RemoteAddr { addr: self.b.region.addr(), rkey: self.b.region.rkey() }
    }
}

fn carry(from: &mut Engine, to: &mut Engine, burst: &mut Burst) -> u64 {
    let mut packets = 0;
    while from.poll_transmit(Instant::ZERO, burst) {
        packets += burst.len() as u64;
        let meta = RxMeta {
            source: SocketAddr::new(burst.path.source, burst.path.source_port),
            destination: burst.path.destination,
            traffic_class: 0,
            hop_limit: 64,
            ipv4: None,
        };
        let segment_len = burst.segment_len();
        to.handle_buffer(Instant::ZERO, RxBuffer { data: burst.data(), segment_len, meta });
    }
    packets
}

/// Posts `count` times `op` and runs, as a benchmark.
fn transfer(c: &mut Criterion, name: &str, mtu: Mtu, (length, count): (u32, u64), op: OpOf) {
    let Some(mut pair) = Pair::new(mtu) else { return };
    let op = op(pair.remote());
    let mut group = c.benchmark_group("engine pair");
    group.throughput(match length {
        64 => Throughput::Elements(count),
        _ => Throughput::Bytes(u64::from(length) * count),
    });
    group.bench_function(name, |b| {
        b.iter(|| {
            if op == SendOp::Send {
                pair.post_recv(length, count);
            }
            pair.post(op, length, count);
            pair.run();
        });
    });
}

type OpOf = fn(RemoteAddr) -> SendOp;

fn transfers(c: &mut Criterion) {
    let write: OpOf = |to| SendOp::Write { to };
    let (large, small) = ((65_536, 16), (64, 512));
    transfer(c, "write 64 KiB, MTU 4096", Mtu::Mtu4096, large, write);
    transfer(c, "write 64 KiB, MTU 1024", Mtu::Mtu1024, large, write);
    transfer(c, "read 64 KiB, MTU 4096", Mtu::Mtu4096, large, |from| SendOp::Read { from });
    transfer(c, "write 64 B", Mtu::Mtu4096, small, write);
    transfer(c, "send 64 B", Mtu::Mtu4096, small, |_| SendOp::Send);
}

criterion_group!(benches, transfers);
criterion_main!(benches);
