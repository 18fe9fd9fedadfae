//! Models of `softroce::sync`, explored with loom in all interleavings.
//!
//! ```text
//! softroce-loom            every model
//! softroce-loom NAME…      models with one of these in their names
//! ```
//!
//! The files of `src/sync` are compiled here with the primitives of loom. A model starts two or three threads and
//! asserts the guarantee of one protocol. loom runs it once for each order of the threads' accesses, and for each
//! value that the memory model permits a load to return. It also fails on deadlocks, which result from lost wake-ups.
//! It preempts a thread at most three times, or `LOOM_MAX_PREEMPTIONS` times.

#![expect(clippy::unwrap_used, reason = "a model that panics has failed")]

mod claims;
mod epoch;
mod event;
mod exit_list;
mod mailbox;
mod notify;
mod primitives;
mod progress;
mod queue;
mod signal;
mod spsc;
mod wakers;

use std::env;

use primitives::SeqCst;

/// The library's own files.
#[path = "../../../src/sync"]
mod sync {
    pub(crate) use crate::primitives;

    pub(crate) mod claims;
    #[cfg_attr(test, allow(dead_code, reason = "tests of the library use these methods"))]
    pub(crate) mod epoch;
    pub(crate) mod exit_list;
    pub(crate) mod mailbox;
    pub(crate) mod notify;
    pub(crate) mod progress;
    #[expect(dead_code, reason = "the models use a part of the queue")]
    pub(crate) mod queue;
    pub(crate) mod signal;
    pub(crate) mod spsc;
    pub(crate) mod wakers;
}

/// Maximum number of preemptions in an execution. Few bugs need more than two.
const MAX_PREEMPTIONS: usize = 3;

/// A name, and a function that loom runs for each interleaving.
type Model = (&'static str, fn());

fn main() {
    let names: Vec<_> = env::args().skip(1).collect();
    let is_chosen = |name: &str| names.is_empty() || names.iter().any(|part| name.contains(part));
    let models = [
        notify::MODELS,
        signal::MODELS,
        epoch::MODELS,
        claims::MODELS,
        exit_list::MODELS,
        mailbox::MODELS,
        progress::MODELS,
        queue::MODELS,
        spsc::MODELS,
        wakers::MODELS,
    ]
    .concat();
    let mut chosen = models.iter().filter(|(name, _)| is_chosen(name)).peekable();
    assert!(chosen.peek().is_some(), "no model has such a name");
    for (name, model) in chosen {
        for mapping in [SeqCst::FenceAfterStores, SeqCst::FenceBeforeLoads] {
            println!("{name} ({mapping:?})");
            mapping.select();
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound.get_or_insert(MAX_PREEMPTIONS);
            builder.check(*model);
        }
    }
}
