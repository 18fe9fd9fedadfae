//! The flush extended transport header (FETH).
//!
//! ```text
//!      ┌───────────────────────────────────────────────────┬─────────┬─────────┐
//!   0  │ reserved 26                                       │ SEL 2   │ PLT 4   │
//!      └───────────────────────────────────────────────────┴─────────┴─────────┘
//! ```

use bitflags::bitflags;

bitflags! {
    /// Placement type: the guarantee that a FLUSH requests for earlier writes. Unassigned bits are kept.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Placement: u8 {
        /// Global visibility: every reader of the memory sees the writes.
        #[doc(alias = "IBV_FLUSH_GLOBAL")]
        const GLOBAL_VISIBILITY = 1;
        /// Persistence: the writes survive a power loss.
        #[doc(alias = "IBV_FLUSH_PERSISTENT")]
        const PERSISTENCE = 2;
    }
}

/// Selectivity level: the memory that a FLUSH applies to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Selectivity {
    /// The range in the RETH.
    #[default]
    Range,
    /// The whole memory region of the key in the RETH.
    Region,
    /// Reserved codes 2 and 3.
    Reserved(u8),
}

impl Selectivity {
    /// Returns the meaning of the 2-bit code.
    pub const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Range,
            1 => Self::Region,
            reserved => Self::Reserved(reserved),
        }
    }

    /// Returns the 2-bit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Range => 0,
            Self::Region => 1,
            Self::Reserved(code) => code,
        }
    }
}

/// The flush extended transport header, before the RETH (IBTA vol 1, annex A19).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlushEth {
    /// Placement type.
    pub placement: Placement,
    /// Selectivity level.
    pub selectivity: Selectivity,
}

impl FlushEth {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Parses the header.
    pub const fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let [_, _, _, bits] = *bytes;
        Self {
            placement: Placement::from_bits_retain(bits & 0x0f),
            selectivity: Selectivity::from_code(bits >> 4 & 3),
        }
    }

    /// Writes the header, with the bits that fit each field.
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
