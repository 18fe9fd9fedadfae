//! The listening side, for one session or several at a time.

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
use softroce_cli::{Measure, PerfArgs};
use softroce_perf::ceiling::RawUdpSide;
use softroce_perf::control::Control;
use softroce_perf::latency::PingPong;
use softroce_perf::measure::{Arrivals, Report, Run};
use softroce_perf::protocol::{
    Connect, Connected, Constraints, Reply, Request, SideInfo, exchange_hello,
};
use softroce_perf::side::Side;
use softroce_perf::stream::Stream;
use softroce_perf::tcp;

use super::placement;
use crate::counters;
use crate::device::{self, OpenDevice};
use crate::outcome::Outcome;

/// Runs `roce perf TEST --listen`.
pub(super) fn run(args: &PerfArgs) -> anyhow::Result<Outcome> {
    if args.second_core {
        placement::pin_to(placement::Core::Second);
    }
    let listener = tcp::listen(args.port, args.announce)?;
    if args.second_core {
        wait_for_starter(&listener)?;
    }
    let device = Mutex::default();
    let serve = |control| {
        let mut control = control?;
        exchange_hello(&mut control, args.test)?;
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
        // Further clients are refused instead of left waiting.
        drop(listener);
        let join = |session: anyhow::Result<thread::ScopedJoinHandle<'_, _>>| {
            session.map(thread::ScopedJoinHandle::join)
        };
        sessions.into_iter().map(join).collect()
    });
    let opened = device.into_inner().unwrap_or_else(PoisonError::into_inner);
    let kept_rules = opened.map_or(Ok(Outcome::Yes), OpenDevice::finish);
    for result in results {
        result?.unwrap_or_else(|panicked| panic::resume_unwind(panicked))?;
    }
    kept_rules
}

/// Waits until the process that has started this one connects.
///
/// # Errors
///
/// That process has ended.
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
    /// Device of all sessions, opened by the first that needs it.
    device: &'a Mutex<Option<OpenDevice>>,
    connection: Option<(Side, SideInfo)>,
}

impl Session<'_> {
    /// Handles requests until the active side closes the connection.
    fn serve(&mut self, control: &mut Control) -> anyhow::Result<()> {
        while let Some(ask) = control.receive_or_end()? {
            match ask {
                Request::Ceiling(measurement) => {
                    let ip = self.address(control)?;
                    let receive_buffer = self.args.device.rcvbuf;
                    RawUdpSide { control: &mut *control, ip, receive_buffer }.serve(measurement)?;
                }
                Request::Connect(connect) => {
                    let answer = self.connect(control, &connect);
                    control.send(&Reply::of(answer))?;
                }
                Request::Run(run) => self.row(control, run)?,
                Request::Counters => {
                    let opened = self.device();
                    let opened = opened.as_ref().context("nothing is connected");
                    let counted = opened.and_then(|opened| counters::of_device(&opened.context));
                    control.send(&Reply::of(counted))?;
                }
                // No row is running: it has failed on this side, and the reason has been sent.
                Request::Finish { .. } => {}
            }
        }
        Ok(())
    }

    /// Returns the local address for raw UDP: that of the device, unless no socket can have it.
    fn address(&self, control: &Control) -> anyhow::Result<IpAddr> {
        if !device::port_kind(&self.args.device, &Environment::read()?).is_of_host() {
            return control.local_ip();
        }
        let index = self.args.load.gid_index;
        match (&*self.device(), device::address_of(&self.args.device, index)?) {
            (Some(opened), _) => Ok(opened.context.query_gid(index.into())?.ip()),
            (None, Some(ip)) => Ok(ip),
            (None, None) => control.local_ip(),
        }
    }

    fn device(&self) -> MutexGuard<'_, Option<OpenDevice>> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the device, with `route` as its address if no option names one.
    fn open(&self, route: IpAddr) -> anyhow::Result<Context> {
        let mut device = self.device();
        let opened = match &mut *device {
            Some(opened) => opened,
            none => none.insert(device::open(&self.args.device, Some(route), self.args.check)?),
        };
        Ok(opened.context.clone())
    }

    fn connect(&mut self, control: &Control, connect: &Connect) -> anyhow::Result<Connected> {
        let route = control.local_ip()?;
        let context = self.open(route)?;
        let context = &context;
        let info = context.device_info()?;
        connect.load.check(&info.limits)?;
        let constraints = Constraints::of(&self.args.load, info.active_mtu);
        let mtu = constraints.agree(&connect.constraints)?;
        let mut side = Side::new(context, connect.load, self.args.load.gid_index)?;
        side.connect(&connect.active, mtu)?;
        side.fill_receive_queues()?;
        let listening = side.info()?;
        self.connection = Some((side, connect.active.clone()));
        Ok(Connected { mtu: mtu.bytes(), listening })
    }

    fn row(&mut self, control: &mut Control, run: Run) -> anyhow::Result<()> {
        let (side, theirs) = self.connection.as_mut().context("nothing is connected")?;
        let (size, longest) = (run.size, side.load.longest);
        ensure!(size <= longest, "a row of {size} bytes in a test of {longest} at most");
        side.start_row()?;
        let report = match side.load.kind.measure {
            Measure::Latency => {
                let mut player = PingPong::new(side, theirs, run)?;
                control.send(&Reply::Yes(()))?;
                player.echo(control)?;
                let counted = side.counted_in_row()?;
                Report { rate: None, arrivals: Arrivals::default(), counted }
            }
            Measure::Bandwidth => {
                control.send(&Reply::Yes(()))?;
                Stream::listening(side, theirs, run).serve(control)?
            }
        };
        control.send(&report)
    }
}
