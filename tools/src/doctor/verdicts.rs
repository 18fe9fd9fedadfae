//! What measurements mean, in words.

use std::net::IpAddr;
use std::time::Duration;

use softroce::ids::Mtu;
use softroce::net::TransmitErrorKind;

use super::finding::Finding;
use super::probe::{Icrc, Seen, longest};

/// What lets RoCE in.
const LET_IN: &str = "iptables -I INPUT -p udp --dport 4791 -j ACCEPT, or: nft insert rule inet \
                      filter input udp dport 4791 accept";

/// Nothing has come back of `sent` probes.
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
                 dropped on the way or by a firewall there"
            ),
        )
        .advice(format!("let UDP port 4791 in there, and on firewalls between: {LET_IN}")),
        _ => Finding::problem(
            "reach",
            format!(
                "packets get to UDP port 4791 of {host}, but no echo comes back to that of this \
                 machine"
            ),
        )
        .advice(format!("let UDP port 4791 in here, and on firewalls between: {LET_IN}")),
    };
    finding.fact("sent", sent).fact("there", there).fact("back", 0)
}

/// Our own kernel does not send.
pub(super) fn refusal(host: &str, kind: TransmitErrorKind) -> Finding {
    const CHECK: &str = "reach";
    match kind {
        TransmitErrorKind::Unreachable => Finding::problem(
            CHECK,
            format!(
                "there is no way to {host}: the kernel has no route, or nobody has the address"
            ),
        )
        .advice(format!("look at: ip route get {host}; ip neighbour")),
        TransmitErrorKind::Forbidden => Finding::problem(
            CHECK,
            format!("a firewall of this machine keeps it from sending to {host}"),
        )
        .advice("let UDP port 4791 out: iptables -I OUTPUT -p udp --dport 4791 -j ACCEPT"),
        TransmitErrorKind::TooLong => Finding::problem(
            CHECK,
            format!("not even the smallest RoCE packet fits the way to {host}"),
        )
        .advice(format!("the way must carry IP packets of {} bytes", longest(Mtu::Mtu256))),
        TransmitErrorKind::Closed | TransmitErrorKind::NoRoom | TransmitErrorKind::Other => {
            Finding::problem(CHECK, format!("the kernel does not send to {host}"))
                .advice(format!("look at: ip route get {host}"))
        }
    }
}

/// Probes got there and back; `there` and `back` of `sent` did.
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
            "RoCE sends again from the first packet that is lost, which is slow: look for full \
             buffers, damaged links, or --impair on the way",
        )
    };
    finding.fact("sent", sent).fact("there", there).fact("back", back).fact("usec", usec)
}

/// How many routers there are.
pub(super) fn hops(host: &str, sent: u8, there: &[Seen]) -> Finding {
    const CHECK: &str = "ttl";
    // Where the system does not tell it is 0, with which nothing arrives.
    let arrived = there.first().map(|seen| seen.hop_limit).filter(|hops| *hops > 0);
    let Some(arrived) = arrived else {
        return Finding::note(CHECK, format!("with which TTL packets get to {host} is not known"));
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

/// Every MTU that the interfaces carry gets through.
pub(super) fn path_carries(host: &str, most: Mtu) -> Finding {
    Finding::ok(
        "path-mtu",
        format!(
            "RoCE packets of {most} bytes, all that the interfaces carry, get to {host} and back"
        ),
    )
    .fact("roce_mtu", most.bytes())
}

/// Packets of `lost` do not get through, though the interfaces carry `most`. `there`: the way there
/// is not the reason. `known` is what the kernel believes the way to carry.
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
            format!("; {whose} knows that the way carries IP packets of {mtu}")
        }
        _ => String::from(
            "; no router says why: ICMP is dropped, or a switch drops what is too long",
        ),
    };
    let finding = match carried {
        Some(mtu) => Finding::problem(
            CHECK,
            format!(
                "the way to {host} carries RoCE packets of {mtu} bytes; those of {lost} (IP \
                 packets of up to {needs}), which both interfaces carry, {way}{told}"
            ),
        )
        .advice(format!(
            "give -m {mtu} to the commands on both sides, or raise the MTU of what is between to \
             {enough} (kernels remember a smaller one for minutes; to forget it: ip route flush \
             cache)"
        )),
        None => Finding::problem(
            CHECK,
            format!("the way to {host} carries no RoCE packet: those of {lost} bytes {way}{told}"),
        )
        .advice(format!("raise the MTU of what is between to {enough}")),
    };
    finding
        .fact("roce_mtu", carried.map(Mtu::bytes))
        .fact("lost_mtu", lost.bytes())
        .fact("path_mtu", known)
}

/// What became of the packets of a burst.
pub(super) fn burst(count: u16, there: &[Seen]) -> Finding {
    const CHECK: &str = "burst";
    let good = there.iter().filter(|seen| seen.icrc == Icrc::Good).count();
    let finding = if good >= usize::from(count) {
        Finding::ok(
            CHECK,
            format!("a burst of {count} packets, sent at once, arrives as it was sent"),
        )
    } else if there.len() < usize::from(count) {
        let text = format!("of a burst of {count} packets only {} arrived", there.len());
        Finding::problem(CHECK, text).advice(
            "a buffer on the way is too small for bursts, or is full: see the receive buffer",
        )
    } else {
        let text = format!(
            "of a burst of {count} packets {good} have the IPv4 identification that was to be \
             expected: the network card that cuts bursts numbers them in its own way"
        );
        Finding::note(CHECK, text).advice(
            "they are taken, at the price of half of the ICRC; to have all of it: ethtool -K \
             INTERFACE tx-udp-segmentation off",
        )
    };
    finding.fact("packets", count).fact("arrived", there.len()).fact("good", good)
}

/// What became of DSCP and ECN.
pub(super) fn marks(host: &str, sent: u8, there: Option<u8>, back: Option<u8>) -> Finding {
    const CHECK: &str = "marks";
    let finding = match (there, back) {
        (None, _) | (_, None) => Finding::note(
            CHECK,
            format!("whether DSCP and ECN get to {host} is not known: the probes are lost"),
        ),
        (Some(class), _) | (_, Some(class)) if class >> 2 != sent >> 2 => {
            let (from, to) = (sent >> 2, class >> 2);
            Finding::note(
                CHECK,
                format!("DSCP is changed from {from} to {to} between this machine and {host}"),
            )
            .advice(
                "what is lossless or first by DSCP is not so on this way: trust DSCP on the \
                 switches",
            )
        }
        (Some(class), Some(other)) => ecn(host, sent & 3, class & 3, other & 3),
    };
    finding.fact("sent", sent).fact("there", there).fact("back", back)
}

/// What became of the ECN bits.
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
        .advice("no congestion can be marked on this way: adapters cannot slow down in time")
}

/// What the ICRC says of everything that arrived. `ours` is our address.
pub(super) fn icrc(host: &str, ours: IpAddr, there: &[Seen], back: &[Seen]) -> Finding {
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
            "the ICRC covers the addresses, so no RoCE packet survives that: use a way without \
             NAT, such as a tunnel",
        )
    } else if bad > 0 {
        let text =
            format!("the ICRC of {bad} of {total} packets is bad: they are changed on the way");
        Finding::problem(CHECK, text).advice(
            "look for a device that rewrites ports or headers, for a damaged link, or --impair",
        )
    } else if renumbered > 0 {
        let text = format!(
            "the ICRC of {total} packets holds, but {renumbered} have another IPv4 identification \
             than they were sent with"
        );
        Finding::note(CHECK, text).advice(
            "softroce solves for it, at the price of half of the ICRC; an adapter drops such \
             packets",
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

    fn seen(icrc: Icrc) -> Seen {
        let source = "10.0.0.1:49152".parse().unwrap();
        Seen { number: 1, place: 0, icrc, source, traffic_class: 0, hop_limit: 64 }
    }

    /// The verdict and the start of the text.
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
    fn the_icrc_tells_nat_damage_and_renumbering_apart() {
        let ours = "10.0.0.1".parse().unwrap();
        let good = seen(Icrc::Good);
        let icrc = |there: &[Seen]| icrc("there", ours, there, &[good]);
        check(&icrc(&[good, good]), "ok", "all 3 packets");
        check(&icrc(&[good, seen(Icrc::Identification(7))]), "note", "but 1 have another");
        check(&icrc(&[good, seen(Icrc::Bad)]), "problem", "1 of 3 packets is bad");
        let source = "192.0.2.9:1024".parse().unwrap();
        let translated = Seen { source, ..seen(Icrc::Bad) };
        check(&icrc(&[translated]), "problem", "as if they came from 192.0.2.9: a NAT");
    }

    #[test]
    fn what_is_lost_is_told_by_where() {
        check(&unreached("h", 3, None, 0), "problem", "none of 3 packets to its UDP port 4791");
        check(&unreached("h", 3, None, 2), "problem", "no echo comes back");
        let forbidden = Some(TransmitErrorKind::Forbidden);
        check(&unreached("h", 0, forbidden, 0), "problem", "a firewall of this machine");
        check(&reached("h", 16, 16, 16, None), "ok", "all of 16");
        check(&reached("h", 16, 15, 14, None), "problem", "15 got to h, and 14 came back");
    }

    #[test]
    fn a_path_that_carries_less_names_what_it_carries() {
        let (small, large) = (Mtu::Mtu512, Mtu::Mtu1024);
        let told = path_loses("h", Some(small), large, large, false, Some(650));
        check(&told, "problem", "of 512 bytes; those of 1024 (IP packets of up to 1120)");
        check(&told, "problem", "the kernel knows that the way carries IP packets of 650");
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
        let routed = Seen { hop_limit: 62, ..seen(Icrc::Good) };
        check(&hops("h", 64, &[routed]), "note", "2 routers");
        let untold = Seen { hop_limit: 0, ..routed };
        check(&hops("h", 64, &[untold]), "note", "is not known");
    }

    #[test]
    fn a_burst_is_whole_short_or_renumbered() {
        let (good, odd) = (seen(Icrc::Good), seen(Icrc::Identification(0)));
        check(&burst(2, &[good, good]), "ok", "as it was sent");
        check(&burst(2, &[good]), "problem", "only 1 arrived");
        check(&burst(2, &[good, odd]), "note", "1 have the IPv4 identification");
    }
}
