//! Attributes of queue pairs and addresses, as the kernel returns them.

use softroce::verbs::{AddressVector, QpAttr};

use crate::abi::{self, AhAttr, KernelAhAttr, KernelQpAttr, KernelQpAttrEnd, QpCap};

/// The only port.
const PORT: u8 = 1;

/// Zeros.
const NO_ADDRESS: KernelAhAttr = KernelAhAttr {
    dgid: [0; 16],
    flow_label: 0,
    sgid_index: 0,
    hop_limit: 0,
    traffic_class: 0,
    reserved: 0,
    dlid: 0,
    sl: 0,
    src_path_bits: 0,
    static_rate: 0,
    is_global: 0,
    port_num: 0,
    padding: 0,
};

/// Returns an address, or zeros for none.
pub(crate) fn kernel_address(av: Option<&AddressVector>) -> KernelAhAttr {
    av.map_or(NO_ADDRESS, |av| KernelAhAttr {
        dgid: av.gid.0,
        flow_label: av.flow_label,
        sgid_index: av.sgid_index,
        hop_limit: av.hop_limit,
        traffic_class: av.traffic_class,
        is_global: 1,
        port_num: PORT,
        ..NO_ADDRESS
    })
}

/// Returns attributes with their mask.
pub(crate) fn kernel_attr(attr: &QpAttr) -> KernelQpAttr {
    let state = attr.state.map_or(0, |state| state as u32);
    KernelQpAttr {
        mask: attr.mask().bits(),
        qp_state: state,
        cur_qp_state: attr.cur_state.map_or(0, |state| state as u32),
        path_mtu: attr.path_mtu.map_or(0, |mtu| mtu as u32),
        path_mig_state: 0,
        qkey: attr.qkey.unwrap_or_default().0,
        rq_psn: attr.rq_psn.unwrap_or_default().value(),
        sq_psn: attr.sq_psn.unwrap_or_default().value(),
        dest_qp_num: attr.dest_qpn.unwrap_or_default().value(),
        qp_access_flags: attr.access.unwrap_or_default().bits(),
        ah_attr: kernel_address(attr.av.as_ref()),
        alt_ah_attr: NO_ADDRESS,
        cap: QpCap {
            max_send_wr: 0,
            max_recv_wr: 0,
            max_send_sge: 0,
            max_recv_sge: 0,
            max_inline_data: 0,
        },
        end: KernelQpAttrEnd {
            pkey_index: attr.pkey_index.unwrap_or_default(),
            alt_pkey_index: 0,
            en_sqd_async_notify: attr.en_sqd_async_notify.unwrap_or_default().into(),
            sq_draining: 0,
            max_rd_atomic: attr.max_rd_atomic.unwrap_or_default(),
            max_dest_rd_atomic: attr.max_dest_rd_atomic.unwrap_or_default(),
            min_rnr_timer: attr.min_rnr_timer.unwrap_or_default().code(),
            port_num: attr.port_num.unwrap_or_default(),
            timeout: attr.timeout.unwrap_or_default().exponent(),
            retry_cnt: attr.retry_cnt.unwrap_or_default(),
            rnr_retry: attr.rnr_retry.unwrap_or_default(),
            alt_port_num: 0,
            alt_timeout: 0,
            reserved: [0; 5],
        },
    }
}

/// Returns an address as programs have it.
pub(crate) fn ah_attr(from: &KernelAhAttr) -> AhAttr {
    AhAttr {
        dgid: from.dgid,
        flow_label: from.flow_label,
        sgid_index: from.sgid_index,
        hop_limit: from.hop_limit,
        traffic_class: from.traffic_class,
        dlid: from.dlid,
        sl: from.sl,
        src_path_bits: from.src_path_bits,
        static_rate: from.static_rate,
        is_global: from.is_global,
        port_num: from.port_num,
    }
}

/// Returns attributes as programs have them. State and rate limit stay those of `before`, because the kernel's
/// structure is not read for them.
pub(crate) fn qp_attr(from: &KernelQpAttr, before: &abi::QpAttr) -> abi::QpAttr {
    let end = &from.end;
    abi::QpAttr {
        qp_state: before.qp_state,
        cur_qp_state: from.cur_qp_state,
        path_mtu: from.path_mtu,
        path_mig_state: from.path_mig_state,
        qkey: from.qkey,
        rq_psn: from.rq_psn,
        sq_psn: from.sq_psn,
        dest_qp_num: from.dest_qp_num,
        qp_access_flags: from.qp_access_flags,
        cap: from.cap,
        ah_attr: ah_attr(&from.ah_attr),
        alt_ah_attr: ah_attr(&from.alt_ah_attr),
        pkey_index: end.pkey_index,
        alt_pkey_index: end.alt_pkey_index,
        en_sqd_async_notify: end.en_sqd_async_notify,
        sq_draining: end.sq_draining,
        max_rd_atomic: end.max_rd_atomic,
        max_dest_rd_atomic: end.max_dest_rd_atomic,
        min_rnr_timer: end.min_rnr_timer,
        port_num: end.port_num,
        timeout: end.timeout,
        retry_cnt: end.retry_cnt,
        rnr_retry: end.rnr_retry,
        alt_port_num: end.alt_port_num,
        alt_timeout: end.alt_timeout,
        rate_limit: before.rate_limit,
    }
}
