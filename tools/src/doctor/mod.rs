//! `roce doctor`: what keeps RoCEv2 from working, and what to do about it.
//!
//! | module | checks |
//! |---|---|
//! | `here` | this machine |
//! | `programs` | what `roce run` needs |
//! | `session`, `listening` | the path between two machines, with a doctor at each end |
//! | `unknown_peer`, `connection_manager` | the path to a machine without a doctor |

mod connection_manager;
mod finding;
mod here;
mod listening;
mod probe;
mod programs;
mod protocol;
mod session;
mod unknown_peer;
mod verdicts;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use softroce::ids::Mtu;
use softroce::net::TransmitErrorKind;
use softroce::port::udp::{OpenError, Route, UdpPort};
use softroce::port::{PortConfig, PortKind};
use softroce::runtime::{Environment, loopback_addresses};
use softroce_cli::DoctorArgs;
use softroce_perf::control::Control;
use softroce_perf::tcp;

use crate::device::{self, Recording};
use crate::outcome::Outcome;
use finding::{Finding, Findings};
use here::Scope;
use probe::Prober;

/// Timeout of the TCP connection to a host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs the command.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<Outcome> {
    let environment = Environment::read()?;
    device::check_name(&args.device, &environment)?;
    let ips = args.device.ip.len();
    ensure!(ips <= 1, "--ip: {ips} addresses are given, expected one");
    ensure!(args.device.pkey.is_empty(), "--pkey: the doctor uses the default partition");
    match device::port_kind(&args.device, &environment) {
        PortKind::Udp => {}
        via if !via.is_of_host() => bail!(
            "{via}: the doctor checks this machine, and a TAP port is another host; run roce doctor ADDRESS on a \
             host of its link"
        ),
        // A variable of the environment is meant for programs, so it does not prevent the checks.
        via => ensure!(
            args.device.via.is_none(),
            "--via {via}: the doctor sends by UDP sockets; what it finds of interfaces and ways holds for \
             other ports of this machine too"
        ),
    }
    let recording = device::record(&args.device, &environment)?;
    let mut findings = Findings::new(args.json);
    let doctor = Doctor { args, environment: &environment, recording: recording.as_ref() };
    match &args.host {
        Some(host) => doctor.examine_path(host, &mut findings)?,
        None => {
            doctor.examine_here(None, &mut findings)?;
            if args.listen {
                doctor.listen(&mut findings)?;
            }
        }
    }
    recording.map_or(Ok(()), Recording::finish)?;
    Ok(findings.finish()?)
}

struct Doctor<'a> {
    args: &'a DoctorArgs,
    environment: &'a Environment,
    recording: Option<&'a Recording>,
}

impl Doctor<'_> {
    /// Returns the configuration of a port.
    fn config(&self, ip: IpAddr) -> PortConfig {
        PortConfig {
            receive_buffer: self.args.device.rcvbuf.or(self.environment.receive_buffer),
            source_port: self.environment.source_port,
            ..PortConfig::new(ip)
        }
    }

    /// Returns the address to check, if options or environment name one: the first of several.
    fn address(&self, route: Option<IpAddr>) -> Option<IpAddr> {
        device::addresses(&self.args.device, self.environment, route).first().copied()
    }

    fn examine_here(&self, route: Option<IpAddr>, findings: &mut Findings) -> anyhow::Result<()> {
        let any = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let scope = match (self.address(route), route) {
            (Some(ip), _) => Scope::One(ip),
            (None, Some(_)) => Scope::Loopback,
            (None, None) => Scope::All,
        };
        here::examine(&self.config(any), scope, findings)?;
        programs::examine(self.environment.paths.as_deref(), findings)
    }

    /// Opens the port at the address for a path; `route` is the local address on it.
    fn open(&self, route: Option<IpAddr>) -> anyhow::Result<Prober> {
        let port = match self.address(route) {
            Some(ip) => UdpPort::open(&self.config(ip))?,
            None => self.open_loopback()?,
        };
        let impairments = self.args.device.impair.or(self.environment.impair);
        Ok(Prober::new(port, self.recording, impairments.as_ref()))
    }

    fn open_loopback(&self) -> anyhow::Result<UdpPort> {
        let mut last = None;
        for ip in loopback_addresses() {
            match UdpPort::open(&self.config(ip)) {
                Err(e @ OpenError::InUse { .. }) => last = Some(e),
                result => return Ok(result?),
            }
        }
        bail!("no loopback address is free{}", last.map_or_else(String::new, |e| format!(": {e}")))
    }

    fn listen(&self, findings: &mut Findings) -> anyhow::Result<()> {
        let stream = tcp::accept(self.args.port, self.args.announce)?;
        let opened = self.open(Some(tcp::local_ip(&stream)?));
        listening::serve(Control::new(stream)?, opened, findings)
    }

    fn examine_path(&self, host: &str, findings: &mut Findings) -> anyhow::Result<()> {
        let wanted = self.address(None);
        let to = resolve(host, wanted)?;
        let Some(route) = route_to(host, to, wanted, findings)? else { return Ok(()) };
        self.examine_here(Some(route.source), findings)?;
        if to == route.source && !to.is_loopback() {
            let text = format!("{host} is this machine: there is no path to check");
            return Ok(findings.add(Finding::note("reach", text))?);
        }
        let prober = match self.open(Some(route.source)) {
            Ok(prober) => prober,
            Err(e) => {
                let text = format!("the path to {host} was not checked: {e}");
                return Ok(
                    findings.add(Finding::problem("reach", text).advice("solve that first"))?
                );
            }
        };
        if Mtu::for_link(prober.info().link_mtu).is_none() {
            // The interface check has reported that nothing can be sent.
            return Ok(());
        }
        let why = match connect(to, self.args.port) {
            Ok(stream) => match session::handshake(Control::new(stream)?, &prober) {
                Ok(met) => return session::examine(host, met, prober, findings),
                Err(e) => format!("another program listens there: {e:#}"),
            },
            Err(why) => why,
        };
        let text = format!("no doctor listens on {host}, TCP port {}: {why}", self.args.port);
        let advice = format!("for a full examination: roce doctor --listen on {host}");
        findings.add(Finding::note("listener", text).advice(advice))?;
        unknown_peer::examine(host, to, prober, findings)
    }
}

/// Returns the route of the kernel to a host; reports a missing one and returns `None`.
fn route_to(
    host: &str,
    to: IpAddr,
    wanted: Option<IpAddr>,
    findings: &mut Findings,
) -> anyhow::Result<Option<Route>> {
    let named = if to.to_string() == host { host.to_owned() } else { format!("{host} ({to})") };
    let finding = match Route::to(to, wanted) {
        Ok(route) => {
            let text = format!("packets to {named} leave from {}", route.source);
            let finding = Finding::ok("route", text).fact("source", route.source.to_string());
            findings.add(finding.fact("path_mtu", route.mtu).fact("host", to.to_string()))?;
            return Ok(Some(route));
        }
        Err(e) if e.kind() == io::ErrorKind::AddrNotAvailable => {
            return Err(e).context("the address given is not one of this machine");
        }
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            verdicts::refusal(host, TransmitErrorKind::Forbidden)
        }
        Err(e) => Finding::problem("route", format!("there is no route to {named}: {e}"))
            .advice(format!("look at: ip route get {to}")),
    };
    findings.add(finding)?;
    Ok(None)
}

/// Returns the address of a host, of the IP version of `like` if that is given.
fn resolve(host: &str, like: Option<IpAddr>) -> anyhow::Result<IpAddr> {
    let addresses = (host, 0).to_socket_addrs().with_context(|| format!("host {host}"))?;
    let mut suitable = addresses
        .map(|address| address.ip().to_canonical())
        .filter(|ip| like.is_none_or(|like| like.is_ipv4() == ip.is_ipv4()));
    suitable.next().with_context(|| {
        let version = if like.is_some_and(|like| like.is_ipv4()) { "IPv4" } else { "IPv6" };
        format!("host {host} has no {version} address")
    })
}

/// Connects to a host, or returns why that fails.
fn connect(to: IpAddr, port: u16) -> Result<TcpStream, String> {
    let stream = TcpStream::connect_timeout(&SocketAddr::new(to, port), CONNECT_TIMEOUT);
    stream.map_err(|e| match e.kind() {
        io::ErrorKind::ConnectionRefused => String::from("the connection is refused"),
        io::ErrorKind::TimedOut => String::from("no response"),
        _ => e.to_string(),
    })
}
