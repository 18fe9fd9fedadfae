//! A lossy network in virtual time: packets are lost, all data arrives, and every run with the same seed is
//! identical.
//!
//! ```text
//! lossy_sim [SEED]
//! ```
//!
//! The seed determines which packets are lost, and thus the whole run, so a failure can be reproduced exactly.
//! `drive_by_hand` explains how to drive engines; this example also builds with `--no-default-features`.

use std::env;
use std::error::Error;
use std::time::Duration;

use softroce::net::Burst;
use softroce::port::Datapath;
use softroce::port::sim::{Conditions, FaultDecision, Network};
use softroce::psn::Psn;
use softroce::time::Instant;
use softroce::transport::work::{RemoteAddr, SendRequest};
use softroce::wire::Datagram;
use softroce::wire::text::PacketLine;

use hosts::Host;

mod hosts;

const SIZE: u32 = 64 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let seed = env::args().nth(1).map_or(Ok(1), |text| text.parse())?;
    let network = Network::new(seed);
    let delay = Duration::from_micros(10);
    network.set_conditions(Conditions { delay, ..Conditions::default() });
    lose_some(&network, seed);
    let mut near = Host::new(&network, [10, 0, 0, 1])?;
    let mut far = Host::new(&network, [10, 0, 0, 2])?;
    near.connect(&far)?;
    far.connect(&near)?;

    let bytes: Vec<u8> = (0..SIZE / 4).flat_map(u32::to_le_bytes).collect();
    near.region.write_at(0, &bytes)?;
    let target = RemoteAddr { addr: far.region.addr(), rkey: far.region.rkey() };
    let write = SendRequest::write(1, near.sge(SIZE), target).signaled();
    let mut now = Instant::ZERO;
    near.engine.post_send(now, near.qpn, write)?;
    let completion = loop {
        while progress(&mut near, now)? | progress(&mut far, now)? {}
        if let Some((_, completion)) = near.engine.poll_completion() {
            break completion;
        }
        let next = [near.engine.poll_timeout(), far.engine.poll_timeout(), network.next_event()];
        now = next.into_iter().flatten().min().ok_or("no further event")?.max(now);
    };

    let mut seen = vec![0; bytes.len()];
    far.region.read_at(0, &mut seen)?;
    if seen != bytes {
        return Err("the data differs".into());
    }
    let [near, far] = [near.engine.counters(), far.engine.counters()];
    let sent = near.tx_packets + far.tx_packets;
    let lost = sent - near.rx_packets - far.rx_packets;
    println!("{now:?} {}: the data is correct", completion.status);
    println!("seed {seed}: {sent} packets sent, {lost} lost, {} retransmitted", near.retransmitted);
    Ok(())
}

/// Drops about one packet in twenty, and prints the drops and the recovery.
///
/// `Conditions { loss: 0.05, .. }` would also drop packets, without printing them.
fn lose_some(network: &Network, seed: u64) {
    let mut random = seed;
    // PSN after the newest request, and PSN after the last retransmitted request.
    let (mut newest, mut retransmitted) = (Psn::new(0), None);
    network.observe(move |seen| {
        let Ok(packet) = Datagram::parse(seen.datagram) else { return FaultDecision::ByConditions };
        let (from, line, psn) = (seen.path.source, PacketLine(&packet), packet.bth.psn);
        if !packet.bth.opcode.is_request() {
            println!("{:?} {from} responds: {line}", seen.at);
        } else if !psn.is_before(newest) {
            newest = psn.next();
        } else if retransmitted.replace(psn.next()) != Some(psn) {
            println!("{:?} {from} retransmits from {line} on", seen.at);
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if !(random >> 33).is_multiple_of(20) {
            return FaultDecision::ByConditions;
        }
        println!("{:?} lost: {line}", seen.at);
        FaultDecision::Drop
    });
}

/// Makes progress at this time. Returns whether there was any.
fn progress(host: &mut Host, now: Instant) -> Result<bool, Box<dyn Error>> {
    let Host { engine, port, .. } = host;
    let mut active = false;
    engine.handle_timeout(now);
    let mut burst = Burst::new();
    while engine.poll_transmit(now, &mut burst) {
        port.transmit(now, std::slice::from_ref(&burst))?;
        active = true;
    }
    Ok(active | (port.receive(now, &mut |buffer| engine.handle_buffer(now, buffer))? > 0))
}
