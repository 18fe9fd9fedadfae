//! Parses arbitrary bytes as an IP packet; its parts are disjoint and have the lengths that the headers announce.

#![no_main]

use libfuzzer_sys::fuzz_target;
use softroce_pcap::{Extent, dissect};

fuzz_target!(|ip_packet: &[u8]| {
    let Ok(Some(whole)) = dissect(ip_packet) else { return };
    let mut end = 0;
    for (place, segment) in whole.segments().enumerate() {
        assert!(segment.ip.payload.len() <= segment.udp_len);
        if let Extent::Segment { index, of } = segment.extent {
            assert!(index == place && place < of);
        }
        if let Ok(datagram) = &segment.datagram {
            assert!(datagram.payload.len() <= datagram.payload_len);
            assert!(datagram.payload_len < segment.udp_len);
        }
        end += segment.ip.payload.len();
    }
    assert_eq!(end, whole.ip.payload.len());
});
