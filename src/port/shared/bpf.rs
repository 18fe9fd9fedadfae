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
struct OpcodeRange {
    opcodes: Range<u16>,
    min_len: Option<u32>,
}

/// Returns the ranges of all 256 opcodes in order, for a BTH at offset `at`.
fn opcode_ranges(at: u32) -> Vec<OpcodeRange> {
    let mut opcode_ranges: Vec<OpcodeRange> = Vec::new();
    for byte in 0..=u8::MAX {
        let min_len = Opcode::from_byte(byte)
            .and_then(|opcode| u32::try_from(opcode.header_len() + ICRC_LEN).ok())
            .map(|len| at + len);
        let opcode = u16::from(byte);
        match opcode_ranges.last_mut() {
            Some(range) if range.min_len == min_len => range.opcodes.end = opcode + 1,
            _ => opcode_ranges.push(OpcodeRange { opcodes: opcode..opcode + 1, min_len }),
        }
    }
    opcode_ranges
}

pub(in crate::port) const LOAD_BYTE: u16 = 0x30;
pub(in crate::port) const LOAD_WORD: u16 = 0x20;
const LOAD_LENGTH: u16 = 0x80;
pub(in crate::port) const AND: u16 = 0x54;
pub(in crate::port) const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
pub(in crate::port) const RETURN: u16 = 0x06;

/// Offset in the BTH of the word with the destination QP.
pub(in crate::port) const DEST_QP_OFFSET: u32 = 4;

pub(in crate::port) const fn insn(code: u16, operand: u32) -> SockFilter {
    SockFilter::new(code, 0, 0, operand)
}

/// `ret #0`: accepts no bytes.
pub(in crate::port) const DROP: SockFilter = insn(RETURN, 0);
const ACCEPT: SockFilter = insn(RETURN, u32::MAX);

/// Drops the buffer unless the loaded value is `value`.
pub(in crate::port) const fn require(value: u32) -> [SockFilter; 2] {
    [SockFilter::new(JUMP_IF_EQUAL, 1, 0, value), DROP]
}

/// Returns a program that accepts RoCEv2 packets with their BTH at offset `at`. `None` if an offset or a jump does not
/// fit.
pub(in crate::port) fn program(at: u32) -> Option<Vec<SockFilter>> {
    let min_len = at + u32::try_from(Bth::LEN + ICRC_LEN).ok()?;
    let mut program =
        vec![insn(LOAD_LENGTH, 0), SockFilter::new(JUMP_IF_AT_LEAST, 1, 0, min_len), DROP];
    // The transport version: the low half of the byte behind the opcode.
    program.extend([insn(LOAD_BYTE, at + 1), insn(AND, 0xf)]);
    program.extend(require(0));
    program.push(insn(LOAD_BYTE, at));
    program.extend(search(&opcode_ranges(at))?);
    Some(program)
}

/// Returns a binary search for the range of the loaded byte.
fn search(opcode_ranges: &[OpcodeRange]) -> Option<Vec<SockFilter>> {
    match opcode_ranges {
        [] => None,
        [OpcodeRange { min_len: None, .. }] => Some(vec![DROP]),
        [OpcodeRange { min_len: Some(min_len), .. }] => Some(vec![
            insn(LOAD_LENGTH, 0),
            SockFilter::new(JUMP_IF_AT_LEAST, 1, 0, *min_len),
            DROP,
            ACCEPT,
        ]),
        _ => {
            let (low, high) = opcode_ranges.split_at(opcode_ranges.len() / 2);
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
