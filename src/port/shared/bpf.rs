//! The filter by which the kernel drops datagrams that no engine takes, by length, transport version and opcode.
//!
//! The program is classic BPF, which needs no privileges. It sees a buffer from its UDP header on (on a packet socket,
//! from the Ethernet header on). A buffer is one datagram or several merged ones, as GRO runs before the filter. The
//! filter looks at the first datagram; all merged ones come from one socket.
//!
//! Dropped datagrams take no space of the receive buffer and wake no thread. The kernel counts them together with those
//! dropped for lack of space.

use std::ops::Range;

use socket2::SockFilter;

use crate::wire::packet::ICRC_LEN;
use crate::wire::{Bth, Opcode};

/// Consecutive opcodes with the same minimum length of a datagram, including the bytes before the BTH. `None` for
/// unassigned opcodes.
struct Run {
    opcodes: Range<u16>,
    shortest: Option<u32>,
}

/// Returns the ranges of all 256 opcodes in order, for a BTH at offset `at`.
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

/// Offset in the BTH of the word with the destination QP.
pub(in crate::port) const DEST_QP: u32 = 4;

pub(in crate::port) const fn step(code: u16, operand: u32) -> SockFilter {
    SockFilter::new(code, 0, 0, operand)
}

/// `ret #0`: accepts no bytes.
pub(in crate::port) const DROP: SockFilter = step(RETURN, 0);
const TAKE: SockFilter = step(RETURN, u32::MAX);

/// Drops the buffer unless the loaded value is `value`.
pub(in crate::port) const fn require(value: u32) -> [SockFilter; 2] {
    [SockFilter::new(JUMP_IF_EQUAL, 1, 0, value), DROP]
}

/// Returns a program that accepts RoCEv2 packets with their BTH at offset `at`. `None` if an offset or a jump does not
/// fit.
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

/// Returns a binary search for the range of the loaded byte.
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
