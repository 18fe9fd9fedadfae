//! The RDMA extended transport header (RETH): memory of the responder for an operation.
//!
//! ```text
//!      ┌───────────────────────────────────────────────────────────────────────┐
//!   0  │ virtual address 64                                                    │
//!      │                                                                       │
//!      ├───────────────────────────────────────────────────────────────────────┤
//!   8  │ R_Key 32                                                              │
//!      ├───────────────────────────────────────────────────────────────────────┤
//!  12  │ DMA length 32                                                         │
//!      └───────────────────────────────────────────────────────────────────────┘
//! ```

use crate::ids::Rkey;

/// The RDMA extended transport header (IBTA vol 1, §9.3.3). It is in the first packet of a message and describes the
/// whole message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Reth {
    /// Virtual address of the first byte.
    pub addr: u64,
    /// Key of the memory.
    pub rkey: Rkey,
    /// Length of the message in bytes, at most 2^31.
    pub length: u32,
}

impl Reth {
    /// Length in bytes.
    pub const LEN: usize = 16;

    /// Parses the header.
    pub const fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let [a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3, l0, l1, l2, l3] = *bytes;
        Self {
            addr: u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            rkey: Rkey(u32::from_be_bytes([k0, k1, k2, k3])),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
        }
    }

    /// Writes the header.
    pub const fn write(&self, bytes: &mut [u8; Self::LEN]) {
        let [a0, a1, a2, a3, a4, a5, a6, a7] = self.addr.to_be_bytes();
        let [k0, k1, k2, k3] = self.rkey.0.to_be_bytes();
        let [l0, l1, l2, l3] = self.length.to_be_bytes();
        *bytes = [a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3, l0, l1, l2, l3];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let bytes = [0, 0, 0x7f, 0x12, 0x34, 0x56, 0, 0, 0, 0, 0x1a, 0x2b, 0, 0, 0x02, 0x58];
        let reth = Reth { addr: 0x7f12_3456_0000, rkey: Rkey(0x1a2b), length: 600 };
        assert_eq!(Reth::parse(&bytes), reth);
        let mut out = [0xaa; Reth::LEN];
        reth.write(&mut out);
        assert_eq!(out, bytes);
    }
}
