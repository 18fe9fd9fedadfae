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
        /// The sender's LID. RoCE has none: it is 0.
        const SLID = 1 << 4;
        /// The service level. RoCE has none: it is 0.
        const SL = 1 << 5;
        /// The low bits of the LID that it was sent to. RoCE has none: they are 0.
        const DLID_PATH_BITS = 1 << 6;
        /// [`Polling::completion_ts`](super::Polling::completion_ts).
        const COMPLETION_TIMESTAMP = 1 << 7;
        /// The VLAN: a socket does not tell.
        const CVLAN = 1 << 8;
        /// The tag of a flow rule, of which there are none.
        const FLOW_TAG = 1 << 9;
        /// Tag matching, of which there is none.
        const TM_INFO = 1 << 10;
        /// [`Polling::completion_wallclock`](super::Polling::completion_wallclock).
        const COMPLETION_TIMESTAMP_WALLCLOCK = 1 << 11;
    }
}

impl WcFlags {
    /// The fields that completions of this device have.
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
