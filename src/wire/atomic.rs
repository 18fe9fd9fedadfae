//! Headers of atomic requests and responses.
//!
//! ```text
//!   AtomicETH                                        AtomicAckETH
//!      ┌──────────────────────────────────────┐         ┌──────────────────────────────────────┐
//!   0  │ virtual address 64                   │      0  │ value found 64                       │
//!      ├──────────────────┬───────────────────┘         └──────────────────────────────────────┘
//!   8  │ R_Key 32         │
//!      ├──────────────────┴───────────────────┐
//!  12  │ value to swap in, or to add 64       │
//!      ├──────────────────────────────────────┤
//!  20  │ value to compare with 64             │
//!      └──────────────────────────────────────┘
//! ```
//!
//! Operands are 64-bit integers in the responder's byte order; on the wire they are big-endian (IBTA vol 1, §9.3.4,
//! §9.3.6).

use crate::ids::Rkey;

/// The AtomicETH of a COMPARE_SWAP or FETCH_ADD request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AtomicEth {
    /// Virtual address, a multiple of 8.
    pub addr: u64,
    /// Key of the memory.
    pub rkey: Rkey,
    /// Value to store (COMPARE_SWAP) or to add (FETCH_ADD).
    pub swap: u64,
    /// Expected value (COMPARE_SWAP), or 0 (FETCH_ADD).
    pub compare: u64,
}

impl AtomicEth {
    /// Length in bytes.
    pub const LEN: usize = 28;

    /// Parses the header.
    #[rustfmt::skip]
    pub const fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let [
            a0, a1, a2, a3, a4, a5, a6, a7,
            k0, k1, k2, k3,
            s0, s1, s2, s3, s4, s5, s6, s7,
            c0, c1, c2, c3, c4, c5, c6, c7,
        ] = *bytes;
        Self {
            addr: u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            rkey: Rkey(u32::from_be_bytes([k0, k1, k2, k3])),
            swap: u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
            compare: u64::from_be_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
        }
    }

    /// Writes the header.
    #[rustfmt::skip]
    pub const fn write(&self, bytes: &mut [u8; Self::LEN]) {
        let [a0, a1, a2, a3, a4, a5, a6, a7] = self.addr.to_be_bytes();
        let [k0, k1, k2, k3] = self.rkey.0.to_be_bytes();
        let [s0, s1, s2, s3, s4, s5, s6, s7] = self.swap.to_be_bytes();
        let [c0, c1, c2, c3, c4, c5, c6, c7] = self.compare.to_be_bytes();
        *bytes = [
            a0, a1, a2, a3, a4, a5, a6, a7,
            k0, k1, k2, k3,
            s0, s1, s2, s3, s4, s5, s6, s7,
            c0, c1, c2, c3, c4, c5, c6, c7,
        ];
    }
}

/// The AtomicAckETH of a response, after its AETH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AtomicAckEth {
    /// Value before the operation.
    pub original: u64,
}

impl AtomicAckEth {
    /// Length in bytes.
    pub const LEN: usize = 8;

    /// Parses the header.
    pub const fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self { original: u64::from_be_bytes(*bytes) }
    }

    /// Writes the header.
    pub const fn write(&self, bytes: &mut [u8; Self::LEN]) {
        *bytes = self.original.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomic_request_has_the_golden_bytes() {
        let bytes = [
            0, 0, 0x7f, 0x12, 0x34, 0x56, 0, 0, // address
            0, 0, 0x1a, 0x2b, // R_Key
            0x11, 0x11, 0x11, 0x11, 0x22, 0x22, 0x22, 0x22, // swap
            0x33, 0x33, 0x33, 0x33, 0x44, 0x44, 0x44, 0x44, // compare
        ];
        let eth = AtomicEth {
            addr: 0x7f12_3456_0000,
            rkey: Rkey(0x1a2b),
            swap: 0x1111_1111_2222_2222,
            compare: 0x3333_3333_4444_4444,
        };
        assert_eq!(AtomicEth::parse(&bytes), eth);
        let mut out = [0xaa; AtomicEth::LEN];
        eth.write(&mut out);
        assert_eq!(out, bytes);
    }

    #[test]
    fn atomic_response_has_the_golden_bytes() {
        let bytes = [0x33, 0x33, 0x33, 0x33, 0x44, 0x44, 0x44, 0x44];
        let eth = AtomicAckEth { original: 0x3333_3333_4444_4444 };
        assert_eq!(AtomicAckEth::parse(&bytes), eth);
        let mut out = [0xaa; AtomicAckEth::LEN];
        eth.write(&mut out);
        assert_eq!(out, bytes);
    }
}
