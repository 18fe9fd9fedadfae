//! `roce cm`: a first try of the connection manager against any peer, with the private protocol of `rping`.

mod rping;

use std::io::Write;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

use anyhow::Context as _;
use serde::Serialize;
use softroce::net::ROCE_PORT;
use softroce::port::udp::Route;
use softroce::runtime::{Environment, loopback_addresses};
use softroce::verbs::cm;
use softroce_cli::{CmArgs, CmConnectArgs, CmListenArgs, CmPingArgs, CmSide, DeviceArgs};
use softroce_perf::clock;

use crate::device::{self, OpenDevice};
use crate::outcome::Outcome;
use crate::output::{self, json_line};
use rping::{Client, Score, Server};

/// Runs the command.
pub(crate) fn run(args: &CmArgs) -> anyhow::Result<Outcome> {
    match &args.side {
        CmSide::Listen(args) => listen(args),
        CmSide::Connect(args) => connect(args),
    }
}

/// Result of a connection.
#[derive(Serialize)]
struct Report {
    peer: String,
    /// Time until the connection was established, on the active side.
    connect_seconds: Option<f64>,
    #[serde(flatten)]
    score: Score,
    seconds: f64,
}

impl Report {
    fn print(&self, json: bool) -> anyhow::Result<()> {
        let mut out = output::stdout();
        if json {
            return Ok(json_line(&mut out, self)?);
        }
        let Self { peer, score, .. } = self;
        if let Some(seconds) = self.connect_seconds {
            writeln!(out, "connected to {peer} in {:.3} ms", seconds * 1e3)?;
        }
        let milliseconds = self.seconds * 1e3;
        let Score { pings, bytes, damaged } = score;
        match (self.connect_seconds, damaged) {
            (None, _) => writeln!(out, "{peer}: {pings} pings answered, {bytes} bytes")?,
            (Some(_), 0) => {
                writeln!(
                    out,
                    "{pings} pings in {milliseconds:.3} ms, {bytes} bytes, data verified"
                )?;
            }
            (Some(_), damaged) => writeln!(out, "{damaged} of {pings} pings have other data")?,
        }
        Ok(())
    }
}

fn listen(args: &CmListenArgs) -> anyhow::Result<Outcome> {
    let opened = device::open(&args.ping.device, None, args.ping.check)?;
    let served = serve(args, &opened);
    // The capture is completed also after a failed test.
    let finished = opened.finish();
    served?;
    finished
}

fn serve(args: &CmListenArgs, opened: &OpenDevice) -> anyhow::Result<()> {
    let context = &opened.context;
    let any: IpAddr = if context.ip().is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    let listener = cm::Listener::bind(context, SocketAddr::new(any, args.port))?;
    if args.announce {
        let mut out = output::stdout();
        writeln!(out, "{}", listener.local_addr().port())?;
        out.flush()?;
    }
    for _ in 0..args.connections {
        let incoming = listener.accept(None)?;
        let start = clock::now();
        let peer = incoming.peer().to_string();
        let mut server = Server::new(context, args.ping.timeout)?;
        let score = server.serve(incoming).with_context(|| peer.clone())?;
        let seconds = (clock::now() - start).as_secs_f64();
        Report { peer, connect_seconds: None, score, seconds }.print(args.ping.json)?;
    }
    Ok(())
}

fn connect(args: &CmConnectArgs) -> anyhow::Result<Outcome> {
    let CmConnectArgs { host, port, ping, .. } = args;
    let mut addresses =
        (host.as_str(), *port).to_socket_addrs().with_context(|| format!("host {host}"))?;
    let peer = addresses.next().with_context(|| format!("host {host} has no address"))?;
    let device = own_device(ping, peer.ip())?;
    let route = Route::to(peer.ip(), None).map(|route| route.source).ok();
    let opened = device::open(&device, route, ping.check)?;
    let pinged = ping_peer(args, peer, &opened);
    let finished = opened.finish();
    let report = pinged?;
    report.print(ping.json)?;
    let kept_rules = finished?;
    Ok(if report.score.damaged == 0 { kept_rules } else { Outcome::No })
}

fn ping_peer(
    args: &CmConnectArgs,
    peer: SocketAddr,
    opened: &OpenDevice,
) -> anyhow::Result<Report> {
    let mut client = Client::new(&opened.context, args.size, args.ping.timeout)?;
    let start = clock::now();
    client.connect(peer)?;
    let connected = clock::now();
    let score = client.ping(args.iters)?;
    Ok(Report {
        peer: peer.to_string(),
        connect_seconds: Some((connected - start).as_secs_f64()),
        score,
        seconds: (clock::now() - connected).as_secs_f64(),
    })
}

/// Returns the device options of a client. Without an address of its own, the client of a loopback address leaves that
/// address to the server.
fn own_device(ping: &CmPingArgs, peer: IpAddr) -> anyhow::Result<DeviceArgs> {
    let mut device = ping.device.clone();
    if peer.is_loopback() && peer.is_ipv4() {
        let is_named = !device::addresses(&device, &Environment::read()?, None).is_empty();
        let is_free = |ip: &IpAddr| *ip != peer && UdpSocket::bind((*ip, ROCE_PORT)).is_ok();
        if !is_named {
            device.ip.extend(loopback_addresses().find(is_free));
        }
    }
    Ok(device)
}
