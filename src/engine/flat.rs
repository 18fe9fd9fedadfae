//! Attributes of a queue pair in the layout of C: a structure with all of them, and a mask.

use crate::engine::QpInfo;
use crate::engine::attr::{AttrMask, MigState, QpAttr, QpState};
use crate::engine::pace::RateLimit;
use crate::engine::post::QpCap;
use crate::engine::transitions::ModifyError;
use crate::ids::{Gid, Mtu, QKey, Qpn};
use crate::mem::Access;
use crate::net::AddressVector;
use crate::psn::Psn;
use crate::time::{AckTimeout, RnrTimer};

/// The attributes of a queue pair, each with the numeric value of C. Attributes outside of the mask
/// are ignored.
///
/// [`select`](Self::select) converts it for [`Engine::modify_qp`](super::Engine::modify_qp);
/// [`of`](Self::of) fills it from the result of [`Engine::query_qp`](super::Engine::query_qp).
///
/// ```
/// use softroce::engine::{AttrMask, FlatAttr, QpAttr, QpState};
///
/// let attr = FlatAttr { qp_state: 1, port_num: 1, timeout: 99, ..FlatAttr::default() };
/// let mask = AttrMask::STATE | AttrMask::PORT;
/// let expected = QpAttr { port_num: Some(1), ..QpAttr::to(QpState::Init) };
/// assert_eq!(attr.select(mask.bits()), Ok(expected));
///
/// let said = attr.select(AttrMask::TIMEOUT.bits()).unwrap_err().to_string();
/// assert_eq!(said, "TIMEOUT is 0x63, which is no exponent of 5 bits");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_qp_attr")]
#[expect(missing_docs, reason = "each is the field of `ibv_qp_attr` with its name")]
pub struct FlatAttr {
    pub qp_state: u32,
    pub cur_qp_state: u32,
    pub path_mtu: u32,
    pub path_mig_state: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: u32,
    pub cap: QpCap,
    pub ah_attr: AddressVector,
    pub alt_ah_attr: AddressVector,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

/// `IBV_QP_CAP`, which [`AttrMask`] does not have.
const CAP: u32 = 1 << 19;

impl Default for FlatAttr {
    /// Returns zeros.
    fn default() -> Self {
        let nowhere = AddressVector { hop_limit: 0, ..AddressVector::to(Gid([0; 16])) };
        Self {
            qp_state: 0,
            cur_qp_state: 0,
            path_mtu: 0,
            path_mig_state: 0,
            qkey: 0,
            rq_psn: 0,
            sq_psn: 0,
            dest_qp_num: 0,
            qp_access_flags: 0,
            cap: QpCap::NONE,
            ah_attr: nowhere,
            alt_ah_attr: nowhere,
            pkey_index: 0,
            alt_pkey_index: 0,
            en_sqd_async_notify: 0,
            sq_draining: 0,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            port_num: 0,
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            alt_port_num: 0,
            alt_timeout: 0,
            rate_limit: 0,
        }
    }
}

/// Reads one attribute if the mask contains it.
struct Reader {
    mask: AttrMask,
}

impl Reader {
    /// Returns an attribute for which every number is valid.
    fn any<T>(&self, attribute: AttrMask, value: T) -> Option<T> {
        self.mask.contains(attribute).then_some(value)
    }

    /// Returns an attribute for which only some numbers are valid.
    fn one<T>(
        &self,
        attribute: AttrMask,
        found: impl Into<u32> + Copy,
        parse: impl FnOnce(u8) -> Option<T>,
        expected: &'static str,
    ) -> Result<Option<T>, ModifyError> {
        if !self.mask.contains(attribute) {
            return Ok(None);
        }
        let found = found.into();
        let value = u8::try_from(found).ok().and_then(parse);
        value.map(Some).ok_or(ModifyError::Value { attribute, found, expected })
    }
}

impl FlatAttr {
    /// Returns the attributes in `mask`, a set of `ibv_qp_attr_mask`.
    ///
    /// # Errors
    ///
    /// [`ModifyError::UnknownAttributes`], [`ModifyError::Cap`], [`ModifyError::Value`]. The
    /// function does not check whether a transition allows the attributes.
    pub fn select(&self, mask: u32) -> Result<QpAttr, ModifyError> {
        let unknown = mask & !(AttrMask::all().bits() | CAP);
        if unknown != 0 {
            return Err(ModifyError::UnknownAttributes { bits: unknown });
        }
        if mask & CAP != 0 {
            return Err(ModifyError::Cap);
        }
        let read = Reader { mask: AttrMask::from_bits_truncate(mask) };
        let state = |value: u8| QpState::ALL.into_iter().find(|state| *state as u8 == value);
        let migration = |value: u8| MigState::ALL.into_iter().find(|state| *state as u8 == value);
        let exponent = "exponent of 5 bits";
        Ok(QpAttr {
            state: read.one(AttrMask::STATE, self.qp_state, state, "state")?,
            cur_state: read.one(AttrMask::CUR_STATE, self.cur_qp_state, state, "state")?,
            pkey_index: read.any(AttrMask::PKEY_INDEX, self.pkey_index),
            port_num: read.any(AttrMask::PORT, self.port_num),
            access: self.access(&read)?,
            qkey: read.any(AttrMask::QKEY, QKey(self.qkey)),
            path_mtu: read.one(
                AttrMask::PATH_MTU,
                self.path_mtu,
                Mtu::from_code,
                "code of an MTU, 1 to 5",
            )?,
            dest_qpn: read.any(AttrMask::DEST_QPN, Qpn::new(self.dest_qp_num)),
            rq_psn: read.any(AttrMask::RQ_PSN, Psn::new(self.rq_psn)),
            sq_psn: read.any(AttrMask::SQ_PSN, Psn::new(self.sq_psn)),
            max_rd_atomic: read.any(AttrMask::MAX_QP_RD_ATOMIC, self.max_rd_atomic),
            max_dest_rd_atomic: read.any(AttrMask::MAX_DEST_RD_ATOMIC, self.max_dest_rd_atomic),
            min_rnr_timer: read.one(
                AttrMask::MIN_RNR_TIMER,
                self.min_rnr_timer,
                RnrTimer::new,
                "code of 5 bits",
            )?,
            timeout: read.one(AttrMask::TIMEOUT, self.timeout, AckTimeout::new, exponent)?,
            retry_cnt: read.any(AttrMask::RETRY_CNT, self.retry_cnt),
            rnr_retry: read.any(AttrMask::RNR_RETRY, self.rnr_retry),
            av: read.any(AttrMask::AV, self.ah_attr),
            alt_path: read.any(AttrMask::ALT_PATH, self.alt_ah_attr),
            path_mig_state: read.one(
                AttrMask::PATH_MIG_STATE,
                self.path_mig_state,
                migration,
                "state of migration",
            )?,
            en_sqd_async_notify: read
                .any(AttrMask::EN_SQD_ASYNC_NOTIFY, self.en_sqd_async_notify != 0),
            rate_limit: read.any(AttrMask::RATE_LIMIT, RateLimit::kbps(self.rate_limit)),
        })
    }

    fn access(&self, read: &Reader) -> Result<Option<Access>, ModifyError> {
        let (attribute, found) = (AttrMask::ACCESS_FLAGS, self.qp_access_flags);
        let parsed = Access::from_bits(found);
        let value = read.any(attribute, parsed);
        let expected = "set of access flags";
        value
            .map(|value| value.ok_or(ModifyError::Value { attribute, found, expected }))
            .transpose()
    }

    /// Returns every attribute of a queue pair. An attribute that was never set is zero.
    pub fn of(info: &QpInfo) -> Self {
        let QpInfo { state, attr, init, sq_draining, .. } = info;
        let empty = Self::default();
        Self {
            qp_state: *state as u32,
            cur_qp_state: *state as u32,
            path_mtu: attr.path_mtu.map_or(0, |mtu| mtu as u32),
            path_mig_state: MigState::Migrated as u32,
            qkey: attr.qkey.unwrap_or_default().0,
            rq_psn: attr.rq_psn.unwrap_or_default().value(),
            sq_psn: attr.sq_psn.unwrap_or_default().value(),
            dest_qp_num: attr.dest_qpn.unwrap_or_default().value(),
            qp_access_flags: attr.access.unwrap_or_default().bits(),
            cap: init.cap,
            ah_attr: attr.av.unwrap_or(empty.ah_attr),
            pkey_index: attr.pkey_index.unwrap_or_default(),
            en_sqd_async_notify: attr.en_sqd_async_notify.unwrap_or(true).into(),
            sq_draining: (*sq_draining).into(),
            max_rd_atomic: attr.max_rd_atomic.unwrap_or_default(),
            max_dest_rd_atomic: attr.max_dest_rd_atomic.unwrap_or_default(),
            min_rnr_timer: attr.min_rnr_timer.unwrap_or_default().code(),
            port_num: attr.port_num.unwrap_or_default(),
            timeout: attr.timeout.unwrap_or_default().exponent(),
            retry_cnt: attr.retry_cnt.unwrap_or_default(),
            rnr_retry: attr.rnr_retry.unwrap_or_default(),
            rate_limit: attr.rate_limit.unwrap_or_default().kbps,
            ..empty
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::engine::{Config, Engine, InitAttr, QpInit, QpType};
    use crate::ids::{CqId, PdId};
    use crate::mem::Memory;
    use crate::time::Instant;

    /// Returns valid attributes, each with a distinct value.
    fn full() -> FlatAttr {
        FlatAttr {
            qp_state: 3,
            cur_qp_state: 2,
            path_mtu: 4,
            path_mig_state: 0,
            qkey: 0x1111,
            rq_psn: 0x12_3456,
            sq_psn: 0x65_4321,
            dest_qp_num: 0x77,
            qp_access_flags: 6,
            ah_attr: AddressVector::to(Ipv4Addr::LOCALHOST.into()),
            alt_ah_attr: AddressVector::to(Ipv4Addr::BROADCAST.into()),
            pkey_index: 9,
            en_sqd_async_notify: 1,
            max_rd_atomic: 5,
            max_dest_rd_atomic: 6,
            min_rnr_timer: 12,
            port_num: 8,
            timeout: 14,
            retry_cnt: 3,
            rnr_retry: 2,
            rate_limit: 1000,
            ..FlatAttr::default()
        }
    }

    #[test]
    fn what_the_mask_has_is_taken_and_nothing_else() {
        let all = full().select(AttrMask::all().bits()).unwrap();
        assert_eq!(all.mask(), AttrMask::all());
        assert_eq!((all.state, all.cur_state), (Some(QpState::Rts), Some(QpState::Rtr)));
        assert_eq!(
            (all.rq_psn, all.sq_psn),
            (Some(Psn::new(0x12_3456)), Some(Psn::new(0x65_4321)))
        );
        assert_eq!((all.max_rd_atomic, all.max_dest_rd_atomic), (Some(5), Some(6)));
        assert_eq!((all.retry_cnt, all.rnr_retry), (Some(3), Some(2)));
        assert_eq!(
            (all.pkey_index, all.port_num, all.qkey),
            (Some(9), Some(8), Some(QKey(0x1111)))
        );
        assert_eq!((all.av, all.alt_path), (Some(full().ah_attr), Some(full().alt_ah_attr)));
        assert_eq!((all.path_mtu, all.dest_qpn), (Some(Mtu::Mtu2048), Some(Qpn::new(0x77))));
        assert_eq!(all.access, Some(Access::REMOTE_WRITE | Access::REMOTE_READ));
        assert_eq!(all.rate_limit, Some(RateLimit::kbps(1000)));
        for flag in AttrMask::all().iter() {
            assert_eq!(full().select(flag.bits()).unwrap().mask(), flag);
        }
        assert_eq!(full().select(0), Ok(QpAttr::default()));
    }

    #[test]
    fn what_is_no_value_of_an_attribute_is_named() {
        let said = |change: fn(&mut FlatAttr), mask: AttrMask| {
            let mut attr = full();
            change(&mut attr);
            // Attributes outside of the mask are not checked.
            assert!(attr.select(AttrMask::all().difference(mask).bits()).is_ok());
            attr.select(mask.bits()).unwrap_err().to_string()
        };
        for (said, expected) in [
            (said(|a| a.qp_state = 7, AttrMask::STATE), "STATE is 0x7, which is no state"),
            (
                said(|a| a.cur_qp_state = 256, AttrMask::CUR_STATE),
                "CUR_STATE is 0x100, which is no state",
            ),
            (
                said(|a| a.path_mtu = 0, AttrMask::PATH_MTU),
                "PATH_MTU is 0x0, which is no code of an MTU, 1 to 5",
            ),
            (
                said(|a| a.timeout = 32, AttrMask::TIMEOUT),
                "TIMEOUT is 0x20, which is no exponent of 5 bits",
            ),
            (
                said(|a| a.min_rnr_timer = 32, AttrMask::MIN_RNR_TIMER),
                "MIN_RNR_TIMER is 0x20, which is no code of 5 bits",
            ),
            (
                said(|a| a.path_mig_state = 3, AttrMask::PATH_MIG_STATE),
                "PATH_MIG_STATE is 0x3, which is no state of migration",
            ),
            (
                said(|a| a.qp_access_flags = 1 << 31, AttrMask::ACCESS_FLAGS),
                "ACCESS_FLAGS is 0x80000000, which is no set of access flags",
            ),
        ] {
            assert_eq!(said, expected);
        }
        let said = |mask| full().select(mask).unwrap_err().to_string();
        assert_eq!(said(1 << 21 | 1), "the mask has bits 0x200000, which stand for no attribute");
        assert_eq!(said(CAP | 1), "the mask has CAP, and queues cannot be resized");
    }

    #[test]
    fn a_query_fills_every_place() {
        let now = Instant::ZERO;
        let mut engine = Engine::new(
            Config::new(Ipv4Addr::LOCALHOST.into()),
            Memory::new([1; 32]).into(),
            [1; 32],
        );
        let init = QpInit {
            qp_type: QpType::Uc,
            pd: PdId(1),
            send_cq: Some(CqId(2)),
            recv_cq: Some(CqId(3)),
            cap: QpCap { max_inline_data: 10, ..QpCap::default() },
            sq_sig_all: true,
            srq: None,
            send_ops: None,
            xrcd: None,
        };
        let qpn = engine.create_qp(now, init).unwrap();
        let access = Access::REMOTE_WRITE;
        engine.modify_qp(now, qpn, &InitAttr::Connected { access }.into(), |_, port| port).unwrap();
        let info = engine.query_qp(qpn).unwrap();
        let cap = QpCap { max_inline_data: 64, ..QpCap::default() };
        assert_eq!(info.init, QpInit { cap, ..init });
        let expected = FlatAttr {
            qp_state: 1,
            cur_qp_state: 1,
            qp_access_flags: 2,
            cap,
            port_num: 1,
            en_sqd_async_notify: 1,
            ..FlatAttr::default()
        };
        assert_eq!(FlatAttr::of(&info), expected);
    }
}
