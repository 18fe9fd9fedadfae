//! The way to a host where no doctor listens.
//!
//! What can a stranger be asked? A packet to a queue pair that does not exist is dropped in silence
//! by everybody. But queue pair 1 takes management datagrams from anybody, and the RDMA stack of a
//! Linux kernel answers each "Get", if only to say that it does not know the attribute. So kernel
//! rxe and adapters give a sign of life, of 256 bytes and with an ICRC, and accept ours by that.
//! Anybody else is silent, and only the errors of IP tell something.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::socket::{setsockopt, sockopt};
use softroce::ids::{Mtu, QKey, Qpn};
use softroce::net::{ROCE_PORT, TransmitErrorKind};
use softroce::port::udp::Route;
use softroce::wire::icrc::Verdict;

use super::finding::{Finding, Findings};
use super::probe::{Arrival, Prober, Shot, Target, datagram, longest};
use super::verdicts;
use crate::clock;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_millis(500);

const TRIES: u32 = 3;

/// The queue pair of general services, and its key (IBTA vol 1, §13.4.2 and §10.2.5).
const GSI: Target = Target { qpn: Qpn::GSI, qkey: QKey(0x8001_0000) };

/// A port that nobody listens at, to compare with.
const CLOSED_PORT: u16 = 33_533;

/// Looks at the way to `to`, the address of `host`.
pub(super) fn examine(
    host: &str,
    to: IpAddr,
    mut prober: Prober,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let sign = ask(&mut prober, to)?;
    let finding = match sign {
        Sign::Answer(verdict) => answered(host, verdict),
        Sign::Refused(kind) => verdicts::refusal(host, kind),
        Sign::Silence => {
            let from = prober.info().ip;
            unanswered(host, feel(from, to, ROCE_PORT)?, || feel(from, to, CLOSED_PORT))?
        }
    };
    findings.add(finding)?;
    if !matches!(sign, Sign::Refused(_)) {
        findings.add(path(host, to, &mut prober)?)?;
    }
    Ok(())
}

/// What the port says to a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sign {
    Answer(Verdict),
    Refused(TransmitErrorKind),
    Silence,
}

/// Asks queue pair 1.
fn ask(prober: &mut Prober, to: IpAddr) -> anyhow::Result<Sign> {
    for number in 0..TRIES {
        let question = question(number);
        if let Err(kind) = prober.send(to, GSI, &[question.to_vec()], 0) {
            return Ok(Sign::Refused(kind));
        }
        let start = clock::now();
        loop {
            let waited = clock::now() - start;
            if waited >= PATIENCE {
                break;
            }
            let arrivals = prober.receive(PATIENCE - waited, None)?;
            if let Some(arrival) = arrivals.iter().find(|arrival| is_answer(arrival, &question)) {
                return Ok(Sign::Answer(arrival.verdict));
            }
        }
    }
    Ok(Sign::Silence)
}

const MAD_LEN: usize = 256;

/// A management datagram that gets ClassPortInfo of performance management (IBTA vol 1, §13.4.3):
/// base version, class, class version, method, 12 bytes of which the last 8 are the transaction, and
/// the attribute.
fn question(number: u32) -> [u8; MAD_LEN] {
    let mut mad = [0; MAD_LEN];
    mad[..4].copy_from_slice(&[1, 0x04, 1, 0x01]);
    mad[8..12].copy_from_slice(b"roce");
    mad[12..16].copy_from_slice(&number.to_be_bytes());
    mad[16..18].copy_from_slice(&1_u16.to_be_bytes());
    mad
}

/// Whether this is a "GetResp" to that question, whatever it says.
fn is_answer(arrival: &Arrival, question: &[u8; MAD_LEN]) -> bool {
    const GET_RESP: u8 = 0x81;
    let mad = &arrival.payload;
    arrival.deth.qkey == GSI.qkey
        && mad.get(3) == Some(&GET_RESP)
        && mad.get(1) == Some(&question[1])
        && mad.get(8..16) == Some(&question[8..16])
}

const CHECK: &str = "reach";

fn answered(host: &str, verdict: Verdict) -> Finding {
    let who = format!(
        "{host} answers on UDP port 4791: the RDMA stack of its kernel (rdma_rxe or an adapter)"
    );
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
                "packets are changed on the way back: look for NAT, or for a device that rewrites \
                 headers",
            )
        }
    };
    finding.fact("answers", true)
}

/// What the network says to a packet that nobody has to answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Touch {
    /// Port unreachable: the host is there, and nobody listens at this port.
    Closed,
    /// A router, or our own kernel, cannot get there.
    Unreachable,
    /// Our own kernel may not send.
    Forbidden,
    Nothing,
}

/// Sends a packet to a port and listens for what IP has to say to that.
fn feel(from: IpAddr, to: IpAddr, port: u16) -> anyhow::Result<Touch> {
    let socket = UdpSocket::bind(SocketAddr::new(from, 0)).with_context(|| from.to_string())?;
    // A socket that is not connected hears of errors only if it asks for them; and one that is
    // connected would have an IPv4 identification that is not in the ICRC.
    match from {
        IpAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?,
        IpAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?,
    }
    socket.set_read_timeout(Some(PATIENCE))?;
    let packet = datagram(socket.local_addr()?, to, GSI, &question(TRIES));
    for _ in 0..TRIES {
        let sent = socket.send_to(&packet, SocketAddr::new(to, port));
        let heard = sent.and_then(|_| socket.recv_from(&mut [0; 64]));
        match heard.map_err(|e| e.kind()) {
            Err(io::ErrorKind::ConnectionRefused) => return Ok(Touch::Closed),
            Err(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
                return Ok(Touch::Unreachable);
            }
            Err(io::ErrorKind::PermissionDenied) => return Ok(Touch::Forbidden),
            // Nothing until now, or something that says nothing of the port.
            _ => {}
        }
    }
    Ok(Touch::Nothing)
}

/// What it means that nobody has answered; `closed` feels a port at which nobody listens.
fn unanswered(
    host: &str,
    at_port: Touch,
    closed: impl FnOnce() -> anyhow::Result<Touch>,
) -> anyhow::Result<Finding> {
    let listen = format!("for more: roce doctor --listen on {host}, then this again");
    let finding = match at_port {
        Touch::Closed => Finding::problem(
            CHECK,
            format!("{host} is there, but nobody listens at its UDP port 4791"),
        )
        .advice(
            "start the RoCE program there, or give rdma_rxe a device: rdma link add rxe0 type rxe \
             netdev INTERFACE",
        ),
        Touch::Unreachable => Finding::problem(
            CHECK,
            format!(
                "packets do not get to {host}: no route, nobody has the address, or a firewall \
                 rejects them"
            ),
        )
        .advice(format!("look at: ip route get {host}; ip neighbour")),
        Touch::Forbidden => verdicts::refusal(host, TransmitErrorKind::Forbidden),
        Touch::Nothing if closed()? == Touch::Closed => Finding::note(
            CHECK,
            format!(
                "UDP port 4791 of {host} is silent, while a port where nobody listens is refused: \
                 either a program listens there that answers no strangers, such as roce, or a \
                 firewall drops UDP port 4791"
            ),
        )
        .advice(listen),
        Touch::Nothing => Finding::problem(
            CHECK,
            format!(
                "nothing comes back from {host}, neither from UDP port 4791 nor of one where \
                 nobody listens: the host is down, or a firewall drops UDP"
            ),
        )
        .advice(listen),
    };
    Ok(finding.fact("answers", false))
}

/// What IP says of the MTU of the way. Packets of each size go to a queue pair that does not exist.
fn path(host: &str, to: IpAddr, prober: &mut Prober) -> anyhow::Result<Finding> {
    const CHECK: &str = "path-mtu";
    let info = prober.info();
    let Some(most) = Mtu::for_link(info.link_mtu) else {
        return Ok(Finding::note(CHECK, "the interface carries no RoCE packet"));
    };
    for mtu in Mtu::ALL.into_iter().filter(|mtu| *mtu <= most) {
        let shot = Shot::lone(longest(mtu));
        // That it is too long is what we want to hear; the kernel then knows the MTU.
        let _ = prober.shoot(to, &shot);
    }
    // A router answers at once, if it does at all.
    prober.receive(PATIENCE, None)?;
    let route = Route::to(to, Some(info.ip)).with_context(|| format!("the way to {host}"))?;
    let carried = Mtu::for_link(route.mtu);
    let finding = if carried >= Some(most) {
        let text = format!(
            "no router says that RoCE packets of {most} bytes are too long for the way to {host}"
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
    fn a_question_is_a_get_of_256_bytes() {
        let mad = question(0x0102_0304);
        let expected = [1, 4, 1, 1, 0, 0, 0, 0, b'r', b'o', b'c', b'e', 1, 2, 3, 4, 0, 1, 0, 0];
        assert_eq!((mad.len(), &mad[..20]), (256, &expected[..]));
    }

    #[test]
    fn silence_means_more_beside_a_port_that_is_refused() {
        let text = |here, other| {
            let finding = unanswered("h", here, || Ok(other)).unwrap();
            let value = serde_json::to_value(finding).unwrap();
            format!("{}: {}", value["verdict"].as_str().unwrap(), value["text"].as_str().unwrap())
        };
        assert!(
            text(Touch::Nothing, Touch::Closed).starts_with("note: UDP port 4791 of h is silent")
        );
        assert!(
            text(Touch::Nothing, Touch::Nothing).starts_with("problem: nothing comes back from h")
        );
        assert!(text(Touch::Closed, Touch::Closed).contains("nobody listens at its UDP port 4791"));
    }

    #[test]
    fn loopback_refuses_a_port_where_nobody_listens() {
        // A socket that has the port, and lets go of it.
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let ip: IpAddr = "127.0.0.1".parse().unwrap();
        drop(socket);
        assert_eq!(feel(ip, ip, port).unwrap(), Touch::Closed);
    }
}
