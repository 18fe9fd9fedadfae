//! Executes steps on engines, and records the posted requests and their results.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use softroce::engine::{QpAttr, QpInit, QpState, QpType};
use softroce::ids::{CqId, Gid, Mtu};
use softroce::mem::Region;
use softroce::net::AddressVector;
use softroce::port::sim::{BurstLoss, Conditions, HostConfig};
use softroce::transport::outputs::AsyncEvent;
use softroce::transport::work::{
    Completion, RecvRequest, SendData, SendFlags, SendOp, SendRequest, Sge, UdTarget,
};

use super::check;
use super::end::{
    COUNTERS, Disturbances, Effect, End, RECEIVE_BYTES, Receive, Sent, TARGET_BYTES, contents,
};
use super::plan::{Disturbance, Step};
use crate::support::choice::Choice;
use crate::support::{
    Link, QKEY, RECV_CQ, SEND_CQ, World, full_access, lossy, pattern, qp_init, remote, sge,
    some_in_memory, some_reorder,
};

/// Length of the source memory of each host, in bytes, shared by its queue pairs.
pub(crate) const SOURCE: usize = 8 << 10;
/// Maximum length of a message in bytes.
const MAX_MESSAGE_BYTES: u64 = 3000;
/// Maximum length of a receive in bytes.
const MAX_RECEIVE_BYTES: usize = MAX_MESSAGE_BYTES as usize + 8;
/// Marks the identifiers of receives.
const RECEIVE: u64 = 1 << 62;

pub(crate) struct Runner {
    world: World,
    link: Link,
    /// The network alone may exhaust all retries.
    harsh: bool,
    /// A link is cut.
    is_cut: bool,
    sources: [Arc<Region>; 2],
    source_bytes: [Vec<u8>; 2],
    connections: Vec<[End; 2]>,
    /// Registered regions, each with its own addresses.
    regions: u64,
}

/// Returns the network of a seed: good, lossy, or lossy in bursts.
fn network(choice: &mut Choice, sees_ip_header: bool) -> (Conditions, bool) {
    let loss = [0.0, 0.001, 0.01, 0.05][choice.below(4) as usize];
    let conditions = lossy(loss);
    match choice.below(6) {
        0 => {
            let bursts = BurstLoss { begin: 0.01, length: 8.0, loss: 0.9 };
            (Conditions { bursts, ..conditions }, true)
        }
        1 => {
            // Without the header, one truncated packet in 65,536 passes the ICRC check.
            let truncate = if sees_ip_header { 0.02 } else { 0.0 };
            (Conditions { duplicate: 0.3, reorder: 0.3, truncate, ..conditions }, true)
        }
        2 => {
            let rate_bits_per_s = Some(10_000_000_000);
            let queue_bytes = Some(20_000);
            (Conditions { rate_bits_per_s, queue_bytes, ..conditions }, true)
        }
        _ => (conditions, loss > 0.02),
    }
}

impl Runner {
    pub(crate) fn new(seed: u64) -> Self {
        let mut choice = Choice::new(seed);
        let host = HostConfig {
            gro: choice.one_in(2),
            receive_buffer: if choice.one_in(3) { 212_992 } else { 4 << 20 },
            sees_ip_header: choice.one_in(3),
            ..HostConfig::default()
        };
        let (conditions, harsh) = network(&mut choice, host.sees_ip_header);
        let (conditions, omits_icrcs) = some_in_memory(seed, conditions);
        let host = HostConfig { omits_icrcs, ..host };
        let world = World::with(seed, 2, host, |config| {
            config.active_mtu = Mtu::Mtu1024;
            some_reorder(seed)(config);
        });
        world.network.set_conditions(conditions);
        let mtu = [Mtu::Mtu256, Mtu::Mtu512, Mtu::Mtu1024][choice.below(3) as usize];
        let rd_atomic = 1 + choice.below(5) as u8;
        let link = Link { mtu, rd_atomic, min_rnr_timer: 1, ..Link::default() };
        let source_bytes = [1, 2].map(|n| pattern(n, SOURCE));
        let sources = [0, 1].map(|host: usize| {
            let region = world.nodes[host].region(SOURCE, 1 << 32, full_access());
            region.write_at(0, &source_bytes[host]).unwrap();
            region
        });
        let mut runner = Self {
            world,
            link,
            harsh,
            is_cut: false,
            sources,
            source_bytes,
            connections: Vec::new(),
            regions: 2,
        };
        let kinds = [(QpType::Rc, 1 + choice.below(3)), (QpType::Uc, choice.below(3))];
        for (qp_type, count) in kinds.into_iter().chain([(QpType::Ud, choice.below(2))]) {
            (0..count).for_each(|_| runner.add(qp_type, &mut choice));
        }
        for connection in 0..runner.connections.len() {
            runner.connect(connection);
        }
        runner
    }

    fn add(&mut self, qp_type: QpType, choice: &mut Choice) {
        let ends = [0, 1].map(|host: usize| {
            let cq = |choice: &mut Choice| [SEND_CQ, RECV_CQ][choice.below(2) as usize];
            let number = self.regions + host as u64 * 3;
            let region = |n: u64, len| End::region(&self.world, host, number + n, len);
            let mut end = End {
                qp_type,
                host,
                qpn: Default::default(),
                cqs: [cq(choice), cq(choice)],
                life: 0,
                psn: choice.below(1 << 24) as u32,
                exists: false,
                target: region(0, TARGET_BYTES + 8 * COUNTERS),
                answers: region(1, RECEIVE_BYTES),
                inbox: region(2, RECEIVE_BYTES),
                before: Vec::new(),
                last: None,
                answers_used: 0,
                inbox_used: 0,
                sent: Vec::new(),
                receives: Vec::new(),
                owed: VecDeque::new(),
                send_ends: Vec::new(),
                recv_ends: Vec::new(),
                events: Vec::new(),
                disturbances: Disturbances::default(),
                may_time_out: false,
            };
            end.before = contents(&end.target);
            end
        });
        self.regions += 6;
        self.connections.push(ends);
    }

    fn link(&self, end: &End) -> Link {
        Link { qp_type: end.qp_type, ..self.link }
    }

    /// Takes both ends to RTS, for a new lifetime.
    fn connect(&mut self, connection: usize) {
        for host in 0..2 {
            let number = self.regions;
            self.regions += 3;
            let end = &mut self.connections[connection][host];
            end.begin(&self.world, number);
            end.may_time_out = self.harsh || self.is_cut;
            let link = Link { qp_type: end.qp_type, ..self.link };
            if end.exists {
                self.world.modify(host, end.qpn, QpAttr::to(QpState::Reset));
            } else {
                let [send_cq, recv_cq]: [Option<CqId>; 2] = end.cqs.map(Some);
                let init = QpInit { send_cq, recv_cq, ..qp_init(&link) };
                let now = self.world.now;
                end.qpn = self.world.nodes[host].engine.create_qp(now, init).unwrap();
                end.exists = true;
            }
        }
        let [a, b] = &self.connections[connection];
        let (link, qpns, psns) = (self.link(a), [a.qpn, b.qpn], [a.psn, b.psn]);
        for host in 0..2 {
            let other = 1 - host;
            let psn = [psns[host], psns[other]];
            self.world.connect(host, qpns[host], (other, qpns[other]), &link, psn);
        }
    }

    pub(crate) fn step(&mut self, step: Step) {
        let count = self.connections.len();
        match step {
            Step::Post { connection, host, draw } => self.post(connection % count, host, draw),
            Step::Run { us } => self.world.run(Duration::from_micros(us)),
            Step::Settle => self.world.settle(),
            Step::Receives => self.post_receives(),
            Step::Cut { from } => {
                let [from, to] = [from, 1 - from].map(|host| self.world.nodes[host].ip);
                self.world.network.cut(from, to);
                self.is_cut = true;
                self.all_may_time_out();
            }
            Step::Heal => {
                self.world.network.heal();
                self.is_cut = false;
            }
            Step::Stall { host, us } => {
                self.world.stall(host, Duration::from_micros(us));
                self.all_may_time_out();
            }
            Step::Disturbance { connection, host, harm } => {
                self.harm(connection % count, host, harm)
            }
            Step::Restart { host } => {
                (0..count).for_each(|connection| self.harm(connection, host, Disturbance::Destroy));
            }
            Step::Reconnect { connection } => self.reconnect(connection % count),
        }
        self.collect();
    }

    fn all_may_time_out(&mut self) {
        self.connections.iter_mut().flatten().for_each(|end| end.may_time_out = true);
    }

    /// Assigns completions and events to their ends.
    fn collect(&mut self) {
        for host in 0..2 {
            let node = &mut self.world.nodes[host];
            let completions: Vec<_> = node.sends.drain(..).chain(node.recvs.drain(..)).collect();
            let events: Vec<_> = node.events.drain(..).collect();
            completions.into_iter().for_each(|completion| self.ended(host, completion));
            for event in events {
                let (AsyncEvent::QpFatal(qpn)
                | AsyncEvent::QpReqErr(qpn)
                | AsyncEvent::QpAccessErr(qpn)) = event
                else {
                    panic!("unexpected {event:?} at host {host}")
                };
                self.end_of(host, qpn).events.push(event);
            }
        }
    }

    fn end_of(&mut self, host: usize, qpn: softroce::ids::Qpn) -> &mut End {
        let mut ends = self.connections.iter_mut().map(|ends| &mut ends[host]);
        ends.find(|end| end.qpn == qpn).unwrap()
    }

    fn ended(&mut self, host: usize, completion: Completion) {
        let end = self.end_of(host, completion.qpn);
        let life = (completion.wr_id & !RECEIVE) >> 20;
        assert_eq!(life, end.life, "{completion:?} is of another life");
        assert!(
            !end.disturbances.gone,
            "{completion:?} of a queue pair that was reset or destroyed"
        );
        let wr_id = completion.wr_id & 0xf_ffff;
        let ends = match completion.wr_id & RECEIVE {
            0 => &mut end.send_ends,
            _ => &mut end.recv_ends,
        };
        ends.push(Completion { wr_id, ..completion });
    }

    /// Posts a request and, sooner or later, the receive for it.
    fn post(&mut self, connection: usize, host: usize, draw: u64) {
        let [a, b] = &mut self.connections[connection];
        let (mine, theirs) = if host == 0 { (a, b) } else { (b, a) };
        // A peer without a receive makes its sender wait forever.
        if mine.disturbances.gone
            || mine.sent.len() == 100
            || theirs.inbox_used + MAX_RECEIVE_BYTES > RECEIVE_BYTES
        {
            return;
        }
        let mut choice = Choice::new(draw);
        let longest = [1, 100, MAX_MESSAGE_BYTES][choice.below(3) as usize];
        let len = choice.below(longest + 1) as usize;
        let len = if mine.qp_type == QpType::Ud { len % 257 } else { len };
        let from = choice.below((SOURCE - len) as u64) as usize;
        let bytes = self.source_bytes[host][from..from + len].to_vec();
        let source = &self.sources[host];
        let data = match len <= 64 && choice.one_in(2) {
            true => SendData::inline(&bytes),
            false => {
                let cut = choice.below(len as u64 + 1) as usize;
                let pieces = [sge(source, from, cut), sge(source, from + cut, len - cut)];
                SendData::Sges(pieces.into_iter().collect())
            }
        };
        let peers = (&*self.sources[1 - host], &self.source_bytes[1 - host][..]);
        let Some((op, data, effect)) = request(&mut choice, mine, theirs, (bytes, data), peers)
        else {
            return;
        };
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, !choice.one_in(3));
        flags.set(SendFlags::FENCE, mine.qp_type == QpType::Rc && choice.one_in(6));
        let byte_len = match &effect {
            Effect::Add { .. } | Effect::Swap { .. } => 8,
            _ => len as u32,
        };
        let told = effect.takes_receive();
        mine.sent.push(Sent {
            signaled: flags.contains(SendFlags::SIGNALED),
            opcode: op.wc_opcode(),
            byte_len,
            effect,
        });
        let wr_id = mine.life << 20 | (mine.sent.len() as u64 - 1);
        let av = AddressVector::to(Gid::from(self.world.nodes[1 - host].ip));
        let target = UdTarget { av, qpn: theirs.qpn, qkey: QKEY };
        let to = (mine.qp_type == QpType::Ud).then_some(target.into());
        let qpn = mine.qpn;
        self.world.post_send(host, qpn, SendRequest { wr_id, op, data, flags, to });
        if told {
            self.add_receive(connection, 1 - host, len, &mut choice);
        }
    }

    /// Adds an outstanding receive for a message of `len` bytes.
    fn add_receive(&mut self, connection: usize, host: usize, len: usize, choice: &mut Choice) {
        let end = &mut self.connections[connection][host];
        let head = if end.qp_type == QpType::Ud { check::GRH } else { 0 };
        // Over UC and UD another message may take it.
        let room = match end.qp_type {
            QpType::Rc => len + choice.below(9) as usize,
            QpType::Ud => head + 256,
            _ => MAX_MESSAGE_BYTES as usize,
        };
        if end.disturbances.gone {
            return;
        }
        let at = end.inbox_used;
        end.inbox_used += room;
        end.owed.push_back(end.receives.len());
        end.receives.push(Receive { at, room });
        if !choice.one_in(4) {
            self.post_receives_of(connection, host);
        }
    }

    fn post_receives(&mut self) {
        for connection in 0..self.connections.len() {
            (0..2).for_each(|host| self.post_receives_of(connection, host));
        }
    }

    fn post_receives_of(&mut self, connection: usize, host: usize) {
        let end = &mut self.connections[connection][host];
        let owed = std::mem::take(&mut end.owed);
        for number in owed {
            let Receive { at, room } = end.receives[number];
            let wr_id = RECEIVE | end.life << 20 | number as u64;
            let pieces: [Sge; 1] = [sge(&end.inbox, at, room)];
            let request = RecvRequest::scattered(wr_id, &pieces);
            let now = self.world.now;
            self.world.nodes[host].engine.post_recv(now, end.qpn, request).unwrap();
        }
    }

    /// Resumes a stopped host.
    fn wake(&mut self) {
        (0..2).for_each(|host| self.world.stall(host, Duration::ZERO));
        self.world.settle();
    }

    fn harm(&mut self, connection: usize, host: usize, harm: Disturbance) {
        // Reports all messages that have arrived, but not those in flight.
        self.wake();
        self.collect();
        let end = &mut self.connections[connection][host];
        if end.disturbances.gone {
            return;
        }
        let memory = self.world.nodes[host].memory.clone();
        match harm {
            Disturbance::Error => {
                end.disturbances.error = true;
                self.world.modify(host, end.qpn, QpAttr::to(QpState::Err));
            }
            Disturbance::Reset => {
                end.disturbances.gone = true;
                end.owed.clear();
                self.world.modify(host, end.qpn, QpAttr::to(QpState::Reset));
            }
            Disturbance::Destroy => {
                (end.disturbances.gone, end.exists) = (true, false);
                end.owed.clear();
                let now = self.world.now;
                self.world.nodes[host].engine.destroy_qp(now, end.qpn);
            }
            Disturbance::Target if !end.disturbances.target => {
                end.disturbances.target = true;
                end.last = Some(contents(&end.target));
                memory.deregister(&end.target);
            }
            Disturbance::Answers if !end.disturbances.answers => {
                end.disturbances.answers = true;
                memory.deregister(&end.answers);
            }
            Disturbance::Inbox if !end.disturbances.inbox => {
                end.disturbances.inbox = true;
                memory.deregister(&end.inbox);
            }
            Disturbance::Target | Disturbance::Answers | Disturbance::Inbox => {}
        }
        self.connections[connection].iter_mut().for_each(|end| end.may_time_out = true);
    }

    /// Checks a connection, and establishes it again.
    fn reconnect(&mut self, connection: usize) {
        self.wake();
        self.collect();
        check::connection(&self.connections[connection], self.link.mtu.bytes(), false);
        if self.connections[connection][0].qp_type != QpType::Rc {
            // A late packet of an unreliable connection looks like a new one.
            let ends = &self.connections[connection];
            for end in ends.iter().filter(|end| end.exists) {
                self.world.modify(end.host, end.qpn, QpAttr::to(QpState::Reset));
            }
            self.connections[connection].iter_mut().for_each(|end| end.disturbances.gone = true);
            self.world.run(Duration::from_millis(3));
            self.collect();
        }
        self.connect(connection);
    }

    /// Runs until all requests complete, checks everything, and returns statistics.
    pub(crate) fn finish(mut self) -> Statistics {
        self.world.network.heal();
        self.world.run(Duration::from_millis(5));
        self.post_receives();
        self.world.run(Duration::from_secs(300));
        self.collect();
        for ends in &self.connections {
            check::connection(ends, self.link.mtu.bytes(), true);
        }
        for (region, bytes) in self.sources.iter().zip(&self.source_bytes) {
            assert!(contents(region) == *bytes, "read-only memory");
        }
        let mut saw = Statistics::default();
        for node in &self.world.nodes {
            let counters = node.engine.counters();
            saw.retransmitted += counters.retransmitted;
            saw.timeouts += counters.timeouts;
            saw.not_ready += counters.rnr_naks_sent;
        }
        saw
    }
}

/// Statistics of a run.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Statistics {
    pub(crate) retransmitted: u64,
    pub(crate) timeouts: u64,
    pub(crate) not_ready: u64,
}

/// Returns a random operation of the transport, its data and its effect. `None` when there is no memory left.
fn request(
    choice: &mut Choice,
    mine: &mut End,
    theirs: &End,
    (bytes, data): (Vec<u8>, SendData),
    (source, source_bytes): (&Region, &[u8]),
) -> Option<(SendOp, SendData, Effect)> {
    let len = bytes.len();
    let number = mine.sent.len() as u32;
    // Over UC and UD immediate data identifies the message.
    let imm = match mine.qp_type {
        QpType::Rc => choice.one_in(2).then(|| choice.below(1 << 32) as u32),
        _ => Some(number | (mine.life as u32) << 20),
    };
    let kinds = match mine.qp_type {
        QpType::Rc => 7,
        QpType::Uc => 3,
        _ => 1,
    };
    let at = choice.below((TARGET_BYTES - len.min(TARGET_BYTES)) as u64 + 1) as usize;
    let mut claim = |len: usize| {
        let at = mine.answers_used.next_multiple_of(8);
        (at + len <= RECEIVE_BYTES).then(|| {
            mine.answers_used = at + len;
            at
        })
    };
    let counter = choice.below(COUNTERS as u64) as usize;
    let word = remote(&theirs.target, TARGET_BYTES + 8 * counter);
    Some(match choice.below(kinds) {
        0 => {
            let op = imm.map_or(SendOp::Send, |imm| SendOp::SendImm { imm });
            (op, data, Effect::Send { bytes, imm })
        }
        1 => {
            let to = remote(&theirs.target, at);
            (SendOp::Write { to }, data, Effect::Write { at, bytes, imm: None })
        }
        2 => {
            let to = remote(&theirs.target, at);
            let imm = imm.unwrap_or(7);
            let op = SendOp::WriteImm { to, imm };
            (op, data, Effect::Write { at, bytes, imm: Some(imm) })
        }
        3 | 4 => {
            let into = claim(len)?;
            let from = choice.below((SOURCE - len) as u64) as usize;
            let bytes = source_bytes[from..from + len].to_vec();
            let data = SendData::from(sge(&mine.answers, into, len));
            (SendOp::Read { from: remote(source, from) }, data, Effect::Read { into, bytes })
        }
        5 => {
            let (into, add) = (claim(8)?, choice.below(1 << 60));
            let data = SendData::from(sge(&mine.answers, into, 8));
            (SendOp::FetchAdd { at: word, add }, data, Effect::Add { counter, add, into })
        }
        _ => {
            let into = claim(8)?;
            let (expect, swap) = (choice.below(2), choice.below(3));
            let data = SendData::from(sge(&mine.answers, into, 8));
            let op = SendOp::CompareSwap { at: word, expect, swap };
            (op, data, Effect::Swap { counter, expect, swap, into })
        }
    })
}
