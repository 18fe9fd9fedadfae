//! The connection manager of a host: a REQ for a port without listener is rejected with reason 8, which shows that the
//! host's connection manager works.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use softroce::cm::{
    self, Agent, AgentConfig, Connect, Event, Guid, MadPath, PortSpace, ReceivedMad, RejectReason,
};
use softroce::engine::QpType;
use softroce::ids::{Mtu, PKey};
use softroce::runtime::{now, wall_clock};
use softroce::wire::cm::IpHeader;
use softroce_perf::clock;

use super::finding::{Finding, Findings};
use super::probe::{GSI, PROBE_TARGET, Prober};

const CHECK: &str = "connection-manager";

/// Port of the requests. No service uses it.
const UNUSED_PORT: u16 = 1;

/// Source port in the requests.
const SOURCE_PORT: u16 = 49_152;

/// Time that a response may take: the request is sent again meanwhile.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(1500);

/// Sends a request to the connection manager of `to`, the address of `host`, and reports its answer.
pub(super) fn examine(
    host: &str,
    to: IpAddr,
    prober: &mut Prober,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let answer = ask(prober, to)?;
    let answers = answer.is_some();
    let finding = match answer {
        Some(Answer::Rejected(RejectReason::INVALID_SERVICE_ID)) => Finding::ok(
            CHECK,
            format!(
                "the connection manager of {host} answers: programs can connect by address and port (rdma_cm)"
            ),
        ),
        Some(Answer::Rejected(reason)) => Finding::note(
            CHECK,
            format!("the connection manager of {host} rejects a request to port {UNUSED_PORT}: {reason}"),
        )
        .advice("expected is reason 8: rdma_cm may refuse this host's requests for the same reason"),
        Some(Answer::Accepted) => {
            Finding::ok(CHECK, format!("a program on {host} listens on port {UNUSED_PORT} (rdma_cm)"))
        }
        None => Finding::note(CHECK, format!("the connection manager of {host} does not answer"))
            .advice("for rdma_cm on a kernel: modprobe rdma_ucm; a softroce device answers while it is open"),
    };
    Ok(findings.add(finding.fact("answers", answers))?)
}

enum Answer {
    Rejected(RejectReason),
    Accepted,
}

fn ask(prober: &mut Prober, to: IpAddr) -> anyhow::Result<Option<Answer>> {
    let from = prober.info().ip;
    let mut agent = Agent::new(AgentConfig::new(Guid::of(from), from), seed());
    let id = agent.connect(now(), request(from, to))?;
    let start = clock::now();
    let mut answer = None;
    while answer.is_none() {
        send(&mut agent, prober, to);
        let rest = RESPONSE_TIMEOUT.saturating_sub(clock::now() - start);
        if rest.is_zero() {
            break;
        }
        let due = agent.poll_timeout().map_or(rest, |at| at.since(now()));
        for arrival in prober.receive(rest.min(due), None)? {
            if let Some(mad) = mad(arrival.deth.qkey == GSI.qkey, &arrival.payload, from, to) {
                agent.handle_mad(now(), &mad);
            }
        }
        agent.handle_timeout(now());
        while let Some((_, event)) = agent.poll_event() {
            match event {
                Event::Rejected { reason, .. } => answer = Some(Answer::Rejected(reason)),
                Event::Reply(_) => answer = Some(Answer::Accepted),
                _ => {}
            }
        }
    }
    // Ends what the host may still hold.
    agent.destroy(now(), id);
    send(&mut agent, prober, to);
    Ok(answer)
}

/// Sends the messages of the agent. A refused one is sent again.
fn send(agent: &mut Agent, prober: &mut Prober, to: IpAddr) {
    while let Some(mad) = agent.poll_mad(now()) {
        let _ = prober.send(to, GSI, &[mad.bytes.to_vec()], 0);
    }
}

/// Returns the management datagram in a payload, if it is one.
fn mad(is_of_gsi: bool, payload: &[u8], from: IpAddr, to: IpAddr) -> Option<ReceivedMad> {
    let bytes = payload.try_into().ok().filter(|_| is_of_gsi)?;
    let path = MadPath {
        source: from,
        destination: to,
        traffic_class: 0,
        hop_limit: cm::CmPath::HOP_LIMIT,
        pkey: PKey::DEFAULT,
    };
    Some(ReceivedMad { path, bytes: Box::new(bytes) })
}

fn request(from: IpAddr, to: IpAddr) -> Connect {
    let (source, destination) =
        (SocketAddr::new(from, SOURCE_PORT), SocketAddr::new(to, UNUSED_PORT));
    Connect {
        path: cm::path(source, destination, Mtu::Mtu1024, 0),
        service: PortSpace::Tcp.service_id(UNUSED_PORT),
        ip: Some(IpHeader {
            version: 0,
            ip_version: if from.is_ipv4() { 4 } else { 6 },
            source_port: SOURCE_PORT,
            source_ip: from,
            destination_ip: to,
        }),
        qpn: PROBE_TARGET.qpn,
        qp_type: QpType::Rc,
        srq: false,
        private_data: Vec::new(),
        responder_resources: 1,
        initiator_depth: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        flow_control: false,
        ece: cm::Ece::default(),
        ack_timeout: None,
    }
}

/// Returns numbers that differ in each run: the host may remember those of the last.
fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    let time = wall_clock(now()).duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let time = time.as_nanos().to_le_bytes();
    seed[..time.len()].copy_from_slice(&time);
    seed[16..20].copy_from_slice(&std::process::id().to_le_bytes());
    seed
}
