//! The attributes of a queue pair: what `modify_qp` sets.

use std::fmt;

use bitflags::bitflags;

use crate::engine::pace::RateLimit;
use crate::ids::{Mtu, QKey, Qpn};
use crate::mem::Access;
use crate::net::AddressVector;
use crate::psn::Psn;
use crate::time::{AckTimeout, RnrTimer};
use crate::wire::Transport;

/// The service of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[doc(alias = "ibv_qp_type")]
pub enum QpType {
    /// Reliable connection: everything arrives once and in order, or the queue pair fails.
    #[doc(alias = "IBV_QPT_RC")]
    Rc = 2,
    /// Unreliable connection: SEND and WRITE of any length, without acknowledgement.
    #[doc(alias = "IBV_QPT_UC")]
    Uc = 3,
    /// Unreliable datagram: one packet to anybody.
    #[doc(alias = "IBV_QPT_UD")]
    Ud = 4,
    /// Extended reliable connection, the end that asks: RC without a receive queue, to a shared receive
    /// queue of the peer that each request names.
    #[doc(alias = "IBV_QPT_XRC_SEND")]
    XrcIni = 9,
    /// Extended reliable connection, the end that answers: RC without a send queue.
    #[doc(alias = "IBV_QPT_XRC_RECV")]
    XrcTgt = 10,
}

impl QpType {
    /// Every type.
    pub const ALL: [Self; 5] = [Self::Rc, Self::Uc, Self::Ud, Self::XrcIni, Self::XrcTgt];

    /// Whether it has a queue for send requests: all but XRC targets.
    pub(crate) const fn has_send_queue(self) -> bool {
        !matches!(self, Self::XrcTgt)
    }

    /// Whether it has a queue for receive requests, its own or a shared one, from its creation on: all
    /// but XRC, where each message names one.
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

    /// Whether nothing is lost: RC and XRC.
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
    /// As created: nothing may be posted, nothing arrives.
    #[default]
    #[doc(alias = "IBV_QPS_RESET")]
    Reset = 0,
    /// Receives may be posted, nothing arrives.
    #[doc(alias = "IBV_QPS_INIT")]
    Init = 1,
    /// Ready to receive: the peer's requests are answered.
    #[doc(alias = "IBV_QPS_RTR")]
    Rtr = 2,
    /// Ready to send.
    #[doc(alias = "IBV_QPS_RTS")]
    Rts = 3,
    /// Send queue drained, or draining: what has started is finished, nothing new is started.
    #[doc(alias = "IBV_QPS_SQD")]
    Sqd = 4,
    /// Send queue error, UC and UD: sends are flushed, receives go on. Only the device leads here.
    #[doc(alias = "IBV_QPS_SQE")]
    Sqe = 5,
    /// Everything posted is flushed.
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
    /// On the primary path, and no other is armed.
    #[doc(alias = "IBV_MIG_MIGRATED")]
    Migrated = 0,
    /// To be armed again.
    #[doc(alias = "IBV_MIG_REARM")]
    Rearm = 1,
    /// The alternate path may be taken at any time.
    #[doc(alias = "IBV_MIG_ARMED")]
    Armed = 2,
}

impl MigState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Migrated, Self::Rearm, Self::Armed];
}

/// What a `modify_qp` sets; `None` leaves an attribute alone.
///
/// Each transition needs some and takes some more (IBTA vol 1, §11.2.4.2); a
/// [`ModifyError`](super::ModifyError) names what is missing or too much. For the usual ones there
/// are [`InitAttr`], [`RtrAttr`] and [`RtsAttr`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[doc(alias = "ibv_qp_attr")]
pub struct QpAttr {
    /// The state to go to; `None` for the one it is in.
    pub state: Option<QpState>,
    /// The state that the caller believes it to be in.
    pub cur_state: Option<QpState>,
    /// Index into the table of partition keys, which has one entry.
    pub pkey_index: Option<u16>,
    /// The port, of which there is one, number 1.
    pub port_num: Option<u8>,
    /// What peers may do through this queue pair; of interest are the `REMOTE_` flags.
    #[doc(alias = "qp_access_flags")]
    pub access: Option<Access>,
    /// UD: what a packet must carry to be taken.
    pub qkey: Option<QKey>,
    /// Payload of a full packet; the same at the peer.
    pub path_mtu: Option<Mtu>,
    /// The peer's queue pair.
    #[doc(alias = "dest_qp_num")]
    pub dest_qpn: Option<Qpn>,
    /// The PSN that the peer starts with.
    pub rq_psn: Option<Psn>,
    /// The PSN to start with.
    pub sq_psn: Option<Psn>,
    /// READs and atomics outstanding at the peer, at most.
    pub max_rd_atomic: Option<u8>,
    /// READs and atomics that the peer may have outstanding here.
    pub max_dest_rd_atomic: Option<u8>,
    /// How long a peer must wait when there is no receive request.
    pub min_rnr_timer: Option<RnrTimer>,
    /// How long to wait for an acknowledgement.
    pub timeout: Option<AckTimeout>,
    /// Attempts after the first without answer, 0 to 7.
    pub retry_cnt: Option<u8>,
    /// Attempts after the first that found no receive request, 0 to 6; 7 is for ever.
    pub rnr_retry: Option<u8>,
    /// The way to the peer.
    #[doc(alias = "ah_attr")]
    pub av: Option<AddressVector>,
    /// Always refused: RoCE has no alternate path.
    #[doc(alias = "alt_ah_attr")]
    pub alt_path: Option<AddressVector>,
    /// [`MigState::Migrated`] or nothing.
    pub path_mig_state: Option<MigState>,
    /// Whether an event tells that the send queue is drained. It does unless told not to.
    pub en_sqd_async_notify: Option<bool>,
    /// How fast requests are sent.
    pub rate_limit: Option<RateLimit>,
}

impl QpAttr {
    /// The attributes of a transition that needs none: to RESET, ERR or SQD, or from SQD to RTS.
    pub fn to(state: QpState) -> Self {
        Self { state: Some(state), ..Self::default() }
    }

    /// Which attributes are set.
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
    /// Takes over what `later` sets.
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
    /// A set of attributes of a queue pair, by their names and values in verbs.
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
    /// The names with commas between them: `PATH_MTU, DEST_QPN`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, self.iter_names().map(|(name, _)| name))
    }
}

/// Names with commas between them.
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

/// What RESET to INIT needs; port and partition are the only ones there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InitAttr {
    /// RC, UC and XRC.
    Connected {
        /// What the peer may do: `REMOTE_` flags.
        access: Access,
    },
    /// UD.
    Datagram {
        /// What a packet must carry to be taken. Bit 31 needs `CAP_NET_RAW`.
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

/// What INIT to RTR needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RtrAttr {
    /// RC, and XRC targets.
    Rc {
        /// The peer.
        peer: Peer,
        /// READs and atomics that the peer may have outstanding here.
        max_dest_rd_atomic: u8,
        /// Time that the peer must wait when there is no receive request.
        min_rnr_timer: RnrTimer,
    },
    /// UC, and XRC initiators, which receive no requests.
    Uc {
        /// The peer.
        peer: Peer,
    },
    /// UD, which has no peer of its own.
    Ud,
}

/// The other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The way to it.
    pub av: AddressVector,
    /// Its queue pair.
    pub dest_qpn: Qpn,
    /// The PSN it starts with.
    pub rq_psn: Psn,
    /// Payload of a full packet; it must have the same.
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

/// What RTR to RTS needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RtsAttr {
    /// RC, and XRC initiators.
    Rc {
        /// The PSN to start with.
        sq_psn: Psn,
        /// How long to wait for an acknowledgement.
        timeout: AckTimeout,
        /// Attempts after the first without answer, 0 to 7.
        retry_cnt: u8,
        /// Attempts after the first that found no receive request, 0 to 6; 7 is for ever.
        rnr_retry: u8,
        /// READs and atomics outstanding at the peer, at most.
        max_rd_atomic: u8,
    },
    /// XRC targets, which ask for nothing: neither is of any effect.
    XrcTgt {
        /// The PSN to start with.
        sq_psn: Psn,
        /// How long to wait for an acknowledgement.
        timeout: AckTimeout,
    },
    /// UC and UD.
    Unreliable {
        /// The PSN to start with.
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
        // CAP (1 << 19) cannot be modified, and there is no bit 21 to 24.
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
