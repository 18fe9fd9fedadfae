//! Goodput of a reliable connection under loss, compared with the best that its protocol permits.
//!
//! `SNAPSHOTS=write cargo test --test recovery` writes the measurements to `docs/results.json`, from which
//! `SNAPSHOTS=write cargo test --test pages` makes the tables and the plot of `docs/LOSS.md`. All times are virtual, so
//! they are reproducible.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "test code"
)]

#[path = "support/curve.rs"]
mod curve;
mod support;

use std::sync::LazyLock;
use std::time::Duration;

use curve::{Curve, Point};
use softroce::engine::Config;
use softroce::ids::Mtu;
use softroce::port::sim::{Conditions, FaultDecision, HostConfig};
use softroce::transport::window::DEFAULT_RECEIVE_BUFFER;
use softroce::transport::work::{SendOp, WcStatus};
use softroce::wire::Datagram;
use support::{Link, World, full_access, pattern, remote, request, sge};

/// One-way delay.
const DELAY: Duration = Duration::from_micros(15);
const RATE: u64 = 10_000_000_000;
const MTU: Mtu = Mtu::Mtu1024;
/// 262 µs.
const TIMEOUT: u8 = 6;
const MESSAGE: usize = 64 << 10;
/// Number of posted requests at any time.
const POSTED: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Traffic {
    Send,
    Write,
    Read,
}

impl Traffic {
    const ALL: [Self; 3] = [Self::Send, Self::Write, Self::Read];
}

/// Length of a full packet on the wire, in bytes: IP, UDP, BTH and ICRC around its payload.
const ON_WIRE: u64 = 28 + 12 + 4 + MTU.bytes() as u64;

fn wire_time(bytes: u64) -> f64 {
    (bytes * 8) as f64 / RATE as f64
}

/// Returns the goodput, in bytes per second, of an ideal go-back-N protocol at a loss of `p` in each direction with
/// `window` packets in flight.
///
/// A packet takes its transmission time `t`, or its share of the round trip if the window is smaller. A lost packet
/// is retransmitted with all packets in flight behind it, so it costs a round trip `R`: that of the path, or the
/// transmission time of a whole window if this is longer, because the retransmission queues behind it. The receiver
/// detects the loss by the next packet that arrives, after `t / (1 - p)` on average.
///
/// This fails with the probability `x` that the NAK or the retransmission is lost: a responder sends one NAK per gap
/// (C9-112, RSP-02), so the requester needs a timeout `T`, which may not be shorter than the configured one (REQ-28).
/// The retransmission or its response is lost with probability `x` again:
///
/// ```text
/// time of a packet = t + p × (t / (1 - p) + R + T × (x + x² + …))      x = 1 - (1 - p)²
/// ```
fn ideal(p: f64, window: u64) -> f64 {
    let packet = wire_time(ON_WIRE);
    let path = packet + 2.0 * DELAY.as_secs_f64() + wire_time(28 + 20);
    let timeout = 4096e-9 * f64::from(1_u32 << TIMEOUT);
    let x = 1.0 - (1.0 - p) * (1.0 - p);
    let each = packet.max(path / window as f64);
    let round_trip = path.max(packet * window as f64);
    let recovery = packet / (1.0 - p) + round_trip + timeout * x / (1.0 - x);
    MTU.bytes() as f64 / (each + p * recovery)
}

/// Returns the goodput of `messages` messages at a loss of `p`, in bytes per second.
fn goodput(traffic: Traffic, p: f64, setting: Setting, messages: usize) -> f64 {
    let Setting { receive_buffer, keeps } = setting;
    let host = HostConfig { receive_buffer: receive_buffer as usize, ..HostConfig::default() };
    let seed = (p * 1e6) as u64 + traffic as u64;
    let mut world = World::with(seed, 2, host, |config: &mut Config| {
        if !keeps {
            config.reorder_buffer = 0;
        }
    });
    for node in [0, 1] {
        let peer = world.nodes[1 - node].ip;
        world.nodes[node].engine.set_peer_receive_buffer(world.now, peer, receive_buffer);
    }
    let conditions =
        Conditions { loss: p, delay: DELAY, rate_bits_per_s: Some(RATE), ..Conditions::default() };
    world.network.set_conditions(conditions);
    let link = Link { mtu: MTU, timeout: TIMEOUT, rd_atomic: 16, ..Link::default() };
    let qps = world.pair(&link);
    let regions = [0, 1].map(|node| world.nodes[node].region(MESSAGE, 1 << 20, full_access()));
    regions[usize::from(traffic == Traffic::Read)].write_at(0, &pattern(7, MESSAGE)).unwrap();
    let (mut posted, mut done) = (0, 0);
    while done < messages {
        while posted < messages && posted - done < POSTED {
            let there = remote(&regions[1], 0);
            let op = match traffic {
                Traffic::Write => SendOp::Write { to: there },
                Traffic::Read => SendOp::Read { from: there },
                Traffic::Send => {
                    world.post_recv(1, qps[1], 1, &[sge(&regions[1], 0, MESSAGE)]);
                    SendOp::Send
                }
            };
            world.post_send(0, qps[0], request(posted as u64, op, &[sge(&regions[0], 0, MESSAGE)]));
            posted += 1;
        }
        world.settle();
        for completion in world.nodes[0].sends.drain(..) {
            assert_eq!((completion.wr_id, completion.status), (done as u64, WcStatus::Success));
            done += 1;
        }
        world.nodes[1].recvs.clear();
        let waits = posted == messages || posted - done == POSTED;
        assert!(done == messages || !waits || world.advance(), "it stands still");
    }
    let mut received = vec![0; MESSAGE];
    regions[usize::from(traffic != Traffic::Read)].read_at(0, &mut received).unwrap();
    assert!(received == pattern(7, MESSAGE), "{traffic:?} at {p}");
    (messages * MESSAGE) as f64 / (world.now.as_nanos() as f64 / 1e9)
}

/// Receive buffer of the path, and whether the responder has a reorder buffer.
#[derive(Clone, Copy)]
struct Setting {
    receive_buffer: u64,
    keeps: bool,
}

/// Returns the number of packets in flight towards a receive buffer: three quarters of it are used, with 2560 bytes
/// per packet as the kernel counts them.
fn window(receive_buffer: u64) -> u64 {
    let posted = POSTED * MESSAGE / MTU.bytes();
    (receive_buffer / 4 * 3 / 2560).min(posted as u64)
}

/// Returns the ratio of goodput to the ideal for an operation at each loss.
fn curve(traffic: Traffic, setting: Setting, losses: &[f64]) -> Curve {
    let point = |loss: &f64| {
        // Some hundred losses, or a twentieth of a second on a good network.
        let messages = ((400.0 / loss) as usize / (MESSAGE / MTU.bytes())).clamp(100, 1000);
        let found = goodput(traffic, *loss, setting, messages);
        Point { loss: *loss, found, ideal: ideal(*loss, window(setting.receive_buffer)) }
    };
    let kept = if setting.keeps { ", kept" } else { "" };
    let name = format!("{}{kept}", format!("{traffic:?}").to_uppercase());
    Curve { name, points: losses.iter().map(point).collect() }
}

/// Returns the curves of all operations, with a responder without a reorder buffer.
fn curves(receive_buffer: u64, losses: &[f64]) -> Vec<Curve> {
    let setting = Setting { receive_buffer, keeps: false };
    Traffic::ALL.map(|traffic| curve(traffic, setting, losses)).into()
}

#[track_caller]
fn are_near_the_ideal(curves: &[Curve]) {
    for curve in curves {
        for point in &curve.points {
            assert!(point.found >= 0.8 * point.ideal, "{}: {curves:#?}", curve.name);
        }
    }
}

/// Curves of the documentation: the default receive buffer holds slightly more than a round trip of this path.
static CURVES: LazyLock<Vec<Curve>> = LazyLock::new(|| {
    let losses = [0.0001, 0.001, 0.01, 0.1];
    let mut curves = curves(DEFAULT_RECEIVE_BUFFER, &losses);
    let kept = Setting { receive_buffer: DEFAULT_RECEIVE_BUFFER, keeps: true };
    curves.extend(Traffic::ALL.map(|traffic| curve(traffic, kept, &losses)));
    curves
});

#[test]
fn goodput_under_loss_is_near_an_ideal_go_back_n() {
    are_near_the_ideal(&CURVES);
}

#[test]
fn published_goodputs_are_those_of_this_build() {
    if std::env::var_os("SNAPSHOTS").is_some_and(|what| what == "write") {
        curve::publish(&CURVES);
    }
    let differences = curve::differences(&CURVES);
    assert!(
        differences.is_empty(),
        "docs/results.json differs by more than a tenth (SNAPSHOTS=write writes it): {differences:#?}"
    );
}

/// The packets in flight then take several round trips.
#[test]
fn goodput_under_loss_is_near_ideal_with_a_large_window() {
    are_near_the_ideal(&curves(1 << 20, &[0.001, 0.01]));
}

/// The receive buffer holds a thousand packets, the path 36, and each loss costs all packets in flight. The
/// congestion window doubles the goodput compared with a full window.
#[test]
fn congestion_window_doubles_goodput_with_large_windows() {
    for traffic in [Traffic::Send, Traffic::Write] {
        let setting = Setting { receive_buffer: 8 << 20, keeps: false };
        let (found, windowful) =
            (goodput(traffic, 0.01, setting, 1000), ideal(0.01, window(8 << 20)));
        assert!(found >= 2.0 * windowful, "{traffic:?}: {found}, a window each gives {windowful}");
    }
}

/// With large windows and reorder buffers: the responder buffers requests, and the requester responses.
#[test]
fn selective_retransmission_costs_one_packet_per_loss() {
    for traffic in [Traffic::Send, Traffic::Write, Traffic::Read] {
        for (loss, factor) in [(0.0001, 1.05), (0.001, 1.2), (0.01, 1.4)] {
            let [dropped, kept] = [false, true].map(|keeps| {
                goodput(traffic, loss, Setting { receive_buffer: 8 << 20, keeps }, 1000)
            });
            assert!(kept >= factor * dropped, "{traffic:?} at {loss}: {kept}, or {dropped}");
        }
    }
}

/// No later packet reveals the loss of the last one, so it costs a timeout and a round trip.
#[test]
fn lost_last_packet_costs_one_timeout() {
    for traffic in Traffic::ALL {
        let took = |lose: bool| {
            let mut world = World::new(1, 2);
            let link = Link { timeout: 10, ..Link::default() };
            let qps = world.pair(&link);
            let regions = [0, 1].map(|n| world.nodes[n].region(MESSAGE, 1 << 20, full_access()));
            let op = match traffic {
                Traffic::Write => SendOp::Write { to: remote(&regions[1], 0) },
                Traffic::Read => SendOp::Read { from: remote(&regions[1], 0) },
                Traffic::Send => SendOp::Send,
            };
            world.post_recv(1, qps[1], 1, &[sge(&regions[1], 0, MESSAGE)]);
            let last = link.psn[0] + (MESSAGE / 1024) as u32 - 1;
            let mut armed = lose;
            world.network.observe(move |seen| {
                let bth = Datagram::parse(seen.datagram).unwrap().bth;
                let is_data = bth.opcode.is_request() != (traffic == Traffic::Read);
                match is_data && bth.psn.value() == last && std::mem::take(&mut armed) {
                    true => FaultDecision::Drop,
                    false => FaultDecision::ByConditions,
                }
            });
            world.post_send(0, qps[0], request(1, op, &[sge(&regions[0], 0, MESSAGE)]));
            while world.nodes[0].sends.is_empty() {
                world.settle();
                assert!(!world.nodes[0].sends.is_empty() || world.advance(), "it stands still");
            }
            assert_eq!(world.nodes[0].sends[0].status, WcStatus::Success);
            world.now.as_nanos()
        };
        let timeout = 4096 << 10;
        let (whole, lost) = (took(false), took(true));
        let more = lost - whole;
        // The timer starts at the last progress, at most a round trip of 10 µs after the lost packet was sent.
        assert!((timeout..timeout + 20_000).contains(&more), "{traffic:?}: {whole} and {lost} ns");
    }
}
