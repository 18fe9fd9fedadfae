//! The side that does as it is asked, for one session.

use std::net::IpAddr;

use anyhow::Context as _;
use softroce::verbs::Context;

use super::agree::{Answer, Ask, Connect, Connected, Introduction, Report, Run, Wishes};
use super::latency::Player;
use super::station::Station;
use super::stream::{Arrivals, Stream};
use super::{greet, placement};
use crate::ceiling::Party;
use crate::cli::{Measure, PerfArgs};
use crate::control::Control;
use crate::counters;
use crate::device::Opened;
use crate::tcp;

/// `roce perf TEST --listen`.
pub(super) fn run(args: &PerfArgs) -> anyhow::Result<crate::Answer> {
    if args.second_core {
        placement::settle(placement::Core::Second);
    }
    let mut control = Control::new(tcp::accept(args.port, args.announce)?)?;
    greet(&mut control, args.test)?;
    let mut session = Session { args, opened: None, connection: None };
    let result = session.serve(&mut control);
    let Session { opened, connection, .. } = session;
    drop(connection);
    let kept_rules = opened.map_or(Ok(crate::Answer::Yes), Opened::finish);
    result.and(kept_rules)
}

struct Session<'a> {
    args: &'a PerfArgs,
    opened: Option<Opened>,
    connection: Option<(Station, Introduction)>,
}

impl Session<'_> {
    /// Does what it is asked to, until the active side is gone.
    fn serve(&mut self, control: &mut Control) -> anyhow::Result<()> {
        while let Some(ask) = control.receive_or_end()? {
            match ask {
                Ask::Ceiling(order) => {
                    let ip = self.address(control)?;
                    let receive_buffer = self.args.device.rcvbuf;
                    Party { control: &mut *control, ip, receive_buffer }.serve(order)?;
                }
                Ask::Connect(connect) => {
                    let answer = self.connect(control, &connect);
                    control.send(&Answer::of(answer))?;
                }
                Ask::Run(run) => self.row(control, run)?,
                Ask::Counters => {
                    let opened = self.opened.as_ref().context("nothing is connected");
                    let counted = opened.and_then(|opened| counters::of_device(&opened.context));
                    control.send(&Answer::of(counted))?;
                }
                // Nothing is running: the row has failed here, and the reason is on its way.
                Ask::Finish { .. } => {}
            }
        }
        Ok(())
    }

    /// The address of ours that is used.
    fn address(&self, control: &Control) -> anyhow::Result<IpAddr> {
        let index = self.args.load.gid_index;
        match (&self.opened, self.args.device.named(index)?) {
            (Some(opened), _) => Ok(opened.context.query_gid(index.into())?.ip()),
            (None, Some(ip)) => Ok(ip),
            (None, None) => control.local_ip(),
        }
    }

    fn connect(&mut self, control: &Control, connect: &Connect) -> anyhow::Result<Connected> {
        let route = control.local_ip()?;
        let opened = match &mut self.opened {
            Some(opened) => opened,
            none => none.insert(self.args.device.open(Some(route), self.args.check)?),
        };
        let context: &Context = &opened.context;
        let wishes = Wishes::of(&self.args.load, context.device_info()?.active_mtu);
        let mtu = wishes.agree(&connect.wishes)?;
        let mut station = Station::new(context, connect.load, self.args.load.gid_index)?;
        station.connect(&connect.active, mtu)?;
        station.fill_receive_queues()?;
        let listening = station.introduce()?;
        self.connection = Some((station, connect.active.clone()));
        Ok(Connected { mtu: mtu.bytes(), listening })
    }

    fn row(&mut self, control: &mut Control, run: Run) -> anyhow::Result<()> {
        let (station, theirs) = self.connection.as_mut().context("nothing is connected")?;
        station.start_row()?;
        let report = match station.load.kind.measure {
            Measure::Latency => {
                let mut player = Player::new(station, theirs, run)?;
                control.send(&Answer::Yes(()))?;
                player.echo(control)?;
                let counted = station.counted_in_row()?;
                Report { rate: None, arrivals: Arrivals::default(), counted }
            }
            Measure::Bandwidth => {
                control.send(&Answer::Yes(()))?;
                Stream::listening(station, theirs, run).serve(control)?
            }
        };
        control.send(&report)
    }
}
