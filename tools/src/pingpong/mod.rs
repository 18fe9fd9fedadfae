//! `roce pingpong`: one message at a time, back and forth, with another `roce` or with rdma-core's program.

mod report;
mod setup;
mod shared;
mod shared_exchange;
mod single;

use std::net::TcpStream;

use anyhow::ensure;
use softroce_cli::{PingpongArgs, Transport};
use softroce_perf::tcp;

use crate::counters::{self, Column};
use crate::device::{self, OpenDevice};
use crate::exchange;
use crate::outcome::Outcome;
use report::Report;
use single::PingPong;

/// Runs the command.
pub(crate) fn run(args: &PingpongArgs) -> anyhow::Result<Outcome> {
    let datagrams = args.connection == Transport::Ud;
    ensure!(
        !datagrams || args.load.mtu.is_none(),
        "--mtu: ud has the MTU of the port; expected rc, uc or xrc"
    );
    let is_shared = args.use_srq || args.connection == Transport::Xrc;
    ensure!(
        !args.use_srq || args.connection == Transport::Rc,
        "--use-srq: expected rc, as in ibv_srq_pingpong; xrc always has a shared receive queue"
    );
    ensure!(
        !(is_shared && args.load.chk),
        "--chk: messages to a shared receive queue have no defined content"
    );
    device::address_of(&args.device, args.load.gid_idx)?;
    let stream = match &args.host {
        Some(host) => tcp::connect(host, args.port, "pingpong")?,
        None => tcp::accept(args.port, args.announce)?,
    };
    let opened = device::open(&args.device, Some(tcp::local_ip(&stream)?), args.check)?;
    let result = play(args, &opened, stream);
    let counted = args.counters.then(|| counters::of_device(&opened.context));
    // The capture is completed also after a failed test.
    let finished = opened.finish();
    // The counters may show why a test failed.
    let report = result.and_then(|report| report.print(args.json).map(|()| report));
    if let Some(counted) = counted.transpose()? {
        counters::show(&[Column::new("here", counted)], args.json)?;
    }
    let report = report?;
    let kept_rules = finished?;
    Ok(if report.is_perfect() { kept_rules } else { Outcome::No })
}

fn play(args: &PingpongArgs, opened: &OpenDevice, mut stream: TcpStream) -> anyhow::Result<Report> {
    if args.use_srq || args.connection == Transport::Xrc {
        return shared::play(args, opened, stream);
    }
    let mut test = PingPong::new(args, opened)?;
    let report = match args.host {
        Some(_) => test.begin(&mut stream),
        None => test.answer(&mut stream),
    }?;
    if report.is_complete() {
        // Until then this side acknowledges.
        exchange::wait_for_close(stream);
    }
    Ok(report)
}
