//! The flush extended header: what FLUSH shall do, and to how much.
//!
//! ```text
//!      ┌───────────────────────────────────────────────────┬─────────┬─────────┐
//!   0  │ reserved 26                                       │ SEL 2   │ PLT 4   │
//!      └───────────────────────────────────────────────────┴─────────┴─────────┘
//! ```

use bitflags::bitflags;

bitflags! {
    /// How far earlier data must have got before FLUSH is answered. Bits without a name are kept.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Placement: u8 {
        /// Every reader of the memory sees it.
        #[doc(alias = "IBV_FLUSH_GLOBAL")]
        const GLOBAL_VISIBILITY = 1;
        /// It survives a loss of power.
        #[doc(alias = "IBV_FLUSH_PERSISTENT")]
        const PERSISTENCE = 2;
    }
}

/// How much memory a FLUSH is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Selectivity {
    /// The range that the RETH names.
    #[default]
    Range,
    /// The whole region of the key in the RETH.
    Region,
    /// Not assigned: 2 or 3.
    Reserved(u8),
}

impl Selectivity {
    /// The meaning of the 2-bit code.
    pub const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Range,
            1 => Self::Region,
            reserved => Self::Reserved(reserved),
        }
    }

    /// The 2-bit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Range => 0,
            Self::Region => 1,
            Self::Reserved(code) => code,
        }
    }
}

/// The flush extended header, which stands before the RETH (IBTA vol 1, annex A19).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlushEth {
    /// What shall be done.
    pub placement: Placement,
    /// To how much.
    pub selectivity: Selectivity,
}

impl FlushEth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the header.
    pub const fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let [_, _, _, bits] = *bytes;
        Self {
            placement: Placement::from_bits_retain(bits & 0x0f),
            selectivity: Selectivity::from_code(bits >> 4 & 3),
        }
    }

    /// Writes the header. Bits that do not fit their field are dropped.
    pub const fn write(&self, bytes: &mut [u8; Self::LEN]) {
        let [selectivity, placement] = [self.selectivity.code(), self.placement.bits()];
        *bytes = [0, 0, 0, (selectivity & 3) << 4 | placement & 0x0f];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let bytes = [0, 0, 0, 0x12];
        let feth = FlushEth { placement: Placement::PERSISTENCE, selectivity: Selectivity::Region };
        assert_eq!(FlushEth::parse(&bytes), feth);
        let mut out = [0xaa; FlushEth::LEN];
        feth.write(&mut out);
        assert_eq!(out, bytes);
    }
}
