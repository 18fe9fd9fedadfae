//! The active side of a test, which measures.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::bail;
use softroce::ids::Mtu;
use softroce::runtime::Environment;
use softroce::verbs::Context;
use softroce_cli::{Measure, PerfArgs};
use softroce_perf::ceiling::{Ceiling, RawUdpSide};
use softroce_perf::control::Control;
use softroce_perf::latency::PingPong;
use softroce_perf::measure::{Counted, Report, Run};
use softroce_perf::plan::{Kind, amount, duration};
use softroce_perf::progress::Progress;
use softroce_perf::protocol::{Connect, Connected, Constraints, Load, Reply, Request, SideInfo};
use softroce_perf::side::Side;
use softroce_perf::stream::Stream;

use super::row::{Row, Table};
use crate::counters::{self, Column, Values};
use crate::device;
use crate::outcome::Outcome;
use crate::output;

/// Maximum duration of the raw UDP measurement before a row.
const MAX_CEILING_DURATION: Duration = Duration::from_millis(500);

/// Runs `roce perf ceiling`.
pub(super) fn ceiling(
    args: &PerfArgs,
    kind: Kind,
    control: &mut Control,
    table: &mut Table,
) -> anyhow::Result<()> {
    let ip = match device::address_of(&args.device, args.load.gid_index)? {
        Some(ip) => ip,
        None => control.local_ip()?,
    };
    let mtu = args.load.mtu.unwrap_or(Mtu::Mtu4096);
    for size in kind.sizes(&args.load, mtu)? {
        let measurement = kind.measurement(size, mtu, duration(&args.load), args.load.events);
        control.send(&Request::Ceiling(measurement))?;
        let side = RawUdpSide { control: &mut *control, ip, receive_buffer: args.device.rcvbuf };
        let ceiling = side.measure(measurement)?;
        table.print(Row::of_ceiling(&measurement, &ceiling))?;
        warn(&ceiling);
    }
    Ok(())
}

/// Runs any other test.
pub(super) fn test(
    args: &PerfArgs,
    kind: Kind,
    control: &mut Control,
    table: &mut Table,
) -> anyhow::Result<Outcome> {
    let opened = device::open(&args.device, Some(control.local_ip()?), args.check)?;
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
    // The capture is completed also after a failed test.
    let kept_rules = opened.finish();
    result.and(told).and(kept_rules)
}

/// Prints the counters of both devices; those of the other side only while its session lasts.
fn tell_counters(
    context: &Context,
    control: Option<&mut Control>,
    json: bool,
) -> anyhow::Result<()> {
    let mut columns = vec![Column::new("here", counters::of_device(context)?)];
    if let Some(control) = control {
        control.send(&Request::Counters)?;
        let theirs = control.receive::<Reply<Values>>()?.yes()?;
        columns.push(Column::new("there", theirs));
    }
    Ok(counters::show(&columns, json)?)
}

struct Active<'a> {
    args: &'a PerfArgs,
    kind: Kind,
    control: &'a mut Control,
    /// Local address for raw UDP.
    ip: IpAddr,
    side: Side,
    theirs: SideInfo,
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
        let ip = match device::port_kind(&args.device, &Environment::read()?).is_of_host() {
            true => context.query_gid(args.load.gid_index.into())?.ip(),
            // No socket can have the address of the device.
            false => control.local_ip()?,
        };
        let mtu = args.load.mtu.unwrap_or(info.active_mtu).min(info.active_mtu);
        let longest = kind.sizes(&args.load, mtu)?.into_iter().max().unwrap_or_default();
        let load = Load::of(&args.load, kind, longest);
        load.check(&info.limits)?;
        let mut side = Side::new(context, load, args.load.gid_index)?;
        let constraints = Constraints::of_active(&args.load, info.active_mtu, &load);
        control.send(&Request::Connect(Connect { constraints, load, active: side.info()? }))?;
        let Connected { mtu, listening } = control.receive::<Reply<_>>()?.yes()?;
        let Some(mtu) = Mtu::from_bytes(mtu) else { bail!("the other side says MTU {mtu}") };
        side.connect(&listening, mtu)?;
        side.fill_receive_queues()?;
        Ok(Self { args, kind, control, ip, side, theirs: listening, mtu })
    }

    fn row(&mut self, size: usize) -> anyhow::Result<Row> {
        let test = self.args.test.name();
        let ceiling = if self.args.no_ceiling { None } else { Some(self.ceiling(size)?) };
        let run = Run { size, amount: amount(&self.args.load) };
        self.side.start_row()?;
        let mut row = Row::of_test(test, &self.side.load, size, self.mtu);
        let progress = Progress::begin(format!("{test} {size}"));
        let (side, theirs, control) = (&mut self.side, &self.theirs, &mut *self.control);
        let counted = match self.kind.measure {
            Measure::Latency => {
                let mut player = PingPong::new(side, theirs, run)?;
                start(control, run)?;
                row.set_times(&player.serve(run.amount, &progress)?, ceiling.as_ref());
                control.send(&Request::Finish { sent: player.sent() })?;
                let theirs: Report = control.receive()?;
                side.counted_in_row()?.with(theirs.counted)
            }
            Measure::Bandwidth => {
                start(control, run)?;
                let (ours, theirs) = Stream::active(side, theirs, run).drive(control, &progress)?;
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
        let duration = duration(&self.args.load).min(MAX_CEILING_DURATION);
        let measurement = self.kind.measurement(size, self.mtu, duration, self.args.load.events);
        let _progress = Progress::begin(format!("raw UDP {size}"));
        self.control.send(&Request::Ceiling(measurement))?;
        let side = RawUdpSide {
            control: self.control,
            ip: self.ip,
            receive_buffer: self.args.device.rcvbuf,
        };
        let ceiling = side.measure(measurement)?;
        warn(&ceiling);
        Ok(ceiling)
    }
}

/// Starts a row, and waits until the other side is ready for it.
fn start(control: &mut Control, run: Run) -> anyhow::Result<()> {
    control.send(&Request::Run(run))?;
    control.receive::<Reply<()>>()?.yes()
}

fn warn(ceiling: &Ceiling) {
    for warning in &ceiling.warnings {
        output::warn(format_args!("raw UDP: {warning}"));
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
