//! The listening doctor: echoes probes and reports them.

use std::mem;
use std::time::Duration;

use anyhow::bail;
use softroce::port::udp::Route;
use softroce_perf::control::Control;

use super::finding::{Finding, Findings};
use super::probe::{Icrc, Probe, ProbeBurst, Prober, ReceivedPacket, ReceivedProbe};
use super::protocol::{Hello, HelloReply, Report, Request};

/// Time without a message after which the session ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of recorded probes between two reports.
const MAX_RECORDED_PROBES: usize = 1024;

/// Serves one session. `opened` is the port on the path to the other side, or the error of opening it.
pub(super) fn serve(
    mut control: Control,
    opened: anyhow::Result<Prober>,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    control.set_timeout(Some(IDLE_TIMEOUT))?;
    let theirs: Hello = control.receive()?;
    let welcome = opened.and_then(|prober| Ok((Hello::new(&prober, theirs.token)?, prober)));
    let prober = match welcome {
        Ok((hello, prober)) => {
            control.send(&HelloReply::Ok(hello))?;
            prober
        }
        Err(e) => {
            let why = format!("{e:#}");
            control.send(&HelloReply::Err(why.clone()))?;
            return Ok(findings.add(Finding::problem("listen", why))?);
        }
    };
    let mut host = Host { prober, theirs, seen: Vec::new(), probes: 0, bad: 0 };
    host.serve(&mut control)?;
    findings.add(host.finding())?;
    Ok(())
}

struct Host {
    prober: Prober,
    theirs: Hello,
    seen: Vec<ReceivedProbe>,
    probes: u64,
    bad: u64,
}

impl Host {
    fn serve(&mut self, control: &mut Control) -> anyhow::Result<()> {
        let mut silent = 0;
        loop {
            let step = Duration::from_secs(1);
            let received_packets = self.prober.receive(step, Some(control.descriptor()))?;
            silent = if received_packets.is_empty() { silent + 1 } else { 0 };
            self.take(received_packets);
            // A connection that fails is closed too.
            if control.has_message().unwrap_or(true) {
                silent = 0;
                match control.receive_or_end() {
                    Ok(Some(Request::Report)) => {
                        // Probes that have arrived by now belong to the report.
                        let received_packets = self.prober.receive(Duration::ZERO, None)?;
                        self.take(received_packets);
                        control.send(&self.report())?;
                    }
                    Ok(None) => return Ok(()),
                    Err(e) => return Err(e),
                }
            }
            if silent > IDLE_TIMEOUT.as_secs() {
                bail!("no message from the other side for {} s", IDLE_TIMEOUT.as_secs());
            }
        }
    }

    fn report(&mut self) -> Report {
        let (here, there) = (self.prober.info().ip, self.theirs.ip);
        let path_mtu = Route::to(there, Some(here)).ok().map(|route| route.mtu);
        Report { seen: mem::take(&mut self.seen), path_mtu }
    }

    /// Records and echoes the probes of this session.
    fn take(&mut self, received_packets: Vec<ReceivedPacket>) {
        for arrival in received_packets {
            let Some((probe, seen)) = arrival.probe() else { continue };
            if probe.token != self.theirs.token || probe.is_echo {
                continue;
            }
            self.probes += 1;
            if self.seen.len() < MAX_RECORDED_PROBES {
                self.seen.push(seen);
            }
            if seen.icrc == Icrc::Bad {
                self.bad += 1;
                continue;
            }
            let echo = ProbeBurst {
                probe: Probe { place: 0, is_echo: true, ..probe },
                ip_bytes: arrival.ip_bytes,
                count: 1,
                traffic_class: seen.traffic_class,
            };
            // The echo goes to the sender only. The other side notices an echo that cannot be sent, and reports it.
            let _ = self.prober.send_probes(seen.source.ip(), &echo);
        }
    }

    fn finding(&self) -> Finding {
        const CHECK: &str = "session";
        let (ip, probes, bad) = (self.theirs.ip, self.probes, self.bad);
        let finding = match (probes, bad) {
            (0, _) => {
                let text = format!("no packet from {ip} to UDP port 4791 has arrived here");
                Finding::problem(CHECK, text).advice(format!(
                    "let UDP port 4791 in from {ip} if a firewall of this machine drops it"
                ))
            }
            (_, 0) => {
                Finding::ok(CHECK, format!("{ip} has sent {probes} probes, each with a good ICRC"))
            }
            _ => Finding::problem(
                CHECK,
                format!("of {probes} probes from {ip}, {bad} have a bad ICRC"),
            )
            .advice("the other side reports the cause"),
        };
        finding.fact("probes", probes).fact("bad", bad)
    }
}
