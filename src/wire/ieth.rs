//! The invalidate extended transport header (IETH).
//!
//! ```text
//!      ┌───────────────────────────────────────────────────────────────────────┐
//!   0  │ R_Key 32                                                              │
//!      └───────────────────────────────────────────────────────────────────────┘
//! ```

use crate::ids::Rkey;

/// The key that the receiver of a SEND invalidates (IBTA vol 1, §9.3.8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ieth(pub Rkey);

impl Ieth {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Parses the header.
    pub const fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self(Rkey(u32::from_be_bytes(*bytes)))
    }

    /// Writes the header.
    pub const fn write(&self, bytes: &mut [u8; Self::LEN]) {
        *bytes = self.0.0.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let bytes = [0, 0, 0x1a, 0x2b];
        assert_eq!(Ieth::parse(&bytes), Ieth(Rkey(0x1a2b)));
        let mut out = [0xaa; Ieth::LEN];
        Ieth(Rkey(0x1a2b)).write(&mut out);
        assert_eq!(out, bytes);
    }
}
