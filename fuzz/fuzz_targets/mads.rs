//! Arbitrary management datagrams, calls and times for an agent of the connection manager: every id ends, and nothing
//! is left.
//!
//! The input is a sequence of actions. A datagram may have its identifiers replaced by those of an id that exists.

#![no_main]

use std::net::IpAddr;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use softroce::cm::{
    Accept, Agent, AgentConfig, CmPath, ConnId, Connect, Ece, Event, Guid, Listen, MadPath,
    ReceivedMad, Reject, ServiceId, SidrReply, SidrRequest, SidrStatus,
};
use softroce::engine::{QpState, QpType};
use softroce::ids::{Gid, Mtu, PKey, QKey, Qpn};
use softroce::time::Instant;
use softroce::wire::Mad;

/// Maximum number of ids, so that the limit is reached.
const MAX_IDS: usize = 24;

const SERVICES: [ServiceId; 2] = [ServiceId(0x0106_1c06), ServiceId(0x0111_1c06)];

/// Offset of the receiver's communication ID in most messages.
const REMOTE_ID: usize = Mad::LEN + 4;

/// Offset of the queue pair in a DREQ.
const DREQ_QPN: usize = Mad::LEN + 8;

fuzz_target!(|input: &[u8]| {
    let mut player = Player::new();
    let mut rest = input;
    while let Some((action, after)) = rest.split_first() {
        rest = player.play(*action, after);
    }
    player.end();
});

struct Player {
    agent: Agent,
    now: Instant,
    ids: Vec<ConnId>,
}

impl Player {
    fn new() -> Self {
        let mut config = AgentConfig::new(Guid(1), address(1));
        config.max_ids = MAX_IDS;
        Self { agent: Agent::new(config, [1; 32]), now: Instant::ZERO, ids: Vec::new() }
    }

    /// Does one action, and returns the rest of the input.
    fn play<'a>(&mut self, action: u8, input: &'a [u8]) -> &'a [u8] {
        let Some((argument, rest)) = input.split_first() else { return &[] };
        match action % 12 {
            0..4 => return self.receive(*argument, rest),
            4 => self.advance(Duration::from_millis(u64::from(*argument) * 50)),
            5 => self.listen(*argument),
            6 => self.connect(*argument),
            7 => {
                let request = SidrRequest {
                    path: path(),
                    service: SERVICES[1],
                    ip: None,
                    private_data: vec![1; usize::from(*argument)],
                    retries: 2,
                    timeout: Duration::from_secs(4),
                };
                let id = self.agent.resolve_service(self.now, request);
                self.ids.extend(id.ok());
            }
            other => {
                if let Some(id) = self.id(*argument) {
                    self.call(other, *argument, id);
                }
            }
        }
        self.collect();
        rest
    }

    fn id(&self, argument: u8) -> Option<ConnId> {
        let at = usize::from(argument).checked_rem(self.ids.len())?;
        self.ids.get(at).copied()
    }

    fn receive<'a>(&mut self, flags: u8, input: &'a [u8]) -> &'a [u8] {
        let (datagram, rest) = input.split_at(input.len().min(Mad::DATAGRAM_LEN));
        let mut bytes = Box::new([0; Mad::DATAGRAM_LEN]);
        bytes[..datagram.len()].copy_from_slice(datagram);
        if flags & 1 != 0
            && let Some(id) = self.id(flags >> 3)
        {
            bytes[REMOTE_ID..][..4].copy_from_slice(&id.0.0.to_be_bytes());
            if bytes[17] == 0x15 {
                bytes[DREQ_QPN..][..3].copy_from_slice(&[0, 0, 9]);
            }
        }
        let peer = if flags & 2 != 0 { 3 } else { 2 };
        if flags & 4 != 0 && bytes[17] == 0x10 {
            address_req(&mut bytes, peer);
        }
        let path = MadPath {
            source: address(1),
            destination: address(peer),
            traffic_class: 0,
            hop_limit: 64,
            pkey: PKey::DEFAULT,
        };
        self.agent.handle_mad(self.now, &ReceivedMad { path, bytes });
        self.collect();
        rest
    }

    fn listen(&mut self, argument: u8) {
        let (service, qp_type) = match argument % 4 {
            0 => (SERVICES[1], QpType::Ud),
            1 => (SERVICES[0], QpType::Uc),
            2 => (SERVICES[0], QpType::XrcTgt),
            _ => (SERVICES[0], QpType::Rc),
        };
        let listen = Listen { backlog: 4, destination: None, qp_type, af_only: None, token: 0 };
        self.ids.extend(self.agent.listen(service, listen).ok());
    }

    fn connect(&mut self, argument: u8) {
        let connect = Connect {
            path: path(),
            service: SERVICES[0],
            ip: None,
            qpn: Qpn::new(9),
            qp_type: if argument & 1 == 0 { QpType::Rc } else { QpType::XrcIni },
            srq: false,
            private_data: vec![1; usize::from(argument)],
            responder_resources: argument,
            initiator_depth: argument,
            retry_count: argument & 7,
            rnr_retry_count: argument & 7,
            flow_control: false,
            ece: Ece::default(),
            ack_timeout: None,
        };
        self.ids.extend(self.agent.connect(self.now, connect).ok());
    }

    fn call(&mut self, call: u8, argument: u8, id: ConnId) {
        let (agent, now) = (&mut self.agent, self.now);
        let private_data = vec![2; usize::from(argument)];
        let _ = match (call, argument % 5) {
            (8, 0) => {
                let reply = SidrReply {
                    status: SidrStatus(argument),
                    qpn: Qpn::new(9),
                    qkey: QKey(1),
                    ece: Ece::default(),
                    private_data,
                };
                agent.reply_service(now, id, reply)
            }
            (8, _) => {
                let accept = Accept {
                    qpn: Qpn::new(9),
                    srq: false,
                    private_data,
                    responder_resources: 1,
                    initiator_depth: 1,
                    rnr_retry_count: 7,
                    flow_control: false,
                    ece: Ece::default(),
                };
                agent.accept(now, id, accept)
            }
            (9, 0) => agent.reject(now, id, Reject::consumer(&private_data)),
            (9, _) => agent.establish(now, id),
            (10, _) => agent.disconnect(now, id),
            (_, 0) => {
                agent.handle_first_packet(now, Qpn::new(9));
                Ok(())
            }
            (_, _) => {
                agent.destroy(now, id);
                assert!(agent.state(id).is_none());
                self.ids.retain(|other| *other != id);
                Ok(())
            }
        };
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        self.agent.handle_timeout(self.now);
    }

    fn collect(&mut self) {
        while self.agent.poll_mad(self.now).is_some() {}
        while let Some((id, event)) = self.agent.poll_event() {
            match event {
                Event::Request(_) | Event::ServiceRequest(_) => self.ids.push(id),
                _ => assert!(self.ids.contains(&id), "an event of no id"),
            }
            for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
                let _ = self.agent.qp_attr(id, to);
            }
        }
        assert!(self.agent.ids() <= MAX_IDS, "too many ids");
    }

    /// Destroys every id. Then all timers end.
    fn end(mut self) {
        for id in std::mem::take(&mut self.ids) {
            self.agent.destroy(self.now, id);
        }
        self.collect();
        for _ in 0..10_000 {
            let Some(at) = self.agent.poll_timeout() else { break };
            self.now = self.now.max(at);
            self.agent.handle_timeout(self.now);
            self.collect();
        }
        assert!(self.agent.is_empty(), "something is left: {:?}", self.agent);
    }
}

/// Addresses a REQ of a peer to a service of the agent.
fn address_req(bytes: &mut [u8; Mad::DATAGRAM_LEN], peer: u8) {
    let body = &mut bytes[Mad::LEN..];
    body[8..16].copy_from_slice(&SERVICES[0].0.to_be_bytes());
    let [local, remote] = [peer, 1].map(|host| Gid::from(address(host)));
    body[56..72].copy_from_slice(&local.0);
    body[72..88].copy_from_slice(&remote.0);
    for (at, host) in [(144, peer), (160, 1)] {
        body[at..at + 16].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, host]);
    }
}

fn address(host: u8) -> IpAddr {
    [10, 0, 0, host].into()
}

fn path() -> CmPath {
    CmPath::between(address(1), address(2), Mtu::Mtu1024)
}
