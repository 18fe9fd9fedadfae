//! Cost of many connections: creation, memory, and changes between them.
//!
//! Two engines without a network, in one thread: `cargo bench --bench scale`. `benches/instructions.rs` counts
//! instructions.

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::time::{Duration, Instant};

use softroce::ids::Mtu;
use softroce::transport::work::SendOp;

use counting::held;
use pair::Pair;

#[path = "../tests/support/counting.rs"]
mod counting;
#[expect(dead_code, reason = "nothing is received here that takes a request")]
mod pair;

/// Number of connections, and number of WRITEs posted before the engines run. With many connections each WRITE has
/// its own acknowledgement, and so has each with one connection and single posts.
const LOADS: [(u32, u64); 4] = [(1, 256), (1, 1), (100, 256), (10_000, 256)];

/// Length of each WRITE in bytes.
const LENGTH: u32 = 4096;

/// Number of interleaved rounds, of which the median counts.
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(200);

/// Returns the nanoseconds per WRITE, of both sides together.
fn round(pair: &mut Pair, batch: u64) -> f64 {
    let to = pair.remote();
    let (begin, mut messages) = (Instant::now(), 0);
    while begin.elapsed() < ROUND {
        pair.post(SendOp::Write { to }, LENGTH, batch);
        pair.run();
        messages += batch;
    }
    begin.elapsed().as_nanos() as f64 / messages as f64
}

fn main() {
    let mut pairs: Vec<_> = LOADS
        .iter()
        .map(|(connections, _)| {
            let before = held();
            let begin = Instant::now();
            let pair = Pair::new(Mtu::Mtu4096, *connections).unwrap();
            let (time, bytes) = (begin.elapsed(), held() - before);
            (pair, time, bytes)
        })
        .collect();
    let mut times = vec![Vec::new(); LOADS.len()];
    for _ in 0..ROUNDS {
        for (((pair, ..), (_, batch)), times) in pairs.iter_mut().zip(LOADS).zip(&mut times) {
            times.push(round(pair, batch));
        }
    }
    let alone = pairs[0].2;
    println!("connections   at once   made in ms   bytes an end   ns a WRITE");
    for (((connections, batch), (_, made, bytes)), mut times) in LOADS.iter().zip(pairs).zip(times)
    {
        times.sort_by(f64::total_cmp);
        // Memory beyond that of two engines with one connection.
        let ends = 2 * (*connections as isize - 1).max(1);
        let each = (bytes - alone) / ends;
        let made = made.as_secs_f64() * 1e3;
        let time = times[ROUNDS / 2];
        println!("{connections:>11}{batch:>10}{made:>13.1}{each:>15}{time:>13.0}");
    }
}
