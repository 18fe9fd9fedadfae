//! The side that does as it is asked, for one session or several at a time.

use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::AsFd;
use std::panic;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context as _, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use softroce::runtime::Environment;
use softroce::verbs::Context;

use super::agree::{Answer, Ask, Connect, Connected, Introduction, Wishes, greet};
use super::latency::Player;
use super::measure::{Arrivals, Report, Run};
use super::placement;
use super::station::Station;
use super::stream::Stream;
use crate::ceiling::Party;
use crate::cli::{Measure, PerfArgs};
use crate::control::Control;
use crate::counters;
use crate::device::Opened;
use crate::outcome::Outcome;
use crate::tcp;

/// `roce perf TEST --listen`.
pub(super) fn run(args: &PerfArgs) -> anyhow::Result<Outcome> {
    if args.second_core {
        placement::settle(placement::Core::Second);
    }
    let listener = tcp::listen(args.port, args.announce)?;
    if args.second_core {
        wait_for_starter(&listener)?;
    }
    let device = Mutex::default();
    let serve = |control| {
        let mut control = control?;
        greet(&mut control, args.test)?;
        Session { args, device: &device, connection: None }.serve(&mut control)
    };
    let results: Vec<_> = thread::scope(|scope| {
        let listener = listener;
        let accept = |_| {
            let control = tcp::accept_one(&listener).and_then(Control::new);
            let session = thread::Builder::new().spawn_scoped(scope, || serve(control));
            session.context("starting a thread")
        };
        let sessions: Vec<_> = (0..args.clients).map(accept).collect();
        // One client more is refused rather than left to wait.
        drop(listener);
        let join = |session: anyhow::Result<thread::ScopedJoinHandle<'_, _>>| {
            session.map(thread::ScopedJoinHandle::join)
        };
        sessions.into_iter().map(join).collect()
    });
    let opened = device.into_inner().unwrap_or_else(PoisonError::into_inner);
    let kept_rules = opened.map_or(Ok(Outcome::Yes), Opened::finish);
    for result in results {
        result?.unwrap_or_else(|panicked| panic::resume_unwind(panicked))?;
    }
    kept_rules
}

/// Waits until the process that has started this one connects.
///
/// # Errors
///
/// It has ended instead.
fn wait_for_starter(listener: &TcpListener) -> anyhow::Result<()> {
    let stdin = io::stdin();
    let of = |fd| PollFd::new(fd, PollFlags::POLLIN);
    let mut either = [of(listener.as_fd()), of(stdin.as_fd())];
    while let Err(error) = poll(&mut either, PollTimeout::NONE) {
        ensure!(error == Errno::EINTR, "waiting for the other side: {error}");
    }
    ensure!(either[0].any() == Some(true), "the other side has ended before it connected");
    Ok(())
}

struct Session<'a> {
    args: &'a PerfArgs,
    /// The device of all sessions, which the first that needs it opens.
    device: &'a Mutex<Option<Opened>>,
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
                    let opened = self.device();
                    let opened = opened.as_ref().context("nothing is connected");
                    let counted = opened.and_then(|opened| counters::of_device(&opened.context));
                    control.send(&Answer::of(counted))?;
                }
                // Nothing is running: the row has failed here, and the reason is on its way.
                Ask::Finish { .. } => {}
            }
        }
        Ok(())
    }

    /// The address of ours that raw UDP uses: that of the device, unless no socket can have it.
    fn address(&self, control: &Control) -> anyhow::Result<IpAddr> {
        if !self.args.device.port_kind(&Environment::read()?).is_of_host() {
            return control.local_ip();
        }
        let index = self.args.load.gid_index;
        match (&*self.device(), self.args.device.address_of(index)?) {
            (Some(opened), _) => Ok(opened.context.query_gid(index.into())?.ip()),
            (None, Some(ip)) => Ok(ip),
            (None, None) => control.local_ip(),
        }
    }

    fn device(&self) -> MutexGuard<'_, Option<Opened>> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device, which leads to the other side by this address of ours.
    fn open(&self, route: IpAddr) -> anyhow::Result<Context> {
        let mut device = self.device();
        let opened = match &mut *device {
            Some(opened) => opened,
            none => none.insert(self.args.device.open(Some(route), self.args.check)?),
        };
        Ok(opened.context.clone())
    }

    fn connect(&mut self, control: &Control, connect: &Connect) -> anyhow::Result<Connected> {
        let route = control.local_ip()?;
        let context = self.open(route)?;
        let context = &context;
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
