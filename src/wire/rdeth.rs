//! The reliable datagram extended transport header (RDETH).
//!
//! ```text
//!      ┌───────────────────────────┬───────────────────────────────────────────┐
//!   0  │ reserved 8                │ end-to-end context 24                     │
//!      └───────────────────────────┴───────────────────────────────────────────┘
//! ```
//!
//! No adapter implements RD; this parser serves dissection of captures.

/// The reliable datagram extended transport header (IBTA vol 1, §9.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RdEth {
    /// Number of the end-to-end context, 24 bits.
    pub ee_context: u32,
}

impl RdEth {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Parses the header.
    pub const fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let [_, n0, n1, n2] = *bytes;
        Self { ee_context: u32::from_be_bytes([0, n0, n1, n2]) }
    }

    /// Writes the header, with the low 24 bits of `ee_context`.
    pub const fn write(&self, bytes: &mut [u8; Self::LEN]) {
        let [_, n0, n1, n2] = self.ee_context.to_be_bytes();
        *bytes = [0, n0, n1, n2];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let bytes = [0, 0xab, 0xcd, 0xef];
        assert_eq!(RdEth::parse(&bytes), RdEth { ee_context: 0xab_cdef });
        let mut out = [0xaa; RdEth::LEN];
        RdEth { ee_context: 0xab_cdef }.write(&mut out);
        assert_eq!(out, bytes);
    }
}
