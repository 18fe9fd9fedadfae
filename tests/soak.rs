//! Soak tests: thousands of created and destroyed objects, and killed peers, leak nothing.
//!
//! `tools/soak.sh` runs these tests. `SOAK_SECONDS` is the duration of one test, `SOAK_KILLS` the number of killed
//! peers, and `SOAK_SEED` determines when they are killed.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

#[path = "support/census.rs"]
mod census;
#[allow(dead_code, unreachable_pub, reason = "each test uses its part")]
#[path = "support/choice.rs"]
mod choice;
#[path = "soak/churn.rs"]
mod churn;
#[path = "soak/heap.rs"]
mod heap;
#[allow(dead_code, reason = "the verbs' tests use the rest")]
#[path = "verbs/node.rs"]
mod node;
#[path = "soak/peers.rs"]
mod peers;
#[allow(dead_code, reason = "the verbs' tests use the rest")]
#[path = "verbs/process.rs"]
mod process;
#[allow(dead_code, reason = "each user takes its part")]
#[path = "support/within.rs"]
mod within;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use census::{Measurement, MeasurementSeries, Measurements, SystemNames, grown, of_this_process};
use choice::Choice;
use churn::Churn;
use node::{WAIT_LIMIT, fresh_ip};
use peers::Killed;
use softroce::port::PortKind;
use softroce::runtime::now;
use softroce::verbs::*;

/// Number of addresses of short-lived devices, which are opened repeatedly.
const ADDRESSES: usize = 128;

/// Returns a number from the environment.
fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

fn addresses(count: usize) -> Vec<IpAddr> {
    (0..count).map(|_| fresh_ip()).collect()
}

fn places(addresses: &[IpAddr]) -> SystemNames {
    let is_v4 = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => Some(*ip),
        IpAddr::V6(_) => None,
    };
    SystemNames::new(addresses.iter().filter_map(is_v4).collect::<Vec<Ipv4Addr>>(), [])
}

/// Sockets of connected flows: a device has up to eight, and two devices live through a test.
const FLOW_SOCKETS: i64 = 16;

/// Returns the measurements without an open device, when no socket may be open.
fn measure_without_devices(places: &SystemNames, via: &PortKind) -> Measurements {
    let mut census = measure(places, via);
    for figure in &mut census {
        if matches!(figure.name, "descriptors" | "UDP sockets" | "abstract names") {
            figure.tolerance = 0;
        }
    }
    census
}

/// Returns all measurements of this process.
fn measure(places: &SystemNames, via: &PortKind) -> Measurements {
    let [blocks, bytes] = heap::held();
    let mut census = of_this_process();
    census.push(Measurement { name: "heap blocks", tolerance: 400, value: blocks });
    // The numbers of destroyed queue pairs are reserved for ten seconds.
    census.push(Measurement { name: "heap KiB", tolerance: 2 << 10, value: bytes >> 10 });
    census.extend(places.measure());
    for figure in &mut census {
        if matches!(figure.name, "descriptors" | "UDP sockets") {
            figure.tolerance = FLOW_SOCKETS;
        }
    }
    if *via == PortKind::Shm {
        // Connections to closed devices are removed within a tenth of a second, at the next lookup.
        let of_connections =
            |figure: &&mut Measurement| matches!(figure.name, "descriptors" | "abstract names");
        census.iter_mut().filter(of_connections).for_each(|figure| figure.tolerance = 24);
    }
    census
}

/// Returns the measurements when they equal those before, or after a limit: the device's thread needs a moment to
/// clean up.
fn measure_settled(places: &SystemNames, via: &PortKind, before: &Measurements) -> Measurements {
    let start = now();
    loop {
        let census = measure(places, via);
        if grown(before, &census).is_empty() || now() - start > WAIT_LIMIT {
            return census;
        }
        std::thread::yield_now();
    }
}

/// Runs rounds for a time, and prints the measurements.
fn soak(via: &PortKind, time: Duration) {
    let addresses = addresses(2 + ADDRESSES);
    let places = places(&addresses);
    Churn::new(via.clone(), &addresses).round();
    let closed = measure_without_devices(&places, via);

    let mut churn = Churn::new(via.clone(), &addresses);
    let start = now();
    let mut series = MeasurementSeries::default();
    // Until each address has been used, and a tenth of the time has passed.
    while churn.rounds * 4 < 256 || now() - start < time / 10 {
        churn.round();
    }
    for quarter in 0..=4 {
        while (now() - start) * 40 < time * (4 + 9 * quarter) {
            churn.round();
        }
        let when = if quarter == 0 { "warm".into() } else { format!("{} %", 25 * quarter) };
        series.push(when, measure(&places, via));
    }
    let counts = churn.counts;
    drop(churn);
    let mut ends = MeasurementSeries::default();
    ends.push("before", closed);
    ends.push("closed", measure_without_devices(&places, via));
    println!("\nvia {via}, {} s: {counts}", (now() - start).as_secs());
    println!("{}\nall devices closed:\n{}", series.table(), ends.table());
    let grown = [series, ends].map(|of| of.grown()).concat();
    assert!(grown.is_empty(), "via {via}: {grown:?}");
}

#[test]
#[ignore = "takes SOAK_SECONDS: tools/soak.sh"]
fn created_and_destroyed_objects_leak_nothing() {
    let time = Duration::from_secs(setting("SOAK_SECONDS", 10)) / 2;
    for via in [PortKind::Udp, PortKind::Shm] {
        soak(&via, time);
    }
}

/// Connects as many queue pairs as a device has sending sockets: 64.
fn fill_source_ports(ctx: &Context) {
    let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(1, None).unwrap());
    for _ in 0..400 {
        let qp = pd.create_qp(&QpConfig::rc(&cq)).unwrap();
        qp.connect(&qp.endpoint(), &ConnectOptions::default()).unwrap();
    }
}

/// Test that runs a peer.
const PEER: &str = "peer";

#[test]
fn peer() {
    if let Some(role) = process::role() {
        peers::write_for_ever(&role);
    }
}

#[test]
#[ignore = "takes SOAK_KILLS: tools/soak.sh"]
fn killed_peers_leak_nothing_in_the_survivor() {
    let (kills, seed) = (setting("SOAK_KILLS", 20).div_ceil(2), setting("SOAK_SEED", 1));
    println!("\nSOAK_SEED={seed}");
    let mut choice = Choice::new(seed);
    for via in [PortKind::Udp, PortKind::Shm] {
        let (at, hub_ip) = (addresses(16), fresh_ip());
        let places = places(&at);
        let hub = Context::open(OpenOptions::default().ip(hub_ip).via(via.clone())).unwrap();
        let mut connected = 0;
        let mut kill = |number: u64, after: Duration| {
            let ip = at[number as usize % at.len()];
            if peers::kill(PEER, &hub, &via, ip, after) == Killed::Connected {
                connected += 1;
            }
        };
        // It opens its maximum number of sending sockets.
        fill_source_ports(&hub);
        for number in 0..at.len() as u64 {
            kill(number, Duration::from_millis(100));
        }
        let before = measure(&places, &via);
        let mut series = MeasurementSeries::default();
        series.push("warm", before.clone());
        for number in 0..kills {
            let after = Duration::from_micros(choice.below(150_000));
            kill(number, after);
        }
        series.push("end", measure_settled(&places, &via, &before));
        println!("via {via}: {kills} killed, {connected} of them connected\n{}", series.table());
        assert_eq!(series.grown(), Vec::<String>::new(), "via {via}, seed {seed}");
    }
}
