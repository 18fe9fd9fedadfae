//! The path to a host where no doctor listens.
//!
//! Every receiver drops a packet to a queue pair that does not exist, without a response. Queue pair 1, however,
//! accepts management datagrams from any sender, and the RDMA stack of a Linux kernel answers each "Get", at least
//! with an error status. So kernel rxe, adapters and softroce return a packet of 256 bytes with an ICRC, and have accepted
//! ours. For other hosts, only ICMP errors give information.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::socket::{setsockopt, sockopt};
use softroce::ids::Mtu;
use softroce::net::{ROCE_PORT, TransmitErrorKind};
use softroce::port::udp::Route;
use softroce::wire::icrc::Verdict;
use softroce_perf::clock;

use super::connection_manager;
use super::finding::{Finding, Findings};
use super::probe::{GSI, ProbeBurst, Prober, ReceivedPacket, datagram, longest};
use super::verdicts;

/// Time that a response may take.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

const MAX_ATTEMPTS: u32 = 3;

/// A port that is probably closed, for comparison.
const CLOSED_PORT: u16 = 33_533;

/// Checks the path to `to`, the address of `host`.
pub(super) fn examine(
    host: &str,
    to: IpAddr,
    mut prober: Prober,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let sign = ask(&mut prober, to)?;
    let finding = match sign {
        GsiResponse::Answer(verdict) => answered(host, verdict),
        GsiResponse::Refused(kind) => verdicts::refusal(host, kind),
        GsiResponse::Silence => {
            let from = prober.info().ip;
            unanswered(host, probe_udp_port(from, to, ROCE_PORT)?, || {
                probe_udp_port(from, to, CLOSED_PORT)
            })?
        }
    };
    findings.add(finding)?;
    if matches!(sign, GsiResponse::Answer(_)) {
        connection_manager::examine(host, to, &mut prober, findings)?;
    }
    if !matches!(sign, GsiResponse::Refused(_)) {
        findings.add(path(host, to, &mut prober)?)?;
    }
    Ok(())
}

/// Response to the management datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GsiResponse {
    Answer(Verdict),
    Refused(TransmitErrorKind),
    Silence,
}

/// Sends management datagrams to queue pair 1.
fn ask(prober: &mut Prober, to: IpAddr) -> anyhow::Result<GsiResponse> {
    for number in 0..MAX_ATTEMPTS {
        let query = query(number);
        if let Err(kind) = prober.send(to, GSI, &[query.to_vec()], 0) {
            return Ok(GsiResponse::Refused(kind));
        }
        let start = clock::now();
        loop {
            let waited = clock::now() - start;
            if waited >= RESPONSE_TIMEOUT {
                break;
            }
            let received_packets = prober.receive(RESPONSE_TIMEOUT - waited, None)?;
            if let Some(arrival) =
                received_packets.iter().find(|arrival| is_answer(arrival, &query))
            {
                return Ok(GsiResponse::Answer(arrival.verdict));
            }
        }
    }
    Ok(GsiResponse::Silence)
}

const MAD_LEN: usize = 256;

/// Returns a management datagram that gets ClassPortInfo of performance management (IBTA vol 1, §13.4.3): base
/// version, class, class version, method, 12 bytes of which the last 8 are the transaction ID, and the attribute.
fn query(number: u32) -> [u8; MAD_LEN] {
    let mut mad = [0; MAD_LEN];
    mad[..4].copy_from_slice(&[1, 0x04, 1, 0x01]);
    mad[8..12].copy_from_slice(b"roce");
    mad[12..16].copy_from_slice(&number.to_be_bytes());
    mad[16..18].copy_from_slice(&1_u16.to_be_bytes());
    mad
}

/// Returns whether the packet is the "GetResp" to this datagram, with any status.
fn is_answer(arrival: &ReceivedPacket, query: &[u8; MAD_LEN]) -> bool {
    const GET_RESP: u8 = 0x81;
    let mad = &arrival.payload;
    arrival.deth.qkey == GSI.qkey
        && mad.get(3) == Some(&GET_RESP)
        && mad.get(1) == Some(&query[1])
        && mad.get(8..16) == Some(&query[8..16])
}

const CHECK: &str = "reach";

fn answered(host: &str, verdict: Verdict) -> Finding {
    let who = format!("{host} answers on UDP port 4791: rdma_rxe, an adapter, or softroce");
    let finding = match verdict {
        Verdict::Good => {
            Finding::ok(CHECK, format!("{who}; the ICRC of its answer is good, and ours was to it"))
        }
        Verdict::Recovered { id } => Finding::ok(
            CHECK,
            format!(
                "{who}; the ICRC of its answer holds (for IPv4 identification {id}, as kernels \
                 and adapters count them), and ours did for it"
            ),
        ),
        Verdict::Bad => {
            Finding::problem(CHECK, format!("{who}, but the ICRC of its answer is bad")).advice(
                "packets are changed on the path back: look for NAT, or for a device that rewrites \
                 headers",
            )
        }
    };
    finding.fact("answers", true)
}

/// Response of the network to a UDP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UdpResponse {
    /// Port unreachable: the host exists, and the port is closed.
    Closed,
    /// A router or this kernel has no route.
    Unreachable,
    /// A firewall of this machine forbids sending.
    Forbidden,
    Nothing,
}

/// Sends a packet to a UDP port, and waits for an ICMP error.
fn probe_udp_port(from: IpAddr, to: IpAddr, port: u16) -> anyhow::Result<UdpResponse> {
    let socket = UdpSocket::bind(SocketAddr::new(from, 0)).with_context(|| from.to_string())?;
    // An unconnected socket receives errors only with this option; a connected one would use IPv4 identifications
    // that the ICRC does not cover.
    match from {
        IpAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?,
        IpAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?,
    }
    socket.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    let packet = datagram(socket.local_addr()?, to, GSI, &query(MAX_ATTEMPTS));
    for _ in 0..MAX_ATTEMPTS {
        let sent = socket.send_to(&packet, SocketAddr::new(to, port));
        let heard = sent.and_then(|_| socket.recv_from(&mut [0; 64]));
        match heard.map_err(|e| e.kind()) {
            Err(io::ErrorKind::ConnectionRefused) => return Ok(UdpResponse::Closed),
            Err(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
                return Ok(UdpResponse::Unreachable);
            }
            Err(io::ErrorKind::PermissionDenied) => return Ok(UdpResponse::Forbidden),
            // No response, or one that says nothing about the port.
            _ => {}
        }
    }
    Ok(UdpResponse::Nothing)
}

/// Returns the finding for a host without a response; `closed` probes a port that is probably closed.
fn unanswered(
    host: &str,
    at_port: UdpResponse,
    closed: impl FnOnce() -> anyhow::Result<UdpResponse>,
) -> anyhow::Result<Finding> {
    let listen = format!("for more: roce doctor --listen on {host}, then this again");
    let finding = match at_port {
        UdpResponse::Closed => Finding::problem(
            CHECK,
            format!("{host} responds, but its UDP port 4791 is closed"),
        )
        .advice(
            "start the RoCE program there, or give rdma_rxe a device: rdma link add rxe0 type rxe \
             netdev INTERFACE",
        ),
        UdpResponse::Unreachable => Finding::problem(
            CHECK,
            format!(
                "packets do not get to {host}: no route, no host with this address, or a firewall \
                 rejects them"
            ),
        )
        .advice(format!("look at: ip route get {host}; ip neighbour")),
        UdpResponse::Forbidden => verdicts::refusal(host, TransmitErrorKind::Forbidden),
        UdpResponse::Nothing if closed()? == UdpResponse::Closed => Finding::note(
            CHECK,
            format!(
                "UDP port 4791 of {host} does not respond, while a closed port is refused: either a \
                 program listens there that ignores unknown peers, such as roce, or a firewall drops \
                 UDP port 4791"
            ),
        )
        .advice(listen),
        UdpResponse::Nothing => Finding::problem(
            CHECK,
            format!(
                "no response from {host}, neither from UDP port 4791 nor from a closed one: the host is \
                 down, or a firewall drops UDP"
            ),
        )
        .advice(listen),
    };
    Ok(finding.fact("answers", false))
}

/// Checks the path MTU with packets of each size, to a queue pair that does not exist.
fn path(host: &str, to: IpAddr, prober: &mut Prober) -> anyhow::Result<Finding> {
    const CHECK: &str = "path-mtu";
    let info = prober.info();
    let Some(most) = Mtu::for_link(info.link_mtu) else {
        return Ok(Finding::note(CHECK, "the interface carries no RoCE packet"));
    };
    for mtu in Mtu::ALL.into_iter().filter(|mtu| *mtu <= most) {
        let shot = ProbeBurst::lone(longest(mtu));
        // An error is expected for a packet that is too long; the kernel then knows the path MTU.
        let _ = prober.send_probes(to, &shot);
    }
    // A router responds at once or not at all.
    prober.receive(RESPONSE_TIMEOUT, None)?;
    let route = Route::to(to, Some(info.ip)).with_context(|| format!("the path to {host}"))?;
    let carried = Mtu::for_link(route.mtu);
    let finding = if carried >= Some(most) {
        let text = format!(
            "no router says that RoCE packets of {most} bytes are too long for the path to {host}"
        );
        Finding::ok(CHECK, text)
    } else {
        let next = Mtu::ALL.into_iter().find(|mtu| Some(*mtu) > carried).unwrap_or(most);
        verdicts::path_loses(host, carried, next, most, false, Some(route.mtu))
    };
    Ok(finding.fact("path_mtu", route.mtu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_a_get_of_256_bytes() {
        let mad = query(0x0102_0304);
        let expected = [1, 4, 1, 1, 0, 0, 0, 0, b'r', b'o', b'c', b'e', 1, 2, 3, 4, 0, 1, 0, 0];
        assert_eq!((mad.len(), &mad[..20]), (256, &expected[..]));
    }

    #[test]
    fn closed_port_gives_meaning_to_a_missing_response() {
        let text = |here, other| {
            let finding = unanswered("h", here, || Ok(other)).unwrap();
            let value = serde_json::to_value(finding).unwrap();
            format!("{}: {}", value["verdict"].as_str().unwrap(), value["text"].as_str().unwrap())
        };
        assert!(
            text(UdpResponse::Nothing, UdpResponse::Closed)
                .starts_with("note: UDP port 4791 of h does not respond")
        );
        assert!(
            text(UdpResponse::Nothing, UdpResponse::Nothing)
                .starts_with("problem: no response from h")
        );
        assert!(
            text(UdpResponse::Closed, UdpResponse::Closed).contains("its UDP port 4791 is closed")
        );
    }

    #[test]
    fn loopback_refuses_a_closed_port() {
        // The port of a socket that is closed again.
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let ip: IpAddr = "127.0.0.1".parse().unwrap();
        drop(socket);
        assert_eq!(probe_udp_port(ip, ip, port).unwrap(), UdpResponse::Closed);
    }
}
