//! Random connects, accepts, rejects, disconnections, crashes and forged messages between three agents over a network
//! that loses, duplicates and reorders, in virtual time.
//!
//! The consumers know what they have called. Every id has the events of its role in a legal order, none twice, and
//! none after it is destroyed. A passive side is established only if its active side is, once for each attempt, and
//! both have the same queue pairs and PSNs. Once the network works and the consumers answer, every id ends, and after
//! the consumers have destroyed their ids the agents are empty.
//!
//! `MODEL_CM_SEEDS=5000` checks that many seeds, `MODEL_CM_SEED=7` one seed.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::support::choice::Choice;
use softroce::cm::{
    Accept, Agent, AgentConfig, CmPath, ConnId, Connect, Ece, Event, Guid, IpHeader, Listen,
    MadPath, OutgoingMad, ReceivedMad, Reject, ServiceId, SidrReply, SidrRequest, SidrStatus,
};
use softroce::engine::{QpState, QpType};
use softroce::ids::{Mtu, PKey, QKey, Qpn};
use softroce::time::Instant;

const HOSTS: usize = 3;
const SERVICE: ServiceId = ServiceId(0x0106_0050);
const DATAGRAMS: ServiceId = ServiceId(0x0111_0050);
const UNUSED: ServiceId = ServiceId(0x0106_0051);
const STRANGER: [u8; 4] = [10, 0, 0, 99];

/// Operations before the end.
const STEPS: usize = 60;

fn address(host: usize) -> IpAddr {
    [10, 0, 0, 1 + u8::try_from(host).unwrap()].into()
}

/// The consumer's view of an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Active: waits for the reply.
    Connecting,
    /// Active: has the reply.
    Replied,
    /// Passive: has the request.
    Requested,
    /// Passive: has accepted.
    Accepted,
    Connected,
    /// Has an event of the end, or has rejected.
    Ended,
    /// TIMEWAIT is over.
    Over,
    /// Service request, own or of a peer.
    Resolving,
    Serving,
}

#[derive(Clone, Copy, Debug)]
struct Id {
    phase: Phase,
    /// Number of the attempt to connect, that of the active side.
    attempt: u64,
    qpn: Qpn,
    is_active: bool,
}

/// A datagram on its way.
struct InFlight {
    at: Instant,
    to: usize,
    mad: ReceivedMad,
}

struct Host {
    agent: Agent,
    ids: BTreeMap<ConnId, Id>,
    listeners: Vec<ConnId>,
}

struct Model {
    now: Instant,
    choice: Choice,
    hosts: Vec<Host>,
    network: Vec<InFlight>,
    /// The last datagrams, for replays and forgeries.
    seen: Vec<(usize, ReceivedMad)>,
    /// Percentage of lost datagrams.
    loss: u64,
    next: u64,
    /// Attempts that the active side has established, with the first PSNs and queue pairs of both sides.
    established: BTreeMap<u64, [(Qpn, u32); 2]>,
    /// The same of each passive side that has accepted.
    accepted: BTreeMap<ConnId, [(Qpn, u32); 2]>,
    /// Attempts that a passive side has established.
    confirmed: BTreeMap<u64, ConnId>,
    /// Number of events of each kind.
    counts: BTreeMap<&'static str, usize>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut choice = Choice::new(seed);
        let loss = [0, 5, 30, 60][usize::try_from(choice.below(4)).unwrap()];
        let mut model = Self {
            now: Instant::from_millis(1000),
            choice,
            hosts: Vec::new(),
            network: Vec::new(),
            seen: Vec::new(),
            loss,
            next: 1,
            established: BTreeMap::new(),
            accepted: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            counts: BTreeMap::new(),
        };
        for number in 0..HOSTS {
            let host = model.host(number);
            model.hosts.push(host);
            model.listen(number);
        }
        model
    }

    fn host(&mut self, number: usize) -> Host {
        let guid = Guid(0x100 + u64::try_from(number).unwrap());
        let mut config = AgentConfig::new(guid, address(number));
        config.early_retransmissions = !self.choice.one_in(3);
        let seed = self.number().to_le_bytes();
        let mut bytes = [9; 32];
        bytes[..8].copy_from_slice(&seed);
        Host { agent: Agent::new(config, bytes), ids: BTreeMap::new(), listeners: Vec::new() }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn listen(&mut self, host: usize) {
        if !self.hosts[host].listeners.is_empty() {
            return;
        }
        for (service, qp_type) in [(SERVICE, QpType::Rc), (DATAGRAMS, QpType::Ud)] {
            let listen = Listen { backlog: 4, destination: None, qp_type, af_only: None, token: 1 };
            let id = self.hosts[host].agent.listen(service, listen).unwrap();
            self.hosts[host].listeners.push(id);
        }
    }

    /// Returns any id, with its host.
    fn any(&mut self) -> Option<(usize, ConnId, Id)> {
        let all: Vec<_> = (0..HOSTS)
            .flat_map(|host| self.hosts[host].ids.iter().map(move |(id, of)| (host, *id, *of)))
            .collect();
        let at = self.choice.below(u64::try_from(all.len()).unwrap().max(1));
        all.get(usize::try_from(at).unwrap()).copied()
    }

    // ---- operations ----

    fn connect(&mut self) {
        let from = usize::try_from(self.choice.below(3)).unwrap();
        let to = usize::try_from(self.choice.below(3)).unwrap();
        let attempt = self.number();
        // A queue pair number may be one of a connection before a crash.
        let qpn = if self.choice.one_in(4) { self.choice.below(8) + 16 } else { attempt + 1000 };
        let qpn = Qpn::new(u32::try_from(qpn).unwrap());
        let (source_ip, destination_ip) = (address(from), address(to));
        let ip = IpHeader { version: 0, ip_version: 4, source_port: 9, source_ip, destination_ip };
        let path = CmPath::between(source_ip, destination_ip, Mtu::Mtu1024);
        let now = self.now;
        let is_service = self.choice.one_in(5);
        let service = if self.choice.one_in(6) { UNUSED } else { SERVICE };
        let agent = &mut self.hosts[from].agent;
        let (id, phase) = if is_service {
            let request = SidrRequest {
                path,
                service: DATAGRAMS,
                ip: Some(ip),
                private_data: vec![],
                retries: 3,
                timeout: std::time::Duration::from_millis(4096),
            };
            (agent.resolve_service(now, request).unwrap(), Phase::Resolving)
        } else {
            let connect = Connect {
                path,
                service,
                ip: Some(ip),
                qpn,
                qp_type: QpType::Rc,
                srq: false,
                private_data: attempt.to_be_bytes().to_vec(),
                responder_resources: 1,
                initiator_depth: 1,
                retry_count: 7,
                rnr_retry_count: 7,
                flow_control: false,
                ece: Ece::default(),
                ack_timeout: None,
            };
            (agent.connect(now, connect).unwrap(), Phase::Connecting)
        };
        let of = Id { phase, attempt, qpn, is_active: true };
        assert!(self.hosts[from].ids.insert(id, of).is_none());
    }

    /// Does what the consumer of an id can do next.
    fn advance(&mut self, host: usize, id: ConnId, of: Id) {
        let now = self.now;
        let agent = &mut self.hosts[host].agent;
        let to = match of.phase {
            Phase::Requested => {
                let accept = Accept {
                    qpn: of.qpn,
                    srq: false,
                    private_data: of.attempt.to_be_bytes().to_vec(),
                    responder_resources: 1,
                    initiator_depth: 1,
                    rnr_retry_count: 7,
                    flow_control: false,
                    ece: Ece::default(),
                };
                let own = self.numbers(host, id, of.qpn);
                self.accepted.insert(id, own);
                self.hosts[host].agent.accept(now, id, accept).unwrap();
                Phase::Accepted
            }
            Phase::Replied => {
                let own = self.numbers(host, id, of.qpn);
                self.hosts[host].agent.establish(now, id).unwrap();
                self.established.insert(of.attempt, own);
                Phase::Connected
            }
            Phase::Connected | Phase::Ended => {
                agent.disconnect(now, id).unwrap();
                return;
            }
            Phase::Serving => {
                let reply = SidrReply {
                    status: SidrStatus::SUCCESS,
                    qpn: of.qpn,
                    qkey: QKey(7),
                    ece: Ece::default(),
                    private_data: vec![],
                };
                agent.reply_service(now, id, reply).unwrap();
                self.hosts[host].ids.remove(&id);
                return;
            }
            _ => return,
        };
        self.set(host, id, to);
    }

    /// Returns the queue pair and the first PSN of this side and of the peer.
    fn numbers(&self, host: usize, id: ConnId, qpn: Qpn) -> [(Qpn, u32); 2] {
        let agent = &self.hosts[host].agent;
        let rtr = agent.qp_attr(id, QpState::Rtr).unwrap();
        let rts = agent.qp_attr(id, QpState::Rts).unwrap();
        [(qpn, rts.sq_psn.unwrap().value()), (rtr.dest_qpn.unwrap(), rtr.rq_psn.unwrap().value())]
    }

    fn reject(&mut self, host: usize, id: ConnId, of: Id) {
        if matches!(of.phase, Phase::Requested | Phase::Replied | Phase::Accepted) {
            self.hosts[host].agent.reject(self.now, id, Reject::consumer(b"no")).unwrap();
            self.set(host, id, Phase::Ended);
        }
    }

    fn destroy(&mut self, host: usize, id: ConnId) {
        self.hosts[host].agent.destroy(self.now, id);
        self.hosts[host].ids.remove(&id);
    }

    /// Replaces an agent, which forgets everything.
    fn crash(&mut self, number: usize) {
        let host = self.host(number);
        self.hosts[number] = host;
        self.listen(number);
    }

    /// Delivers a copy of a datagram: late, or altered and from an unknown peer.
    fn forge(&mut self) {
        let len = u64::try_from(self.seen.len()).unwrap();
        if len == 0 {
            return;
        }
        let (to, mad) = &self.seen[usize::try_from(self.choice.below(len)).unwrap()];
        let (to, mut mad) = (*to, mad.clone());
        if !self.choice.one_in(3) {
            mad.path.destination = STRANGER.into();
            for _ in 0..self.choice.below(4) {
                let at = usize::try_from(self.choice.below(100)).unwrap();
                mad.bytes[at] ^= 1 << self.choice.below(8);
            }
        }
        self.network.push(InFlight { at: self.now, to, mad });
    }

    /// A packet of an established connection arrives, perhaps before the RTU.
    fn first_packet(&mut self) {
        let Some((host, _, of)) = self.any() else { return };
        let established = self.established.get(&of.attempt);
        let is_peers = established.is_some_and(|[_, (qpn, _)]| *qpn == of.qpn);
        if !of.is_active && of.phase == Phase::Accepted && is_peers {
            self.hosts[host].agent.handle_first_packet(self.now, of.qpn);
        }
    }

    fn step(&mut self) {
        let any = self.any();
        match (self.choice.below(24), any) {
            (0..4, _) => self.connect(),
            (4..12, Some((host, id, of))) => self.advance(host, id, of),
            (12, Some((host, id, of))) => self.reject(host, id, of),
            (13..15, Some((host, id, _))) => self.destroy(host, id),
            (15, _) if self.choice.one_in(6) => {
                let host = usize::try_from(self.choice.below(3)).unwrap();
                self.crash(host);
            }
            (16, _) if self.choice.one_in(3) => {
                let host = usize::try_from(self.choice.below(3)).unwrap();
                for id in std::mem::take(&mut self.hosts[host].listeners) {
                    self.hosts[host].agent.destroy(self.now, id);
                }
            }
            (17, _) => {
                let host = usize::try_from(self.choice.below(3)).unwrap();
                self.listen(host);
            }
            (18..20, _) => self.forge(),
            (20, _) => self.first_packet(),
            _ => {}
        }
        let wait = match self.choice.below(4) {
            0 => 0,
            1 | 2 => self.choice.below(300),
            _ => self.choice.below(5000),
        };
        let wait = if self.choice.one_in(20) { 60_000 } else { wait };
        self.run_until(self.now + std::time::Duration::from_millis(wait));
    }

    // ---- the network and the events ----

    /// Takes what the agents send and report.
    fn collect(&mut self) {
        for host in 0..HOSTS {
            while let Some(mad) = self.hosts[host].agent.poll_mad(self.now) {
                self.transmit(mad);
            }
            while let Some((id, event)) = self.hosts[host].agent.poll_event() {
                self.event(host, id, event);
            }
        }
    }

    fn transmit(&mut self, OutgoingMad { path, bytes }: OutgoingMad) {
        let Some(to) = (0..HOSTS).find(|host| address(*host) == path.destination) else { return };
        let back = MadPath {
            source: path.destination,
            destination: path.source,
            pkey: PKey::DEFAULT,
            ..path
        };
        let mad = ReceivedMad { path: back, bytes };
        if self.seen.len() > 40 {
            self.seen.remove(0);
        }
        self.seen.push((to, mad.clone()));
        let copies = if self.choice.one_in(8) { 2 } else { 1 };
        for _ in 0..copies {
            if self.choice.below(100) >= self.loss {
                let delay = std::time::Duration::from_millis(self.choice.below(120));
                self.network.push(InFlight { at: self.now + delay, to, mad: mad.clone() });
            }
        }
    }

    fn event(&mut self, host: usize, id: ConnId, event: Event) {
        let known = self.hosts[host].ids.get(&id).copied();
        let phase = known.map(|of| of.phase);
        let (name, to) = match (&event, phase) {
            (Event::Request(request), None) => {
                let attempt = u64::from_be_bytes(request.private_data[..8].try_into().unwrap());
                let qpn = Qpn::new(u32::try_from(self.number()).unwrap() + 5_000_000);
                let of = Id { phase: Phase::Requested, attempt, qpn, is_active: false };
                self.hosts[host].ids.insert(id, of);
                ("request", Phase::Requested)
            }
            (Event::ServiceRequest(_), None) => {
                let qpn = Qpn::new(77);
                let of = Id { phase: Phase::Serving, attempt: 0, qpn, is_active: false };
                self.hosts[host].ids.insert(id, of);
                ("service request", Phase::Serving)
            }
            (Event::Reply(reply), Some(Phase::Connecting)) => {
                let attempt = u64::from_be_bytes(reply.private_data[..8].try_into().unwrap());
                assert_eq!(Some(attempt), known.map(|of| of.attempt), "another attempt's reply");
                ("reply", Phase::Replied)
            }
            (Event::Established, Some(Phase::Accepted)) => {
                self.check_established(id, known.unwrap());
                ("established", Phase::Connected)
            }
            (
                Event::Rejected { .. },
                Some(
                    Phase::Connecting
                    | Phase::Replied
                    | Phase::Requested
                    | Phase::Accepted
                    | Phase::Connected,
                ),
            ) => ("rejected", Phase::Ended),
            (Event::Unreachable { .. }, Some(Phase::Connecting | Phase::Accepted)) => {
                ("unreachable", Phase::Ended)
            }
            (Event::Unreachable { .. }, Some(Phase::Resolving)) => {
                ("unreachable service", Phase::Over)
            }
            (Event::ServiceReply(_), Some(Phase::Resolving)) => ("service reply", Phase::Over),
            (Event::Disconnected { .. }, Some(Phase::Connected | Phase::Accepted)) => {
                ("disconnected", Phase::Ended)
            }
            (Event::TimewaitExit, Some(Phase::Ended)) => ("timewait exit", Phase::Over),
            _ => panic!("host {host}, {id}: {event:?} in {known:?}"),
        };
        *self.counts.entry(name).or_default() += 1;
        self.set(host, id, to);
    }

    /// Checks that the active side of a connection is established, and that both sides agree.
    fn check_established(&mut self, id: ConnId, of: Id) {
        let earlier = self.confirmed.insert(of.attempt, id);
        assert_eq!(earlier, None, "attempt {} has two passive sides", of.attempt);
        let active = self.established.get(&of.attempt);
        let [ours, theirs] = self.accepted[&id];
        assert_eq!(active, Some(&[theirs, ours]), "attempt {}", of.attempt);
    }

    fn set(&mut self, host: usize, id: ConnId, phase: Phase) {
        if let Some(of) = self.hosts[host].ids.get_mut(&id) {
            of.phase = phase;
        }
    }

    /// Returns the time of the next datagram or timer.
    fn next_time(&self) -> Option<Instant> {
        let timers = self.hosts.iter().filter_map(|host| host.agent.poll_timeout());
        timers.chain(self.network.iter().map(|packet| packet.at)).min()
    }

    fn run_until(&mut self, end: Instant) {
        // Each step delivers a datagram or handles a timer; a message is answered a few times at most.
        for _ in 0..100_000 {
            self.collect();
            let Some(at) = self.next_time().filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(at);
            while let Some(due) = self.network.iter().position(|packet| packet.at <= self.now) {
                let InFlight { to, mad, .. } = self.network.swap_remove(due);
                self.hosts[to].agent.handle_mad(self.now, &mad);
            }
            for host in &mut self.hosts {
                host.agent.handle_timeout(self.now);
            }
        }
        panic!("messages without end");
    }

    // ---- the end ----

    /// The network loses nothing, and each consumer answers: every id ends.
    fn end(&mut self) {
        self.loss = 0;
        // A connection of three steps and its end take at most this many rounds.
        for _ in 0..8 {
            self.run_until(self.now + std::time::Duration::from_secs(1300));
            for host in 0..HOSTS {
                for (id, of) in self.hosts[host].ids.clone() {
                    self.advance(host, id, of);
                }
            }
        }
        self.run_until(self.now + std::time::Duration::from_secs(1300));
        assert_eq!(self.next_time(), None, "timers without end");
        for host in &self.hosts {
            let open =
                host.ids.iter().find(|(_, of)| !matches!(of.phase, Phase::Ended | Phase::Over));
            assert!(open.is_none(), "{open:?} has not ended");
        }
        for host in 0..HOSTS {
            for id in self.hosts[host].ids.clone().into_keys() {
                self.destroy(host, id);
            }
            for id in std::mem::take(&mut self.hosts[host].listeners) {
                self.hosts[host].agent.destroy(self.now, id);
            }
        }
        self.run_until(self.now + std::time::Duration::from_secs(100));
        for host in &self.hosts {
            assert!(host.agent.is_empty(), "{:#?}", host.agent);
        }
    }
}

fn run(seed: u64) -> BTreeMap<&'static str, usize> {
    println!("seed {seed}");
    let mut model = Model::new(seed);
    for _ in 0..STEPS {
        model.step();
    }
    model.end();
    model.counts
}

#[test]
fn every_id_ends_once_and_nothing_is_left() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match (number("MODEL_CM_SEED"), number("MODEL_CM_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => 0..count.unwrap_or(2000),
    };
    let is_whole = seeds.end - seeds.start >= 2000;
    let mut counts = BTreeMap::new();
    for seed in seeds {
        for (name, count) in run(seed) {
            *counts.entry(name).or_default() += count;
        }
    }
    println!("{counts:?}");
    let least = counts.values().min().copied().unwrap_or(0);
    assert!(!is_whole || (counts.len() == 10 && least >= 100), "some events are rare: {counts:?}");
}
