//! The way to a host where another doctor listens.

use std::time::Duration;

use softroce::ids::Mtu;
use softroce::net::TransmitErrorKind;
use softroce::port::udp::Route;
use softroce::transport::window;

use super::finding::{Finding, Findings};
use super::probe::{HOP_LIMIT, Icrc, Probe, Prober, Seen, Shot, longest};
use super::talk::{Ask, Hello, Report, Welcome};
use super::verdicts;
use crate::clock;
use crate::control::Control;

/// How long an echo may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a word may take.
const GREETING: Duration = Duration::from_secs(10);

/// Tries before something is said not to get there.
const TRIES: u32 = 3;

/// Probes of which those that are lost are counted.
const COUNTED: u32 = 16;

/// Packets in a burst.
const BURST: u16 = 8;

/// DSCP 26, and ECN-capable: bits that a network may want to change.
const MARKED: u8 = 26 << 2 | 2;

/// Two doctors that know of each other.
pub(super) struct Acquaintance {
    control: Control,
    ours: Hello,
    theirs: Welcome,
}

/// Introduces us to the doctor behind `control`.
///
/// # Errors
///
/// It is none, or has gone.
pub(super) fn meet(mut control: Control, prober: &Prober) -> anyhow::Result<Acquaintance> {
    control.set_patience(Some(GREETING))?;
    let ours = Hello::new(prober, token()?)?;
    control.send(&ours)?;
    let theirs = control.receive()?;
    Ok(Acquaintance { control, ours, theirs })
}

/// Looks at the way to another doctor.
pub(super) fn examine(
    host: &str,
    met: Acquaintance,
    prober: Prober,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let Acquaintance { control, ours, theirs } = met;
    let theirs = match theirs {
        Ok(theirs) => theirs,
        Err(why) => {
            let text = format!("the doctor on {host} cannot help: {why}");
            let finding = Finding::problem("listener", text).advice("see to that first");
            return Ok(findings.add(finding)?);
        }
    };
    findings.add(introduction(host, &theirs))?;
    let mtu = ours.mtu()?.min(theirs.mtu()?);
    let mut visit =
        Visit { host, control, prober, ours, theirs, number: 0, all: Outcome::default() };
    if visit.reach(findings)? {
        visit.path_mtu(mtu, findings)?;
        visit.burst(findings)?;
        visit.marks(findings)?;
    }
    let all = &visit.all;
    if !all.there.is_empty() {
        findings.add(verdicts::icrc(host, visit.ours.ip, &all.there, &all.back))?;
    }
    Ok(())
}

fn token() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

fn introduction(host: &str, theirs: &Hello) -> Finding {
    let Hello { doctor, ip, receive_buffer, .. } = theirs;
    let usable = window::usable(*receive_buffer as u64);
    let text = format!(
        "roce doctor {doctor} listens on {host} at {ip}; its receive buffer is {receive_buffer} \
         bytes, of which {usable} may be in flight"
    );
    Finding::ok("listener", text).fact("ip", ip.to_string()).fact("receive_buffer", *receive_buffer)
}

/// What became of some probes.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    sent: u32,
    /// Why our own kernel does not send.
    refused: Option<TransmitErrorKind>,
    there: Vec<Seen>,
    back: Vec<Seen>,
    fastest: Option<Duration>,
    /// What the kernel there believes the way back to carry.
    path_mtu_back: Option<usize>,
}

struct Visit<'a> {
    host: &'a str,
    control: Control,
    prober: Prober,
    ours: Hello,
    theirs: Hello,
    number: u32,
    all: Outcome,
}

impl Visit<'_> {
    /// Sends bursts until one comes back whole.
    fn shoot(
        &mut self,
        ip_bytes: usize,
        count: u16,
        traffic_class: u8,
        tries: u32,
    ) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::default();
        let token = self.ours.token;
        for _ in 0..tries {
            self.number += 1;
            let probe = Probe { token, number: self.number, place: 0, is_echo: false };
            let start = clock::now();
            if let Err(kind) =
                self.prober.shoot(self.theirs.ip, &Shot { probe, ip_bytes, count, traffic_class })
            {
                outcome.refused = Some(kind);
                continue;
            }
            outcome.sent += u32::from(count);
            let missing = self.echoes(&mut outcome, usize::from(count))?;
            if missing == 0 {
                outcome.fastest = Some(clock::now() - start);
                break;
            }
        }
        self.control.send(&Ask::Seen)?;
        let report: Report = self.control.receive()?;
        outcome.there = report.seen;
        outcome.path_mtu_back = report.path_mtu;
        self.all.there.extend(&outcome.there);
        self.all.back.extend(&outcome.back);
        Ok(outcome)
    }

    /// Waits for the echoes of the last burst; returns how many have not come.
    fn echoes(&mut self, outcome: &mut Outcome, count: usize) -> anyhow::Result<usize> {
        let start = clock::now();
        let mut missing = count;
        loop {
            let waited = clock::now() - start;
            if missing == 0 || waited >= PATIENCE {
                return Ok(missing);
            }
            for arrival in self.prober.receive(PATIENCE - waited, None)? {
                let Some((probe, seen)) = arrival.probe() else { continue };
                if probe.token == self.ours.token && probe.is_echo {
                    // What is damaged, an engine would not take.
                    let counts = probe.number == self.number && seen.icrc != Icrc::Bad;
                    missing -= usize::from(counts && missing > 0);
                    outcome.back.push(seen);
                }
            }
        }
    }

    /// Whether anything gets there and back.
    fn reach(&mut self, findings: &mut Findings) -> anyhow::Result<bool> {
        let smallest = longest(Mtu::Mtu256);
        let first = self.shoot(smallest, 1, 0, TRIES)?;
        if first.fastest.is_none() {
            let mut seen = first.there.iter().chain(&first.back);
            // Of damage the ICRC tells.
            if seen.all(|seen| seen.icrc != Icrc::Bad) {
                let there = first.there.len();
                findings.add(verdicts::unreached(self.host, first.sent, first.refused, there))?;
            }
            return Ok(false);
        }
        let (mut back, mut there, mut fastest) = (0, 0, first.fastest);
        for _ in 0..COUNTED {
            let outcome = self.shoot(smallest, 1, 0, 1)?;
            there += u32::from(!outcome.there.is_empty());
            back += u32::from(outcome.fastest.is_some());
            fastest = outcome.fastest.into_iter().chain(fastest).min();
        }
        findings.add(verdicts::reached(self.host, COUNTED, there, back, fastest))?;
        findings.add(verdicts::hops(self.host, HOP_LIMIT, &first.there))?;
        Ok(true)
    }

    /// Which MTU gets through, of those that both interfaces carry.
    fn path_mtu(&mut self, most: Mtu, findings: &mut Findings) -> anyhow::Result<()> {
        let mut carried = None;
        for mtu in Mtu::ALL.into_iter().filter(|mtu| *mtu <= most) {
            let outcome = self.shoot(longest(mtu), 1, 0, TRIES)?;
            if outcome.fastest.is_none() {
                let there = !outcome.there.is_empty();
                let known = if there { outcome.path_mtu_back } else { self.path_mtu_there() };
                let finding = verdicts::path_loses(self.host, carried, mtu, most, there, known);
                return Ok(findings.add(finding)?);
            }
            carried = Some(mtu);
        }
        Ok(findings.add(verdicts::path_carries(self.host, most))?)
    }

    /// What our kernel believes the way to carry.
    fn path_mtu_there(&self) -> Option<usize> {
        Route::to(self.theirs.ip, Some(self.ours.ip)).ok().map(|route| route.mtu)
    }

    /// Whether a burst that the kernel or the card cuts arrives as it was sent.
    fn burst(&mut self, findings: &mut Findings) -> anyhow::Result<()> {
        let outcome = self.shoot(longest(Mtu::Mtu256), BURST, 0, TRIES)?;
        Ok(findings.add(verdicts::burst(BURST, &outcome.there))?)
    }

    /// Whether DSCP and ECN arrive.
    fn marks(&mut self, findings: &mut Findings) -> anyhow::Result<()> {
        let outcome = self.shoot(longest(Mtu::Mtu256), 1, MARKED, TRIES)?;
        let class = |seen: &[Seen]| seen.first().map(|seen| seen.traffic_class);
        let (there, back) = (class(&outcome.there), class(&outcome.back));
        Ok(findings.add(verdicts::marks(self.host, MARKED, there, back))?)
    }
}
