//! Messages of the connection manager in the captures of kernel rxe and of hardware: written again byte for byte, and
//! sent by our agent with the same bytes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use softroce::cm::{
    Accept, Agent, AgentConfig, CmPath, Connect, Ece, Event, Listen, MadPath, ReceivedMad,
};
use softroce::engine::QpType;
use softroce::ids::PKey;
use softroce::time::{AckTimeout, Instant};
use softroce::wire::Mad;
use softroce::wire::cm::{Body, IpHeader, Message, Rep, Req};
use softroce_pcap::{Reader, dissect};

/// Calls `f` with each management datagram of each capture, and the name of the capture.
fn each_datagram(f: &mut dyn FnMut(&str, &[u8; Mad::DATAGRAM_LEN])) {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("captures");
    for folder in ["rxe", "hardware"] {
        for file in std::fs::read_dir(captures.join(folder)).unwrap() {
            let file = file.unwrap().path();
            if file.extension().is_none_or(|extension| extension != "pcap") {
                continue;
            }
            let bytes = std::fs::read(&file).unwrap();
            let mut reader = Reader::new(bytes.as_slice()).unwrap();
            while let Some(packet) = reader.next_packet().unwrap() {
                let Some(roce) = packet.ip.ok().and_then(|ip| dissect(ip).ok().flatten()) else {
                    continue;
                };
                let Ok(datagram) = roce.datagram else { continue };
                if let Some(Ok(_)) = Message::of(&datagram) {
                    f(&file.to_string_lossy(), datagram.payload.try_into().unwrap());
                }
            }
        }
    }
}

#[test]
fn captured_messages_are_written_byte_for_byte() {
    let mut names = std::collections::BTreeMap::new();
    each_datagram(&mut |file, bytes| {
        let message = Message::parse(bytes).unwrap();
        let mut written = [0xff; Mad::DATAGRAM_LEN];
        message.write(&mut written);
        assert_eq!(written, *bytes, "{file}: {message}");
        *names.entry(message.body.name()).or_insert(0) += 1;
    });
    let all = ["DREP", "DREQ", "REJ", "REP", "REQ", "RTU", "SIDR_REP", "SIDR_REQ"];
    assert!(names.keys().copied().eq(all), "{names:?}");
}

/// Returns the agent of a host in a capture, with its address.
fn agent(req: &Req, gid: softroce::ids::Gid) -> Agent {
    Agent::new(AgentConfig::new(req.ca_guid, gid.ip()), [1; 32])
}

fn qp_type(req: &Req) -> QpType {
    match req.transport {
        0 => QpType::Rc,
        1 => QpType::Uc,
        _ => QpType::XrcIni,
    }
}

/// Returns the parameters with which a REQ was sent.
fn connect(message: &Message<'_>, req: &Req) -> Connect {
    let path = &req.primary;
    Connect {
        path: CmPath {
            source: path.local_gid,
            destination: path.remote_gid,
            flow_label: path.flow_label,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            service_level: path.service_level,
            mtu: req.path_mtu.unwrap(),
            pkey: req.pkey,
            life_time: path.ack_timeout - 1,
        },
        service: req.service_id,
        ip: message.ip,
        qpn: req.qpn,
        qp_type: qp_type(req),
        srq: req.srq,
        private_data: message.private_data.to_vec(),
        responder_resources: req.responder_resources,
        initiator_depth: req.initiator_depth,
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry_count,
        flow_control: req.flow_control,
        ece: Ece { vendor: req.ece_vendor, options: message.modifier },
        ack_timeout: AckTimeout::new(path.ack_timeout),
    }
}

/// Returns the only datagram that an agent sends.
fn sent(agent: &mut Agent) -> Box<[u8; Mad::DATAGRAM_LEN]> {
    let mad = agent.poll_mad(Instant::ZERO).unwrap();
    assert_eq!(agent.poll_mad(Instant::ZERO), None);
    mad.bytes
}

#[test]
fn agent_sends_the_req_of_linux() {
    let mut count = 0;
    each_datagram(&mut |file, bytes| {
        let message = Message::parse(bytes).unwrap();
        let Body::Req(req) = message.body else { return };
        let mut agent = agent(&req, req.primary.local_gid);
        agent.connect(Instant::ZERO, connect(&message, &req)).unwrap();
        let ours = sent(&mut agent);
        let ours = Message::parse(ours.as_slice()).unwrap();
        let Body::Req(of_ours) = ours.body else { panic!("{ours}") };
        // Each host draws ID and PSN; drivers of hardware set longer timeouts than Linux.
        let drawn = Req {
            local_id: req.local_id,
            starting_psn: req.starting_psn,
            local_cm_timeout: if file.contains("/rxe/") { 20 } else { req.local_cm_timeout },
            remote_cm_timeout: if file.contains("/rxe/") { 20 } else { req.remote_cm_timeout },
            ..of_ours
        };
        let ours =
            Message { transaction_id: message.transaction_id, body: Body::Req(drawn), ..ours };
        let mut written = [0; Mad::DATAGRAM_LEN];
        ours.write(&mut written);
        assert_eq!(written, *bytes, "{file}:\nLinux {message}\nours  {ours}");
        count += 1;
    });
    assert!(count >= 8, "{count} REQs");
}

/// A REP in a capture, with the REQ before it.
#[test]
fn agent_sends_the_rep_of_linux() {
    let mut last: Option<([u8; Mad::DATAGRAM_LEN], Req)> = None;
    let mut count = 0;
    each_datagram(&mut |file, bytes| {
        let message = Message::parse(bytes).unwrap();
        match (message.body, &last) {
            (Body::Req(req), _) => last = Some((*bytes, req)),
            (Body::Rep(rep), Some((of_req, req))) if rep.remote_id == req.local_id => {
                let ours = reply(of_req, req, &message, &rep);
                assert_eq!(ours, *bytes, "{file}: {message}");
                count += 1;
            }
            _ => {}
        }
    });
    assert!(count >= 7, "{count} REPs");
}

/// Returns the REP of an agent to a REQ, with the parameters of the REP of Linux.
fn reply(
    of_req: &[u8; Mad::DATAGRAM_LEN],
    req: &Req,
    message: &Message<'_>,
    rep: &Rep,
) -> [u8; Mad::DATAGRAM_LEN] {
    let gid = req.primary.remote_gid;
    let mut agent = Agent::new(AgentConfig::new(rep.ca_guid, gid.ip()), [1; 32]);
    let qp_type = match qp_type(req) {
        QpType::XrcIni => QpType::XrcTgt,
        other => other,
    };
    let listen = Listen { backlog: 1, destination: None, qp_type, af_only: None, token: 0 };
    agent.listen(req.service_id, listen).unwrap();
    let path = MadPath {
        source: gid.ip(),
        destination: req.primary.local_gid.ip(),
        traffic_class: 0,
        hop_limit: 64,
        pkey: PKey::DEFAULT,
    };
    let bytes = Box::new(*of_req);
    agent.handle_mad(Instant::ZERO, &ReceivedMad { path, bytes });
    let Some((id, Event::Request(_))) = agent.poll_event() else { panic!("no request") };
    let accept = Accept {
        qpn: match qp_type {
            QpType::XrcTgt => softroce::ids::Qpn::new(rep.eecn),
            _ => rep.qpn,
        },
        srq: rep.srq,
        private_data: message.private_data.to_vec(),
        responder_resources: rep.responder_resources,
        initiator_depth: rep.initiator_depth,
        rnr_retry_count: rep.rnr_retry_count,
        flow_control: rep.flow_control,
        ece: Ece { vendor: rep.ece_vendor(), options: message.modifier },
    };
    agent.accept(Instant::ZERO, id, accept).unwrap();
    let ours = sent(&mut agent);
    let ours = Message::parse(ours.as_slice()).unwrap();
    let Body::Rep(of_ours) = ours.body else { panic!("{ours}") };
    // Each host draws its ID and PSN, and has an acknowledgement delay of its own.
    let drawn = Rep {
        local_id: rep.local_id,
        starting_psn: rep.starting_psn,
        target_ack_delay: rep.target_ack_delay,
        ..of_ours
    };
    let mut written = [0; Mad::DATAGRAM_LEN];
    Message { body: Body::Rep(drawn), ..ours }.write(&mut written);
    written
}

/// The addresses before the private data are those of the requester and of its listener.
#[test]
fn captured_requests_have_the_addresses_of_their_paths() {
    let mut count = 0;
    each_datagram(&mut |file, bytes| {
        let message = Message::parse(bytes).unwrap();
        let (Body::Req(req), Some(ip)) = (message.body, message.ip) else { return };
        let IpHeader { source_ip, destination_ip, .. } = ip;
        let of_path = (req.primary.local_gid.ip(), req.primary.remote_gid.ip());
        assert_eq!((source_ip, destination_ip), of_path, "{file}");
        count += 1;
    });
    assert!(count >= 8, "{count} REQs");
}
