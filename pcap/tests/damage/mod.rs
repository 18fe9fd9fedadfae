//! Golden captures, and ways to damage them.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::Path;

use proptest::prelude::*;
use softroce::wire::icrc;
use softroce_pcap::Reader;

/// Returns the IP packets of a golden capture.
pub(crate) fn golden(name: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("captures/rxe").join(name);
    let bytes = std::fs::read(path).unwrap();
    let mut reader = Reader::new(bytes.as_slice()).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        packets.extend(packet.ip.ok().map(<[u8]>::to_vec));
    }
    packets
}

/// A way to damage a capture.
#[derive(Clone, Debug)]
pub(crate) enum Damage {
    /// Flips a bit of a packet, and recomputes the ICRC so that other rules apply.
    Flip {
        at: usize,
        bit: usize,
    },
    /// Removes bytes at the end of the captured packet.
    Cut {
        at: usize,
        len: usize,
    },
    Swap {
        at: usize,
        with: usize,
    },
    Repeat {
        at: usize,
    },
    Lose {
        at: usize,
    },
    Noise {
        at: usize,
        bytes: Vec<u8>,
    },
}

pub(crate) fn damage() -> impl Strategy<Value = Damage> {
    let at = 0..10_000_usize;
    prop_oneof![
        6 => (at.clone(), 0..1000_usize).prop_map(|(at, bit)| Damage::Flip { at, bit }),
        2 => (at.clone(), 0..1200_usize).prop_map(|(at, len)| Damage::Cut { at, len }),
        3 => (at.clone(), at.clone()).prop_map(|(at, with)| Damage::Swap { at, with }),
        2 => at.clone().prop_map(|at| Damage::Repeat { at }),
        2 => at.clone().prop_map(|at| Damage::Lose { at }),
        1 => (at, proptest::collection::vec(any::<u8>(), 0..200))
            .prop_map(|(at, bytes)| Damage::Noise { at, bytes }),
    ]
}

pub(crate) fn apply(damage: &Damage, packets: &mut Vec<Vec<u8>>) {
    let n = packets.len();
    if n == 0 {
        return;
    }
    match damage {
        Damage::Flip { at, bit } => {
            let packet = &mut packets[at % n];
            let bits = packet.len() * 8;
            if bits > 0 {
                packet[bit % bits / 8] ^= 1 << (bit % 8);
            }
            seal(packet);
        }
        Damage::Cut { at, len } => {
            let packet = &mut packets[at % n];
            packet.truncate(len % (packet.len() + 1));
        }
        Damage::Swap { at, with } => packets.swap(at % n, with % n),
        Damage::Repeat { at } => packets.insert(at % n, packets[at % n].clone()),
        Damage::Lose { at } => drop(packets.remove(at % n)),
        Damage::Noise { at, bytes } => packets.insert(at % n, bytes.clone()),
    }
}

pub(crate) fn seal(packet: &mut [u8]) {
    if let Some((good, _)) = icrc::of_ip_packet(packet) {
        let udp = if packet[0] >> 4 == 4 { 20 } else { 40 };
        let end = udp + usize::from(u16::from_be_bytes([packet[udp + 4], packet[udp + 5]]));
        packet[end - 4..end].copy_from_slice(&good.to_le_bytes());
    }
}
