//! Merged packets and single packets lead to the same state, completions and responses.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::ops::Range;

use crate::support::choice::Choice;
use crate::support::script::{Script, Sent, bytes, rts_qp_of};
use softroce::engine::QpType;

/// Payload bytes of a full packet.
const MTU: u32 = 256;
const MESSAGES: usize = 25;
const ROUNDS: usize = 25;
const AREA: usize = 64 << 10;

/// Returns the packets of one message from `psn` on, and the next PSN.
fn message(choice: &mut Choice, qp_type: QpType, psn: u32) -> (Vec<String>, u32) {
    let is_rc = qp_type == QpType::Rc;
    let asks = if is_rc && choice.one_in(2) { " ackreq" } else { "" };
    let va = 0x1000 + choice.below(0x8000);
    let kind = choice.below(8);
    let mut lines = Vec::new();
    match kind {
        0 | 1 => lines.push(format!("SEND_ONLY psn={psn}{asks} len=8")),
        2 | 3 => {
            lines.push(format!("WRITE_ONLY psn={psn}{asks} va={va:#x} rkey=mem dmalen=8 len=8"));
        }
        4 if is_rc => {
            let line = format!("READ_REQUEST psn={psn} ackreq va={va:#x} rkey=mem dmalen=600");
            return (vec![line], psn + 3);
        }
        _ => {
            let (middles, rest) = (choice.below(8) as u32, 1 + choice.below(256) as u32);
            let (name, reth) = match kind % 2 {
                0 => ("SEND", String::new()),
                _ => {
                    let all = (middles + 1) * MTU + rest;
                    ("WRITE", format!(" va={va:#x} rkey=mem dmalen={all}"))
                }
            };
            lines.push(format!("{name}_FIRST psn={psn}{reth} len=256"));
            for at in 1..=middles {
                lines.push(format!("{name}_MIDDLE psn={} len=256", psn + at));
            }
            lines.push(format!("{name}_LAST psn={}{asks} len={rest}", psn + middles + 1));
        }
    }
    let next = psn + lines.len() as u32;
    (lines, next)
}

/// Returns the packets of a response to a READ with this number of packets.
fn answer(psn: u32, packets: u32) -> Vec<String> {
    let line = |at: u32| match at {
        0 => format!("READ_RESPONSE_FIRST psn={psn} msn=1 len=256"),
        _ if at + 1 == packets => format!("READ_RESPONSE_LAST psn={} msn=1 len=256", psn + at),
        _ => format!("READ_RESPONSE_MIDDLE psn={} len=256", psn + at),
    };
    (0..packets).map(line).collect()
}

/// Returns packets as a network may deliver them: with loss, duplicates and reordering.
fn deliver(choice: &mut Choice, packets: &[String], harm: f64) -> Vec<String> {
    let mut arriving = Vec::new();
    for packet in packets {
        if !choice.happens(harm) {
            arriving.push(packet.clone());
        }
        if choice.happens(harm) {
            arriving.push(packet.clone());
        }
    }
    for at in 1..arriving.len() {
        if choice.happens(harm) {
            arriving.swap(at - 1, at);
        }
    }
    arriving
}

/// Two engines: one receives buffers, the other their packets one by one.
struct EnginePair {
    merged: Script,
    single: Script,
    us: u64,
    /// Number of buffers with several packets.
    buffers: usize,
}

impl EnginePair {
    fn new(qp_type: QpType) -> Self {
        let [merged, single] = [(); 2].map(|()| Script::requester(rts_qp_of(qp_type)));
        Self { merged, single, us: 0, buffers: 0 }
    }

    fn each(&mut self, mut act: impl FnMut(&mut Script)) {
        act(&mut self.merged);
        act(&mut self.single);
    }

    fn receive(&mut self, packets: &[String]) {
        let lens: Vec<_> = packets.iter().map(|line| self.merged.packet(line).len()).collect();
        let mut at = 0;
        while at < packets.len() {
            let buffer = whole_buffer(&lens, at);
            let lines: Vec<_> = packets[buffer.clone()].iter().map(String::as_str).collect();
            self.merged.rx_merged(self.us, &lines);
            lines.iter().for_each(|line| self.single.rx(self.us, line));
            self.buffers += usize::from(buffer.len() > 1);
            at = buffer.end;
        }
    }

    fn compare(&mut self, what: &str) {
        let us = self.us;
        let lines = |sent: Vec<Sent>| sent.iter().map(Sent::line).collect::<Vec<_>>();
        let [merged, single] = [&mut self.merged, &mut self.single];
        assert_eq!(lines(merged.all(us)), lines(single.all(us)), "{what}: packets");
        assert_eq!(merged.sends(), single.sends(), "{what}: sends");
        assert_eq!(merged.recvs(), single.recvs(), "{what}: receives");
        assert_eq!(merged.events(), single.events(), "{what}: events");
        assert_eq!(merged.state(), single.state(), "{what}: state");
        assert_eq!(merged.engine.counters(), single.engine.counters(), "{what}: counters");
        let memory = |t: &Script| (bytes(&t.mem, 0, AREA), t.answer(AREA));
        assert!(memory(merged) == memory(single), "{what}: memory");
    }
}

/// Returns the packets of one length from `at` on, of which the last may be shorter.
fn whole_buffer(lens: &[usize], at: usize) -> Range<usize> {
    let more = lens[at..].iter().take_while(|len| **len == lens[at]).count();
    let shorter = lens.get(at + more).is_some_and(|len| *len < lens[at]);
    at..at + more + usize::from(shorter)
}

fn requests(seed: u64, qp_type: QpType) -> usize {
    let mut choice = Choice::new(seed);
    let mut both = EnginePair::new(qp_type);
    let mut packets = Vec::new();
    let mut psn = 5;
    for _ in 0..MESSAGES {
        let (lines, next) = message(&mut choice, qp_type, psn);
        packets.extend(lines);
        psn = next;
    }
    let harm = [0.0, 0.02, 0.1][choice.below(3) as usize];
    let mut at = 0;
    for round in 0..ROUNDS {
        for _ in 0..choice.below(3) {
            both.each(|t| {
                t.post_recv(8 << 10);
            });
        }
        let end = packets.len().min(at + 1 + choice.below(16) as usize);
        let arriving = deliver(&mut choice, &packets[at..end], harm);
        both.receive(&arriving);
        both.us += choice.below(3);
        both.compare(&format!("{qp_type}, seed {seed:#x}, round {round}"));
        at = end.saturating_sub(choice.below(6) as usize);
    }
    both.receive(&packets);
    both.compare(&format!("{qp_type}, seed {seed:#x}, all again"));
    both.buffers
}

fn answers(seed: u64) -> usize {
    let mut choice = Choice::new(seed);
    let mut both = EnginePair::new(QpType::Rc);
    let mut psn = 5;
    for wr_id in 0..10 {
        let packets = 2 + choice.below(20) as u32;
        both.each(|t| t.read(wr_id, (packets * MTU) as usize));
        both.compare(&format!("seed {seed:#x}, READ {wr_id}"));
        let harm = [0.0, 0.1][choice.below(2) as usize];
        let lines = answer(psn, packets);
        let arriving = deliver(&mut choice, &lines, harm);
        both.receive(&arriving);
        both.us += choice.below(2000);
        both.compare(&format!("seed {seed:#x}, answer {wr_id}"));
        both.receive(&lines);
        both.compare(&format!("seed {seed:#x}, answer {wr_id} again"));
        psn += packets;
    }
    both.buffers
}

#[test]
fn merged_rc_requests_have_the_effect_of_single_ones() {
    let buffers: usize = (0..200).map(|seed| requests(seed, QpType::Rc)).sum();
    assert!(buffers > 2000, "{buffers}");
}

#[test]
fn merged_uc_messages_have_the_effect_of_single_ones() {
    let buffers: usize = (0..200).map(|seed| requests(seed, QpType::Uc)).sum();
    assert!(buffers > 2000, "{buffers}");
}

#[test]
fn merged_responses_have_the_effect_of_single_ones() {
    let buffers: usize = (0..200).map(answers).sum();
    assert!(buffers > 2000, "{buffers}");
}
