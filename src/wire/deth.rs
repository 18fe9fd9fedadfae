//! The datagram extended transport header (DETH): queue key and source queue pair.
//!
//! ```text
//!      ┌───────────────────────────────────────────────────────────────────────┐
//!   0  │ Q_Key 32                                                              │
//!      ├───────────────────────────┬───────────────────────────────────────────┤
//!   4  │ reserved 8                │ source queue pair 24                      │
//!      └───────────────────────────┴───────────────────────────────────────────┘
//! ```

use crate::ids::{QKey, Qpn};

/// The datagram extended transport header of UD and RD requests (IBTA vol 1, §9.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Deth {
    /// Queue key. The receiver drops packets with another key than its own.
    pub qkey: QKey,
    /// Queue pair of the sender.
    pub source_qp: Qpn,
}

impl Deth {
    /// Length in bytes.
    pub const LEN: usize = 8;

    /// Parses the header.
    pub const fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let [k0, k1, k2, k3, _, qp0, qp1, qp2] = *bytes;
        Self {
            qkey: QKey(u32::from_be_bytes([k0, k1, k2, k3])),
            source_qp: Qpn::new(u32::from_be_bytes([0, qp0, qp1, qp2])),
        }
    }

    /// Writes the header.
    pub const fn write(&self, bytes: &mut [u8; Self::LEN]) {
        let [k0, k1, k2, k3] = self.qkey.0.to_be_bytes();
        let [_, qp0, qp1, qp2] = self.source_qp.value().to_be_bytes();
        *bytes = [k0, k1, k2, k3, 0, qp0, qp1, qp2];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let bytes = [0x11, 0x11, 0x11, 0x11, 0, 0, 0, 0x13];
        let deth = Deth { qkey: QKey(0x1111_1111), source_qp: Qpn::new(0x13) };
        assert_eq!(Deth::parse(&bytes), deth);
        let mut out = [0xaa; Deth::LEN];
        deth.write(&mut out);
        assert_eq!(out, bytes);
    }
}
