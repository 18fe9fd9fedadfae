//! Parameters of connections.

use softroce::verbs::Qpn;
use softroce::verbs::cm::{ConnectParam, Ece};

use crate::abi::{CmEce, ConnParam, PRIVATE_DATA_ROOM};
use crate::border::Errno;

/// Bits of a queue pair number.
const QPN_MASK: u32 = 0xff_ffff;

/// Maximum number of retries, and with RNR NAKs no limit. More stand for it, as in Linux.
const MAX_RETRIES: u8 = 7;

/// Returns the private data of a command.
///
/// # Errors
///
/// `EINVAL` for more bytes than there is room for, which no length of 8 bits can say.
pub(crate) fn private_data(data: &[u8; PRIVATE_DATA_ROOM], len: u8) -> Result<&[u8], Errno> {
    data.get(..len.into())
        .ok_or_else(|| Errno::invalid("there is more private data than room for it"))
}

/// Returns the parameters of CONNECT and ACCEPT. As in Linux, the queue key of a UD service is always the default.
///
/// # Errors
///
/// As [`private_data`].
pub(crate) fn connect_param(param: &ConnParam, ece: CmEce) -> Result<ConnectParam<'_>, Errno> {
    Ok(ConnectParam {
        private_data: private_data(&param.private_data, param.private_data_len)?,
        qpn: Qpn::new(param.qp_num & QPN_MASK),
        qkey: None,
        srq: param.srq != 0,
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        flow_control: param.flow_control != 0,
        retry_count: param.retry_count.min(MAX_RETRIES),
        rnr_retry_count: param.rnr_retry_count.min(MAX_RETRIES),
        ece: Ece { vendor: ece.vendor_id, options: ece.attr_mod },
    })
}
