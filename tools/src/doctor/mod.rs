//! `roce doctor`: what keeps RoCEv2 from working, and what to do about it.
//!
//! | file | looks at |
//! |---|---|
//! | `here` | this machine |
//! | `visit`, `listening` | the way between two machines, with a doctor at each end |
//! | `stranger` | the way to a machine that does not expect us |

mod finding;
mod here;
mod listening;
mod probe;
mod stranger;
mod talk;
mod verdicts;
mod visit;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use softroce::ids::Mtu;
use softroce::net::TransmitErrorKind;
use softroce::port::udp::{OpenError, Route, UdpPort};
use softroce::port::{PortConfig, PortKind};
use softroce::runtime::{Environment, loopback_addresses};

use crate::cli::DoctorArgs;
use crate::control::Control;
use crate::device::Recording;
use crate::outcome::Outcome;
use crate::tcp;
use finding::{Finding, Findings};
use here::Scope;
use probe::Prober;

/// How long a host may take to accept a TCP connection.
const PATIENCE: Duration = Duration::from_secs(3);

/// Runs the command.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<Outcome> {
    let environment = Environment::read()?;
    args.device.check_name(&environment)?;
    let ips = args.device.ip.len();
    ensure!(ips <= 1, "--ip: {ips} addresses are given, and the doctor looks at one at a time");
    ensure!(
        args.device.pkey.is_empty(),
        "--pkey: what the doctor sends is of the default partition"
    );
    match args.device.port_kind(&environment) {
        PortKind::Udp => {}
        via if !via.is_of_host() => bail!(
            "{via}: the doctor looks at this machine, and a TAP port is another host; visit it from one on its \
             link: roce doctor ADDRESS"
        ),
        // Whoever has this in the environment, for programs, may ask about the machine nevertheless.
        via => ensure!(
            args.device.via.is_none(),
            "--via {via}: the doctor sends by UDP sockets; what it finds of interfaces and ways holds for \
             other ports of this machine too"
        ),
    }
    let recording = args.device.record(&environment)?;
    let mut findings = Findings::new(args.json);
    let doctor = Doctor { args, environment: &environment, recording: recording.as_ref() };
    match &args.host {
        Some(host) => doctor.examine_way(host, &mut findings)?,
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
    /// A port as the options want it.
    fn config(&self, ip: IpAddr) -> PortConfig {
        PortConfig {
            receive_buffer: self.args.device.rcvbuf.or(self.environment.receive_buffer),
            source_port: self.environment.source_port,
            ..PortConfig::new(ip)
        }
    }

    /// The address to look at, if anything says one: the first of several.
    fn address(&self, route: Option<IpAddr>) -> Option<IpAddr> {
        self.args.device.addresses(self.environment, route).first().copied()
    }

    fn examine_here(&self, route: Option<IpAddr>, findings: &mut Findings) -> anyhow::Result<()> {
        let any = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let scope = match (self.address(route), route) {
            (Some(ip), _) => Scope::One(ip),
            (None, Some(_)) => Scope::Loopback,
            (None, None) => Scope::All,
        };
        here::examine(&self.config(any), scope, findings)
    }

    /// Opens the port at the address to have on the way that `route` is of.
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

    fn examine_way(&self, host: &str, findings: &mut Findings) -> anyhow::Result<()> {
        let wanted = self.address(None);
        let to = resolve(host, wanted)?;
        let Some(route) = find_route(host, to, wanted, findings)? else { return Ok(()) };
        self.examine_here(Some(route.source), findings)?;
        if to == route.source && !to.is_loopback() {
            let text = format!("{host} is this machine: there is no way between to look at");
            return Ok(findings.add(Finding::note("reach", text))?);
        }
        let prober = match self.open(Some(route.source)) {
            Ok(prober) => prober,
            Err(e) => {
                let text = format!("the way to {host} was not looked at: {e}");
                return Ok(
                    findings.add(Finding::problem("reach", text).advice("see to that first"))?
                );
            }
        };
        if Mtu::for_link(prober.info().link_mtu).is_none() {
            // That has been told: nothing can be sent.
            return Ok(());
        }
        let why = match knock(to, self.args.port) {
            Ok(stream) => match visit::meet(Control::new(stream)?, &prober) {
                Ok(met) => return visit::examine(host, met, prober, findings),
                Err(e) => format!("who listens is none: {e:#}"),
            },
            Err(why) => why,
        };
        let text = format!("no doctor listens on {host}, TCP port {}: {why}", self.args.port);
        let advice = format!("for a full examination: roce doctor --listen on {host}");
        findings.add(Finding::note("listener", text).advice(advice))?;
        stranger::examine(host, to, prober, findings)
    }
}

/// How the kernel would send to a host; `None` when it would not, which is told.
fn find_route(
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
        Err(e) => Finding::problem("route", format!("there is no way to {named}: {e}"))
            .advice(format!("look at: ip route get {to}")),
    };
    findings.add(finding)?;
    Ok(None)
}

/// The address of a host, of the IP version of `like` if there is one.
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

/// Connects, or says why it cannot.
fn knock(to: IpAddr, port: u16) -> Result<TcpStream, String> {
    let stream = TcpStream::connect_timeout(&SocketAddr::new(to, port), PATIENCE);
    stream.map_err(|e| match e.kind() {
        io::ErrorKind::ConnectionRefused => String::from("the connection is refused"),
        io::ErrorKind::TimedOut => String::from("no answer at all"),
        _ => e.to_string(),
    })
}
