//! Cost of the protocol without a network: two engines that exchange bursts.
//!
//! `cargo bench --bench engine`

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use softroce::ids::Mtu;
use softroce::transport::work::{RemoteAddr, SendOp};

use pair::Pair;

mod pair;

/// Benchmarks a transfer of `count` requests `op`.
fn transfer(c: &mut Criterion, name: &str, mtu: Mtu, (length, count): (u32, u64), op: OpOf) {
    let Some(mut pair) = Pair::new(mtu, 1) else { return };
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
