//! Every system call in the life of a device fails once, and from then on, with every error that its manual page names.
//!
//! strace counts the calls of each thread, and has one of them fail, or that one and those after it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "faults/errors.rs"]
mod errors;
#[path = "faults/program.rs"]
mod program;
mod roce;
#[path = "faults/table.rs"]
mod table;
#[path = "faults/trace.rs"]
mod trace;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, thread};

use errors::Fault;
use program::{Outcome, Program};
use table::Table;

/// Number of programs that run at once.
const WORKERS: usize = 2;

/// Runs a program with each fault; returns the outcomes.
fn outcomes(program: &Program, all: bool) -> Vec<(Fault, Outcome)> {
    let sites = program.sites();
    let faults = sites.iter().flat_map(|site| errors::faults(site, all));
    let faults: Vec<_> = faults.filter(|fault| !program.outlasts_trials(fault)).collect();
    let (next, faults) = (AtomicUsize::new(0), &faults);
    let work = |worker| {
        let claim = || faults.get(next.fetch_add(1, Ordering::Relaxed));
        std::iter::from_fn(claim)
            .map(|fault| {
                let outcome = program.outcome(worker, fault);
                if env::var_os("FAULTS_VERBOSE").is_some() {
                    eprintln!("{}: {} {:?}", program.name, fault.inject(), outcome);
                }
                (fault.clone(), outcome)
            })
            .collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> =
            (0..WORKERS).map(|worker| scope.spawn(move || work(worker))).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

/// Returns whether a program runs: the one that `FAULTS` names or `all`, else those that do not take long.
fn is_wanted(program: &Program) -> bool {
    match env::var("FAULTS") {
        Ok(name) => name == "all" || name == program.name,
        Err(_) => !program.takes_long,
    }
}

#[test]
#[ignore = "needs strace and Debian's ibverbs-utils: tools/ci.sh faults"]
fn failed_system_call_is_tolerated_or_named() {
    let mut table = Table::read();
    let mut wrong = Vec::new();
    // Without `FAULTS`, the first program gets all errors, and the others one error for each call.
    let wishes = env::var_os("FAULTS").is_some();
    let one = env::var_os("FAULTS_ERRORS").is_some_and(|errors| errors == "one");
    for (at, program) in program::all().iter().filter(|program| is_wanted(program)).enumerate() {
        let all = (wishes || at == 0) && !one;
        let outcomes = outcomes(program, all);
        for (fault, outcome) in &outcomes {
            if let Outcome::Bad(why) = outcome {
                wrong.push(format!("{}: {} {why}", program.name, fault.inject()));
            }
        }
        wrong.extend(table.compare(program, &outcomes));
    }
    assert_eq!(wrong, [""; 0]);
}
