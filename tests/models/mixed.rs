//! Random verbs on random queue pairs over a lossy network, while connections are disturbed.
//!
//! Queue pairs of RC, UC and UD share completion queues and memory. A model records the posted requests and their
//! expected effects. Over RC there must be one number of requests, not smaller than the number of successes, that
//! explains all memory, counters, completions and responses of a connection; without disturbances it must be that of
//! all requests. Over UC and UD no message arrives incomplete or is reported twice. Meanwhile links are cut, hosts
//! stall, memory is deregistered, and queue pairs are moved to ERR, reset, destroyed and connected again.
//!
//! A failure prints its seed and the minimal steps. `tests/models/mixed/kept.txt` contains the seeds that have failed once;
//! they run first.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

#[path = "mixed/check.rs"]
mod check;
#[path = "mixed/end.rs"]
mod end;
#[path = "mixed/plan.rs"]
mod plan;
#[path = "mixed/runner.rs"]
mod runner;

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use crate::support::replay;
use plan::Step;
use runner::{Runner, Statistics};

/// Number of seeds of each test, which run in parallel.
const SEEDS: u64 = 2500;

fn run(seed: u64, steps: &[Step]) -> Statistics {
    let mut runner = Runner::new(seed);
    steps.iter().for_each(|step| runner.step(*step));
    runner.finish()
}

thread_local! {
    /// This thread minimizes a failure, without output.
    static SHRINKS: Cell<bool> = const { Cell::new(false) };
}

/// Suppresses the panic messages of threads that minimize.
static QUIET: Once = Once::new();

fn be_quiet() {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !SHRINKS.get() {
            tell(info);
        }
    }));
}

/// Runs a seed. After a failure, minimizes the steps, and fails with them.
fn seed(seed: u64) -> Statistics {
    QUIET.call_once(be_quiet);
    let steps = plan::steps(seed);
    let fails = |steps: &[Step]| panic::catch_unwind(AssertUnwindSafe(|| run(seed, steps)));
    if let Ok(saw) = fails(&steps) {
        return saw;
    }
    SHRINKS.set(true);
    let needed = plan::shrink(steps, |steps| fails(steps).is_err());
    SHRINKS.set(false);
    println!("seed {seed:#x} fails; of its steps it takes");
    needed.iter().for_each(|step| println!("  {step:?}"));
    println!(
        "SEED={seed:#x} cargo test --test models mixed::replay; to keep it: tests/models/mixed/kept.txt"
    );
    run(seed, &needed)
}

/// Runs a quarter of ten thousand seeds.
fn quarter(number: u64) {
    let mut total = Statistics::default();
    for n in number * SEEDS..(number + 1) * SEEDS {
        let saw = seed(n);
        total.retransmitted += saw.retransmitted;
        total.timeouts += saw.timeouts;
        total.not_ready += saw.not_ready;
    }
    let saw = [total.retransmitted, total.timeouts, total.not_ready];
    assert!(saw.iter().all(|count| *count > SEEDS / 10), "{saw:?}");
}

#[test]
fn seeds_that_failed_once_pass() {
    let kept = include_str!("mixed/kept.txt").lines().filter(|line| !line.starts_with('#'));
    for line in kept {
        let hex = line.split_whitespace().next().unwrap();
        seed(u64::from_str_radix(hex.strip_prefix("0x").unwrap(), 16).unwrap());
    }
}

/// RSP-04, RSP-08
#[test]
fn first_quarter_of_seeds_conforms_to_the_model() {
    quarter(0);
}

#[test]
fn second_quarter_of_seeds_conforms_to_the_model() {
    quarter(1);
}

#[test]
fn third_quarter_of_seeds_conforms_to_the_model() {
    quarter(2);
}

#[test]
fn last_quarter_of_seeds_conforms_to_the_model() {
    quarter(3);
}

/// `SEED=0x3012 cargo test --test models mixed::replay` runs one seed.
#[test]
fn replay() {
    seed(replay::seed(0x10_0000));
}
