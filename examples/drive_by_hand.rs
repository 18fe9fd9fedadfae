//! The protocol engine without the runtime: two engines, two ports, and an event loop.
//!
//! An engine has no clock, no thread and no socket. The caller passes the time and received datagrams to it, and
//! takes the bursts to send from it. In this example the time is a number and the network is simulated; with a clock
//! and sockets the loop is the same. The example also builds with `--no-default-features`.

use std::error::Error;

use softroce::net::Burst;
use softroce::port::Datapath;
use softroce::port::sim::{Conditions, Network};
use softroce::time::Instant;
use softroce::transport::work::{RecvRequest, SendRequest};

use hosts::Host;

mod hosts;

fn main() -> Result<(), Box<dyn Error>> {
    let network = Network::new(1);
    let delay = std::time::Duration::from_micros(5);
    network.set_conditions(Conditions { delay, ..Conditions::default() });
    let mut a = Host::new(&network, [10, 0, 0, 1])?;
    let mut b = Host::new(&network, [10, 0, 0, 2])?;
    a.connect(&b)?;
    b.connect(&a)?;

    let mut now = Instant::ZERO;
    b.engine.post_recv(now, b.qpn, RecvRequest::new(1, b.sge(64)))?;
    a.region.write_at(0, b"hello")?;
    a.engine.post_send(now, a.qpn, SendRequest::send(2, a.sge(5)).signaled())?;

    // Let both hosts make progress, then advance the time to the next event.
    loop {
        while progress(&mut a, now)? | progress(&mut b, now)? {}
        let next = [a.engine.poll_timeout(), b.engine.poll_timeout(), network.next_event()];
        match next.into_iter().flatten().min() {
            Some(next) => now = now.max(next),
            None => break,
        }
    }

    let mut seen = [0; 5];
    b.region.read_at(0, &mut seen)?;
    println!("the memory of {} contains {:?}", b.ip, std::str::from_utf8(&seen)?);
    Ok(())
}

/// Makes progress at this time. Returns whether there was any.
fn progress(host: &mut Host, now: Instant) -> Result<bool, Box<dyn Error>> {
    let Host { ip, engine, port, .. } = host;
    let mut active = false;

    // The time is an input of the engine.
    engine.handle_timeout(now);

    // Outputs: bursts of datagrams. A port may take fewer bursts than offered, and reports when to offer the rest
    // again. The simulated port takes all.
    let mut burst = Burst::new();
    while engine.poll_transmit(now, &mut burst) {
        println!("{now:?} {ip} sends {} datagram(s) to {}", burst.len(), burst.path.destination);
        port.transmit(now, std::slice::from_ref(&burst))?;
        active = true;
    }

    // Inputs: received datagrams. After `handle_buffer` their payload is in memory.
    active |= port.receive(now, &mut |buffer| engine.handle_buffer(now, buffer))? > 0;

    while let Some((_, completion)) = engine.poll_completion() {
        println!("{now:?} {ip} request {} ends: {}", completion.wr_id, completion.status);
    }
    Ok(active)
}
