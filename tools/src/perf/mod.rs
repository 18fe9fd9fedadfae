//! `roce perf`: two sides, a TCP control connection, and a row for each size.
//!
//! ```text
//!   active                                     listening
//!     │◀───────────── Hello ─────────────────────▶│
//!     │── Connect (queue pairs, MTU wanted) ─────▶│  opens its device
//!     │◀──────── Connected (queue pairs, MTU) ────│
//!     │   for every size:                         │
//!     │── Ceiling ───────────────────────────────▶│  raw UDP, see `ceiling`
//!     │── Run ───────────────────────────────────▶│
//!     │◀═════════════ the test ══════════════════▶│
//!     │── Finish (messages sent) ────────────────▶│
//!     │◀──── Report (sent, arrived, counted) ─────│
//!     │── Counters ──────────────────────────────▶│  if they are printed
//! ```

mod active;
mod child;
mod listening;
mod placement;
mod plot;
mod row;

use anyhow::ensure;
use softroce_cli::{PerfArgs, Test};
use softroce_perf::control::Control;
use softroce_perf::plan::Kind;
use softroce_perf::protocol::exchange_hello;
use softroce_perf::tcp;

use crate::device;
use crate::outcome::Outcome;
use child::ChildSide;
use plot::Plot;
use row::Table;

/// Runs the command.
pub(crate) fn run(args: &PerfArgs) -> anyhow::Result<Outcome> {
    let kind = Kind::of(args)?;
    device::address_of(&args.device, args.load.gid_index)?;
    if args.listen {
        return listening::run(args);
    }
    ensure!(!args.counters || args.test != Test::Ceiling, "--counters: raw UDP has no device");
    let plot = args.plot.as_deref().map(Plot::open).transpose()?;
    let mut table = Table::new(args.json);
    let (side, stream) = match &args.host {
        Some(host) => (None, tcp::connect(host, args.port, "roce perf")?),
        None => {
            let (side, port) = ChildSide::start(args)?;
            placement::pin_to(placement::Core::First);
            (Some(side), tcp::connect("127.0.0.1", port, "roce perf")?)
        }
    };
    let mut control = Control::new(stream)?;
    exchange_hello(&mut control, args.test)?;
    let answer = match args.test {
        Test::Ceiling => {
            active::ceiling(args, kind, &mut control, &mut table).map(|()| Outcome::Yes)
        }
        _ => active::test(args, kind, &mut control, &mut table),
    };
    if answer.is_ok() {
        drop(control);
        if let Some(side) = side {
            side.wait_for_end();
        }
    } else {
        // The child first: it would report the loss of the connection.
        drop(side);
    }
    let answer = answer?;
    plot.map_or(Ok(()), |plot| plot.draw(table.rows()))?;
    Ok(answer)
}
