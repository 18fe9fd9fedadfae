//! Random verbs on random queue pairs over a bad network, while ends of connections come to harm.
//!
//! Queue pairs of RC, UC and UD share completion queues and memory. What is posted is noted in plain
//! arrays, and so is what must come of it: over RC there must be one number of requests, none less than
//! have succeeded, that explains all memory, every counter, every completion and every answer of a
//! connection; where nothing was harmed, that of all. Over UC and UD nothing is torn, and nothing told of
//! twice. Meanwhile links are cut, hosts stall, memory is deregistered, queue pairs are told to fail,
//! reset, destroyed and connected anew.
//!
//! A failure prints its seed and the steps that it takes. `tests/model/kept.txt` has the seeds that have
//! failed once, which are played first.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

mod support;

#[path = "model/check.rs"]
mod check;
#[path = "model/end.rs"]
mod end;
#[path = "model/plan.rs"]
mod plan;
#[path = "model/play.rs"]
mod play;

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use plan::Step;
use play::{Play, Saw};
use support::replay;

/// Seeds of each of the tests, which run side by side.
const SEEDS: u64 = 2500;

fn run(seed: u64, steps: &[Step]) -> Saw {
    let mut play = Play::new(seed);
    steps.iter().for_each(|step| play.step(*step));
    play.finish()
}

thread_local! {
    /// This thread finds out what it takes to fail, and says nothing meanwhile.
    static SHRINKS: Cell<bool> = const { Cell::new(false) };
}

/// Keeps threads that shrink from telling of each failure.
static QUIET: Once = Once::new();

fn be_quiet() {
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !SHRINKS.get() {
            tell(info);
        }
    }));
}

/// Runs a seed. When it fails, finds out which of its steps it takes to fail, and fails with them.
fn seed(seed: u64) -> Saw {
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
    println!("SEED={seed:#x} cargo test --test model replay; to keep it: tests/model/kept.txt");
    run(seed, &needed)
}

/// A quarter of ten thousand.
fn quarter(number: u64) {
    let mut total = Saw::default();
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
    let kept = include_str!("model/kept.txt").lines().filter(|line| !line.starts_with('#'));
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

/// `SEED=0x3012 cargo test --test model replay` plays one seed again.
#[test]
fn replay() {
    seed(replay::seed(0x10_0000));
}
