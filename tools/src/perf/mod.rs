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
//!     │── Finish (messages sent) ────────────────▶│
//!     │◀──── Report (sent, arrived, counted) ─────│
//!     │── Counters ──────────────────────────────▶│  if they are to be printed
//! ```

mod active;
mod agree;
mod index;
mod latency;
mod listening;
mod measure;
mod memory;
mod placement;
mod plan;
mod plot;
mod progress;
mod row;
mod side;
mod station;
mod stream;

use anyhow::ensure;

use crate::cli::{PerfArgs, Test};
use crate::control::Control;
use crate::outcome::Outcome;
use crate::tcp;
use agree::greet;
use plan::Kind;
use plot::Plot;
use row::Table;
use side::Side;

/// Runs the command.
pub(crate) fn run(args: &PerfArgs) -> anyhow::Result<Outcome> {
    let kind = Kind::of(args)?;
    args.device.address_of(args.load.gid_index)?;
    if args.listen {
        return listening::run(args);
    }
    ensure!(!args.counters || args.test != Test::Ceiling, "--counters: raw UDP has no device");
    let plot = args.plot.as_deref().map(Plot::open).transpose()?;
    let mut table = Table::new(args.json);
    let (side, stream) = match &args.host {
        Some(host) => (None, tcp::connect(host, args.port, "roce perf")?),
        None => {
            let (side, port) = Side::start(args)?;
            placement::settle(placement::Core::First);
            (Some(side), tcp::connect("127.0.0.1", port, "roce perf")?)
        }
    };
    let mut control = Control::new(stream)?;
    greet(&mut control, args.test)?;
    let answer = match args.test {
        Test::Ceiling => {
            active::ceiling(args, kind, &mut control, &mut table).map(|()| Outcome::Yes)
        }
        _ => active::test(args, kind, &mut control, &mut table),
    };
    if answer.is_ok() {
        drop(control);
        if let Some(side) = side {
            side.let_it_end();
        }
    } else {
        // Before the session: what it would say of our leaving is no news.
        drop(side);
    }
    let answer = answer?;
    plot.map_or(Ok(()), |plot| plot.draw(table.rows()))?;
    Ok(answer)
}
