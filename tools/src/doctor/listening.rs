//! The side that is visited: echoes probes and says what it has seen of them.

use std::mem;
use std::time::Duration;

use anyhow::bail;
use softroce::port::udp::Route;

use super::finding::{Finding, Findings};
use super::probe::{Arrival, Icrc, Probe, Prober, Seen, Shot};
use super::talk::{Ask, Hello, Report, Welcome};
use crate::control::Control;

/// How long a visitor may be silent.
const PATIENCE: Duration = Duration::from_secs(60);

/// Probes remembered until somebody asks for them.
const MAX_SEEN: usize = 1024;

/// Serves one visitor. `opened` is the port on the way to it, or why there is none.
pub(super) fn serve(
    mut control: Control,
    opened: anyhow::Result<Prober>,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    control.set_patience(Some(PATIENCE))?;
    let theirs: Hello = control.receive()?;
    let welcome = opened.and_then(|prober| Ok((Hello::new(&prober, theirs.token)?, prober)));
    let prober = match welcome {
        Ok((hello, prober)) => {
            control.send(&Welcome::Ok(hello))?;
            prober
        }
        Err(e) => {
            let why = format!("{e:#}");
            control.send(&Welcome::Err(why.clone()))?;
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
    seen: Vec<Seen>,
    probes: u64,
    bad: u64,
}

impl Host {
    fn serve(&mut self, control: &mut Control) -> anyhow::Result<()> {
        let mut silent = 0;
        loop {
            let step = Duration::from_secs(1);
            let arrivals = self.prober.receive(step, Some(control.descriptor()))?;
            silent = if arrivals.is_empty() { silent + 1 } else { 0 };
            self.take(arrivals);
            // A visitor that has gone without a word is gone as well.
            if control.has_word().unwrap_or(true) {
                silent = 0;
                match control.receive_or_end() {
                    Ok(Some(Ask::Seen)) => {
                        // What has arrived until now belongs to the answer.
                        let arrivals = self.prober.receive(Duration::ZERO, None)?;
                        self.take(arrivals);
                        control.send(&self.tell())?;
                    }
                    Ok(None) => return Ok(()),
                    Err(e) => return Err(e),
                }
            }
            if silent > PATIENCE.as_secs() {
                bail!("the visitor has been silent for {} s", PATIENCE.as_secs());
            }
        }
    }

    fn tell(&mut self) -> Report {
        let (here, there) = (self.prober.info().ip, self.theirs.ip);
        let path_mtu = Route::to(there, Some(here)).ok().map(|route| route.mtu);
        Report { seen: mem::take(&mut self.seen), path_mtu }
    }

    /// Notes and echoes the probes of this visit.
    fn take(&mut self, arrivals: Vec<Arrival>) {
        for arrival in arrivals {
            let Some((probe, seen)) = arrival.probe() else { continue };
            if probe.token != self.theirs.token || probe.is_echo {
                continue;
            }
            self.probes += 1;
            if self.seen.len() < MAX_SEEN {
                self.seen.push(seen);
            }
            if seen.icrc == Icrc::Bad {
                self.bad += 1;
                continue;
            }
            let echo = Shot {
                probe: Probe { place: 0, is_echo: true, ..probe },
                ip_bytes: arrival.ip_bytes,
                count: 1,
                traffic_class: seen.traffic_class,
            };
            // To nobody else than who has sent it. What cannot be sent is missed by the visitor, who
            // says so.
            let _ = self.prober.shoot(seen.source.ip(), &echo);
        }
    }

    fn finding(&self) -> Finding {
        const CHECK: &str = "visit";
        let (ip, probes, bad) = (self.theirs.ip, self.probes, self.bad);
        let finding = match (probes, bad) {
            (0, _) => {
                let text = format!("of what {ip} has sent to UDP port 4791, nothing arrived here");
                Finding::problem(CHECK, text).advice(format!(
                    "let UDP port 4791 in from {ip}, if it is this machine that drops it"
                ))
            }
            (_, 0) => {
                Finding::ok(CHECK, format!("{ip} has sent {probes} probes, each with a good ICRC"))
            }
            _ => Finding::problem(
                CHECK,
                format!("of {probes} probes from {ip}, {bad} have a bad ICRC"),
            )
            .advice("what that means, the visitor says"),
        };
        finding.fact("probes", probes).fact("bad", bad)
    }
}
