//! Random requests to a responder with duplicates of earlier ones, while their memory is deregistered, reregistered,
//! or has its access rights changed.
//!
//! A duplicate changes neither memory nor receive requests, and never fails the queue pair. Each request has one
//! response, although a repeated READ may return other data.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::choice::Choice;
use crate::support::full_access;
use crate::support::script::{Script, bytes, rts_qp};
use softroce::engine::QpState;
use softroce::mem::{Access, Region, Reregister};
use softroce::transport::work::WcStatus;

const STEPS: usize = 60;

/// Bytes of each region.
const AREA: usize = 1024;

struct Model {
    t: Script,
    choice: Choice,
    /// Additional fields of XRC requests.
    srqn: &'static str,
    /// The PSN of the next request.
    psn: u32,
    /// All request packets so far.
    past: Vec<Vec<u8>>,
    /// Regions with full access rights, and others with reduced ones.
    open: Vec<Arc<Region>>,
    narrowed: Vec<Arc<Region>>,
    registered: u64,
    /// Responses to READs, atomics and similar requests, by PSN.
    answers: BTreeMap<u32, String>,
    /// The message has further packets.
    is_within: bool,
    /// Numbers of posted and of completed receive requests.
    receives: u64,
    completed: u64,
    /// Number of duplicates of requests for changed memory.
    late: usize,
}

impl Model {
    fn new(seed: u64, t: Script, srqn: &'static str) -> Self {
        let mut model = Self {
            t,
            choice: Choice::new(seed),
            srqn,
            psn: 5,
            past: Vec::new(),
            open: Vec::new(),
            narrowed: Vec::new(),
            registered: 0,
            answers: BTreeMap::new(),
            is_within: false,
            receives: 0,
            completed: 0,
            late: 0,
        };
        model.register();
        model
    }

    fn register(&mut self) {
        self.registered += 1;
        self.open.push(self.t.region(AREA, self.registered << 24, full_access()));
    }

    /// Changes a registration.
    fn change(&mut self) {
        if self.open.len() < 2 {
            return self.register();
        }
        let at = self.choice.below(self.open.len() as u64) as usize;
        match self.choice.below(4) {
            0 => self.register(),
            1 => self.t.memory.deregister(&self.open.swap_remove(at)),
            2 => {
                let change = Reregister { access: Some(Access::LOCAL_WRITE), ..Default::default() };
                let old = self.open.swap_remove(at);
                self.narrowed.push(self.t.memory.reregister(&old, change).unwrap());
            }
            _ => {
                let Some(old) = self.narrowed.pop() else { return };
                let change = Reregister { access: Some(full_access()), ..Default::default() };
                self.open.push(self.t.memory.reregister(&old, change).unwrap());
            }
        }
    }

    /// Delivers the next request packet, and then duplicates.
    fn request(&mut self, opcode: &str, ack: bool, rest: &str) {
        let ack = if ack { " ackreq" } else { "" };
        let line = format!("{opcode} psn={}{ack}{} {rest}", self.psn, self.srqn);
        self.psn += 1;
        let packet = self.t.packet(line.trim_end());
        self.t.rx_bytes(0, &packet);
        self.past.push(packet);
        for end in self.t.recvs() {
            self.completed += 1;
            assert_eq!((end.wr_id, end.status), (self.completed, WcStatus::Success), "{line}");
        }
        self.check(&line);
        while self.choice.one_in(2) {
            self.copy();
        }
    }

    /// Delivers a duplicate of a request.
    fn copy(&mut self) {
        let back = self.choice.below(self.past.len() as u64).min(self.choice.below(40)) as usize;
        let packet = self.past[self.past.len() - 1 - back].clone();
        let before = self.contents();
        self.t.rx_bytes(0, &packet);
        assert_eq!(self.t.recvs(), [], "a copy takes a receive request");
        assert!(self.contents() == before, "a copy changes memory");
        // Before the response leaves.
        if !self.is_within && self.choice.one_in(4) {
            self.change();
        }
        self.check(&format!("a copy from {back} packets ago"));
        self.late += usize::from(self.open.len() < self.registered as usize);
    }

    fn contents(&self) -> Vec<Vec<u8>> {
        let all = self.open.iter().chain(&self.narrowed);
        all.map(|region| bytes(region, 0, AREA)).collect()
    }

    /// Checks that no request is refused, and that each response equals the first one.
    fn check(&mut self, what: &str) {
        for sent in self.t.all(0) {
            let line = sent.line();
            assert!(!line.starts_with("NAK") && !line.starts_with("RNR"), "{what}: {line}");
            if !line.starts_with("ACK") {
                let psn = softroce::wire::Datagram::parse(&sent.bytes).unwrap().bth.psn.value();
                let first = self.answers.entry(psn).or_insert_with(|| line.clone());
                assert_eq!(*first, line, "{what}");
            }
        }
        assert_eq!((self.t.state(), self.t.events()), (QpState::Rts, vec![]), "{what}");
    }

    fn message(&mut self) {
        let region = self.open[self.choice.below(self.open.len() as u64) as usize].clone();
        let va = region.addr() + 8 * self.choice.below(32);
        let at = format!("va={va:#x} rkey={}", region.rkey());
        let len = 1 + self.choice.below(700) as usize;
        let value = self.choice.below(1000);
        // XRC has neither FLUSH nor ATOMIC WRITE.
        let kinds = if self.srqn.is_empty() { 8 } else { 6 };
        match self.choice.below(kinds) {
            0 => {
                self.receives += 1;
                assert_eq!(self.t.post_recv(1024), self.receives);
                self.packets("SEND", len, "", "");
            }
            1 => self.packets("WRITE", len, &format!("{at} dmalen={len}"), ""),
            2 => {
                self.receives += 1;
                assert_eq!(self.t.post_recv(0), self.receives);
                self.packets("WRITE", len, &format!("{at} dmalen={len}"), "imm=0x00000001");
            }
            3 => self.request("FETCH_ADD", true, &format!("{at} add={value:#x}")),
            4 => self.request("COMPARE_SWAP", true, &format!("{at} expect=0x0 swap={value:#x}")),
            5 => {
                self.request("READ_REQUEST", true, &format!("{at} dmalen={len}"));
                self.psn += len.div_ceil(256) as u32 - 1;
            }
            6 => {
                let flush = format!("placement=0x1 selectivity=0 {at} dmalen=8");
                self.request("FLUSH", true, &flush);
            }
            _ => self.request("ATOMIC_WRITE", true, &format!("{at} dmalen=8 len=8")),
        }
    }

    /// Sends a SEND or WRITE, with `first` in its first packet and `last` in its last.
    fn packets(&mut self, name: &str, len: usize, first: &str, last: &str) {
        let count = len.div_ceil(256);
        let imm = if last.is_empty() { "" } else { "_IMM" };
        for index in 0..count {
            let (is_first, is_last) = (index == 0, index + 1 == count);
            let piece = (len - 256 * index).min(256);
            let position = match (is_first, is_last) {
                (true, true) => "ONLY",
                (true, false) => "FIRST",
                (false, true) => "LAST",
                (false, false) => "MIDDLE",
            };
            let opcode = format!("{name}_{position}{}", if is_last { imm } else { "" });
            let (first, last) =
                (if is_first { first } else { "" }, if is_last { last } else { "" });
            let rest = [first, last, &format!("len={piece}")];
            let rest: Vec<_> = rest.into_iter().filter(|part| !part.is_empty()).collect();
            let asks = is_last || self.choice.one_in(3);
            self.is_within = !is_last;
            self.request(&opcode, asks, &rest.join(" "));
        }
    }

    fn run(mut self) -> usize {
        for _ in 0..STEPS {
            if self.choice.one_in(3) {
                self.change();
            }
            self.message();
        }
        assert_eq!(self.completed, self.receives, "completions");
        self.late
    }
}

fn run(make: fn() -> Script, srqn: &'static str) {
    let mut late = 0;
    for seed in 0..200 {
        let model = || Model::new(seed, make(), srqn).run();
        let Ok(copies) = std::panic::catch_unwind(model) else { panic!("seed {seed:#x}") };
        late += copies;
    }
    assert!(late > 1000, "{late} copies came after their memory had changed");
}

/// RSP-04, RSP-07, RSP-08, RSP-10
#[test]
fn duplicate_requests_never_fail_an_rc_queue_pair() {
    run(|| Script::responder(rts_qp()), "");
}

/// RSP-04, RSP-07, RSP-08
#[test]
fn duplicate_requests_never_fail_an_xrc_target() {
    run(Script::xrc_target, " srqn=ours");
}
