//! What many connections cost: to make them, to keep them, and to go from one to the other.
//!
//! Two engines without a network, in one thread: `cargo bench --bench scale`. Instructions are counted
//! by `benches/instructions.rs`.

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

const CONNECTIONS: [u32; 3] = [1, 100, 10_000];

/// Bytes of each WRITE, and how many are posted before the engines run.
const LENGTH: u32 = 4096;
const BATCH: u64 = 256;

/// Takes turns, and the middle one counts.
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(200);

/// Nanoseconds a WRITE, both sides together.
fn round(pair: &mut Pair) -> f64 {
    let to = pair.remote();
    let (begin, mut messages) = (Instant::now(), 0);
    while begin.elapsed() < ROUND {
        pair.post(SendOp::Write { to }, LENGTH, BATCH);
        pair.run();
        messages += BATCH;
    }
    begin.elapsed().as_nanos() as f64 / messages as f64
}

fn main() {
    let mut pairs: Vec<_> = CONNECTIONS
        .iter()
        .map(|connections| {
            let before = held();
            let begin = Instant::now();
            let pair = Pair::new(Mtu::Mtu4096, *connections).unwrap();
            let (time, bytes) = (begin.elapsed(), held() - before);
            (pair, time, bytes)
        })
        .collect();
    let mut times = vec![Vec::new(); CONNECTIONS.len()];
    for _ in 0..ROUNDS {
        for ((pair, ..), times) in pairs.iter_mut().zip(&mut times) {
            times.push(round(pair));
        }
    }
    let alone = pairs[0].2;
    println!("{:>12}{:>14}{:>18}{:>14}", "connections", "made in ms", "bytes an end", "ns a WRITE");
    for ((connections, (_, made, bytes)), mut times) in CONNECTIONS.iter().zip(pairs).zip(times) {
        times.sort_by(f64::total_cmp);
        // Without what two engines take that have one connection.
        let ends = 2 * (*connections as isize - 1).max(1);
        let each = (bytes - alone) / ends;
        let made = made.as_secs_f64() * 1e3;
        println!("{connections:>12}{made:>14.1}{each:>18}{:>14.0}", times[ROUNDS / 2]);
    }
}
