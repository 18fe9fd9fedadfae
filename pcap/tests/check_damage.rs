//! Captures with lost, repeated, exchanged or truncated packets, or a late start: the checker accuses no host.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clean;

use std::collections::BTreeMap;
use std::time::Duration;

use clean::{Captured, captures, check};
use softroce_pcap::check::Severity;

/// Number of damaged copies of each capture.
const SEEDS: u64 = 500;
/// Largest distance between two packets that are exchanged, or a packet and its copy.
const MAX_DISTANCE_PACKETS: usize = 8;
/// Largest number of packets in a row that are missing.
const MAX_RUN_PACKETS: usize = 12;
/// Longest time that a network delays a packet. Rules about time apply to longer delays.
const MAX_DELAY: Duration = Duration::from_millis(1);

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(limit).unwrap()).unwrap()
    }
}

fn delay(first: &Captured, second: &Captured) -> Duration {
    second.time.unwrap().saturating_sub(first.time.unwrap())
}

/// Damages a capture in one or two places. Packets move; the times of their places stay.
fn damage(packets: &mut Vec<Captured>, seed: u64) -> String {
    let mut random = Random(seed);
    let mut done = Vec::new();
    for _ in 0..=random.below(2) {
        let at = random.below(packets.len());
        let mut other = (at + 1 + random.below(MAX_DISTANCE_PACKETS)).min(packets.len() - 1);
        while delay(&packets[at], &packets[other]) > MAX_DELAY {
            other -= 1;
        }
        match random.below(6) {
            0 if packets.len() > 1 => {
                done.push(format!("drop {}", at + 1));
                packets.remove(at);
            }
            1 => {
                done.push(format!("repeat {} before {}", at + 1, other + 1));
                let copy = Captured { time: packets[other].time, ..packets[at].clone() };
                packets.insert(other, copy);
            }
            2 => {
                done.push(format!("exchange {} and {}", at + 1, other + 1));
                let times = [packets[at].time, packets[other].time];
                packets.swap(at, other);
                (packets[at].time, packets[other].time) = (times[0], times[1]);
            }
            3 if packets.len() > 1 => {
                let count = (1 + random.below(MAX_RUN_PACKETS)).min(packets.len() - 1);
                let at = at.min(packets.len() - count);
                done.push(format!("drop {} to {}", at + 1, at + count));
                packets.drain(at..at + count);
            }
            4 if packets.len() > 1 => {
                let count = at.min(packets.len() - 1);
                done.push(format!("begin behind {count}"));
                packets.drain(..count);
            }
            _ => {
                let len = random.below(packets[at].bytes.len() + 1);
                done.push(format!("cut {} to {len} bytes", at + 1));
                packets[at].bytes.truncate(len);
            }
        }
    }
    done.join(", ")
}

#[test]
fn damaged_captures_accuse_no_host() {
    let mut accused = BTreeMap::<_, Vec<String>>::new();
    for (name, packets) in captures() {
        for seed in 0..SEEDS {
            let mut packets = packets.clone();
            let done = damage(&mut packets, seed);
            for finding in check(&packets).into_iter().flatten() {
                if finding.severity == Severity::Violation {
                    let rule = finding.rule;
                    let of = accused.entry(rule).or_default();
                    of.push(format!("{name} seed {seed}: {done}: {finding:?}"));
                }
            }
        }
    }
    let total: usize = accused.values().map(Vec::len).sum();
    let mut text = String::new();
    for (rule, of) in &accused {
        text += &format!("{rule}: {} violations, the first:\n", of.len());
        for line in of.iter().take(6) {
            text += &format!("  {line}\n");
        }
    }
    assert_eq!(total, 0, "\n{text}");
}
