//! Foreign packets from arbitrary bytes, with some fields corrected by flags, so that the fuzzer gets beyond the ICRC
//! check.

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use softroce::ids::{QKey, Qpn, Rkey, Srqn};
use softroce::wire::{Opcode, Transport};

/// Field values with which a packet passes the checks.
#[derive(Clone, Copy)]
pub struct Pass {
    pub transport: Transport,
    pub qpn: Qpn,
    /// First address and length of accessible memory.
    pub open: (u64, u64),
    pub rkey: Rkey,
    pub qkey: QKey,
    pub srqn: Srqn,
}

/// A packet from arbitrary bytes; flags select the fields to correct.
pub struct Draft {
    right: u8,
    psn: u8,
    bytes: Vec<u8>,
}

impl Draft {
    /// Corrects the opcode to one of the transport.
    const TRANSPORT: u8 = 1;
    const QPN: u8 = 1 << 1;
    /// Reduces the PSN to one byte near the expected one.
    const PSN: u8 = 1 << 2;
    /// Corrects remote key and address, or the number of the shared receive queue.
    const KEYS: u8 = 1 << 3;
    const PKEY: u8 = 1 << 4;
    const QKEY: u8 = 1 << 5;
    const ICRC: u8 = 1 << 6;
    /// Uses the peer's address as the source.
    const ADDRESS: u8 = 1 << 7;

    /// Parses the format of `run.sh`: flags, a PSN, a length of two bytes, and the packet.
    pub fn take(u: &mut Unstructured<'_>) -> Result<Self> {
        let (right, psn) = (u.arbitrary()?, u.arbitrary()?);
        let len = usize::from(u.arbitrary::<u16>()?).min(u.len());
        Ok(Self { right, psn, bytes: u.bytes(len)?.to_vec() })
    }

    pub fn is_sealed(&self) -> bool {
        self.right & Self::ICRC != 0 && self.bytes.len() >= 16
    }

    pub fn is_from_peer(&self) -> bool {
        self.right & Self::ADDRESS != 0
    }

    /// Returns the packet as number `place` of several similar ones.
    pub fn bytes(&self, pass: &Pass, place: u8) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let puts_right = |what| self.right & what != 0;
        if let Some((head, _)) = bytes.split_first_chunk_mut::<12>() {
            if puts_right(Self::TRANSPORT) {
                head[0] = head[0] & 0x1f | code(pass.transport);
            }
            if puts_right(Self::PKEY) {
                head[2..4].fill(0xff);
            }
            if puts_right(Self::QPN) {
                head[5..8].copy_from_slice(&pass.qpn.value().to_be_bytes()[1..]);
            }
            if puts_right(Self::PSN) {
                head[9..12].copy_from_slice(&[0, 0, self.psn.wrapping_add(place)]);
            }
        }
        if let Some(opcode) = bytes.first().and_then(|byte| Opcode::from_byte(*byte)) {
            let layout = opcode.layout();
            if puts_right(Self::KEYS) {
                for at in [layout.reth, layout.atomic_eth].into_iter().flatten() {
                    open(&mut bytes, at.into(), pass);
                }
                put(&mut bytes, layout.xrceth, pass.srqn.value());
            }
            if puts_right(Self::QKEY) {
                put(&mut bytes, layout.deth, pass.qkey.0);
            }
        }
        bytes
    }
}

/// Returns the upper three bits of a transport's opcodes.
fn code(transport: Transport) -> u8 {
    let first = Opcode::ALL.iter().find(|opcode| opcode.transport() == transport);
    first.map_or(0, |opcode| opcode.byte() & 0xe0)
}

/// Writes the key, and an address within or slightly beyond the accessible memory.
fn open(bytes: &mut [u8], at: usize, pass: &Pass) {
    let (first, len) = pass.open;
    let Some(header) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<12>()) else {
        return;
    };
    let [addr @ .., _, _, _, _] = *header;
    let addr = first + u64::from_be_bytes(addr) % (len + 64);
    header[..8].copy_from_slice(&addr.to_be_bytes());
    header[8..].copy_from_slice(&pass.rkey.0.to_be_bytes());
}

fn put(bytes: &mut [u8], at: Option<u8>, value: u32) {
    let room = at.and_then(|at| bytes.get_mut(usize::from(at)..));
    if let Some(header) = room.and_then(|rest| rest.first_chunk_mut::<4>()) {
        *header = value.to_be_bytes();
    }
}
