//! The XRC extended transport header (XRCETH): shared receive queue of a request.
//!
//! ```text
//!      ┌───────────────────────────┬───────────────────────────────────────────┐
//!   0  │ reserved 8                │ shared receive queue 24                   │
//!      └───────────────────────────┴───────────────────────────────────────────┘
//! ```

/// The XRC extended transport header, in every request packet of an XRC queue pair (IBTA vol 1, annex A14).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct XrcEth {
    /// Number of the receiver's shared receive queue, 24 bits.
    pub srqn: u32,
}

impl XrcEth {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Parses the header.
    pub const fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let [_, n0, n1, n2] = *bytes;
        Self { srqn: u32::from_be_bytes([0, n0, n1, n2]) }
    }

    /// Writes the header, with the low 24 bits of `srqn`.
    pub const fn write(&self, bytes: &mut [u8; Self::LEN]) {
        let [_, n0, n1, n2] = self.srqn.to_be_bytes();
        *bytes = [0, n0, n1, n2];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let bytes = [0, 0, 0x04, 0x56];
        assert_eq!(XrcEth::parse(&bytes), XrcEth { srqn: 0x456 });
        let mut out = [0xaa; XrcEth::LEN];
        XrcEth { srqn: 0x456 }.write(&mut out);
        assert_eq!(out, bytes);
    }
}
