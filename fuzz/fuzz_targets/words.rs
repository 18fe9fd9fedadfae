//! Any text where a user writes a number, a time or a list of impairments; what is taken for one keeps to
//! its bounds, and datagrams get through or get lost.

#![no_main]

use std::hint::black_box;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use softroce::net::{Burst, BurstToken, Path};
use softroce::port::Datapath;
use softroce::port::impair::{Impair, Impairments};
use softroce::port::sim::{Conditions, Network};
use softroce::time::Instant;

#[path = "../../tools/cli/src/units.rs"]
mod units;

fuzz_target!(|text: &str| {
    if let Ok(impairments) = text.parse::<Impairments>() {
        let Conditions { loss, duplicate, reorder, corrupt, truncate, mark, .. } =
            impairments.conditions;
        let shares = [loss, duplicate, reorder, corrupt, truncate, mark];
        assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
        let Conditions { delay, jitter, .. } = impairments.conditions;
        assert!(delay.max(jitter) <= Duration::from_secs(3600));
        impaired(&impairments);
    }
    black_box(text.parse::<Impairments>().map_err(|error| error.to_string()).err());
    if let Ok(bytes) = units::message(text) {
        assert_eq!(units::bytes(text), Ok(bytes));
        assert!(bytes <= 1 << 31);
    }
    if let Ok(bytes) = units::full_message(text) {
        assert!(bytes > 0 && units::message(text) == Ok(bytes));
    }
    if let Ok(time) = units::seconds(text) {
        assert!(time > Duration::ZERO && units::moment(text) == Ok(time));
    }
    if let Ok(qpn) = units::qpn(text) {
        assert_eq!(units::qpn(&qpn.value().to_string()), Ok(qpn));
    }
    if let Ok(pkey) = units::pkey(text) {
        assert_eq!(units::pkey(&pkey.to_string()), Ok(pkey));
    }
    if let Ok(mtu) = units::mtu(text) {
        assert_eq!(units::mtu(&mtu.bytes().to_string()), Ok(mtu));
    }
});

/// Sends a burst to itself through such a port: what comes, comes at a time that it names.
fn impaired(impairments: &Impairments) {
    let ip = [10, 0, 0, 1].into();
    let mut port = Impair::new(Network::new(1).host(ip), impairments);
    let path =
        Path { source: ip, destination: ip, source_port: 0xc000, traffic_class: 0, hop_limit: 64 };
    let mut burst = Burst::new();
    burst.reset(path, BurstToken(0));
    burst.push(64).fill(1);
    burst.push(64).fill(2);
    let mut now = Instant::ZERO;
    let mut taken = port.transmit(now, std::slice::from_ref(&burst)).expect("nothing is refused");
    let mut received = 0;
    for _ in 0..64 {
        port.receive(now, &mut |rx| received += rx.segments().len()).expect("it cannot fail");
        let Some(next) = port.poll_timeout() else { break };
        assert!(next > now, "it says that it waits and does not");
        now = next;
        let rest = &[burst.clone()][taken..];
        taken += port.transmit(now, rest).expect("nothing is refused");
    }
    assert!(received <= 8, "each twice at most, on either side");
}
