//! What raw UDP carries on this path: the ceiling that every result is a fraction of.
//!
//! Two processes send datagrams in the shape of a test's packets through GSO and GRO, each copying
//! every payload and computing a CRC-32 over it, with no protocol on top but a window. The loop is
//! one of its own and shares nothing with the library's ports, so that it can judge them.

mod endpoint;
mod pingpong;
mod shape;
mod stream;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

pub(crate) use shape::{Operation, Shape};

use crate::control::Control;
use endpoint::{Endpoint, Unpaired};
use pingpong::Player;
use stream::{Allowance, Seen, Sending, Taking};

/// What is to be measured.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) shape: Shape,
    pub(crate) pattern: Pattern,
    pub(crate) duration: Duration,
}

/// Who sends when.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Pattern {
    /// One side a stream.
    OneWay,
    /// Both sides a stream each.
    BothWays,
    /// A message at a time, there and back.
    PingPong {
        /// Both sides sleep until it comes, rather than poll.
        sleeps: bool,
    },
}

/// What a side tells the other before datagrams flow.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Hello {
    address: SocketAddr,
    /// What its receive queue can take.
    allowance: Allowance,
}

/// What a measurement has found.
pub(crate) struct Ceiling {
    pub(crate) messages: u64,
    pub(crate) seconds: f64,
    /// Of streams, message bytes only.
    pub(crate) gbit_per_s: f64,
    pub(crate) msg_per_s: f64,
    /// Of a ping-pong, nanoseconds: of half a round trip, or of a whole one where a message is
    /// answered.
    pub(crate) times: Option<Histogram<u64>>,
    /// What keeps the figure from saying what UDP can do.
    pub(crate) doubts: Vec<String>,
}

/// One side's part in a measurement.
pub(crate) struct Party<'c> {
    /// To the other side.
    pub(crate) control: &'c mut Control,
    /// Our address.
    pub(crate) ip: IpAddr,
    /// The receive buffer wished for.
    pub(crate) receive_buffer: Option<usize>,
}

impl Party<'_> {
    /// Measures, with a peer that [`serve`](Self::serve)s the same order.
    pub(crate) fn measure(mut self, order: Order) -> anyhow::Result<Ceiling> {
        let shape = order.shape;
        match order.active_role() {
            Role::Sender => {
                let sent = self.meet(order, Role::Sender)?.send(order)?;
                let received = self.control.receive()?;
                Ok(Ceiling::of_streams(shape, &[(sent, received)]))
            }
            Role::Receiver => {
                let received = self.meet(order, Role::Receiver)?.receive()?;
                let sent = self.control.receive()?;
                Ok(Ceiling::of_streams(shape, &[(sent, received)]))
            }
            Role::Both => {
                let out = self.meet(order, Role::Sender)?;
                let back = self.meet(order, Role::Receiver)?;
                let (sent, received) = both_ways(out, back, order)?;
                let (their_sent, their_received) = self.control.receive()?;
                Ok(Ceiling::of_streams(shape, &[(sent, their_received), (their_sent, received)]))
            }
            Role::Player => {
                let ways = if shape.operation.is_answered() { 1 } else { 2 };
                let mut meeting = self.meet(order, Role::Player)?;
                let times =
                    meeting.player(shape.ping(), shape.pong()).serve(order.duration, ways)?;
                Ok(Ceiling::of_ping_pong(shape, ways, times))
            }
        }
    }

    /// Plays the other side of [`measure`](Self::measure).
    pub(crate) fn serve(mut self, order: Order) -> anyhow::Result<()> {
        let shape = order.shape;
        match order.active_role() {
            Role::Sender => {
                let received = self.meet(order, Role::Receiver)?.receive()?;
                self.control.send(&received)
            }
            Role::Receiver => {
                let sent = self.meet(order, Role::Sender)?.send(order)?;
                self.control.send(&sent)
            }
            Role::Both => {
                let back = self.meet(order, Role::Receiver)?;
                let out = self.meet(order, Role::Sender)?;
                self.control.send(&both_ways(out, back, order)?)
            }
            Role::Player => {
                self.meet(order, Role::Player)?.player(shape.pong(), shape.ping()).echo()
            }
        }
    }

    /// Opens a socket and learns of the peer's.
    fn meet(&mut self, order: Order, role: Role) -> anyhow::Result<Meeting> {
        let merge = match role {
            // Acknowledgements are of one size, and two of them merged would be taken for one.
            Role::Sender => false,
            Role::Receiver | Role::Both => true,
            Role::Player => order.shape.packets() > 1,
        };
        let own = Unpaired::open(self.ip, self.receive_buffer, merge)?;
        let most_segments = own.most_segments()?;
        let allowance = Allowance::of(order.shape, most_segments, own.receive_buffer()?);
        self.control.send(&Hello { address: own.address()?, allowance })?;
        let peer: Hello = self.control.receive().context("the other side's UDP address")?;
        let segments = most_segments.min(peer.allowance.segments);
        let to_peer = Allowance { segments, ..peer.allowance };
        let mut end = own.pair(peer.address);
        if order.pattern == (Pattern::PingPong { sleeps: true }) {
            end.sleep()?;
        }
        Ok(Meeting { end, from_peer: allowance, to_peer })
    }
}

/// What a side does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Sender,
    Receiver,
    Both,
    Player,
}

impl Order {
    /// What the side does that measures.
    fn active_role(&self) -> Role {
        match (self.pattern, self.shape.operation) {
            (Pattern::PingPong { .. }, _) => Role::Player,
            (Pattern::BothWays, _) => Role::Both,
            // Its data comes from the peer.
            (Pattern::OneWay, Operation::Read) => Role::Receiver,
            (Pattern::OneWay, _) => Role::Sender,
        }
    }
}

/// Two sockets that know each other.
struct Meeting {
    end: Endpoint,
    from_peer: Allowance,
    to_peer: Allowance,
}

impl Meeting {
    fn send(mut self, order: Order) -> anyhow::Result<Seen> {
        let mut sending = Sending::new(&mut self.end, order.shape, self.to_peer, order.duration);
        while sending.step()? {}
        Ok(sending.seen())
    }

    fn receive(mut self) -> anyhow::Result<Seen> {
        let mut taking = Taking::new(&mut self.end, self.from_peer);
        while taking.step()? {}
        Ok(taking.seen())
    }

    fn player(&mut self, sends: Shape, takes: Shape) -> Player<'_> {
        Player::new(&mut self.end, sends, takes, self.to_peer.segments)
    }
}

/// Sends and receives by turns, on a pair of sockets each; returns what was sent and received.
fn both_ways(mut out: Meeting, mut back: Meeting, order: Order) -> anyhow::Result<(Seen, Seen)> {
    let mut sending = Sending::new(&mut out.end, order.shape, out.to_peer, order.duration);
    let mut taking = Taking::new(&mut back.end, back.from_peer);
    let (mut sends, mut takes) = (true, true);
    while sends || takes {
        sends = sends && sending.step()?;
        takes = takes && taking.step()?;
    }
    Ok((sending.seen(), taking.seen()))
}

impl Ceiling {
    /// The sum of streams, of each what was sent and received.
    fn of_streams(shape: Shape, streams: &[(Seen, Seen)]) -> Self {
        let sum = |part: fn(&(Seen, Seen)) -> u64| streams.iter().map(part).sum::<u64>();
        let mut doubts = Vec::new();
        let stalls = sum(|(sent, _)| sent.stalls);
        let (sent, received) = (sum(|(sent, _)| sent.datagrams), sum(|(_, got)| got.datagrams));
        if stalls > 0 || received < sent {
            let lost = sent.saturating_sub(received);
            doubts.push(format!("{lost} of {sent} raw datagrams were lost, with {stalls} stalls"));
        }
        let damaged = sum(|(_, received)| received.damaged);
        if damaged > 0 {
            doubts.push(format!("{damaged} raw datagrams were damaged"));
        }
        let shares = streams.iter().flat_map(|(sent, got)| [sent.cpu_share, got.cpu_share]);
        let share = shares.fold(1.0, f64::min);
        if share < 0.9 {
            let percent = share * 100.0;
            doubts.push(format!("the machine is busy: a side had {percent:.0} % of a CPU"));
        }
        let rate = |seen: &Seen| {
            seen.bytes as f64 / shape.wire_bytes() as f64 / seen.seconds.max(f64::EPSILON)
        };
        let msg_per_s = streams.iter().map(|(_, received)| rate(received)).sum::<f64>();
        Self {
            messages: received / shape.packets() as u64,
            seconds: streams.iter().map(|(_, received)| received.seconds).fold(0.0, f64::max),
            gbit_per_s: msg_per_s * shape.size as f64 * 8e-9,
            msg_per_s,
            times: None,
            doubts,
        }
    }

    /// Of times that are a round trip divided by `ways`.
    fn of_ping_pong(shape: Shape, ways: u32, times: Histogram<u64>) -> Self {
        let messages = times.len();
        let mean = times.mean() * 1e-9;
        Self {
            messages,
            seconds: f64::from(ways) * mean * messages as f64,
            gbit_per_s: shape.size as f64 * 8e-9 / mean.max(f64::EPSILON),
            msg_per_s: 1.0 / mean.max(f64::EPSILON),
            times: Some(times),
            doubts: Vec::new(),
        }
    }
}
