//! The queue pairs of an engine, by number.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

use chacha20::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

use crate::engine::create::CreateError;
use crate::engine::flow_cache::FlowCache;
use crate::engine::qp::QueuePair;
use crate::engine::remote::Arrival;
use crate::ids::{CqId, Qpn};
use crate::net::RxMeta;
use crate::sys::prefetch;
use crate::time::Instant;
use crate::transport::context::Context;
use crate::transport::outputs::DropReason;
use crate::wire::icrc::Verdict;
use crate::wire::{Datagram, ParseError};

/// Time for which a number is not reused: packets of the old connection may still arrive, and its
/// peer may still send.
const TIMEWAIT: Duration = Duration::from_secs(10);

/// Maximum number of numbers in use or reserved. A quarter of a shard's numbers remain free, so a
/// random one is likely to be free.
const MOST_NUMBERS: usize = (1 << (24 - Qpn::SHARD_BITS)) / 4 * 3;

/// Queue pairs in slots, and the slot of each number.
#[derive(Debug)]
pub(crate) struct QpTable {
    slots: Vec<Option<Box<QueuePair>>>,
    vacant: Vec<usize>,
    by_number: HashMap<Qpn, usize, BuildHasherDefault<QpnHasher>>,
    /// Numbers of destroyed queue pairs, oldest first, with the time at which they become free.
    retired: VecDeque<(Instant, Qpn)>,
    /// The same numbers, as a set.
    resting: HashSet<Qpn, BuildHasherDefault<QpnHasher>>,
    /// The queue pair of the previous packet or request.
    recent: Option<(Qpn, usize)>,
    max: usize,
    shard: u32,
    random: ChaCha12Rng,
}

impl QpTable {
    pub(crate) fn new(max: usize, shard: u8, seed: [u8; 32]) -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
            by_number: HashMap::default(),
            retired: VecDeque::new(),
            resting: HashSet::default(),
            recent: None,
            max,
            shard: u32::from(shard & (Qpn::SHARDS - 1)),
            random: ChaCha12Rng::from_seed(seed),
        }
    }

    /// Returns a number that no queue pair has or had recently. Its upper bits are random, so that
    /// an attacker must guess them.
    pub(crate) fn free_number(&mut self, now: Instant) -> Result<Qpn, CreateError> {
        while let Some((free_at, qpn)) = self.retired.front().copied()
            && free_at <= now
        {
            self.retired.pop_front();
            self.resting.remove(&qpn);
        }
        let (live, max) = (self.by_number.len(), self.max);
        if live >= max {
            return Err(CreateError::TooMany { max });
        }
        if live + self.resting.len() >= MOST_NUMBERS {
            return Err(CreateError::NumbersRest { resting: self.resting.len() });
        }
        loop {
            let upper = self.random.next_u32() << Qpn::SHARD_BITS;
            let qpn = Qpn::new(upper | self.shard);
            let reserved = qpn.value() <= Qpn::GSI.value() || qpn == Qpn::MULTICAST;
            let used = self.by_number.contains_key(&qpn) || self.resting.contains(&qpn);
            if !reserved && !used {
                return Ok(qpn);
            }
        }
    }

    /// Adds a queue pair and returns its slot.
    pub(crate) fn insert(&mut self, qp: QueuePair) -> usize {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.by_number.insert(qp.id.qpn, slot);
        self.slots[slot] = Some(Box::new(qp));
        slot
    }

    pub(crate) fn remove(&mut self, now: Instant, slot: usize) {
        if let Some(qp) = self.slots.get_mut(slot).and_then(Option::take) {
            self.by_number.remove(&qp.id.qpn);
            self.retired.push_back((now + TIMEWAIT, qp.id.qpn));
            self.resting.insert(qp.id.qpn);
            self.vacant.push(slot);
            self.recent = None;
        }
    }

    pub(crate) fn slot(&self, qpn: Qpn) -> Option<usize> {
        match self.recent {
            Some((recent, slot)) if recent == qpn => Some(slot),
            _ => self.by_number.get(&qpn).copied(),
        }
    }

    pub(crate) fn get(&self, slot: usize) -> Option<&QueuePair> {
        self.slots.get(slot)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut QueuePair> {
        self.slots.get_mut(slot)?.as_deref_mut()
    }

    /// Returns the slot of a queue pair, and whether the previous packet or request was for it too.
    /// If not, its memory is prefetched.
    #[inline]
    fn locate(&mut self, qpn: Qpn) -> Option<(usize, bool)> {
        match self.recent {
            Some((recent, slot)) if recent == qpn => Some((slot, true)),
            _ => {
                let slot = self.slot(qpn)?;
                self.recent = Some((qpn, slot));
                self.prefetch(slot);
                Some((slot, false))
            }
        }
    }

    /// Prefetches the memory of a queue pair.
    pub(crate) fn prefetch(&self, slot: usize) {
        if let Some(qp) = self.get(slot) {
            prefetch(qp);
        }
    }

    /// Returns a queue pair and its slot.
    #[inline]
    pub(crate) fn find_mut(&mut self, qpn: Qpn) -> Option<(usize, &mut QueuePair)> {
        let (slot, _) = self.locate(qpn)?;
        Some((slot, self.get_mut(slot)?))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut QueuePair> {
        self.slots.iter_mut().flatten().map(Box::as_mut)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &QueuePair)> {
        (0..).zip(&self.slots).filter_map(|(slot, qp)| Some((slot, qp.as_deref()?)))
    }

    /// Returns the queue pairs that complete at `cq`.
    pub(crate) fn completing_at(&self, cq: CqId) -> Vec<usize> {
        let uses = |qp: &QueuePair| [qp.id.send_cq, qp.id.recv_cq].contains(&Some(cq));
        (0..self.slots.len()).filter(|slot| self.get(*slot).is_some_and(uses)).collect()
    }

    /// Returns the slot of the queue pair that accepts a packet.
    ///
    /// The cheap checks come first, and the ICRC check precedes every change.
    #[inline]
    pub(crate) fn admit<'a>(
        &mut self,
        flows: &mut FlowCache,
        meta: &'a RxMeta,
        segment: u16,
        (packet, bytes): (&'a Datagram<'a>, &'a [u8]),
        cx: &mut Context<'_>,
    ) -> Result<(usize, Arrival<'a>), DropReason> {
        let qpn = packet.bth.dest_qp;
        let (slot, is_recent) = self.locate(qpn).ok_or(DropReason::UnknownQp)?;
        if !is_recent {
            cx.shared.tally.prefetch(slot);
        }
        cx.slot = Some(slot);
        let qp = self.get_mut(slot).ok_or(DropReason::UnknownQp)?;
        qp.admits(packet, meta)?;
        let verdict = qp.check(flows, meta, segment, bytes);
        if verdict == Verdict::Bad {
            return Err(DropReason::BadIcrc);
        }
        let id = identification(verdict, meta, segment, cx);
        let is_predicted = verdict == Verdict::Good;
        Ok((slot, Arrival { packet, bytes, meta, id, is_predicted, addressed: Ok(()) }))
    }
}

/// Returns the drop reason of a datagram that cannot be parsed.
pub(crate) fn drop_reason(error: &ParseError) -> DropReason {
    match error {
        ParseError::TransportVersion { .. } => DropReason::TransportVersion,
        ParseError::UnassignedOpcode { .. } => DropReason::UnassignedOpcode,
        _ => DropReason::Malformed,
    }
}

/// Returns the IPv4 identification of a packet with a good ICRC: recovered from the ICRC, as
/// reported by the socket, or as predicted.
pub(crate) fn identification(
    verdict: Verdict,
    meta: &RxMeta,
    segment: u16,
    cx: &mut Context<'_>,
) -> u16 {
    match verdict {
        Verdict::Recovered { id } => {
            cx.counters().recovered_ids += 1;
            id
        }
        _ => meta.ipv4.map_or(0, |seen| seen.id).wrapping_add(segment),
    }
}

/// Hasher for queue pair numbers. They are random, so mixing their bits is sufficient.
#[derive(Default)]
pub(crate) struct QpnHasher(u64);

impl Hasher for QpnHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.0 = (self.0 ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
