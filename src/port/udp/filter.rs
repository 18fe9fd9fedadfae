//! The packet filter of a UDP socket: see [`bpf`](crate::port::shared::bpf).

use socket2::Socket;

use crate::port::shared::bpf::program;

/// Bytes before the BTH in the program's view of a buffer.
const UDP_LEN: u32 = 8;

/// Attaches the filter. Without it, the engine drops such datagrams.
pub(super) fn attach(socket: &Socket) {
    // Some sandboxes lack the option.
    let _ = program(UDP_LEN).is_some_and(|program| socket.attach_filter(&program).is_ok());
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Buffer, burst, config, open, path, receive};
    use super::super::{PortConfig, UdpPort};
    use crate::net::{Burst, Path};
    use crate::port::{Control, Datapath};
    use crate::time::Instant;
    use crate::wire::Opcode;
    use crate::wire::packet::ICRC_LEN;

    /// Returns a datagram of `len` bytes that begins with `head`.
    fn datagram(head: &[u8], len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let head = &head[..head.len().min(len)];
        bytes[..head.len()].copy_from_slice(head);
        bytes
    }

    fn shortest(opcode: Opcode) -> usize {
        opcode.header_len() + ICRC_LEN
    }

    /// Returns a burst for each datagram.
    fn lone(path: Path, datagrams: &[Vec<u8>]) -> Vec<Burst> {
        let send = |bytes: &Vec<u8>| {
            let mut burst = burst(path, &[]);
            burst.push(bytes.len()).copy_from_slice(bytes);
            burst
        };
        datagrams.iter().map(send).collect()
    }

    fn send(port: &mut UdpPort, bursts: &[Burst]) {
        for some in bursts.chunks(16) {
            assert_eq!(port.transmit(Instant::ZERO, some), Ok(some.len()));
        }
    }

    /// Returns the number of these datagrams that arrive before a final one, and of those dropped.
    fn arrived(datagrams: &[Vec<u8>]) -> (usize, u64) {
        let (mut from, mut to) = (open(&config()), open(&config()));
        let path = path(&mut from, to.info().ip, 0xc000);
        let end = datagram(&[Opcode::RcSendOnly.byte()], 999);
        send(&mut from, &lone(path, datagrams));
        send(&mut from, &lone(path, &[end]));
        let is_end = |buffers: &[Buffer]| buffers.iter().any(|buffer| buffer.lens().contains(&999));
        let before = (0..=datagrams.len()).position(|_| is_end(&receive(&mut to, 1)));
        (before.expect("the last datagram, after all others"), to.counters().kernel_drops)
    }

    #[test]
    fn every_assigned_opcode_gets_through_and_no_other() {
        for opcode in Opcode::ALL {
            let head = [opcode.byte(), 0x40];
            let one = |len| [datagram(&head, len)];
            assert_eq!(arrived(&one(shortest(*opcode))), (1, 0), "{opcode:?}");
            assert_eq!(arrived(&one(shortest(*opcode) - 1)), (0, 1), "{opcode:?}");
        }
        let unassigned = (0..=u8::MAX).filter(|byte| Opcode::from_byte(*byte).is_none());
        let packets: Vec<_> = unassigned.map(|byte| datagram(&[byte, 0x40], 64)).collect();
        assert_eq!(arrived(&packets), (0, packets.len() as u64));
    }

    #[test]
    fn another_transport_version_and_what_has_no_header_are_dropped() {
        let versions: Vec<_> = (1..16).map(|version| datagram(&[4, version], 64)).collect();
        assert_eq!(arrived(&versions), (0, 15));
        let short: Vec<_> = (0..16).map(|len| datagram(&[4, 0x40], len)).collect();
        assert_eq!(arrived(&short), (0, 16));
    }

    #[test]
    fn merged_datagrams_stay_merged_and_are_judged_by_the_first() {
        for gro in [true, false] {
            let (mut from, mut to) = (open(&config()), open(&PortConfig { gro, ..config() }));
            let path = path(&mut from, to.info().ip, 0xc000);
            let merged = |heads: &[u8]| {
                let mut burst = burst(path, &[]);
                for head in heads {
                    let bytes = datagram(&[*head, 0x40], 1040);
                    burst.push(1040).copy_from_slice(&bytes);
                }
                burst
            };
            let middle = Opcode::RcSendMiddle.byte();
            let bursts =
                [merged(&[middle; 8]), merged(&[0xff; 8]), merged(&[middle, 0xff, middle])];
            send(&mut from, &bursts);
            let lens: Vec<_> = receive(&mut to, if gro { 11 } else { 10 })
                .iter()
                .map(|b| b.lens().len())
                .collect();
            match gro {
                true => assert_eq!((&lens[..], to.counters().kernel_drops), (&[8, 3][..], 1)),
                // The kernel splits the burst before the filter, which checks each datagram.
                false => assert_eq!((&lens[..], to.counters().kernel_drops), (&[1; 10][..], 9)),
            }
        }
    }
}
