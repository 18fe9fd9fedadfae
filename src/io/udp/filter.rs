//! What the kernel drops for us: datagrams that no engine takes, by their length, transport version and
//! opcode.
//!
//! The program is classic BPF, which needs no privileges. It sees a buffer from its UDP header on (a packet
//! socket, from its Ethernet header on): one datagram, or several that the kernel has merged, for merging comes first. It looks at the first of
//! them; what is merged comes from one socket.
//!
//! What is dropped here takes no place in the receive buffer and wakes nobody. The kernel counts it with
//! what found no room, and does not say why.

use std::ops::Range;

use socket2::{SockFilter, Socket};

use crate::wire::packet::ICRC_LEN;
use crate::wire::{Bth, Opcode};

/// Bytes before the BTH that a UDP socket's program sees.
const UDP_LEN: u32 = 8;

/// Has the kernel drop what makes no packet. Where it cannot, the engine does.
pub(super) fn attach(socket: &Socket) {
    // Not every sandbox has the option.
    let _ = program(UDP_LEN).is_some_and(|program| socket.attach_filter(&program).is_ok());
}

/// Opcodes of which the shortest datagram has this length, with what is before the BTH; `None`: they are
/// not assigned.
struct Run {
    opcodes: Range<u16>,
    shortest: Option<u32>,
}

/// Every byte that an opcode can be, in order. The BTH is `at` so many bytes.
fn runs(at: u32) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for byte in 0..=u8::MAX {
        let shortest = Opcode::from_byte(byte)
            .and_then(|opcode| u32::try_from(opcode.header_len() + ICRC_LEN).ok())
            .map(|len| at + len);
        let opcode = u16::from(byte);
        match runs.last_mut() {
            Some(run) if run.shortest == shortest => run.opcodes.end = opcode + 1,
            _ => runs.push(Run { opcodes: opcode..opcode + 1, shortest }),
        }
    }
    runs
}

pub(in crate::io) const LOAD_BYTE: u16 = 0x30;
pub(in crate::io) const LOAD_WORD: u16 = 0x20;
const LOAD_LENGTH: u16 = 0x80;
pub(in crate::io) const AND: u16 = 0x54;
pub(in crate::io) const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
pub(super) const RETURN: u16 = 0x06;

/// Where the BTH has a reserved byte and the destination.
pub(in crate::io) const DEST_QP: u32 = 4;

pub(in crate::io) const fn step(code: u16, operand: u32) -> SockFilter {
    SockFilter::new(code, 0, 0, operand)
}

/// `ret #0`: take no bytes.
pub(in crate::io) const DROP: SockFilter = step(RETURN, 0);
const TAKE: SockFilter = step(RETURN, u32::MAX);

/// Drops it when what was loaded is another value.
pub(in crate::io) const fn require(value: u32) -> [SockFilter; 2] {
    [SockFilter::new(JUMP_IF_EQUAL, 1, 0, value), DROP]
}

/// Takes what has the BTH of a packet `at` so many bytes; `None` when that cannot be written.
pub(in crate::io) fn program(at: u32) -> Option<Vec<SockFilter>> {
    let shortest = at + u32::try_from(Bth::LEN + ICRC_LEN).ok()?;
    let mut program =
        vec![step(LOAD_LENGTH, 0), SockFilter::new(JUMP_IF_AT_LEAST, 1, 0, shortest), DROP];
    // The transport version: the low half of the byte behind the opcode.
    program.extend([step(LOAD_BYTE, at + 1), step(AND, 0xf)]);
    program.extend(require(0));
    program.push(step(LOAD_BYTE, at));
    program.extend(search(&runs(at))?);
    Some(program)
}

/// Looks for the run that the loaded byte is in, by halves.
fn search(runs: &[Run]) -> Option<Vec<SockFilter>> {
    match runs {
        [] => None,
        [Run { shortest: None, .. }] => Some(vec![DROP]),
        [Run { shortest: Some(shortest), .. }] => Some(vec![
            step(LOAD_LENGTH, 0),
            SockFilter::new(JUMP_IF_AT_LEAST, 1, 0, *shortest),
            DROP,
            TAKE,
        ]),
        _ => {
            let (low, high) = runs.split_at(runs.len() / 2);
            let first = u32::from(high.first()?.opcodes.start);
            let low = search(low)?;
            let over = u8::try_from(low.len()).ok()?;
            let mut program = vec![SockFilter::new(JUMP_IF_AT_LEAST, over, 0, first)];
            program.extend(low);
            program.extend(search(high)?);
            Some(program)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Buffer, burst, config, open, path, receive};
    use super::super::{UdpConfig, UdpPort};
    use super::*;
    use crate::io::Port;
    use crate::net::{Burst, Path};
    use crate::time::Instant;

    /// A datagram of `len` bytes that begins so.
    fn datagram(head: &[u8], len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let head = &head[..head.len().min(len)];
        bytes[..head.len()].copy_from_slice(head);
        bytes
    }

    fn shortest(opcode: Opcode) -> usize {
        opcode.header_len() + ICRC_LEN
    }

    /// One burst a datagram.
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

    /// What arrives of these datagrams and of a last one, behind which nothing is under way.
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
            let (mut from, mut to) = (open(&config()), open(&UdpConfig { gro, ..config() }));
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
                // Cut first, and each looked at.
                false => assert_eq!((&lens[..], to.counters().kernel_drops), (&[1; 10][..], 9)),
            }
        }
    }
}
