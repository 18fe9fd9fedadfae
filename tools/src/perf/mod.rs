//! `roce perf`: two sides, a TCP connection over which they agree, and a row a size.

mod placement;
mod row;
mod side;

use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use softroce::ids::Mtu;

use crate::ceiling::{Operation, Order, Party, Pattern, Shape};
use crate::cli::{PerfArgs, Test};
use crate::control::Control;
use row::{Row, Table};
use side::Side;

/// The first word of each side.
#[derive(Debug, Serialize, Deserialize)]
struct Greeting {
    roce: String,
    test: String,
}

/// What the active side asks of the listening one.
#[derive(Debug, Serialize, Deserialize)]
enum Ask {
    /// Its part in a raw UDP measurement.
    Ceiling(Order),
}

/// Runs the command.
pub(crate) fn run(args: &PerfArgs) -> anyhow::Result<()> {
    if args.listen {
        return listen(args);
    }
    let (_side, stream) = match &args.host {
        Some(host) => {
            let to = (host.as_str(), args.port);
            let stream = TcpStream::connect(to).with_context(|| {
                format!("no roce perf listens at {host}, TCP port {}", args.port)
            })?;
            (None, stream)
        }
        None => {
            let (side, address) = Side::start(args)?;
            placement::settle(placement::Side::Active);
            (Some(side), TcpStream::connect(address)?)
        }
    };
    let mut control = Control::new(stream)?;
    greet(&mut control, args.test)?;
    ask(args, &mut control)
}

/// The listening side: one session.
fn listen(args: &PerfArgs) -> anyhow::Result<()> {
    let listener = match args.announce {
        // Another loopback address than the parent's.
        true => TcpListener::bind(("127.0.0.2", 0)),
        // Both IP versions, or the one where there is no other.
        false => TcpListener::bind(("::", args.port))
            .or_else(|_| TcpListener::bind(("0.0.0.0", args.port))),
    };
    let listener = listener.with_context(|| format!("TCP port {}", args.port))?;
    if args.announce {
        placement::settle(placement::Side::Listening);
        println!("{}", listener.local_addr()?);
        io::stdout().flush()?;
    }
    let (stream, _) = listener.accept()?;
    let mut control = Control::new(stream)?;
    greet(&mut control, args.test)?;
    while let Some(ask) = control.receive_or_end()? {
        match ask {
            Ask::Ceiling(order) => party(args, &mut control)?.serve(order)?,
        }
    }
    Ok(())
}

fn greet(control: &mut Control, test: Test) -> anyhow::Result<()> {
    control.set_patience(Some(Duration::from_secs(10)))?;
    let roce = env!("CARGO_PKG_VERSION").to_owned();
    control.send(&Greeting { roce, test: test.name().to_owned() })?;
    let peer: Greeting = control.receive()?;
    ensure!(
        peer.test == test.name(),
        "the other side was started for {}, this one for {}",
        peer.test,
        test.name()
    );
    control.set_patience(None)
}

fn party<'c>(args: &PerfArgs, control: &'c mut Control) -> anyhow::Result<Party<'c>> {
    let ip = match args.ip {
        Some(ip) => ip,
        None => control.local()?.ip().to_canonical(),
    };
    Ok(Party { control, ip, receive_buffer: args.rcvbuf })
}

/// The active side of `perf ceiling`.
fn ask(args: &PerfArgs, control: &mut Control) -> anyhow::Result<()> {
    let sizes: Vec<usize> = match (args.all, args.size) {
        (true, _) => (1..=23).map(|exponent| 1 << exponent).collect(),
        (false, Some(size)) => vec![size],
        (false, None) if args.of.is_latency() => vec![2],
        (false, None) => vec![65536],
    };
    let mut table = Table::new(args);
    for size in sizes {
        let order = ceiling_order(args, args.of, size, args.mtu.unwrap_or(Mtu::Mtu4096))?;
        control.send(&Ask::Ceiling(order))?;
        let ceiling = party(args, control)?.measure(order)?;
        table.print(&Row::of_ceiling(&order, &ceiling))?;
        for doubt in &ceiling.doubts {
            eprintln!("roce: {doubt}");
        }
    }
    Ok(())
}

/// What raw UDP has to do to be compared with a test.
fn ceiling_order(args: &PerfArgs, of: Test, size: usize, mtu: Mtu) -> anyhow::Result<Order> {
    let operation = match of {
        Test::WriteBw | Test::WriteLat => Operation::Write,
        Test::SendBw | Test::SendLat => Operation::Send,
        Test::ReadBw => Operation::Read,
        Test::Ceiling => anyhow::bail!("--of ceiling: expected one of the other tests"),
    };
    let pattern = if of.is_latency() { Pattern::PingPong } else { Pattern::Stream };
    let seconds = args.duration.unwrap_or(1.0);
    let duration =
        Duration::try_from_secs_f64(seconds).with_context(|| format!("--duration {seconds}"))?;
    Ok(Order { shape: Shape { operation, size, mtu: mtu.bytes() }, pattern, duration })
}
