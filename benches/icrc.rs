//! Cost of the ICRC of a packet, with the fastest method of this processor and with the method for processors without
//! carry-less multiplication.
//!
//! `cargo bench --bench icrc`

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use softroce::net::Ipv4Fields;
use softroce::wire::icrc::{Flow, crc32_by_shifts};

fn packets(c: &mut Criterion) {
    let (from, to) = ("10.0.0.1:49443".parse(), "10.0.0.2:4791".parse());
    let (Ok(from), Ok(to)) = (from, to) else { return };
    let flow = Flow::new(from, to);
    let mut group = c.benchmark_group("icrc");
    for len in [256_u16, 1024, 4096] {
        let bytes: Vec<u8> = (0..len).map(|i| i.to_be_bytes()[1]).collect();
        group.throughput(Throughput::Bytes(len.into()));
        group.bench_function(BenchmarkId::new("of this processor", len), |b| {
            b.iter(|| flow.compute(Ipv4Fields { id: 0, dont_fragment: true }, black_box(&bytes)));
        });
        group.bench_function(BenchmarkId::new("by shifts", len), |b| {
            b.iter(|| crc32_by_shifts(0, black_box(&bytes)));
        });
    }
}

criterion_group!(benches, packets);
criterion_main!(benches);
