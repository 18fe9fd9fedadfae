//! The directions that the tracker remembers.

use std::collections::HashMap;
use std::net::IpAddr;

use softroce::ids::PKey;

use super::requests::Requests;
use super::{Direction, Joined, SeenPacket};

/// State of one direction.
#[derive(Debug)]
pub(super) struct HalfConnection {
    pub(super) requests: Requests,
    pub(super) other: Option<(Direction, Joined)>,
    /// Another direction has taken its place, and nothing was asked since.
    pub(super) is_over: bool,
    /// The sender's, as this connection began.
    pub(super) source_port: u16,
    pub(super) last_seen: u64,
    /// The partition of the packets.
    pub(super) pkey: Option<PKey>,
    /// Answers that could not be assigned; the search is repeated ever more rarely.
    pub(super) unassigned: u32,
}

/// State of each direction, and the pairs of directions that are one connection.
#[derive(Debug)]
pub(super) struct Directions {
    pub(super) halves: HashMap<Direction, HalfConnection>,
    /// The directions from one address to another.
    pub(super) between: HashMap<(IpAddr, IpAddr), Vec<Direction>>,
    /// Request packets of one direction that are remembered.
    pub(super) window: usize,
    /// Request packets of all directions that are remembered now.
    pub(super) packets: usize,
    /// Directions forgotten so far because of the limits.
    pub(super) forgotten: u64,
}

impl Directions {
    pub(super) fn new(window: usize) -> Self {
        let (halves, between) = (HashMap::new(), HashMap::new());
        Self { halves, between, window, packets: 0, forgotten: 0 }
    }

    /// Returns the state of a direction, new if need be, and marks it as seen.
    pub(super) fn touch(
        &mut self,
        direction: Direction,
        seen: &SeenPacket<'_>,
    ) -> &mut HalfConnection {
        let Self { halves, between, window, .. } = self;
        let half = halves.entry(direction).or_insert_with(|| {
            let pair = (direction.source, direction.destination);
            between.entry(pair).or_default().push(direction);
            HalfConnection {
                requests: Requests::new(*window),
                other: None,
                is_over: false,
                source_port: seen.source_port,
                last_seen: seen.number,
                pkey: None,
                unassigned: 0,
            }
        });
        half.last_seen = seen.number;
        half
    }

    /// Forgets one half of the directions: those without packets for the longest time.
    pub(super) fn forget_oldest(&mut self) {
        let mut ages: Vec<_> = self.halves.values().map(|half| half.last_seen).collect();
        ages.sort_unstable();
        let Some(&middle) = ages.get(ages.len() / 2) else { return };
        let before = self.halves.len();
        self.halves.retain(|_, half| half.last_seen > middle);
        self.forgotten += u64::try_from(before - self.halves.len()).unwrap_or_default();
        self.packets = self.halves.values().map(|half| half.requests.records.len()).sum();
        let halves = &self.halves;
        self.between.retain(|_, list| {
            list.retain(|direction| halves.contains_key(direction));
            !list.is_empty()
        });
        let alone =
            |half: &HalfConnection| half.other.is_some_and(|(o, _)| !halves.contains_key(&o));
        let alone = halves.iter().filter(|(_, half)| alone(half)).map(|(key, _)| *key);
        for direction in alone.collect::<Vec<_>>() {
            if let Some(half) = self.halves.get_mut(&direction) {
                half.other = None;
            }
        }
    }
}
