//! Attributes of a queue pair, as set by `modify_qp`.

use std::fmt;

use bitflags::bitflags;

use crate::engine::pace::RateLimit;
use crate::ids::{Mtu, QKey, Qpn};
use crate::mem::Access;
use crate::net::AddressVector;
use crate::psn::Psn;
use crate::time::{AckTimeout, RnrTimer};
use crate::wire::Transport;

/// The transport service of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[doc(alias = "ibv_qp_type")]
pub enum QpType {
    /// Reliable connection: every message is delivered once and in order, or the queue pair fails.
    #[doc(alias = "IBV_QPT_RC")]
    Rc = 2,
    /// Unreliable connection: SEND and WRITE of any length, without acknowledgements.
    #[doc(alias = "IBV_QPT_UC")]
    Uc = 3,
    /// Unreliable datagram: single-packet messages to any queue pair.
    #[doc(alias = "IBV_QPT_UD")]
    Ud = 4,
    /// Initiator of an extended reliable connection: RC without a receive queue. Each request goes
    /// to a shared receive queue of the peer.
    #[doc(alias = "IBV_QPT_XRC_SEND")]
    XrcIni = 9,
    /// Target of an extended reliable connection: RC without a send queue.
    #[doc(alias = "IBV_QPT_XRC_RECV")]
    XrcTgt = 10,
}

impl QpType {
    /// Every type.
    pub const ALL: [Self; 5] = [Self::Rc, Self::Uc, Self::Ud, Self::XrcIni, Self::XrcTgt];

    /// Whether it has a send queue: all types except XRC targets.
    pub(crate) const fn has_send_queue(self) -> bool {
        !matches!(self, Self::XrcTgt)
    }

    /// Whether it has a receive queue, its own or a shared one, from its creation on: all types
    /// except XRC, where each message selects a queue.
    pub(crate) const fn has_receive_queue(self) -> bool {
        !matches!(self, Self::XrcIni | Self::XrcTgt)
    }

    /// Returns the transport of its packets.
    pub(crate) const fn transport(self) -> Transport {
        match self {
            Self::Rc => Transport::Rc,
            Self::Uc => Transport::Uc,
            Self::Ud => Transport::Ud,
            Self::XrcIni | Self::XrcTgt => Transport::Xrc,
        }
    }

    /// Whether the service is reliable: RC and XRC.
    pub(crate) const fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::XrcIni | Self::XrcTgt)
    }
}

impl fmt::Display for QpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::XrcIni => "XRC_INI",
            Self::XrcTgt => "XRC_TGT",
        })
    }
}

/// The state of a queue pair (IBTA vol 1, §10.3.1).
///
/// ```text
/// RESET ──▶ INIT ──▶ RTR ──▶ RTS ◀──▶ SQD
///                             ▲
///                     SQE ────┘                any ──▶ RESET; any but RESET ──▶ ERR
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
#[doc(alias = "ibv_qp_state")]
pub enum QpState {
    /// As created: no requests may be posted, and all packets are dropped.
    #[default]
    #[doc(alias = "IBV_QPS_RESET")]
    Reset = 0,
    /// Receive requests may be posted, and all packets are dropped.
    #[doc(alias = "IBV_QPS_INIT")]
    Init = 1,
    /// Ready to receive: the queue pair executes the peer's requests.
    #[doc(alias = "IBV_QPS_RTR")]
    Rtr = 2,
    /// Ready to send.
    #[doc(alias = "IBV_QPS_RTS")]
    Rts = 3,
    /// Send queue drained or draining: started requests continue, and no request starts.
    #[doc(alias = "IBV_QPS_SQD")]
    Sqd = 4,
    /// Send queue error, UC and UD: send requests are flushed, and receiving continues. Only the
    /// device enters this state.
    #[doc(alias = "IBV_QPS_SQE")]
    Sqe = 5,
    /// Error: all posted requests are flushed.
    #[doc(alias = "IBV_QPS_ERR")]
    Err = 6,
}

impl QpState {
    /// Every state, by value.
    pub const ALL: [Self; 7] =
        [Self::Reset, Self::Init, Self::Rtr, Self::Rts, Self::Sqd, Self::Sqe, Self::Err];
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Err => "ERR",
        })
    }
}

/// The state of path migration. RoCE has no alternate path, so it is always `Migrated`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[doc(alias = "ibv_mig_state")]
pub enum MigState {
    /// On the primary path, without an armed alternate path.
    #[doc(alias = "IBV_MIG_MIGRATED")]
    Migrated = 0,
    /// Requests re-arming.
    #[doc(alias = "IBV_MIG_REARM")]
    Rearm = 1,
    /// The path may migrate at any time.
    #[doc(alias = "IBV_MIG_ARMED")]
    Armed = 2,
}

impl MigState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Migrated, Self::Rearm, Self::Armed];
}

/// Attributes for `modify_qp`; `None` leaves an attribute unchanged.
///
/// Each transition requires some attributes and allows others (IBTA vol 1, §11.2.4.2); a
/// [`ModifyError`](super::ModifyError) lists missing and surplus ones. [`InitAttr`], [`RtrAttr`]
/// and [`RtsAttr`] cover the usual transitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[doc(alias = "ibv_qp_attr")]
pub struct QpAttr {
    /// The new state; `None` keeps the current one.
    pub state: Option<QpState>,
    /// The state in which the caller assumes the queue pair to be.
    pub cur_state: Option<QpState>,
    /// Index into the P_Key table.
    pub pkey_index: Option<u16>,
    /// The port number, always 1.
    pub port_num: Option<u8>,
    /// Access rights of the peer through this queue pair; only the `REMOTE_` flags are used.
    #[doc(alias = "qp_access_flags")]
    pub access: Option<Access>,
    /// UD: the queue key that received packets must have.
    pub qkey: Option<QKey>,
    /// Payload bytes of a full packet; must equal that of the peer.
    pub path_mtu: Option<Mtu>,
    /// The peer's queue pair.
    #[doc(alias = "dest_qp_num")]
    pub dest_qpn: Option<Qpn>,
    /// First PSN of the peer's requests.
    pub rq_psn: Option<Psn>,
    /// First PSN of own requests.
    pub sq_psn: Option<Psn>,
    /// Maximum number of READs and atomics outstanding at the peer.
    pub max_rd_atomic: Option<u8>,
    /// Maximum number of READs and atomics that the peer may have outstanding here.
    pub max_dest_rd_atomic: Option<u8>,
    /// Time that the peer must wait after an RNR NAK.
    pub min_rnr_timer: Option<RnrTimer>,
    /// Timeout for an acknowledgement.
    pub timeout: Option<AckTimeout>,
    /// Number of retries without a response, 0 to 7.
    pub retry_cnt: Option<u8>,
    /// Number of retries after an RNR NAK, 0 to 6; 7 is unlimited.
    pub rnr_retry: Option<u8>,
    /// The path to the peer.
    #[doc(alias = "ah_attr")]
    pub av: Option<AddressVector>,
    /// Always rejected: RoCE has no alternate path.
    #[doc(alias = "alt_ah_attr")]
    pub alt_path: Option<AddressVector>,
    /// [`MigState::Migrated`] or `None`.
    pub path_mig_state: Option<MigState>,
    /// Whether to raise an event when the send queue is drained. The default is to raise it.
    pub en_sqd_async_notify: Option<bool>,
    /// Rate limit for requests.
    pub rate_limit: Option<RateLimit>,
}

impl QpAttr {
    /// Returns the attributes of a transition without further ones: to RESET, ERR or SQD, or from
    /// SQD to RTS.
    pub fn to(state: QpState) -> Self {
        Self { state: Some(state), ..Self::default() }
    }

    /// Returns the set of attributes that are present.
    pub fn mask(&self) -> AttrMask {
        let mut mask = AttrMask::empty();
        for (flag, is_set) in [
            (AttrMask::STATE, self.state.is_some()),
            (AttrMask::CUR_STATE, self.cur_state.is_some()),
            (AttrMask::EN_SQD_ASYNC_NOTIFY, self.en_sqd_async_notify.is_some()),
            (AttrMask::ACCESS_FLAGS, self.access.is_some()),
            (AttrMask::PKEY_INDEX, self.pkey_index.is_some()),
            (AttrMask::PORT, self.port_num.is_some()),
            (AttrMask::QKEY, self.qkey.is_some()),
            (AttrMask::AV, self.av.is_some()),
            (AttrMask::PATH_MTU, self.path_mtu.is_some()),
            (AttrMask::TIMEOUT, self.timeout.is_some()),
            (AttrMask::RETRY_CNT, self.retry_cnt.is_some()),
            (AttrMask::RNR_RETRY, self.rnr_retry.is_some()),
            (AttrMask::RQ_PSN, self.rq_psn.is_some()),
            (AttrMask::MAX_QP_RD_ATOMIC, self.max_rd_atomic.is_some()),
            (AttrMask::ALT_PATH, self.alt_path.is_some()),
            (AttrMask::MIN_RNR_TIMER, self.min_rnr_timer.is_some()),
            (AttrMask::SQ_PSN, self.sq_psn.is_some()),
            (AttrMask::MAX_DEST_RD_ATOMIC, self.max_dest_rd_atomic.is_some()),
            (AttrMask::PATH_MIG_STATE, self.path_mig_state.is_some()),
            (AttrMask::DEST_QPN, self.dest_qpn.is_some()),
            (AttrMask::RATE_LIMIT, self.rate_limit.is_some()),
        ] {
            mask.set(flag, is_set);
        }
        mask
    }
}

impl QpAttr {
    /// Copies the attributes that are present in `later`.
    pub(super) fn merge(&mut self, later: &Self) {
        macro_rules! take {
            ($($field:ident)*) => {$(
                self.$field = later.$field.or(self.$field);
            )*};
        }
        take!(state pkey_index port_num access qkey path_mtu dest_qpn rq_psn sq_psn);
        take!(max_rd_atomic max_dest_rd_atomic min_rnr_timer timeout retry_cnt rnr_retry av);
        take!(path_mig_state en_sqd_async_notify rate_limit);
    }
}

bitflags! {
    /// A set of attributes of a queue pair, with the names and values of verbs.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    #[doc(alias = "ibv_qp_attr_mask")]
    pub struct AttrMask: u32 {
        /// [`QpAttr::state`].
        const STATE = 1;
        /// [`QpAttr::cur_state`].
        const CUR_STATE = 1 << 1;
        /// [`QpAttr::en_sqd_async_notify`].
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// [`QpAttr::access`].
        const ACCESS_FLAGS = 1 << 3;
        /// [`QpAttr::pkey_index`].
        const PKEY_INDEX = 1 << 4;
        /// [`QpAttr::port_num`].
        const PORT = 1 << 5;
        /// [`QpAttr::qkey`].
        const QKEY = 1 << 6;
        /// [`QpAttr::av`].
        const AV = 1 << 7;
        /// [`QpAttr::path_mtu`].
        const PATH_MTU = 1 << 8;
        /// [`QpAttr::timeout`].
        const TIMEOUT = 1 << 9;
        /// [`QpAttr::retry_cnt`].
        const RETRY_CNT = 1 << 10;
        /// [`QpAttr::rnr_retry`].
        const RNR_RETRY = 1 << 11;
        /// [`QpAttr::rq_psn`].
        const RQ_PSN = 1 << 12;
        /// [`QpAttr::max_rd_atomic`].
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// [`QpAttr::alt_path`].
        const ALT_PATH = 1 << 14;
        /// [`QpAttr::min_rnr_timer`].
        const MIN_RNR_TIMER = 1 << 15;
        /// [`QpAttr::sq_psn`].
        const SQ_PSN = 1 << 16;
        /// [`QpAttr::max_dest_rd_atomic`].
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// [`QpAttr::path_mig_state`].
        const PATH_MIG_STATE = 1 << 18;
        /// [`QpAttr::dest_qpn`].
        const DEST_QPN = 1 << 20;
        /// [`QpAttr::rate_limit`].
        const RATE_LIMIT = 1 << 25;
    }
}

impl fmt::Display for AttrMask {
    /// Writes the names, separated by commas: `PATH_MTU, DEST_QPN`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, self.iter_names().map(|(name, _)| name))
    }
}

/// Writes names, separated by commas.
pub(crate) fn list<'a>(
    f: &mut fmt::Formatter<'_>,
    names: impl Iterator<Item = &'a str>,
) -> fmt::Result {
    for (n, name) in names.enumerate() {
        let comma = if n == 0 { "" } else { ", " };
        write!(f, "{comma}{name}")?;
    }
    Ok(())
}

/// Attributes for RESET to INIT. The port and the P_Key index have their default values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InitAttr {
    /// RC, UC and XRC.
    Connected {
        /// Access rights of the peer: `REMOTE_` flags.
        access: Access,
    },
    /// UD.
    Datagram {
        /// The queue key that received packets must have. Bit 31 requires `CAP_NET_RAW`.
        qkey: QKey,
    },
}

impl From<InitAttr> for QpAttr {
    fn from(init: InitAttr) -> Self {
        let (access, qkey) = match init {
            InitAttr::Connected { access } => (Some(access), None),
            InitAttr::Datagram { qkey } => (None, Some(qkey)),
        };
        Self { pkey_index: Some(0), port_num: Some(1), access, qkey, ..Self::to(QpState::Init) }
    }
}

/// Attributes for INIT to RTR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RtrAttr {
    /// RC, and XRC targets.
    Rc {
        /// The peer.
        peer: Peer,
        /// Maximum number of READs and atomics that the peer may have outstanding here.
        max_dest_rd_atomic: u8,
        /// Time that the peer must wait after an RNR NAK.
        min_rnr_timer: RnrTimer,
    },
    /// UC, and XRC initiators, which receive no requests.
    Uc {
        /// The peer.
        peer: Peer,
    },
    /// UD, which has no fixed peer.
    Ud,
}

/// The peer of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The path to it.
    pub av: AddressVector,
    /// Its queue pair.
    pub dest_qpn: Qpn,
    /// First PSN of its requests.
    pub rq_psn: Psn,
    /// Payload bytes of a full packet; must equal that of the peer.
    pub path_mtu: Mtu,
}

impl From<RtrAttr> for QpAttr {
    fn from(rtr: RtrAttr) -> Self {
        let to_rtr = Self::to(QpState::Rtr);
        let connected = |peer: Peer| Self {
            av: Some(peer.av),
            dest_qpn: Some(peer.dest_qpn),
            rq_psn: Some(peer.rq_psn),
            path_mtu: Some(peer.path_mtu),
            ..to_rtr
        };
        match rtr {
            RtrAttr::Rc { peer, max_dest_rd_atomic, min_rnr_timer } => Self {
                max_dest_rd_atomic: Some(max_dest_rd_atomic),
                min_rnr_timer: Some(min_rnr_timer),
                ..connected(peer)
            },
            RtrAttr::Uc { peer } => connected(peer),
            RtrAttr::Ud => to_rtr,
        }
    }
}

/// Attributes for RTR to RTS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RtsAttr {
    /// RC, and XRC initiators.
    Rc {
        /// First PSN of own requests.
        sq_psn: Psn,
        /// Timeout for an acknowledgement.
        timeout: AckTimeout,
        /// Number of retries without a response, 0 to 7.
        retry_cnt: u8,
        /// Number of retries after an RNR NAK, 0 to 6; 7 is unlimited.
        rnr_retry: u8,
        /// Maximum number of READs and atomics outstanding at the peer.
        max_rd_atomic: u8,
    },
    /// XRC targets, which send no requests: neither attribute has an effect.
    XrcTgt {
        /// First PSN of own requests.
        sq_psn: Psn,
        /// Timeout for an acknowledgement.
        timeout: AckTimeout,
    },
    /// UC and UD.
    Unreliable {
        /// First PSN of own requests.
        sq_psn: Psn,
    },
}

impl From<RtsAttr> for QpAttr {
    fn from(rts: RtsAttr) -> Self {
        let to_rts = Self::to(QpState::Rts);
        match rts {
            RtsAttr::Rc { sq_psn, timeout, retry_cnt, rnr_retry, max_rd_atomic } => Self {
                sq_psn: Some(sq_psn),
                timeout: Some(timeout),
                retry_cnt: Some(retry_cnt),
                rnr_retry: Some(rnr_retry),
                max_rd_atomic: Some(max_rd_atomic),
                ..to_rts
            },
            RtsAttr::XrcTgt { sq_psn, timeout } => {
                Self { sq_psn: Some(sq_psn), timeout: Some(timeout), ..to_rts }
            }
            RtsAttr::Unreliable { sq_psn } => Self { sq_psn: Some(sq_psn), ..to_rts },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_the_values_of_ibv_qp_attr_mask() {
        // CAP (1 << 19) cannot be modified, and bits 21 to 24 are not assigned.
        assert_eq!(AttrMask::all().bits(), 0x217_ffff);
        assert_eq!(AttrMask::AV.bits(), 128);
        assert_eq!(AttrMask::PATH_MIG_STATE.bits(), 262_144);
        assert_eq!(AttrMask::DEST_QPN.bits(), 1_048_576);
    }

    #[test]
    fn a_mask_reads_as_a_list_of_verbs_names() {
        let mask = AttrMask::DEST_QPN | AttrMask::PATH_MTU;
        assert_eq!(mask.to_string(), "PATH_MTU, DEST_QPN");
        assert_eq!(AttrMask::empty().to_string(), "");
    }
}
