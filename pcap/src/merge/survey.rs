//! A sample of the packets of a capture.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::fingerprint::Fingerprint;
use crate::dissect::dissect;
use crate::file::Packet;

/// Packets that are sampled to compare times.
const MAX_SAMPLED: usize = 1 << 15;
/// Packets that are sampled to find address translation.
const MAX_SAMPLED_CONTENTS: usize = 1 << 12;

/// A sample of the packets of a capture: those with the smallest hashes, so that another capture of the same packets
/// samples the same ones.
#[derive(Debug, Default)]
pub struct Survey {
    pub(super) sample: BTreeMap<u64, Sampled>,
    /// Addresses of packets by their content; `None` for a content that several packets have.
    pub(super) contents: BTreeMap<u64, Option<(IpAddr, IpAddr)>>,
    /// Times of the first and the last frame, in nanoseconds since the Unix epoch.
    pub(super) span: Option<(i64, i64)>,
    frames: u64,
    roce_packets: u64,
}

/// A sampled packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampled {
    /// Time of the first copy in nanoseconds since the Unix epoch.
    pub(super) time: i64,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// Several packets have the hash.
    pub(super) is_ambiguous: bool,
}

impl Survey {
    /// Adds a frame.
    pub fn packet(&mut self, packet: &Packet<'_>) {
        self.frames += 1;
        let Some(time) = packet.time.and_then(nanoseconds) else { return };
        let (first, last) = self.span.unwrap_or((time, time));
        self.span = Some((first.min(time), last.max(time)));
        let Ok(ip) = packet.ip else { return };
        let Ok(Some(whole)) = dissect(ip) else { return };
        for roce in whole.segments() {
            self.roce_packets += 1;
            if let Some(fingerprint) = Fingerprint::of(&roce) {
                self.add(time, fingerprint);
            }
        }
    }

    /// Returns the number of frames, and of RoCEv2 packets among them.
    pub const fn counts(&self) -> (u64, u64) {
        (self.frames, self.roce_packets)
    }

    fn add(&mut self, time: i64, fingerprint: Fingerprint) {
        let Fingerprint { path, content, source, destination } = fingerprint;
        if has_room(&self.sample, path, MAX_SAMPLED) {
            let sampled = Sampled { time, source, destination, is_ambiguous: false };
            self.sample
                .entry(path)
                .and_modify(|known| known.is_ambiguous = true)
                .or_insert(sampled);
            if self.sample.len() > MAX_SAMPLED {
                self.sample.pop_last();
            }
        }
        if has_room(&self.contents, content, MAX_SAMPLED_CONTENTS) {
            self.contents
                .entry(content)
                .and_modify(|known| *known = None)
                .or_insert(Some((source, destination)));
            if self.contents.len() > MAX_SAMPLED_CONTENTS {
                self.contents.pop_last();
            }
        }
    }
}

/// Returns whether a hash belongs to the sample so far.
fn has_room<T>(sample: &BTreeMap<u64, T>, hash: u64, limit: usize) -> bool {
    sample.len() < limit || sample.last_key_value().is_some_and(|(last, _)| hash <= *last)
}

/// Returns a time in nanoseconds; `None` after the year 2262.
pub(super) fn nanoseconds(time: Duration) -> Option<i64> {
    i64::try_from(time.as_nanos()).ok()
}
