//! The path to a host where another doctor listens.

use std::time::Duration;

use softroce::ids::Mtu;
use softroce::net::TransmitErrorKind;
use softroce::port::udp::Route;
use softroce::transport::window;
use softroce_perf::clock;
use softroce_perf::control::Control;

use super::finding::{Finding, Findings};
use super::probe::{HOP_LIMIT, Icrc, Probe, ProbeBurst, Prober, ReceivedProbe, longest};
use super::protocol::{Hello, HelloReply, Report, Request};
use super::verdicts;

/// Time that an echo may take.
const ECHO_TIMEOUT: Duration = Duration::from_secs(1);

/// Time that a control message may take.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of attempts before probes count as lost.
const MAX_ATTEMPTS: u32 = 3;

/// Number of probes for the loss rate.
const COUNTED_PROBES: u32 = 16;

/// Number of packets in a burst.
const BURST_PACKETS: u16 = 8;

/// Traffic class of the probes that test marks: DSCP 26 and ECN-capable.
const MARKED_TRAFFIC_CLASS: u8 = 26 << 2 | 2;

/// Both sides after the exchange of [`Hello`].
pub(super) struct Handshake {
    control: Control,
    ours: Hello,
    theirs: HelloReply,
}

/// Exchanges [`Hello`] with the doctor at the other end of `control`.
///
/// # Errors
///
/// The other side is no doctor, or has closed the connection.
pub(super) fn handshake(mut control: Control, prober: &Prober) -> anyhow::Result<Handshake> {
    control.set_timeout(Some(CONTROL_TIMEOUT))?;
    let ours = Hello::new(prober, token()?)?;
    control.send(&ours)?;
    let theirs = control.receive()?;
    Ok(Handshake { control, ours, theirs })
}

/// Checks the path to another doctor.
pub(super) fn examine(
    host: &str,
    met: Handshake,
    prober: Prober,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let Handshake { control, ours, theirs } = met;
    let theirs = match theirs {
        Ok(theirs) => theirs,
        Err(why) => {
            let text = format!("the doctor on {host} cannot serve: {why}");
            let finding = Finding::problem("listener", text).advice("solve that first");
            return Ok(findings.add(finding)?);
        }
    };
    findings.add(introduction(host, &theirs))?;
    let mtu = ours.mtu()?.min(theirs.mtu()?);
    let mut visit =
        Session { host, control, prober, ours, theirs, number: 0, all: Outcome::default() };
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

/// Results of some probes.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    sent: u32,
    /// Reason of this kernel for not sending.
    refused: Option<TransmitErrorKind>,
    there: Vec<ReceivedProbe>,
    back: Vec<ReceivedProbe>,
    fastest: Option<Duration>,
    /// Path MTU back, as the kernel there knows it.
    path_mtu_back: Option<usize>,
}

struct Session<'a> {
    host: &'a str,
    control: Control,
    prober: Prober,
    ours: Hello,
    theirs: Hello,
    number: u32,
    all: Outcome,
}

impl Session<'_> {
    /// Sends bursts until one returns whole.
    fn send_probes(
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
            if let Err(kind) = self
                .prober
                .send_probes(self.theirs.ip, &ProbeBurst { probe, ip_bytes, count, traffic_class })
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
        self.control.send(&Request::Report)?;
        let report: Report = self.control.receive()?;
        outcome.there = report.seen;
        outcome.path_mtu_back = report.path_mtu;
        self.all.there.extend(&outcome.there);
        self.all.back.extend(&outcome.back);
        Ok(outcome)
    }

    /// Waits for the echoes of the last burst; returns the number of missing ones.
    fn echoes(&mut self, outcome: &mut Outcome, count: usize) -> anyhow::Result<usize> {
        let start = clock::now();
        let mut missing = count;
        loop {
            let waited = clock::now() - start;
            if missing == 0 || waited >= ECHO_TIMEOUT {
                return Ok(missing);
            }
            for arrival in self.prober.receive(ECHO_TIMEOUT - waited, None)? {
                let Some((probe, seen)) = arrival.probe() else { continue };
                if probe.token == self.ours.token && probe.is_echo {
                    // An engine would drop damaged echoes.
                    let counts = probe.number == self.number && seen.icrc != Icrc::Bad;
                    missing -= usize::from(counts && missing > 0);
                    outcome.back.push(seen);
                }
            }
        }
    }

    /// Checks whether probes arrive and return.
    fn reach(&mut self, findings: &mut Findings) -> anyhow::Result<bool> {
        let smallest = longest(Mtu::Mtu256);
        let first = self.send_probes(smallest, 1, 0, MAX_ATTEMPTS)?;
        if first.fastest.is_none() {
            let mut seen = first.there.iter().chain(&first.back);
            // The ICRC check reports damage.
            if seen.all(|seen| seen.icrc != Icrc::Bad) {
                let there = first.there.len();
                findings.add(verdicts::unreached(self.host, first.sent, first.refused, there))?;
            }
            return Ok(false);
        }
        let (mut back, mut there, mut fastest) = (0, 0, first.fastest);
        for _ in 0..COUNTED_PROBES {
            let outcome = self.send_probes(smallest, 1, 0, 1)?;
            there += u32::from(!outcome.there.is_empty());
            back += u32::from(outcome.fastest.is_some());
            fastest = outcome.fastest.into_iter().chain(fastest).min();
        }
        findings.add(verdicts::reached(self.host, COUNTED_PROBES, there, back, fastest))?;
        findings.add(verdicts::hops(self.host, HOP_LIMIT, &first.there))?;
        Ok(true)
    }

    /// Checks which path MTU works, up to that of both interfaces.
    fn path_mtu(&mut self, most: Mtu, findings: &mut Findings) -> anyhow::Result<()> {
        let mut carried = None;
        for mtu in Mtu::ALL.into_iter().filter(|mtu| *mtu <= most) {
            let outcome = self.send_probes(longest(mtu), 1, 0, MAX_ATTEMPTS)?;
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

    /// Returns the path MTU to the host, as this kernel knows it.
    fn path_mtu_there(&self) -> Option<usize> {
        Route::to(self.theirs.ip, Some(self.ours.ip)).ok().map(|route| route.mtu)
    }

    /// Checks whether a burst that the kernel or the adapter segments arrives as sent.
    fn burst(&mut self, findings: &mut Findings) -> anyhow::Result<()> {
        let outcome = self.send_probes(longest(Mtu::Mtu256), BURST_PACKETS, 0, MAX_ATTEMPTS)?;
        Ok(findings.add(verdicts::burst(BURST_PACKETS, &outcome.there))?)
    }

    /// Checks whether DSCP and ECN arrive unchanged.
    fn marks(&mut self, findings: &mut Findings) -> anyhow::Result<()> {
        let outcome =
            self.send_probes(longest(Mtu::Mtu256), 1, MARKED_TRAFFIC_CLASS, MAX_ATTEMPTS)?;
        let class = |seen: &[ReceivedProbe]| seen.first().map(|seen| seen.traffic_class);
        let (there, back) = (class(&outcome.there), class(&outcome.back));
        Ok(findings.add(verdicts::marks(self.host, MARKED_TRAFFIC_CLASS, there, back))?)
    }
}
