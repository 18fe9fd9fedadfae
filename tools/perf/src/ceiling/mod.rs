//! Raw UDP on the path of a test: the ceiling to which every result is compared.
//!
//! Two processes send datagrams of the sizes of a test's packets through GSO and GRO. Each copies every payload and
//! computes a CRC-32 over it; the only protocol is a window. The code shares nothing with the ports of the library,
//! so that it can judge them.

mod endpoint;
mod pingpong;
mod shape;
mod stream;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

pub use shape::{Operation, Shape};

use crate::control::Control;
use endpoint::{Endpoint, UnconnectedSocket};
use pingpong::PingPong;
use stream::{ReceiveWindow, StreamReceiver, StreamSender, StreamStats};

/// A measurement of raw UDP.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measurement {
    pub shape: Shape,
    pub pattern: Pattern,
    pub duration: Duration,
}

/// Direction of the messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Pattern {
    /// One side sends a stream.
    OneWay,
    /// Both sides send a stream each.
    BothWays,
    /// One message at a time, back and forth.
    PingPong {
        /// Both sides sleep until a datagram arrives instead of polling.
        sleeps: bool,
    },
}

/// Message of each side before datagrams flow.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct SocketInfo {
    address: SocketAddr,
    /// Window of the receive queue.
    receive_window: ReceiveWindow,
}

/// Result of a measurement.
pub struct Ceiling {
    pub messages: u64,
    pub seconds: f64,
    /// Rate of message bytes in streams.
    pub gbit_per_s: f64,
    pub msg_per_s: f64,
    /// Times of a ping-pong in nanoseconds: half round trips, or whole ones of READs and atomics.
    pub times: Option<Histogram<u64>>,
    /// Reasons why the result may be below the capacity of UDP.
    pub warnings: Vec<String>,
}

/// One side of a measurement.
pub struct RawUdpSide<'c> {
    /// Control connection to the other side.
    pub control: &'c mut Control,
    /// Local address.
    pub ip: IpAddr,
    /// Requested receive buffer.
    pub receive_buffer: Option<usize>,
}

impl RawUdpSide<'_> {
    /// Measures with a peer that runs [`serve`](Self::serve) with the same parameters.
    pub fn measure(mut self, measurement: Measurement) -> anyhow::Result<Ceiling> {
        let shape = measurement.shape;
        match measurement.active_role() {
            Role::Sender => {
                let sent = self.exchange_addresses(measurement, Role::Sender)?.send(measurement)?;
                let received = self.control.receive()?;
                Ok(Ceiling::of_streams(shape, &[(sent, received)]))
            }
            Role::Receiver => {
                let received = self.exchange_addresses(measurement, Role::Receiver)?.receive()?;
                let sent = self.control.receive()?;
                Ok(Ceiling::of_streams(shape, &[(sent, received)]))
            }
            Role::Both => {
                let out = self.exchange_addresses(measurement, Role::Sender)?;
                let back = self.exchange_addresses(measurement, Role::Receiver)?;
                let (sent, received) = both_ways(out, back, measurement)?;
                let (their_sent, their_received) = self.control.receive()?;
                Ok(Ceiling::of_streams(shape, &[(sent, their_received), (their_sent, received)]))
            }
            Role::PingPong => {
                let ways = if shape.operation.is_answered() { 1 } else { 2 };
                let mut pair = self.exchange_addresses(measurement, Role::PingPong)?;
                let times =
                    pair.ping_pong(shape.ping(), shape.pong()).serve(measurement.duration, ways)?;
                Ok(Ceiling::of_ping_pong(shape, ways, times))
            }
        }
    }

    /// Runs the other side of [`measure`](Self::measure).
    pub fn serve(mut self, measurement: Measurement) -> anyhow::Result<()> {
        let shape = measurement.shape;
        match measurement.active_role() {
            Role::Sender => {
                let received = self.exchange_addresses(measurement, Role::Receiver)?.receive()?;
                self.control.send(&received)
            }
            Role::Receiver => {
                let sent = self.exchange_addresses(measurement, Role::Sender)?.send(measurement)?;
                self.control.send(&sent)
            }
            Role::Both => {
                let back = self.exchange_addresses(measurement, Role::Receiver)?;
                let out = self.exchange_addresses(measurement, Role::Sender)?;
                self.control.send(&both_ways(out, back, measurement)?)
            }
            Role::PingPong => self
                .exchange_addresses(measurement, Role::PingPong)?
                .ping_pong(shape.pong(), shape.ping())
                .echo(),
        }
    }

    /// Opens a socket and exchanges its address with that of the peer.
    fn exchange_addresses(
        &mut self,
        measurement: Measurement,
        role: Role,
    ) -> anyhow::Result<SocketPair> {
        let merge = match role {
            // Acknowledgements have one size, so two merged ones would look like one.
            Role::Sender => false,
            Role::Receiver | Role::Both => true,
            Role::PingPong => measurement.shape.packets() > 1,
        };
        let own = UnconnectedSocket::open(self.ip, self.receive_buffer, merge)?;
        let max_segments = own.max_segments()?;
        let receive_window =
            ReceiveWindow::of(measurement.shape, max_segments, own.receive_buffer()?);
        self.control.send(&SocketInfo { address: own.address()?, receive_window })?;
        let peer: SocketInfo = self.control.receive().context("the other side's UDP address")?;
        let segments = max_segments.min(peer.receive_window.segments);
        let to_peer = ReceiveWindow { segments, ..peer.receive_window };
        let mut end = own.pair(peer.address);
        if measurement.pattern == (Pattern::PingPong { sleeps: true }) {
            end.sleep()?;
        }
        Ok(SocketPair { end, from_peer: receive_window, to_peer })
    }
}

/// Role of a side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Sender,
    Receiver,
    Both,
    PingPong,
}

impl Measurement {
    /// Returns the role of the measuring side.
    fn active_role(&self) -> Role {
        match (self.pattern, self.shape.operation) {
            (Pattern::PingPong { .. }, _) => Role::PingPong,
            (Pattern::BothWays, _) => Role::Both,
            // The data comes from the peer.
            (Pattern::OneWay, Operation::Read) => Role::Receiver,
            (Pattern::OneWay, _) => Role::Sender,
        }
    }
}

/// A socket connected to its peer.
struct SocketPair {
    end: Endpoint,
    from_peer: ReceiveWindow,
    to_peer: ReceiveWindow,
}

impl SocketPair {
    fn send(mut self, measurement: Measurement) -> anyhow::Result<StreamStats> {
        let mut sending =
            StreamSender::new(&mut self.end, measurement.shape, self.to_peer, measurement.duration);
        while sending.step()? {}
        Ok(sending.stats())
    }

    fn receive(mut self) -> anyhow::Result<StreamStats> {
        let mut taking = StreamReceiver::new(&mut self.end, self.from_peer);
        while taking.step()? {}
        Ok(taking.stats())
    }

    fn ping_pong(&mut self, sends: Shape, takes: Shape) -> PingPong<'_> {
        PingPong::new(&mut self.end, sends, takes, self.to_peer.segments)
    }
}

/// Sends and receives alternately, on a socket each; returns what was sent and received.
fn both_ways(
    mut out: SocketPair,
    mut back: SocketPair,
    measurement: Measurement,
) -> anyhow::Result<(StreamStats, StreamStats)> {
    let mut sending =
        StreamSender::new(&mut out.end, measurement.shape, out.to_peer, measurement.duration);
    let mut taking = StreamReceiver::new(&mut back.end, back.from_peer);
    let (mut sends, mut takes) = (true, true);
    while sends || takes {
        sends = sends && sending.step()?;
        takes = takes && taking.step()?;
    }
    Ok((sending.stats(), taking.stats()))
}

impl Ceiling {
    /// Returns the sum of streams; each has the statistics of sender and receiver.
    fn of_streams(shape: Shape, streams: &[(StreamStats, StreamStats)]) -> Self {
        let sum =
            |part: fn(&(StreamStats, StreamStats)) -> u64| streams.iter().map(part).sum::<u64>();
        let mut warnings = Vec::new();
        let stalls = sum(|(sent, _)| sent.stalls);
        let (sent, received) = (sum(|(sent, _)| sent.datagrams), sum(|(_, got)| got.datagrams));
        if stalls > 0 || received < sent {
            let lost = sent.saturating_sub(received);
            warnings
                .push(format!("{lost} of {sent} raw datagrams were lost, with {stalls} stalls"));
        }
        let damaged = sum(|(_, received)| received.damaged);
        if damaged > 0 {
            warnings.push(format!("{damaged} raw datagrams were damaged"));
        }
        let shares = streams.iter().flat_map(|(sent, got)| [sent.cpu_share, got.cpu_share]);
        let share = shares.fold(1.0, f64::min);
        if share < 0.9 {
            let percent = share * 100.0;
            warnings.push(format!("the machine is busy: a side had {percent:.0} % of a CPU"));
        }
        let rate = |stats: &StreamStats| {
            stats.bytes as f64 / shape.wire_bytes() as f64 / stats.seconds.max(f64::EPSILON)
        };
        let msg_per_s = streams.iter().map(|(_, received)| rate(received)).sum::<f64>();
        Self {
            messages: received / shape.packets() as u64,
            seconds: streams.iter().map(|(_, received)| received.seconds).fold(0.0, f64::max),
            gbit_per_s: msg_per_s * shape.size as f64 * 8e-9,
            msg_per_s,
            times: None,
            warnings,
        }
    }

    /// Returns the result of times that are round trips divided by `ways`.
    fn of_ping_pong(shape: Shape, ways: u32, times: Histogram<u64>) -> Self {
        let messages = times.len();
        let mean = times.mean() * 1e-9;
        Self {
            messages,
            seconds: f64::from(ways) * mean * messages as f64,
            gbit_per_s: shape.size as f64 * 8e-9 / mean.max(f64::EPSILON),
            msg_per_s: 1.0 / mean.max(f64::EPSILON),
            times: Some(times),
            warnings: Vec::new(),
        }
    }
}
