//! `roce perf`: two sides, a TCP connection over which they agree, and a row a size.
//!
//! ```text
//!   active                                     listening
//!     │◀───────────── Greeting ──────────────────▶│
//!     │── Connect (queue pairs, MTU wanted) ─────▶│  opens its device
//!     │◀──────── Connected (queue pairs, MTU) ────│
//!     │   for every size:                         │
//!     │── Ceiling ───────────────────────────────▶│  raw UDP, see `ceiling`
//!     │── Run ───────────────────────────────────▶│
//!     │◀═════════════ the test ══════════════════▶│
//!     │── Finish ────────────────────────────────▶│
//!     │◀────────── Report (retransmissions) ──────│
//! ```

mod active;
mod agree;
mod latency;
mod listening;
mod placement;
mod progress;
mod row;
mod side;
mod station;
mod stream;

use std::time::Duration;

use anyhow::ensure;

use crate::cli::{PerfArgs, Test};
use crate::control::Control;
use crate::tcp;
use agree::Greeting;
use side::Side;

/// Runs the command.
pub(crate) fn run(args: &PerfArgs) -> anyhow::Result<()> {
    if args.listen {
        return listening::run(args);
    }
    active::check(args)?;
    let (_side, stream) = match &args.host {
        Some(host) => (None, tcp::connect(host, args.port, "roce perf")?),
        None => {
            let (side, port) = Side::start(args)?;
            placement::settle(placement::Core::First);
            (Some(side), tcp::connect("127.0.0.1", port, "roce perf")?)
        }
    };
    let mut control = Control::new(stream)?;
    greet(&mut control, args.test)?;
    match args.test {
        Test::Ceiling => active::ceiling(args, &mut control),
        _ => active::test(args, &mut control),
    }
}

/// Both sides must be there for the same test.
fn greet(control: &mut Control, test: Test) -> anyhow::Result<()> {
    control.set_patience(Some(Duration::from_secs(10)))?;
    let (roce, name) = (env!("CARGO_PKG_VERSION"), test.name());
    control.send(&Greeting { roce: roce.to_owned(), test: name.to_owned() })?;
    let theirs: Greeting = control.receive()?;
    ensure!(
        theirs.test == name,
        "the other side was started for {}, this one for {name}",
        theirs.test
    );
    ensure!(theirs.roce == roce, "the other side is roce {}, this one {roce}", theirs.roce);
    control.set_patience(None)
}
