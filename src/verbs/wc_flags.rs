//! Fields of completions.

use std::fmt;

use bitflags::bitflags;

use crate::engine::attr::list;

bitflags! {
    /// Fields of a completion that a program reads, by the names and values in verbs.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    #[doc(alias = "ibv_create_cq_wc_flags")]
    pub struct WcFlags: u64 {
        /// [`Polling::byte_len`](super::Polling::byte_len).
        const BYTE_LEN = 1;
        /// [`Polling::imm_data`](super::Polling::imm_data).
        const IMM = 1 << 1;
        /// [`Polling::qp_num`](super::Polling::qp_num).
        const QP_NUM = 1 << 2;
        /// [`Polling::src_qp`](super::Polling::src_qp).
        const SRC_QP = 1 << 3;
        /// LID of the sender, always 0: RoCE has no LIDs.
        const SLID = 1 << 4;
        /// Service level, always 0 in RoCE.
        const SL = 1 << 5;
        /// Low bits of the destination LID, always 0: RoCE has no LIDs.
        const DLID_PATH_BITS = 1 << 6;
        /// [`Polling::completion_ts`](super::Polling::completion_ts).
        const COMPLETION_TIMESTAMP = 1 << 7;
        /// VLAN. Not supported: a UDP socket does not report it.
        const CVLAN = 1 << 8;
        /// Tag of a flow steering rule. Not supported.
        const FLOW_TAG = 1 << 9;
        /// Tag matching. Not supported.
        const TM_INFO = 1 << 10;
        /// [`Polling::completion_wallclock`](super::Polling::completion_wallclock).
        const COMPLETION_TIMESTAMP_WALLCLOCK = 1 << 11;
    }
}

impl WcFlags {
    /// The fields that completions of this device contain.
    pub const SUPPORTED: Self =
        Self::all().difference(Self::CVLAN).difference(Self::FLOW_TAG).difference(Self::TM_INFO);
}

impl fmt::Display for WcFlags {
    /// The names with commas between them: `BYTE_LEN, IMM`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, self.iter_names().map(|(name, _)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_the_values_of_verbs() {
        assert_eq!(WcFlags::all().bits(), 0xfff);
        assert_eq!(WcFlags::SUPPORTED.bits(), 0x8ff);
        assert_eq!((WcFlags::FLOW_TAG | WcFlags::IMM).to_string(), "IMM, FLOW_TAG");
    }
}
