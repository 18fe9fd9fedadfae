//! Reads arbitrary bytes as a capture file, and dissects and formats every packet.

#![no_main]

use std::hint::black_box;

use libfuzzer_sys::fuzz_target;
use softroce::wire::cm::Message;
use softroce::wire::text::PacketLine;
use softroce_pcap::{Reader, decompressed, dissect};

fuzz_target!(|file: &[u8]| {
    let Ok(input) = decompressed(file) else { return };
    let Ok(mut reader) = Reader::new(input) else { return };
    while let Ok(Some(packet)) = reader.next_packet() {
        let Ok(Ok(Some(roce))) = packet.ip.map(dissect) else { continue };
        for datagram in roce.segments().filter_map(|segment| segment.datagram.ok()) {
            black_box(format!("{:#}", PacketLine(&datagram)));
            if let Some(Ok(message)) = Message::of(&datagram) {
                black_box(message.to_string());
            }
        }
    }
});
