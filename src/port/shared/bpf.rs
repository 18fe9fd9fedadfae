//! What the kernel drops for us: datagrams that no engine takes, by their length, transport version and
//! opcode.
//!
//! The program is classic BPF, which needs no privileges. It sees a buffer from its UDP header on (a packet
//! socket, from its Ethernet header on): one datagram, or several that the kernel has merged, for merging comes first. It looks at the first of
//! them; what is merged comes from one socket.
//!
//! Dropped datagrams take no room in the receive buffer and wake no thread. The kernel counts it with
//! what found no room, and does not say why.

use std::ops::Range;

use socket2::SockFilter;

use crate::wire::packet::ICRC_LEN;
use crate::wire::{Bth, Opcode};

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

pub(in crate::port) const LOAD_BYTE: u16 = 0x30;
pub(in crate::port) const LOAD_WORD: u16 = 0x20;
const LOAD_LENGTH: u16 = 0x80;
pub(in crate::port) const AND: u16 = 0x54;
pub(in crate::port) const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
pub(in crate::port) const RETURN: u16 = 0x06;

/// Offset of the reserved byte and the destination in the BTH.
pub(in crate::port) const DEST_QP: u32 = 4;

pub(in crate::port) const fn step(code: u16, operand: u32) -> SockFilter {
    SockFilter::new(code, 0, 0, operand)
}

/// `ret #0`: take no bytes.
pub(in crate::port) const DROP: SockFilter = step(RETURN, 0);
const TAKE: SockFilter = step(RETURN, u32::MAX);

/// Drops it when what was loaded is another value.
pub(in crate::port) const fn require(value: u32) -> [SockFilter; 2] {
    [SockFilter::new(JUMP_IF_EQUAL, 1, 0, value), DROP]
}

/// Takes what has the BTH of a packet `at` so many bytes; `None` when that cannot be written.
pub(in crate::port) fn program(at: u32) -> Option<Vec<SockFilter>> {
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
