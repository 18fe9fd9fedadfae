//! Connections: streams that belong together.

use std::net::IpAddr;
use std::sync::Arc;

use softroce::ids::Qpn;
use softroce::wire::Transport;

use super::cm_exchange::CmExchange;
use super::quantity::Rate;
use super::stream::Stream;
use crate::flow::{Direction, Joined};

/// A connection, or what one UD queue pair sends another.
#[derive(Debug)]
pub struct Flow {
    /// The end that asked first.
    pub a: End,
    /// The other.
    pub b: End,
    /// The transport service.
    pub transport: Transport,
    /// How sure it is that its packets belong together.
    pub certainty: Certainty,
    /// The agreement of the connection managers, if it was captured.
    pub cm_exchange: Option<Arc<CmExchange>>,
    /// What `a` asks of `b`, and then what `b` asks of `a`, if it asks.
    pub streams: Vec<Stream>,
}

/// An end of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct End {
    /// Its address.
    pub ip: IpAddr,
    /// Its queue pair, if the capture shows it.
    pub qp: Option<Qpn>,
}

/// How it is known which packets belong together, the surest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Certainty {
    /// Each packet names both queue pairs (UD).
    Named,
    /// The connection managers said so.
    Managers,
    /// PSNs fit, and the UDP source port follows from both queue pair numbers.
    Ports,
    /// PSNs fit, and those of no other connection between the two addresses do.
    Psns,
    /// One direction only: nothing in the capture answers it.
    Alone,
}

impl Certainty {
    /// In one word.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Named => "named",
            Self::Managers => "managers",
            Self::Ports => "ports",
            Self::Psns => "psns",
            Self::Alone => "alone",
        }
    }

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Named => "each packet names both ends",
            Self::Managers => "joined by the connection manager",
            Self::Ports => "joined by PSNs and UDP port",
            Self::Psns => "joined by PSNs",
            Self::Alone => "one direction only",
        }
    }

    fn of(stream: &Stream) -> Self {
        match stream.joined {
            _ if stream.transport == Transport::Ud => Self::Named,
            Some(Joined::ByManagers) => Self::Managers,
            Some(Joined::ByPorts) => Self::Ports,
            Some(Joined::ByPsn) => Self::Psns,
            None => Self::Alone,
        }
    }
}

impl Stream {
    /// The queue pair that asks was found.
    pub(super) fn join(&mut self, asker: Qpn, joined: Joined) {
        if self.joined.is_none() {
            self.from = Some(asker);
            self.joined = Some(joined);
        }
    }

    /// The direction of its answers.
    fn back(&self) -> Option<Direction> {
        let Direction { source, destination, .. } = self.direction;
        Some(Direction { source: destination, destination: source, qp: self.from? })
    }

    /// Whether any of its packets was captured.
    const fn has_packets(&self) -> bool {
        self.traffic.requests + self.traffic.answers + self.traffic.cnps > 0
    }

    /// For how long it was there while `other` was; no time at all may be in common too.
    fn overlap(&self, other: &Self) -> Option<u64> {
        self.last.min(other.last).checked_sub(self.first.max(other.first))
    }

    /// Whether the two are the directions of one connection.
    fn belongs_to(&self, other: &Self) -> bool {
        let agreed = match (&self.cm_exchange, &other.cm_exchange) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        // Two streams of one direction are connections after each other, each of a queue pair to itself.
        agreed
            && self.direction != other.direction
            && self.back() == Some(other.direction)
            && other.from.is_none_or(|from| from == self.direction.qp)
            && self.transport == other.transport
    }
}

impl Flow {
    /// Joins streams. Queue pair numbers may be used again: of several streams that fit, those belong
    /// together that were there at the same time.
    pub(super) fn of(streams: Vec<Stream>) -> Vec<Self> {
        let mut waiting: Vec<_> = streams.into_iter().map(Some).collect();
        let mut flows = Vec::new();
        for at in 0..waiting.len() {
            let Some(one) = waiting.get_mut(at).and_then(Option::take) else { continue };
            let fitting = waiting.iter().enumerate().filter_map(|(at, other)| {
                let other = other.as_ref().filter(|other| one.belongs_to(other))?;
                Some((one.overlap(other), at))
            });
            let other = fitting.max().map(|(_, at)| at);
            let other = other.and_then(|at| waiting.get_mut(at)).and_then(Option::take);
            flows.extend(Self::pair(one, other));
        }
        flows.sort_by_key(|flow| std::cmp::Reverse(flow.bytes()));
        flows
    }

    fn pair(one: Stream, other: Option<Stream>) -> Option<Self> {
        let mut streams: Vec<_> = std::iter::once(one).chain(other).collect();
        let silent = streams.iter().all(|stream| !stream.has_packets());
        if !silent {
            streams.retain(Stream::has_packets);
        }
        // A stream that transfers data comes before one that does not.
        streams.sort_by_key(|stream| (stream.traffic.bytes == 0, stream.first));
        let first = streams.first()?;
        if silent && first.cm_exchange.is_none() {
            return None;
        }
        let Direction { source, destination, qp } = first.direction;
        Some(Self {
            a: End { ip: source, qp: first.from },
            b: End { ip: destination, qp: Some(qp) },
            transport: first.transport,
            certainty: Certainty::of(first),
            cm_exchange: first.cm_exchange.clone(),
            streams,
        })
    }

    /// When its first packet came, in nanoseconds since the capture began.
    pub fn first(&self) -> u64 {
        self.streams.iter().map(|stream| stream.first).min().unwrap_or_default()
    }

    /// When its last did.
    pub fn last(&self) -> u64 {
        self.streams.iter().map(|stream| stream.last).max().unwrap_or_default()
    }

    /// From the one to the other.
    pub fn duration(&self) -> u64 {
        self.last().saturating_sub(self.first())
    }

    /// Bytes of payload, both ways, each counted once.
    pub fn bytes(&self) -> u64 {
        self.sum(|stream| stream.traffic.bytes)
    }

    /// Of these, what is known to have arrived.
    pub fn delivered(&self) -> u64 {
        self.sum(|stream| stream.traffic.delivered)
    }

    /// The rate of that; `None` when it took no time.
    pub fn goodput(&self) -> Option<Rate> {
        Rate::of(self.delivered(), self.duration())
    }

    /// The path MTU in bytes, if the capture shows it.
    pub fn mtu(&self) -> Option<usize> {
        self.streams.iter().find_map(|stream| stream.mtu)
    }

    /// A figure of both directions.
    pub fn sum(&self, figure: impl Fn(&Stream) -> u64) -> u64 {
        self.streams.iter().map(figure).fold(0, u64::saturating_add)
    }
}
