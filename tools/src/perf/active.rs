//! The side that measures.

use std::time::Duration;

use anyhow::bail;
use softroce::ids::Mtu;
use softroce::verbs::Context;

use super::agree::{
    Amount, Answer, Ask, Connect, Connected, Introduction, Load, Report, Run, Wishes,
};
use super::latency::Player;
use super::progress::Progress;
use super::row::{Row, Table};
use super::station::Station;
use super::stream::Sender;
use crate::ceiling::{Ceiling, Operation, Order, Party, Pattern, Shape};
use crate::cli::{LoadArgs, PerfArgs, Test};
use crate::control::Control;

/// How long the raw UDP measurement before a row takes, at most.
const CEILING: Duration = Duration::from_millis(500);

/// `roce perf ceiling`.
pub(super) fn ceiling(args: &PerfArgs, control: &mut Control) -> anyhow::Result<()> {
    let of = args.of.unwrap_or(Test::WriteBw);
    let ip = match args.device.ip {
        Some(ip) => ip,
        None => control.local_ip()?,
    };
    let mtu = args.load.mtu.unwrap_or(Mtu::Mtu4096);
    let mut table = Table::new(args.json);
    for size in sizes(&args.load, of) {
        let order = order(of, size, mtu, duration(&args.load))?;
        control.send(&Ask::Ceiling(order))?;
        let party = Party { control: &mut *control, ip, receive_buffer: args.device.rcvbuf };
        let ceiling = party.measure(order)?;
        table.print(&Row::of_ceiling(&order, &ceiling))?;
        warn(&ceiling);
    }
    Ok(())
}

/// All other tests.
pub(super) fn test(args: &PerfArgs, control: &mut Control) -> anyhow::Result<()> {
    let opened = args.device.open(Some(control.local_ip()?))?;
    let result = Active::connect(args, control, &opened.context).and_then(|mut active| {
        let mut table = Table::new(args.json);
        for size in sizes(&args.load, args.test) {
            table.print(&active.row(size)?)?;
        }
        Ok(())
    });
    // The capture is whole also when the test has failed.
    let finished = opened.finish();
    result.and(finished)
}

struct Active<'a> {
    args: &'a PerfArgs,
    control: &'a mut Control,
    context: Context,
    station: Station,
    theirs: Introduction,
    mtu: Mtu,
}

impl<'a> Active<'a> {
    fn connect(
        args: &'a PerfArgs,
        control: &'a mut Control,
        context: &Context,
    ) -> anyhow::Result<Self> {
        let longest = sizes(&args.load, args.test).into_iter().max().unwrap_or_default();
        let load = Load::of(&args.load, args.test, longest);
        let info = context.device_info()?;
        let gids = info.gids.len();
        if usize::from(args.load.gid_index) >= gids {
            bail!("GID {}: there are {gids}", args.load.gid_index);
        }
        let mut station = Station::new(context, load)?;
        let wishes = Wishes::of(&args.load, info.active_mtu);
        control.send(&Ask::Connect(Connect { wishes, load, active: station.introduce()? }))?;
        let Connected { mtu, listening } = control.receive::<Answer<_>>()?.yes()?;
        let Some(mtu) = Mtu::from_bytes(mtu) else { bail!("the other side says MTU {mtu}") };
        station.connect(&listening, mtu)?;
        if args.test == Test::SendLat {
            station.fill_receive_queues()?;
        }
        Ok(Self { args, control, context: context.clone(), station, theirs: listening, mtu })
    }

    fn row(&mut self, size: usize) -> anyhow::Result<Row> {
        let test = self.args.test;
        let ceiling = if self.args.no_ceiling { None } else { Some(self.ceiling(size)?) };
        let amount = match self.args.load.iters {
            Some(n) => Amount::Messages(n),
            None => Amount::Time(duration(&self.args.load)),
        };
        let run = Run { size, amount };
        self.station.start_row()?;
        let mut row = Row::of_test(test, size, self.mtu, self.station.load.qps);
        let progress = Progress::begin(format!("{} {size}", test.name()));
        if test.is_latency() {
            let mut player = Player::new(test, &mut self.station, &self.theirs, run)?;
            start(self.control, run)?;
            row.set_times(&player.serve(amount, &progress)?, ceiling.as_ref());
        } else {
            start(self.control, run)?;
            let (station, theirs) = (&self.station, &self.theirs);
            let rate = Sender { test, station, theirs, run }.run(&progress)?;
            row.set_rate(&rate, ceiling.as_ref());
        }
        drop(progress);
        self.control.send(&Ask::Finish)?;
        let theirs: Report = self.control.receive()?;
        let ours = self.station.report()?;
        row.retransmits = Some(ours.retransmits + theirs.retransmits);
        let drops = ours.kernel_drops + theirs.kernel_drops;
        if drops > 0 {
            eprintln!("roce: the kernel dropped {drops} datagrams for want of a receive buffer");
        }
        Ok(row)
    }

    fn ceiling(&mut self, size: usize) -> anyhow::Result<Ceiling> {
        let duration = duration(&self.args.load).min(CEILING);
        let order = order(self.args.test, size, self.mtu, duration)?;
        let _progress = Progress::begin(format!("raw UDP {size}"));
        self.control.send(&Ask::Ceiling(order))?;
        let ip = self.context.ip();
        let party = Party { control: self.control, ip, receive_buffer: self.args.device.rcvbuf };
        let ceiling = party.measure(order)?;
        warn(&ceiling);
        Ok(ceiling)
    }
}

/// What cannot be asked of every test.
pub(super) fn check(args: &PerfArgs) -> anyhow::Result<()> {
    let is_ceiling = args.test == Test::Ceiling;
    if is_ceiling && (args.device.pcap.is_some() || args.device.impair.is_some()) {
        bail!("--pcap and --impair are for a device; the ceiling is of UDP sockets without one");
    }
    if !is_ceiling && args.of.is_some() {
        bail!("--of: only ceiling imitates another test");
    }
    if args.load.events && args.test == Test::WriteLat {
        bail!("--events: in write-lat there is no completion to sleep for");
    }
    if args.load.qp.is_some_and(|qps| qps > 1) && args.test.is_latency() {
        bail!("--qp: a latency test has one queue pair");
    }
    Ok(())
}

/// Asks for a row, and waits until the other side is ready for it.
fn start(control: &mut Control, run: Run) -> anyhow::Result<()> {
    control.send(&Ask::Run(run))?;
    control.receive::<Answer<()>>()?.yes()
}

fn warn(ceiling: &Ceiling) {
    for doubt in &ceiling.doubts {
        eprintln!("roce: raw UDP: {doubt}");
    }
}

fn sizes(args: &LoadArgs, test: Test) -> Vec<usize> {
    match (args.all, args.size) {
        (true, _) => (1..=23).map(|exponent| 1 << exponent).collect(),
        (false, Some(size)) => vec![size],
        (false, None) if test.is_latency() => vec![2],
        (false, None) => vec![65536],
    }
}

fn duration(args: &LoadArgs) -> Duration {
    let default = if args.all { Duration::from_millis(250) } else { Duration::from_secs(1) };
    args.duration.unwrap_or(default)
}

/// What raw UDP has to do to be compared with a test.
fn order(of: Test, size: usize, mtu: Mtu, duration: Duration) -> anyhow::Result<Order> {
    let operation = match of {
        Test::WriteBw | Test::WriteLat => Operation::Write,
        Test::SendBw | Test::SendLat => Operation::Send,
        Test::ReadBw => Operation::Read,
        Test::Ceiling => bail!("--of ceiling: expected one of the other tests"),
    };
    let pattern = if of.is_latency() { Pattern::PingPong } else { Pattern::Stream };
    Ok(Order { shape: Shape { operation, size, mtu: mtu.bytes() }, pattern, duration })
}
