//! Which directions are one connection.

use softroce::net;
use softroce::wire::Transport;

use super::directions::{Directions, HalfConnection};
use super::requests::Requests;
use super::{Direction, Event, Joined, ResponseEvent, SeenPacket};

/// Directions that are looked at to find the one that an answer belongs to.
const MAX_CANDIDATES: usize = 256;
/// Directions between two hosts among which each answer is looked for.
const MAX_CHEAP_CANDIDATES: usize = 8;

impl Directions {
    /// Returns the direction of the requests that a packet in `direction` answers.
    pub(super) fn assign(
        &mut self,
        direction: Direction,
        seen: &SeenPacket<'_>,
        out: &mut Vec<Event>,
    ) -> Option<Direction> {
        let half = self.halves.get(&direction)?;
        let found = match half.other {
            Some((other, _)) => {
                let Some(found) = self.successor(direction, half, other, seen) else {
                    return Some(other);
                };
                out.push(ResponseEvent::OtherConnection { before: other.qp }.into());
                self.begin_anew(direction);
                if let Some(over) = self.halves.get_mut(&other) {
                    over.is_over = true;
                }
                Some(found)
            }
            None if self.is_worth_search(direction, half.unassigned) => {
                let found = self.search(direction, seen, |_| true);
                if found.is_none() && self.is_unasked(direction, seen) {
                    out.push(ResponseEvent::Unasked.into());
                }
                found
            }
            None => None,
        };
        let Some((other, joined)) = found else {
            let half = self.halves.get_mut(&direction)?;
            half.unassigned = half.unassigned.saturating_add(1);
            return None;
        };
        self.join(direction, other, joined);
        Some(other)
    }

    /// Two directions are one connection, and of no other any more.
    pub(super) fn join(&mut self, a: Direction, b: Direction, joined: Joined) {
        for (one, other) in [(a, b), (b, a)] {
            self.part(one);
            if let Some(half) = self.halves.get_mut(&one) {
                half.other = Some((other, joined));
            }
        }
    }

    /// A direction is of no connection any more, as far as is known.
    pub(super) fn part(&mut self, direction: Direction) {
        let half = self.halves.get_mut(&direction);
        let Some((other, _)) = half.and_then(|half| half.other.take()) else { return };
        let Some(other) = self.halves.get_mut(&other) else { return };
        if other.other.is_some_and(|(back, _)| back == direction) {
            other.other = None;
        }
    }

    /// Which direction has taken the place of `other`, when a packet in `direction` is no answer to
    /// what was asked there: a queue pair that is connected anew keeps its number, and its peer is
    /// another. A second sign is asked for: the sender's port is another too, or the connection was
    /// ended by a NAK.
    fn successor(
        &self,
        direction: Direction,
        half: &HalfConnection,
        other: Direction,
        seen: &SeenPacket<'_>,
    ) -> Option<(Direction, Joined)> {
        let known = &self.halves.get(&other)?.requests;
        let psn = seen.datagram.bth.psn;
        if known.awaits(psn) || !(known.is_refused() || seen.source_port != half.source_port) {
            return None;
        }
        self.search(direction, seen, |half| {
            half.requests.awaits(psn) && half.requests.history.newest > known.history.newest
        })
    }

    /// Whether to search for the requests that an answer belongs to, after so many searches in vain.
    /// Among many directions one in 1, 2, 4, 8, … does, so that answers without requests cost little.
    fn is_worth_search(&self, direction: Direction, unassigned: u32) -> bool {
        let back = self.between.get(&(direction.destination, direction.source));
        back.is_some_and(|back| {
            back.len() <= MAX_CHEAP_CANDIDATES || unassigned.is_power_of_two() || unassigned == 0
        })
    }

    /// Whether requests were captured that an answer could belong to, and none has its PSN.
    fn is_unasked(&self, direction: Direction, seen: &SeenPacket<'_>) -> bool {
        let Some(back) = self.between.get(&(direction.destination, direction.source)) else {
            return false;
        };
        let psn = seen.datagram.bth.psn;
        let mut asked = back.iter().rev().take(MAX_CANDIDATES).filter_map(|candidate| {
            let half = self.halves.get(candidate)?;
            let is_free = half.other.is_none() && !half.is_over && may_pair(direction, *candidate);
            let reliable = half.requests.transport.is_some_and(|of| of != Transport::Uc);
            (is_free && reliable).then_some(&half.requests)
        });
        let Some(first) = asked.next() else { return false };
        let has = |requests: &Requests| requests.may_answer(psn) || requests.next == Some(psn);
        !has(first) && !asked.any(has)
    }

    /// The one direction that asked what `seen` answers, if it is only one.
    fn search(
        &self,
        direction: Direction,
        seen: &SeenPacket<'_>,
        may_be: impl Fn(&HalfConnection) -> bool,
    ) -> Option<(Direction, Joined)> {
        let back = self.between.get(&(direction.destination, direction.source))?;
        let sender = self.halves.get(&direction)?;
        let psn = seen.datagram.bth.psn;
        let mut fitting = back.iter().rev().take(MAX_CANDIDATES).filter_map(|candidate| {
            let half = self.halves.get(candidate)?;
            let free = half.other.is_none() && !half.is_over && may_pair(direction, *candidate);
            let fits = half.requests.may_answer(psn) || half.requests.next == Some(psn);
            let reliable = half.requests.transport != Some(Transport::Uc);
            let port = net::source_port(0, direction.qp, candidate.qp);
            (free && fits && reliable && may_be(half))
                .then_some((*candidate, port == sender.source_port || port == seen.source_port))
        });
        let first = fitting.next()?;
        let Some(second) = fitting.next() else {
            let joined = if first.1 { Joined::ByPorts } else { Joined::ByPsn };
            return Some((first.0, joined));
        };
        let mut by_port = [first, second].into_iter().chain(fitting).filter(|found| found.1);
        let only = by_port.next()?;
        by_port.next().is_none().then_some((only.0, Joined::ByPorts))
    }

    /// Forgets the requests of this direction and its pair: both are of an earlier connection.
    fn begin_anew(&mut self, direction: Direction) {
        self.part(direction);
        let Some(half) = self.halves.get_mut(&direction) else { return };
        self.packets -= half.requests.records.len();
        half.requests = Requests::new(self.window);
        half.unassigned = 0;
    }
}

/// Returns whether two directions may be one connection: different ones, or one that goes back where it comes from, which a
/// queue pair that is connected to itself has for requests and for answers.
fn may_pair(one: Direction, other: Direction) -> bool {
    one != other || one.source == one.destination
}
