//! The findings that follow from measurements.

use std::net::IpAddr;
use std::time::Duration;

use softroce::ids::Mtu;
use softroce::net::TransmitErrorKind;

use super::finding::Finding;
use super::probe::{Icrc, ReceivedProbe, longest};

/// Commands that let RoCE packets in.
const FIREWALL_ADVICE: &str = "iptables -I INPUT -p udp --dport 4791 -j ACCEPT, or: nft insert rule inet \
                      filter input udp dport 4791 accept";

/// Returns the finding when none of `sent` probes has returned.
pub(super) fn unreached(
    host: &str,
    sent: u32,
    refused: Option<TransmitErrorKind>,
    there: usize,
) -> Finding {
    let finding = match (there, refused) {
        (0, Some(kind)) => refusal(host, kind),
        (0, None) => Finding::problem(
            "reach",
            format!(
                "TCP gets to {host}, but none of {sent} packets to its UDP port 4791: they are \
                 dropped on the path or by a firewall there"
            ),
        )
        .advice(format!("let UDP port 4791 in there, and on firewalls between: {FIREWALL_ADVICE}")),
        _ => Finding::problem(
            "reach",
            format!(
                "packets get to UDP port 4791 of {host}, but no echo comes back to that of this \
                 machine"
            ),
        )
        .advice(format!("let UDP port 4791 in here, and on firewalls between: {FIREWALL_ADVICE}")),
    };
    finding.fact("sent", sent).fact("there", there).fact("back", 0)
}

/// Returns the finding when this kernel does not send.
pub(super) fn refusal(host: &str, kind: TransmitErrorKind) -> Finding {
    const CHECK: &str = "reach";
    match kind {
        TransmitErrorKind::Unreachable => Finding::problem(
            CHECK,
            format!("{host} is unreachable: the kernel has no route, or no host has the address"),
        )
        .advice(format!("look at: ip route get {host}; ip neighbour")),
        TransmitErrorKind::Forbidden => Finding::problem(
            CHECK,
            format!("a firewall of this machine prevents sending to {host}"),
        )
        .advice("let UDP port 4791 out: iptables -I OUTPUT -p udp --dport 4791 -j ACCEPT"),
        TransmitErrorKind::TooLong => Finding::problem(
            CHECK,
            format!("the path to {host} does not carry the smallest RoCE packet"),
        )
        .advice(format!("the path must carry IP packets of {} bytes", longest(Mtu::Mtu256))),
        TransmitErrorKind::Closed | TransmitErrorKind::NoRoom | TransmitErrorKind::Other => {
            Finding::problem(CHECK, format!("the kernel does not send to {host}"))
                .advice(format!("look at: ip route get {host}"))
        }
    }
}

/// Returns the finding when `there` of `sent` probes have arrived and `back` have returned.
pub(super) fn reached(
    host: &str,
    sent: u32,
    there: u32,
    back: u32,
    fastest: Option<Duration>,
) -> Finding {
    const CHECK: &str = "reach";
    let usec = fastest.map(|time| (time.as_secs_f64() * 1e7).round() / 10.0);
    let time = usec.map_or_else(String::new, |usec| format!("; a round trip takes {usec} µs"));
    let finding = if back == sent {
        Finding::ok(CHECK, format!("all of {sent} probes went to {host} and back{time}"))
    } else {
        let text = format!("of {sent} probes {there} got to {host}, and {back} came back{time}");
        Finding::problem(CHECK, text).advice(
            "RoCE adapters retransmit everything from a lost packet on, which is slow: look for full \
             buffers, damaged links, or --impair",
        )
    };
    finding.fact("sent", sent).fact("there", there).fact("back", back).fact("usec", usec)
}

/// Returns the number of routers on the path.
pub(super) fn hops(host: &str, sent: u8, there: &[ReceivedProbe]) -> Finding {
    const CHECK: &str = "ttl";
    // A system that does not report the TTL reports 0, with which no packet arrives.
    let arrived = there.first().map(|seen| seen.hop_limit).filter(|hops| *hops > 0);
    let Some(arrived) = arrived else {
        return Finding::note(
            CHECK,
            format!("the TTL with which packets arrive at {host} is not known"),
        );
    };
    let text = match sent.saturating_sub(arrived) {
        0 => format!("no router is between this machine and {host}"),
        1 => format!("1 router is between this machine and {host}"),
        hops => format!("{hops} routers are between this machine and {host}"),
    };
    let finding = match (arrived == sent, arrived > sent) {
        (true, _) => Finding::ok(CHECK, text),
        (_, true) => Finding::note(
            CHECK,
            format!("packets get to {host} with a TTL of {arrived}, sent with {sent}"),
        ),
        _ => Finding::note(CHECK, text).advice(
            "a peer that sends with a TTL of 1, as ibv_rc_pingpong and ibv_uc_pingpong do, does \
             not get through a router",
        ),
    };
    finding.fact("ttl_sent", sent).fact("ttl_arrived", arrived)
}

/// Returns the finding when every path MTU of the interfaces works.
pub(super) fn path_carries(host: &str, most: Mtu) -> Finding {
    Finding::ok(
        "path-mtu",
        format!(
            "RoCE packets of {most} bytes, all that the interfaces carry, get to {host} and back"
        ),
    )
    .fact("roce_mtu", most.bytes())
}

/// Returns the finding when packets of `lost` do not arrive or return, though the interfaces carry `most`. With
/// `there` they arrive, and do not return. `known` is the path MTU as the kernel knows it.
pub(super) fn path_loses(
    host: &str,
    carried: Option<Mtu>,
    lost: Mtu,
    most: Mtu,
    there: bool,
    known: Option<usize>,
) -> Finding {
    const CHECK: &str = "path-mtu";
    let (needs, enough) = (longest(lost), longest(most));
    let (way, whose) = match there {
        true => ("get to it, but not back", "its kernel"),
        false => ("do not get there", "the kernel"),
    };
    let told = match known {
        Some(mtu) if mtu < needs => {
            format!("; {whose} knows that the path carries IP packets of {mtu}")
        }
        _ => String::from("; no router says why: ICMP is dropped, or a switch drops long packets"),
    };
    let finding = match carried {
        Some(mtu) => Finding::problem(
            CHECK,
            format!(
                "the path to {host} carries RoCE packets of {mtu} bytes; those of {lost} (IP \
                 packets of up to {needs}), which both interfaces carry, {way}{told}"
            ),
        )
        .advice(format!(
            "give -m {mtu} to the commands on both sides, or raise the MTU of the devices on the path to \
             {enough} (kernels remember a smaller one for minutes; to forget it: ip route flush \
             cache)"
        )),
        None => Finding::problem(
            CHECK,
            format!("the path to {host} carries no RoCE packet: those of {lost} bytes {way}{told}"),
        )
        .advice(format!("raise the MTU of the devices on the path to {enough}")),
    };
    finding
        .fact("roce_mtu", carried.map(Mtu::bytes))
        .fact("lost_mtu", lost.bytes())
        .fact("path_mtu", known)
}

/// Returns the finding on the packets of a burst.
pub(super) fn burst(count: u16, there: &[ReceivedProbe]) -> Finding {
    const CHECK: &str = "burst";
    let good = there.iter().filter(|seen| seen.icrc == Icrc::Good).count();
    let finding = if good >= usize::from(count) {
        Finding::ok(
            CHECK,
            format!("a burst of {count} packets, sent at once, arrives as it was sent"),
        )
    } else if there.len() < usize::from(count) {
        let text = format!("of a burst of {count} packets only {} arrived", there.len());
        Finding::problem(CHECK, text)
            .advice("a buffer on the path is too small for bursts, or full: see the receive buffer")
    } else {
        let text = format!(
            "of a burst of {count} packets {good} have the expected IPv4 identification: the network \
             card that segments bursts numbers packets in another way"
        );
        Finding::note(CHECK, text).advice(
            "softroce accepts them, with a weaker check of the ICRC; for the full check: ethtool -K \
             INTERFACE tx-udp-segmentation off",
        )
    };
    finding.fact("packets", count).fact("arrived", there.len()).fact("good", good)
}

/// Returns the finding on DSCP and ECN.
pub(super) fn marks(host: &str, sent: u8, there: Option<u8>, back: Option<u8>) -> Finding {
    const CHECK: &str = "marks";
    let finding = match (there, back) {
        (None, _) | (_, None) => Finding::note(
            CHECK,
            format!("whether DSCP and ECN arrive at {host} is not known: the probes are lost"),
        ),
        (Some(class), _) | (_, Some(class)) if class >> 2 != sent >> 2 => {
            let (from, to) = (sent >> 2, class >> 2);
            Finding::note(
                CHECK,
                format!("DSCP is changed from {from} to {to} between this machine and {host}"),
            )
            .advice(
                "priority and lossless classes by DSCP do not apply on this path: trust DSCP on the \
                 switches",
            )
        }
        (Some(class), Some(other)) => ecn(host, sent & 3, class & 3, other & 3),
    };
    finding.fact("sent", sent).fact("there", there).fact("back", back)
}

/// Returns the finding on the ECN bits.
fn ecn(host: &str, sent: u8, there: u8, back: u8) -> Finding {
    const CHECK: &str = "marks";
    const CONGESTION: u8 = 3;
    if there == sent && back == sent {
        return Finding::ok(CHECK, format!("DSCP and ECN get to {host} and back unchanged"));
    }
    if there == CONGESTION || back == CONGESTION {
        return Finding::note(
            CHECK,
            format!("a switch between this machine and {host} marks congestion"),
        );
    }
    Finding::note(CHECK, format!("ECN is cleared between this machine and {host}"))
        .advice("congestion cannot be marked on this path: adapters cannot slow down in time")
}

/// Returns the finding on the ICRCs of all packets; `ours` is the local address.
pub(super) fn icrc(
    host: &str,
    ours: IpAddr,
    there: &[ReceivedProbe],
    back: &[ReceivedProbe],
) -> Finding {
    const CHECK: &str = "icrc";
    let all = || there.iter().chain(back);
    let total = all().count();
    let bad = all().filter(|seen| seen.icrc == Icrc::Bad).count();
    let renumbered = all().filter(|seen| matches!(seen.icrc, Icrc::Identification(_))).count();
    let translated = there.iter().map(|seen| seen.source.ip()).find(|source| *source != ours);
    let finding = if let Some(source) = translated {
        let text = format!(
            "packets from {ours} get to {host} as if they came from {source}: a NAT is between"
        );
        Finding::problem(CHECK, text).advice(
            "the ICRC covers the addresses, so receivers drop every RoCE packet: use a path \
             without NAT, such as a tunnel",
        )
    } else if bad > 0 {
        let text =
            format!("the ICRC of {bad} of {total} packets is bad: they are changed on the path");
        Finding::problem(CHECK, text).advice(
            "look for a device that rewrites ports or headers, for a damaged link, or --impair",
        )
    } else if renumbered > 0 {
        let text = format!(
            "the ICRC of {total} packets holds, but {renumbered} have another IPv4 identification \
             than they were sent with"
        );
        Finding::note(CHECK, text).advice(
            "softroce accepts such packets, with a weaker check of the ICRC; an adapter drops them",
        )
    } else {
        Finding::ok(CHECK, format!("the ICRC of all {total} packets, there and back, is good"))
    };
    finding.fact("packets", total).fact("bad", bad).fact("renumbered", renumbered)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, to_value};

    use super::*;

    fn seen(icrc: Icrc) -> ReceivedProbe {
        let source = "10.0.0.1:49152".parse().unwrap();
        ReceivedProbe { number: 1, place: 0, icrc, source, traffic_class: 0, hop_limit: 64 }
    }

    /// Returns severity and text of a finding.
    fn said(finding: &Finding) -> (String, String) {
        let value = to_value(finding).unwrap();
        let word = |name: &str| value[name].as_str().unwrap().to_owned();
        assert!(
            value["verdict"] == "ok" || value["advice"] != Value::Null || word("verdict") == "note"
        );
        (word("verdict"), word("text"))
    }

    #[track_caller]
    fn check(finding: &Finding, verdict: &str, part: &str) {
        let (found, text) = said(finding);
        assert!(found == verdict && text.contains(part), "{found}: {text}");
    }

    #[test]
    fn icrc_distinguishes_nat_damage_and_renumbering() {
        let ours = "10.0.0.1".parse().unwrap();
        let good = seen(Icrc::Good);
        let icrc = |there: &[ReceivedProbe]| icrc("there", ours, there, &[good]);
        check(&icrc(&[good, good]), "ok", "all 3 packets");
        check(&icrc(&[good, seen(Icrc::Identification(7))]), "note", "but 1 have another");
        check(&icrc(&[good, seen(Icrc::Bad)]), "problem", "1 of 3 packets is bad");
        let source = "192.0.2.9:1024".parse().unwrap();
        let translated = ReceivedProbe { source, ..seen(Icrc::Bad) };
        check(&icrc(&[translated]), "problem", "as if they came from 192.0.2.9: a NAT");
    }

    #[test]
    fn loss_is_reported_by_direction() {
        check(&unreached("h", 3, None, 0), "problem", "none of 3 packets to its UDP port 4791");
        check(&unreached("h", 3, None, 2), "problem", "no echo comes back");
        let forbidden = Some(TransmitErrorKind::Forbidden);
        check(&unreached("h", 0, forbidden, 0), "problem", "a firewall of this machine");
        check(&reached("h", 16, 16, 16, None), "ok", "all of 16");
        check(&reached("h", 16, 15, 14, None), "problem", "15 got to h, and 14 came back");
    }

    #[test]
    fn path_mtu_is_named() {
        let (small, large) = (Mtu::Mtu512, Mtu::Mtu1024);
        let told = path_loses("h", Some(small), large, large, false, Some(650));
        check(&told, "problem", "of 512 bytes; those of 1024 (IP packets of up to 1120)");
        check(&told, "problem", "the kernel knows that the path carries IP packets of 650");
        let silent = path_loses("h", Some(small), large, large, true, Some(1500));
        check(&silent, "problem", "get to it, but not back; no router says why");
        let nothing = path_loses("h", None, Mtu::Mtu256, large, false, None);
        check(&nothing, "problem", "carries no RoCE packet");
    }

    #[test]
    fn marks_and_hops_are_compared_with_what_was_sent() {
        let sent = 26 << 2 | 2;
        check(&marks("h", sent, Some(sent), Some(sent)), "ok", "unchanged");
        check(&marks("h", sent, Some(2), Some(sent)), "note", "from 26 to 0");
        check(&marks("h", sent, Some(26 << 2), Some(sent)), "note", "ECN is cleared");
        check(&marks("h", sent, Some(sent | 3), Some(sent)), "note", "marks congestion");
        check(&marks("h", sent, None, None), "note", "not known");
        check(&hops("h", 64, &[seen(Icrc::Good)]), "ok", "no router");
        let routed = ReceivedProbe { hop_limit: 62, ..seen(Icrc::Good) };
        check(&hops("h", 64, &[routed]), "note", "2 routers");
        let untold = ReceivedProbe { hop_limit: 0, ..routed };
        check(&hops("h", 64, &[untold]), "note", "is not known");
    }

    #[test]
    fn burst_is_whole_short_or_renumbered() {
        let (good, odd) = (seen(Icrc::Good), seen(Icrc::Identification(0)));
        check(&burst(2, &[good, good]), "ok", "as it was sent");
        check(&burst(2, &[good]), "problem", "only 1 arrived");
        check(&burst(2, &[good, odd]), "note", "1 have the expected IPv4 identification");
    }
}
