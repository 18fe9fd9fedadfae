//! The side that measures.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{bail, ensure};
use softroce::ids::Mtu;
use softroce::runtime::Environment;
use softroce::verbs::Context;

use super::agree::{Answer, Ask, Connect, Connected, Introduction, Load, Wishes};
use super::latency::Player;
use super::measure::{Counted, Report, Run};
use super::plan::{Kind, amount, duration};
use super::progress::Progress;
use super::row::{Row, Table};
use super::station::Station;
use super::stream::Stream;
use crate::ceiling::{Ceiling, Party};
use crate::cli::{Measure, PerfArgs};
use crate::control::Control;
use crate::counters::{self, Column, Values};
use crate::outcome::Outcome;
use crate::output;

/// How long the raw UDP measurement before a row takes, at most.
const CEILING: Duration = Duration::from_millis(500);

/// `roce perf ceiling`.
pub(super) fn ceiling(
    args: &PerfArgs,
    kind: Kind,
    control: &mut Control,
    table: &mut Table,
) -> anyhow::Result<()> {
    let ip = match args.device.address_of(args.load.gid_index)? {
        Some(ip) => ip,
        None => control.local_ip()?,
    };
    let mtu = args.load.mtu.unwrap_or(Mtu::Mtu4096);
    for size in kind.sizes(&args.load, mtu)? {
        let order = kind.order(size, mtu, duration(&args.load), args.load.events);
        control.send(&Ask::Ceiling(order))?;
        let party = Party { control: &mut *control, ip, receive_buffer: args.device.rcvbuf };
        let ceiling = party.measure(order)?;
        table.print(Row::of_ceiling(&order, &ceiling))?;
        warn(&ceiling);
    }
    Ok(())
}

/// All other tests.
pub(super) fn test(
    args: &PerfArgs,
    kind: Kind,
    control: &mut Control,
    table: &mut Table,
) -> anyhow::Result<Outcome> {
    let opened = args.device.open(Some(control.local_ip()?), args.check)?;
    let result = Active::connect(args, kind, control, &opened.context).and_then(|mut active| {
        for size in kind.sizes(&args.load, active.mtu)? {
            table.print(active.row(size)?)?;
        }
        Ok(())
    });
    let told = if args.counters {
        tell_counters(&opened.context, result.is_ok().then_some(control), args.json)
    } else {
        Ok(())
    };
    // The capture is whole also when the test has failed.
    let kept_rules = opened.finish();
    result.and(told).and(kept_rules)
}

/// Prints what the devices have counted; that of the other side as long as it does what is asked.
fn tell_counters(
    context: &Context,
    control: Option<&mut Control>,
    json: bool,
) -> anyhow::Result<()> {
    let mut columns = vec![Column::new("here", counters::of_device(context)?)];
    if let Some(control) = control {
        control.send(&Ask::Counters)?;
        let theirs = control.receive::<Answer<Values>>()?.yes()?;
        columns.push(Column::new("there", theirs));
    }
    Ok(counters::show(&columns, json)?)
}

struct Active<'a> {
    args: &'a PerfArgs,
    kind: Kind,
    control: &'a mut Control,
    /// The address of ours that raw UDP uses.
    ip: IpAddr,
    station: Station,
    theirs: Introduction,
    mtu: Mtu,
}

impl<'a> Active<'a> {
    fn connect(
        args: &'a PerfArgs,
        kind: Kind,
        control: &'a mut Control,
        context: &Context,
    ) -> anyhow::Result<Self> {
        let info = context.device_info()?;
        let ip = match args.device.port_kind(&Environment::read()?).is_of_host() {
            true => context.query_gid(args.load.gid_index.into())?.ip(),
            // No socket can have the device's.
            false => control.local_ip()?,
        };
        let mtu = args.load.mtu.unwrap_or(info.active_mtu).min(info.active_mtu);
        let longest = kind.sizes(&args.load, mtu)?.into_iter().max().unwrap_or_default();
        let load = Load::of(&args.load, kind, longest);
        let (inline, most) = (load.inline_size, info.limits.max_inline_data);
        ensure!(inline <= most, "--inline-size {inline}: the device takes {most} bytes at most");
        let mut station = Station::new(context, load, args.load.gid_index)?;
        let wishes = Wishes::of_active(&args.load, info.active_mtu, &load);
        control.send(&Ask::Connect(Connect { wishes, load, active: station.introduce()? }))?;
        let Connected { mtu, listening } = control.receive::<Answer<_>>()?.yes()?;
        let Some(mtu) = Mtu::from_bytes(mtu) else { bail!("the other side says MTU {mtu}") };
        station.connect(&listening, mtu)?;
        station.fill_receive_queues()?;
        Ok(Self { args, kind, control, ip, station, theirs: listening, mtu })
    }

    fn row(&mut self, size: usize) -> anyhow::Result<Row> {
        let test = self.args.test.name();
        let ceiling = if self.args.no_ceiling { None } else { Some(self.ceiling(size)?) };
        let run = Run { size, amount: amount(&self.args.load) };
        self.station.start_row()?;
        let mut row = Row::of_test(test, &self.station.load, size, self.mtu);
        let progress = Progress::begin(format!("{test} {size}"));
        let (station, theirs, control) = (&mut self.station, &self.theirs, &mut *self.control);
        let counted = match self.kind.measure {
            Measure::Latency => {
                let mut player = Player::new(station, theirs, run)?;
                start(control, run)?;
                row.set_times(&player.serve(run.amount, &progress)?, ceiling.as_ref());
                control.send(&Ask::Finish { sent: player.sent() })?;
                let theirs: Report = control.receive()?;
                station.counted_in_row()?.with(theirs.counted)
            }
            Measure::Bandwidth => {
                start(control, run)?;
                let (ours, theirs) =
                    Stream::active(station, theirs, run).drive(control, &progress)?;
                row.set_rate(&ours, &theirs, ceiling.as_ref());
                ours.counted.with(theirs.counted)
            }
        };
        drop(progress);
        row.retransmits = (!self.kind.is_unreliable()).then_some(counted.retransmits);
        tell_losses(&counted);
        Ok(row)
    }

    fn ceiling(&mut self, size: usize) -> anyhow::Result<Ceiling> {
        let duration = duration(&self.args.load).min(CEILING);
        let order = self.kind.order(size, self.mtu, duration, self.args.load.events);
        let _progress = Progress::begin(format!("raw UDP {size}"));
        self.control.send(&Ask::Ceiling(order))?;
        let party =
            Party { control: self.control, ip: self.ip, receive_buffer: self.args.device.rcvbuf };
        let ceiling = party.measure(order)?;
        warn(&ceiling);
        Ok(ceiling)
    }
}

/// Asks for a row, and waits until the other side is ready for it.
fn start(control: &mut Control, run: Run) -> anyhow::Result<()> {
    control.send(&Ask::Run(run))?;
    control.receive::<Answer<()>>()?.yes()
}

fn warn(ceiling: &Ceiling) {
    for doubt in &ceiling.doubts {
        output::warn(format_args!("raw UDP: {doubt}"));
    }
}

fn tell_losses(counted: &Counted) {
    let Counted { kernel_drops, without_receive, .. } = counted;
    if *kernel_drops > 0 {
        output::warn(format_args!(
            "the kernel dropped {kernel_drops} datagrams, for lack of receive buffer or as malformed; a larger \
             --rcvbuf may help"
        ));
    }
    if *without_receive > 0 {
        output::warn(format_args!(
            "{without_receive} packets found no receive request: raise --rx-depth"
        ));
    }
}
