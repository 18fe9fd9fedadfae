//! An agent, and messages of the peer that the test plays.

use std::net::{IpAddr, Ipv4Addr};

use softroce::cm::{
    Accept, Agent, AgentConfig, CmPath, CommId, ConnId, Connect, Ece, Event, Guid, Listen, MadPath,
    ReceivedMad, ServiceId, State,
};
use softroce::engine::QpType;
use softroce::ids::{Gid, Mtu, PKey, Qpn};
use softroce::psn::Psn;
use softroce::time::Instant;
use softroce::wire::Mad;
use softroce::wire::cm::{Body, Dreq, Ids, IpHeader, Message, Mra, Path, Rej, Rep, Req};

pub(crate) const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(crate) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
pub(crate) const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
pub(crate) const GUID: Guid = Guid(0x1111);
pub(crate) const PEER_GUID: Guid = Guid(0x2222);
pub(crate) const QPN: Qpn = Qpn::new(0x41);
pub(crate) const PEER_QPN: Qpn = Qpn::new(0x12);
pub(crate) const PEER_ID: CommId = CommId(0x7777_0001);
pub(crate) const TRANSACTION: u64 = 0x5_0000_0009;

/// Service of rdma_cm on TCP port 7174.
pub(crate) const SERVICE: ServiceId = ServiceId(0x0106_1c06);

/// A datagram that the agent sent.
pub(crate) struct Sent {
    pub(crate) path: MadPath,
    pub(crate) bytes: Box<[u8; Mad::DATAGRAM_LEN]>,
}

impl Sent {
    pub(crate) fn message(&self) -> Message<'_> {
        Message::parse(self.bytes.as_slice()).unwrap()
    }

    pub(crate) fn body(&self) -> Body {
        self.message().body
    }
}

pub(crate) struct Side {
    pub(crate) agent: Agent,
    pub(crate) now: Instant,
}

impl Side {
    /// Returns an agent that repeats messages as Linux does.
    pub(crate) fn new() -> Self {
        Self::with(|config| config.early_retransmissions = false)
    }

    pub(crate) fn with(configure: impl FnOnce(&mut AgentConfig)) -> Self {
        let mut config = AgentConfig::new(GUID, OURS);
        configure(&mut config);
        Self { agent: Agent::new(config, [7; 32]), now: Instant::ZERO }
    }

    /// Returns an agent with a connection in this state, to queue pair [`PEER_QPN`], active up to RepRcvd and passive
    /// otherwise.
    pub(crate) fn in_state(state: State) -> (Self, ConnId) {
        let mut t = Self::new();
        let id = match state {
            State::ReqSent | State::MraReqRcvd | State::RepRcvd => t.connect(),
            _ => {
                t.listen(QpType::Rc, 8);
                t.rx(Body::Req(req()));
                t.request()
            }
        };
        match state {
            State::ReqSent | State::ReqRcvd => {}
            State::MraReqRcvd => t.rx(Body::Mra(mra(id, 0))),
            State::RepRcvd => t.rx(Body::Rep(rep(id))),
            _ => t.agent.accept(t.now, id, accept()).unwrap(),
        }
        match state {
            State::MraRepRcvd => t.rx(Body::Mra(mra(id, 1))),
            State::Established | State::DreqSent | State::DreqRcvd | State::Timewait => {
                t.rx(Body::Rtu(ids(id)));
            }
            _ => {}
        }
        match state {
            State::DreqSent => t.agent.disconnect(t.now, id).unwrap(),
            State::DreqRcvd | State::Timewait => t.rx(Body::Dreq(dreq(id))),
            _ => {}
        }
        if state == State::Timewait {
            t.agent.disconnect(t.now, id).unwrap();
        }
        assert_eq!(t.state(id), Some(state));
        t.sent();
        t.events();
        (t, id)
    }

    pub(crate) fn listen(&mut self, qp_type: QpType, backlog: usize) -> ConnId {
        self.agent.listen(SERVICE, listen(qp_type, backlog)).unwrap()
    }

    pub(crate) fn connect(&mut self) -> ConnId {
        self.agent.connect(self.now, connect()).unwrap()
    }

    /// Delivers a message of the peer.
    pub(crate) fn rx(&mut self, body: Body) {
        self.rx_from(PEER, body);
    }

    pub(crate) fn rx_from(&mut self, address: IpAddr, body: Body) {
        self.rx_message(address, &message(body));
    }

    pub(crate) fn rx_message(&mut self, address: IpAddr, message: &Message<'_>) {
        let mut bytes = Box::new([0; Mad::DATAGRAM_LEN]);
        message.write(&mut bytes);
        let path = MadPath {
            source: OURS,
            destination: address,
            traffic_class: 0,
            hop_limit: 64,
            pkey: PKey::DEFAULT,
        };
        self.agent.handle_mad(self.now, &ReceivedMad { path, bytes });
    }

    /// Returns all datagrams to send.
    pub(crate) fn sent(&mut self) -> Vec<Sent> {
        let sent = std::iter::from_fn(|| self.agent.poll_mad(self.now));
        sent.map(|mad| Sent { path: mad.path, bytes: mad.bytes }).collect()
    }

    /// Returns the only datagram to send.
    #[track_caller]
    pub(crate) fn tx(&mut self) -> Sent {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{:?}", sent.iter().map(Sent::body).collect::<Vec<_>>());
        sent.remove(0)
    }

    /// Returns the names of all messages to send.
    pub(crate) fn names(&mut self) -> Vec<&'static str> {
        self.sent().iter().map(|sent| sent.body().name()).collect()
    }

    pub(crate) fn events(&mut self) -> Vec<(ConnId, Event)> {
        std::iter::from_fn(|| self.agent.poll_event()).collect()
    }

    /// Returns the events of one id.
    #[track_caller]
    pub(crate) fn events_of(&mut self, id: ConnId) -> Vec<Event> {
        let events = self.events().into_iter();
        events
            .map(|(of, event)| {
                assert_eq!(of, id);
                event
            })
            .collect()
    }

    /// Returns the id of the only event, a request.
    #[track_caller]
    pub(crate) fn request(&mut self) -> ConnId {
        match self.events().as_slice() {
            [(id, Event::Request(_) | Event::ServiceRequest(_))] => *id,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn state(&self, id: ConnId) -> Option<State> {
        self.agent.state(id)
    }

    /// Advances to this time. Returns each message sent on the way, with its time in milliseconds.
    pub(crate) fn run_until(&mut self, ms: u64) -> Vec<(u64, &'static str)> {
        let end = Instant::from_millis(ms);
        let mut sent = Vec::new();
        // Each step handles at least one deadline of an id, or takes one datagram.
        for _ in 0..100_000 {
            let at = self.now.as_nanos() / 1_000_000;
            sent.extend(self.names().into_iter().map(|name| (at, name)));
            match self.agent.poll_timeout().filter(|at| *at <= end) {
                Some(at) => {
                    self.now = self.now.max(at);
                    self.agent.handle_timeout(self.now);
                }
                None => {
                    self.now = end;
                    return sent;
                }
            }
        }
        panic!("the timers do not advance: {:?}", self.agent.poll_timeout());
    }
}

pub(crate) fn listen(qp_type: QpType, backlog: usize) -> Listen {
    Listen { backlog, destination: None, qp_type, af_only: None, token: 0xabc }
}

pub(crate) fn connect() -> Connect {
    Connect {
        path: CmPath::between(OURS, PEER, Mtu::Mtu1024),
        service: SERVICE,
        ip: Some(ip(OURS, PEER)),
        qpn: QPN,
        qp_type: QpType::Rc,
        srq: false,
        private_data: b"hello".to_vec(),
        responder_resources: 3,
        initiator_depth: 4,
        retry_count: 7,
        rnr_retry_count: 6,
        flow_control: true,
        ece: Ece::default(),
        ack_timeout: None,
    }
}

pub(crate) fn accept() -> Accept {
    Accept {
        qpn: QPN,
        srq: false,
        private_data: b"welcome".to_vec(),
        responder_resources: 2,
        initiator_depth: 1,
        rnr_retry_count: 7,
        flow_control: true,
        ece: Ece::default(),
    }
}

pub(crate) fn ip(source_ip: IpAddr, destination_ip: IpAddr) -> IpHeader {
    let ip_version = if source_ip.is_ipv4() { 4 } else { 6 };
    IpHeader { version: 0, ip_version, source_port: 0x8123, source_ip, destination_ip }
}

/// Returns a message of the peer, with its addresses if it is a request.
pub(crate) fn message(body: Body) -> Message<'static> {
    let ip = matches!(body, Body::Req(_) | Body::SidrReq(_)).then(|| ip(PEER, OURS));
    Message { transaction_id: TRANSACTION, modifier: 0, body, ip, private_data: b"from the peer" }
}

pub(crate) fn gid(ip: IpAddr) -> Gid {
    ip.into()
}

/// Returns a REQ of the peer, as Linux sends it.
pub(crate) fn req() -> Req {
    Req {
        local_id: PEER_ID,
        service_id: SERVICE,
        ca_guid: PEER_GUID,
        qpn: PEER_QPN,
        responder_resources: 5,
        initiator_depth: 6,
        remote_cm_timeout: 20,
        local_cm_timeout: 20,
        flow_control: true,
        starting_psn: Psn::new(0x123456),
        retry_count: 5,
        pkey: PKey::DEFAULT,
        path_mtu: Some(Mtu::Mtu1024),
        rnr_retry_count: 4,
        max_cm_retries: 15,
        primary: Path {
            local_lid: 0xffff,
            remote_lid: 0xffff,
            local_gid: gid(PEER),
            remote_gid: gid(OURS),
            flow_label: 0x54321,
            traffic_class: 0x28,
            hop_limit: 64,
            ack_timeout: 19,
            ..Path::parse(&[])
        },
        ..Req::parse(&[])
    }
}

/// Returns the communication IDs of a message of the peer.
pub(crate) fn ids(id: ConnId) -> Ids {
    Ids { local_id: PEER_ID, remote_id: id.0 }
}

pub(crate) fn rep(id: ConnId) -> Rep {
    Rep {
        local_id: PEER_ID,
        remote_id: id.0,
        qpn: PEER_QPN,
        starting_psn: Psn::new(0x654321),
        responder_resources: 5,
        initiator_depth: 6,
        target_ack_delay: 15,
        rnr_retry_count: 3,
        ca_guid: PEER_GUID,
        ..Rep::parse(&[])
    }
}

pub(crate) fn mra(id: ConnId, message: u8) -> Mra {
    Mra { local_id: PEER_ID, remote_id: id.0, message, service_timeout: 24 }
}

pub(crate) fn rej(id: ConnId, message: u8, reason: u16) -> Rej {
    Rej { local_id: PEER_ID, remote_id: id.0, message, reason, ..Rej::parse(&[]) }
}

pub(crate) fn dreq(id: ConnId) -> Dreq {
    Dreq { local_id: PEER_ID, remote_id: id.0, remote_qpn: QPN }
}
