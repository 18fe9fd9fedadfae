//! Immediate data: four bytes for the receiver's completion.
//!
//! ```text
//!      ┌───────────────────────────────────────────────────────────────────────┐
//!   0  │ immediate data 32                                                     │
//!      └───────────────────────────────────────────────────────────────────────┘
//! ```

/// Immediate data, in host order; on the wire big-endian (IBTA vol 1, §9.3.7).
///
/// Verbs hand the four bytes over as they are on the wire. An application that uses `htonl` and
/// `ntohl` on `imm_data`, as most do, means this number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ImmDt(pub u32);

impl ImmDt {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the header.
    pub const fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self(u32::from_be_bytes(*bytes))
    }

    /// Writes the header.
    pub const fn write(&self, bytes: &mut [u8; Self::LEN]) {
        *bytes = self.0.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let bytes = [0xde, 0xad, 0xbe, 0xef];
        assert_eq!(ImmDt::parse(&bytes), ImmDt(0xdead_beef));
        let mut out = [0xaa; ImmDt::LEN];
        ImmDt(0xdead_beef).write(&mut out);
        assert_eq!(out, bytes);
    }
}
