//! Attributes of queue pairs in the form of C and in that of the library.

use softroce::verbs::{self, FlatAttr};

use super::address::address;
use crate::abi::{AhAttr, QpAttr, QpCap};
use crate::border::Errno;

impl From<QpCap> for verbs::QpCap {
    fn from(cap: QpCap) -> Self {
        let QpCap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } = cap;
        Self { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
    }
}

impl From<verbs::QpCap> for QpCap {
    fn from(cap: verbs::QpCap) -> Self {
        let verbs::QpCap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } =
            cap;
        Self { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
    }
}

/// `IBV_QP_AV`.
const AV: u32 = 1 << 7;

/// Returns the attributes that C has written. Fields outside of the mask may have any value.
///
/// # Errors
///
/// `EINVAL` when the mask has an address without a GID.
pub(crate) fn flat(attr: &QpAttr, mask: u32) -> Result<FlatAttr, Errno> {
    if mask & AV != 0 {
        address(&attr.ah_attr)?;
    }
    Ok(FlatAttr {
        qp_state: attr.qp_state,
        cur_qp_state: attr.cur_qp_state,
        path_mtu: attr.path_mtu,
        path_mig_state: attr.path_mig_state,
        qkey: attr.qkey,
        rq_psn: attr.rq_psn,
        sq_psn: attr.sq_psn,
        dest_qp_num: attr.dest_qp_num,
        qp_access_flags: attr.qp_access_flags,
        cap: attr.cap.into(),
        ah_attr: (&attr.ah_attr).into(),
        alt_ah_attr: (&attr.alt_ah_attr).into(),
        pkey_index: attr.pkey_index,
        alt_pkey_index: attr.alt_pkey_index,
        en_sqd_async_notify: attr.en_sqd_async_notify,
        sq_draining: attr.sq_draining,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        port_num: attr.port_num,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        alt_port_num: attr.alt_port_num,
        alt_timeout: attr.alt_timeout,
        rate_limit: attr.rate_limit,
    })
}

/// Returns attributes in the form of C.
pub(crate) fn qp_attr(attr: &FlatAttr) -> QpAttr {
    QpAttr {
        qp_state: attr.qp_state,
        cur_qp_state: attr.cur_qp_state,
        path_mtu: attr.path_mtu,
        path_mig_state: attr.path_mig_state,
        qkey: attr.qkey,
        rq_psn: attr.rq_psn,
        sq_psn: attr.sq_psn,
        dest_qp_num: attr.dest_qp_num,
        qp_access_flags: attr.qp_access_flags,
        cap: attr.cap.into(),
        ah_attr: attr.ah_attr.into(),
        alt_ah_attr: AhAttr { is_global: 0, port_num: 0, ..attr.alt_ah_attr.into() },
        pkey_index: attr.pkey_index,
        alt_pkey_index: attr.alt_pkey_index,
        en_sqd_async_notify: attr.en_sqd_async_notify,
        sq_draining: attr.sq_draining,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        port_num: attr.port_num,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        alt_port_num: attr.alt_port_num,
        alt_timeout: attr.alt_timeout,
        rate_limit: attr.rate_limit,
    }
}
