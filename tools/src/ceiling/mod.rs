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
use stream::{Allowance, Seen};

/// What is to be measured.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) shape: Shape,
    pub(crate) pattern: Pattern,
    pub(crate) duration: Duration,
}

/// One way or there and back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Pattern {
    Stream,
    PingPong,
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
    /// Of a stream, message bytes only.
    pub(crate) gbit_per_s: f64,
    pub(crate) msg_per_s: f64,
    /// Of a ping-pong, half round trips in nanoseconds.
    pub(crate) half_round_trips: Option<Histogram<u64>>,
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
        match order.active_role() {
            Role::Sender => {
                let sent = self.meet(order, Role::Sender)?.send(order)?;
                let received = self.control.receive()?;
                Ok(Ceiling::of_stream(order.shape, &sent, &received))
            }
            Role::Receiver => {
                let received = self.meet(order, Role::Receiver)?.receive()?;
                let sent = self.control.receive()?;
                Ok(Ceiling::of_stream(order.shape, &sent, &received))
            }
            Role::Player => {
                let mut meeting = self.meet(order, Role::Player)?;
                let half_round_trips = meeting.player(order.shape).serve(order.duration)?;
                Ok(Ceiling::of_ping_pong(order.shape, half_round_trips))
            }
        }
    }

    /// Plays the other side of [`measure`](Self::measure).
    pub(crate) fn serve(mut self, order: Order) -> anyhow::Result<()> {
        match order.active_role() {
            Role::Sender => {
                let received = self.meet(order, Role::Receiver)?.receive()?;
                self.control.send(&received)
            }
            Role::Receiver => {
                let sent = self.meet(order, Role::Sender)?.send(order)?;
                self.control.send(&sent)
            }
            Role::Player => self.meet(order, Role::Player)?.player(order.shape).echo(),
        }
    }

    /// Opens a socket and learns of the peer's.
    fn meet(&mut self, order: Order, role: Role) -> anyhow::Result<Meeting> {
        let merge = match role {
            // Acknowledgements are of one size, and two of them merged would be taken for one.
            Role::Sender => false,
            Role::Receiver => true,
            Role::Player => order.shape.packets() > 1,
        };
        let own = Unpaired::open(self.ip, self.receive_buffer, merge)?;
        let most_segments = own.most_segments()?;
        let allowance = Allowance::of(order.shape, most_segments, own.receive_buffer()?);
        self.control.send(&Hello { address: own.address()?, allowance })?;
        let peer: Hello = self.control.receive().context("the other side's UDP address")?;
        let segments = most_segments.min(peer.allowance.segments);
        let to_peer = Allowance { segments, ..peer.allowance };
        Ok(Meeting { end: own.pair(peer.address), from_peer: allowance, to_peer })
    }
}

/// What a side does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Sender,
    Receiver,
    Player,
}

impl Order {
    /// What the side does that measures.
    fn active_role(&self) -> Role {
        match (self.pattern, self.shape.operation) {
            (Pattern::PingPong, _) => Role::Player,
            // Its data comes from the peer.
            (Pattern::Stream, Operation::Read) => Role::Receiver,
            (Pattern::Stream, _) => Role::Sender,
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
        stream::send(&mut self.end, order.shape, self.to_peer, order.duration)
    }

    fn receive(mut self) -> anyhow::Result<Seen> {
        stream::receive(&mut self.end, self.from_peer)
    }

    fn player(&mut self, shape: Shape) -> Player<'_> {
        Player::new(&mut self.end, shape, self.to_peer.segments)
    }
}

impl Ceiling {
    fn of_stream(shape: Shape, sent: &Seen, received: &Seen) -> Self {
        let messages = received.bytes as f64 / shape.wire_bytes() as f64;
        let msg_per_s = messages / received.seconds.max(f64::EPSILON);
        let mut doubts = Vec::new();
        if sent.stalls > 0 || received.datagrams < sent.datagrams {
            let lost = sent.datagrams - received.datagrams.min(sent.datagrams);
            let (all, stalls) = (sent.datagrams, sent.stalls);
            doubts.push(format!("{lost} of {all} raw datagrams were lost, with {stalls} stalls"));
        }
        if received.damaged > 0 {
            doubts.push(format!("{} raw datagrams were damaged", received.damaged));
        }
        let share = sent.cpu_share.min(received.cpu_share);
        if share < 0.9 {
            let percent = share * 100.0;
            doubts.push(format!("the machine is busy: a side had {percent:.0} % of a CPU"));
        }
        Self {
            messages: received.datagrams / shape.packets() as u64,
            seconds: received.seconds,
            gbit_per_s: msg_per_s * shape.size as f64 * 8e-9,
            msg_per_s,
            half_round_trips: None,
            doubts,
        }
    }

    fn of_ping_pong(shape: Shape, half_round_trips: Histogram<u64>) -> Self {
        let messages = half_round_trips.len();
        let half = half_round_trips.mean() * 1e-9;
        Self {
            messages,
            seconds: 2.0 * half * messages as f64,
            gbit_per_s: shape.size as f64 * 8e-9 / half.max(f64::EPSILON),
            msg_per_s: 1.0 / half.max(f64::EPSILON),
            half_round_trips: Some(half_round_trips),
            doubts: Vec::new(),
        }
    }
}
