//! The checker of a capture, packet by packet.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use softroce::ids::Qpn;
use softroce::port;
use softroce::wire::packet::ICRC_LEN;
use softroce::wire::{Aeth, Bth, Datagram, Operation, ParseError, Transport};

use super::found::{RawFinding, Role};
use super::loss::{self, Loss, NewestPackets};
use super::{Finding, Party, Rule, Severity, judge, packet};
use crate::dissect::{Extent, Icrc, IcrcCounts, RocePacket, dissect};
use crate::file::Packet;
use crate::flow::{Direction, Event, Limits, LoopbackFilter, NakEvent, SeenPacket, Tracker};
use crate::merge::{Fate, MergedPacket, Sighting};

/// Checks packets in the order in which they were captured.
///
/// ```
/// use softroce_pcap::check::Checker;
/// use softroce_pcap::flow::Limits;
///
/// let mut checker = Checker::new(Limits::default());
/// // One byte: an IP packet of no kind.
/// assert!(checker.ip_packet(1, None, &[0x45]).is_empty());
/// assert_eq!(checker.counts().packets, 1);
/// ```
#[derive(Debug)]
pub struct Checker {
    tracker: Tracker,
    /// Quirks that every packet repeats and that have been reported.
    quirks: HashSet<(Direction, Rule, Role)>,
    looped: LoopbackFilter,
    times: NewestPackets<Duration>,
    /// Of merged captures.
    sightings: NewestPackets<Sighting>,
    counts: Counts,
    found: Vec<RawFinding>,
    findings: Vec<Finding>,
}

/// Counts of a capture.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Number of frames.
    pub packets: u64,
    /// Number of RoCEv2 packets.
    pub roce_packets: u64,
    /// Number of packets by the verdict on their ICRC.
    pub icrc: IcrcCounts,
    /// Number of findings by rule and severity.
    pub findings: BTreeMap<(Rule, Severity), u64>,
}

impl Counts {
    /// Returns the number of findings of a severity.
    pub fn of(&self, severity: Severity) -> u64 {
        self.findings.iter().filter(|((_, of), _)| *of == severity).map(|(_, n)| n).sum()
    }
}

/// Number of reported quirks that are remembered; then all may be reported again.
const MAX_REPORTED_QUIRKS: usize = 1 << 16;

impl Checker {
    /// Creates a checker; `limits` bound its memory of connections.
    pub fn new(limits: Limits) -> Self {
        Self {
            tracker: Tracker::new(limits),
            quirks: HashSet::new(),
            looped: LoopbackFilter::default(),
            times: NewestPackets::default(),
            sightings: NewestPackets::default(),
            counts: Counts::default(),
            found: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// Checks a frame of a capture.
    pub fn packet(&mut self, packet: &Packet<'_>) -> &[Finding] {
        match packet.ip {
            Ok(ip) => self.directed(packet.number, packet.time, packet.direction, ip),
            Err(_) => {
                self.counts.packets += 1;
                self.findings.clear();
                &self.findings
            }
        }
    }

    /// Checks an IP packet, which the capture may have truncated. Returns the findings; of an unsegmented burst,
    /// those of each of its packets.
    pub fn ip_packet(&mut self, number: u64, time: Option<Duration>, ip: &[u8]) -> &[Finding] {
        self.directed(number, time, None, ip)
    }

    /// Checks a packet of two merged captures. A packet that was damaged on the way has a finding, and so has one of UC
    /// that was lost there.
    pub fn merged(&mut self, packet: &MergedPacket) -> &[Finding] {
        let MergedPacket { number, time, sighting, .. } = *packet;
        self.sightings.push(number, Some(sighting));
        self.directed(number, Some(time), None, &packet.ip);
        match sighting.fate {
            Fate::Damaged => {
                let seen = "damaged on the way";
                let expected = "the packet that the sender's capture has";
                self.found.push(RawFinding::violation(Rule::IcrcBad, seen, expected));
            }
            Fate::Duplicated => {
                let copies = self.findings.iter_mut().filter(|of| of.rule == Rule::Retransmission);
                for finding in copies {
                    finding.party = Party::Network;
                    "a copy made on the way".clone_into(&mut finding.expected);
                }
            }
            Fate::Lost if is_of_uc(&packet.ip) => {
                let why = "UC does not retransmit: the receiver drops the message";
                let role = Role::Network;
                let (rule, severity) = (Rule::UcPsnGap, Severity::Note);
                self.found.push(RawFinding::new(rule, severity, role, "lost on the way", why));
            }
            _ => {}
        }
        self.report(number, Some(time), None, |_| Party::Network);
        &self.findings
    }

    /// Checks an IP packet that the capturing device sent or received. The received copy of a packet that the device
    /// sent to itself is counted, and has no findings.
    pub(super) fn directed(
        &mut self,
        number: u64,
        time: Option<Duration>,
        direction: Option<port::Direction>,
        ip: &[u8],
    ) -> &[Finding] {
        self.counts.packets += 1;
        self.findings.clear();
        self.found.clear();
        self.times.push(number, time);
        match dissect(ip) {
            // The ICRC of a burst as a whole never matches, so this is one packet.
            Ok(Some(roce)) if roce.icrc == Icrc::Good => self.roce(number, time, direction, &roce),
            Ok(Some(datagram)) => {
                for roce in datagram.segments() {
                    self.roce(number, time, direction, &roce);
                }
            }
            Ok(None) => {}
            Err(error) if packet::is_roce_behind(ip) => {
                self.counts.roce_packets += 1;
                self.counts.icrc.unknown += 1;
                if matches!(error, ParseError::Truncated { .. }) && packet::is_cut(ip) {
                    return &self.findings;
                }
                self.found.push(packet::malformed(&error));
                let party = source(ip).map_or(Party::Unknown, Party::HostOrPath);
                self.report(number, time, None, |_| party);
            }
            Err(_) => {}
        }
        &self.findings
    }

    /// Returns the counts so far.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the tracker of connections.
    pub const fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    fn roce(
        &mut self,
        number: u64,
        time: Option<Duration>,
        direction: Option<port::Direction>,
        roce: &RocePacket<'_>,
    ) {
        self.counts.roce_packets += 1;
        if !self.icrc(number, time, roce) || self.looped.is_copy(direction, roce) {
            return;
        }
        let from = roce.ip.source.ip();
        match &roce.datagram {
            Ok(datagram) => self.datagram(number, time, roce, datagram),
            // The headers were not captured.
            Err(_) if roce.icrc == Icrc::Cut => {}
            Err(error) => {
                self.found.push(packet::malformed(error));
                self.report(number, time, None, |_| Party::Host(from, None));
            }
        }
    }

    /// Counts the ICRC; returns whether the packet may be as its sender sent it. A bad ICRC rules that out.
    fn icrc(&mut self, number: u64, time: Option<Duration>, roce: &RocePacket<'_>) -> bool {
        let from = roce.ip.source.ip();
        match roce.icrc {
            _ if roce.extent == Extent::Unsplit => {
                self.counts.icrc.unknown += 1;
                let seen = format!("{} bytes of packets that were not yet cut up", roce.udp_len);
                let why = "no ICRC shows where they end, so nothing can be said of them";
                self.found.push(RawFinding::note(Rule::IcrcBad, seen, why));
                self.report(number, time, None, |_| Party::Unknown);
                return false;
            }
            Icrc::Good => self.counts.icrc.good += 1,
            Icrc::Cut | Icrc::Missing => self.counts.icrc.unknown += 1,
            Icrc::Bad { computed, .. } if roce.is_flush_of_rxe() => {
                self.counts.icrc.good += 1;
                let seen = "FLUSH whose ICRC covers its headers twice, as rxe computes it";
                let expected = format!("0x{:08x}", computed.swap_bytes());
                self.found.push(RawFinding::sender(
                    Rule::IcrcMethod,
                    Severity::Quirk,
                    seen,
                    expected,
                ));
            }
            Icrc::Bad { found, computed } => {
                self.counts.icrc.bad += 1;
                let seen = format!("ICRC 0x{:08x}", found.swap_bytes());
                let expected = format!("0x{:08x}", computed.swap_bytes());
                self.found.push(RawFinding::violation(Rule::IcrcBad, seen, expected));
                self.report(number, time, None, |_| Party::HostOrPath(from));
                return false;
            }
        }
        true
    }

    fn datagram(
        &mut self,
        number: u64,
        time: Option<Duration>,
        roce: &RocePacket<'_>,
        datagram: &Datagram<'_>,
    ) {
        let whole = roce.ip.payload.len() == roce.udp_len;
        packet::headers(roce, datagram, &mut self.found);
        packet::content(roce, datagram, whole, &mut self.found);
        judge::syndrome(datagram, &mut self.found);
        let seen = SeenPacket {
            number,
            time,
            source: roce.ip.source.ip(),
            source_port: roce.ip.source.port(),
            destination: roce.ip.destination.ip(),
            id: roce.ip.ipv4.map(|ipv4| ipv4.id),
            datagram,
            digest: whole.then(|| digest(roce, datagram)),
        };
        for event in self.tracker.packet(&seen) {
            let mut finding = judge::event(event, datagram);
            match *event {
                Event::Sequence(ref event) => {
                    let loss = Loss::of(event, &seen, &self.times, &self.sightings);
                    finding.loss = loss.map(Box::new);
                }
                Event::Nak(NakEvent::SequenceNak { captured: Some(packet) }) => {
                    if let Some(sighting) = self.sightings.of(packet) {
                        finding.expected =
                            format!("packet {packet} {}", loss::place(sighting.fate));
                    }
                }
                _ => {}
            }
            self.found.push(finding);
        }
        if self.found.is_empty() {
            return;
        }
        if !whole {
            // The packet may be a burst, of which only the first packet is known.
            self.found
                .iter_mut()
                .filter(|found| found.rule.is_of_length())
                .for_each(RawFinding::doubt);
        }
        let direction = seen.direction();
        let sender = self.tracker.other(&direction).map(|(other, _)| other.qp);
        let sender = sender.or(datagram.deth().map(|deth| deth.source_qp));
        self.report(number, time, Some(direction), |role| match role {
            Role::Sender => Party::Host(direction.source, sender),
            Role::Receiver => Party::Host(direction.destination, Some(direction.qp)),
            Role::Network => Party::Network,
            Role::Unknown => Party::Unknown,
        });
    }

    /// Turns raw findings into findings.
    fn report(
        &mut self,
        packet: u64,
        time: Option<Duration>,
        direction: Option<Direction>,
        party: impl Fn(Role) -> Party,
    ) {
        for found in self.found.drain(..) {
            let RawFinding { rule, severity, role, seen: found, expected, loss } = found;
            if let (Severity::Quirk, Some(direction), true) = (severity, direction, rule.is_habit())
            {
                // The manager of a host sends the datagrams of queue pair 1 to every peer.
                let direction = match direction {
                    Direction { source, qp: Qpn::GSI, .. } => {
                        Direction { destination: source, ..direction }
                    }
                    _ => direction,
                };
                if self.quirks.len() >= MAX_REPORTED_QUIRKS {
                    self.quirks.clear();
                }
                if !self.quirks.insert((direction, rule, role)) {
                    continue;
                }
            }
            *self.counts.findings.entry((rule, severity)).or_default() += 1;
            let party = party(role);
            self.findings.push(Finding {
                rule,
                severity,
                packet,
                time,
                party,
                found,
                expected,
                loss,
            });
        }
    }
}

/// Returns a digest of the fields that a retransmission must repeat, besides opcode and length. The AETH of a READ
/// response may differ, and is left out.
fn digest(roce: &RocePacket<'_>, datagram: &Datagram<'_>) -> u32 {
    let bytes = roce.ip.payload;
    let end = bytes.len().saturating_sub(ICRC_LEN + usize::from(datagram.bth.pad));
    let is_response = datagram.bth.opcode.operation() == Operation::ReadResponse;
    let aeth = if is_response && datagram.aeth().is_some() { Aeth::LEN } else { 0 };
    crc32fast::hash(bytes.get(Bth::LEN + aeth..end).unwrap_or_default())
}

/// Returns whether an IP packet is one of UC.
fn is_of_uc(ip: &[u8]) -> bool {
    let Ok(Some(RocePacket { datagram: Ok(datagram), .. })) = dissect(ip) else { return false };
    datagram.bth.opcode.transport() == Transport::Uc
}

/// Returns the source address in an IP header.
fn source(ip: &[u8]) -> Option<IpAddr> {
    match ip.first()? >> 4 {
        4 => Some(Ipv4Addr::from(*ip.get(12..)?.first_chunk::<4>()?).into()),
        _ => Some(Ipv6Addr::from(*ip.get(8..)?.first_chunk::<16>()?).into()),
    }
}
