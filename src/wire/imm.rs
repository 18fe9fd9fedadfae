//! Immediate data (ImmDt): four bytes for the receiver's completion.
//!
//! ```text
//!      ┌───────────────────────────────────────────────────────────────────────┐
//!   0  │ immediate data 32                                                     │
//!      └───────────────────────────────────────────────────────────────────────┘
//! ```

/// Immediate data, in host byte order; big-endian on the wire (IBTA vol 1, §9.3.7).
///
/// Verbs pass the four bytes in wire order. For applications that apply `htonl` and `ntohl` to `imm_data`, as most
/// do, this is their number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ImmDt(pub u32);

impl ImmDt {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Parses the header.
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
