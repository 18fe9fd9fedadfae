//! Completions.

use softroce::verbs::{Completion, IpVersion, Qpn, WcOpcode, WcStatus};

use crate::abi::{WC_GRH, WC_WITH_IMM, WC_WITH_INV, Wc};

/// Returns immediate data in network byte order, or the invalidated key.
pub(crate) fn imm_or_key(completion: &Completion) -> u32 {
    let key = completion.invalidated.map(|key| key.0);
    completion.imm.map(u32::to_be).or(key).unwrap_or(0)
}

/// Returns the flags of a completion. Each successful receive has `IBV_WC_GRH`, as with rxe: every packet of RoCE has an
/// IP header, which is the GRH. Only a UD receive has it in the buffer.
pub(crate) fn wc_flags(completion: &Completion) -> u32 {
    let flag = |is_there: bool, flag: u32| if is_there { flag } else { 0 };
    let is_receive = matches!(completion.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
    let is_received = is_receive && completion.status == WcStatus::Success;
    flag(is_received, WC_GRH)
        | flag(completion.imm.is_some(), WC_WITH_IMM)
        | flag(completion.invalidated.is_some(), WC_WITH_INV)
}

/// Returns the service level of a completion. Only InfiniBand has service levels; on Ethernet ConnectX reports
/// the headers of a datagram in this field, and UCX relies on it: UDP (8) over IPv6 (1) or IPv4 (2).
pub(crate) fn service_level(completion: &Completion) -> u8 {
    match completion.ip_version {
        None => 0,
        Some(IpVersion::V6) => 8 | 1,
        Some(IpVersion::V4) => 8 | 2,
    }
}

/// Returns the completion as `ibv_wc`.
pub(crate) fn wc(completion: &Completion) -> Wc {
    Wc {
        wr_id: completion.wr_id,
        status: completion.status as u32,
        opcode: completion.opcode as u32,
        vendor_err: 0,
        byte_len: completion.byte_len,
        imm_or_key: imm_or_key(completion),
        qp_num: completion.qpn.value(),
        src_qp: completion.source_qp.map_or(0, |qpn| qpn.value()),
        wc_flags: wc_flags(completion),
        pkey_index: 0,
        slid: 0,
        sl: service_level(completion),
        dlid_path_bits: 0,
    }
}

/// Returns the completion of a received message, without its immediate data and address.
pub(crate) fn received(wc: &Wc) -> Completion {
    Completion {
        wr_id: wc.wr_id,
        status: if wc.status == 0 { WcStatus::Success } else { WcStatus::GeneralErr },
        opcode: WcOpcode::Recv,
        byte_len: wc.byte_len,
        imm: None,
        invalidated: None,
        qpn: Qpn::new(wc.qp_num),
        source_qp: Some(Qpn::new(wc.src_qp)),
        ip_version: None,
        solicited: false,
    }
}
