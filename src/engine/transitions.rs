//! State transitions of a queue pair, and the attributes of each (IBTA vol 1, §11.2.4.2).
//!
//! All rules follow from one table.

use std::fmt;

use thiserror::Error;

use super::attr::{AttrMask, MigState, QpAttr, QpState, QpType};
use crate::ids::{Gid, Mtu, QKey, Qpn};
use crate::net::AddressVector;

/// Attributes that a transition requires and allows, besides the state.
#[derive(Clone, Copy)]
struct Rules {
    required: AttrMask,
    optional: AttrMask,
}

impl Rules {
    /// Rules of transitions to RESET and ERR.
    const NONE: Self = Self { required: AttrMask::empty(), optional: AttrMask::empty() };

    /// Returns the rules of RC without the attributes of one half.
    fn without(self, half: AttrMask) -> Self {
        let Self { required, optional } = self;
        Self { required: required.difference(half), optional: optional.difference(half) }
    }
}

struct Transition {
    from: QpState,
    to: QpState,
    rc: Rules,
    uc: Rules,
    ud: Rules,
}

macro_rules! transitions {
    ($($from:ident => $to:ident {
        Rc: ($($rc:ident)*) ($($rc_opt:ident)*),
        Uc: ($($uc:ident)*) ($($uc_opt:ident)*),
        Ud: ($($ud:ident)*) ($($ud_opt:ident)*),
    })*) => {
        [$(Transition {
            from: QpState::$from,
            to: QpState::$to,
            rc: transitions!(@rules ($($rc)*) ($($rc_opt)*)),
            uc: transitions!(@rules ($($uc)*) ($($uc_opt)*)),
            ud: transitions!(@rules ($($ud)*) ($($ud_opt)*)),
        }),*]
    };
    (@rules ($($required:ident)*) ($($optional:ident)*)) => {
        Rules {
            required: AttrMask::empty()$(.union(AttrMask::$required))*,
            optional: AttrMask::empty()$(.union(AttrMask::$optional))*,
        }
    };
}

/// Per type: (required) (optional). [`rules`] handles transitions to RESET and ERR.
static TABLE: [Transition; 9] = transitions! {
    Reset => Init {
        Rc: (PKEY_INDEX PORT ACCESS_FLAGS) (),
        Uc: (PKEY_INDEX PORT ACCESS_FLAGS) (),
        Ud: (PKEY_INDEX PORT QKEY) (),
    }
    Init => Init {
        Rc: () (PKEY_INDEX PORT ACCESS_FLAGS),
        Uc: () (PKEY_INDEX PORT ACCESS_FLAGS),
        Ud: () (PKEY_INDEX PORT QKEY),
    }
    Init => Rtr {
        Rc: (AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER)
            (ALT_PATH ACCESS_FLAGS PKEY_INDEX),
        Uc: (AV PATH_MTU DEST_QPN RQ_PSN) (ALT_PATH ACCESS_FLAGS PKEY_INDEX),
        Ud: () (PKEY_INDEX QKEY),
    }
    Rtr => Rts {
        Rc: (TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC)
            (CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE RATE_LIMIT),
        Uc: (SQ_PSN) (CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE RATE_LIMIT),
        Ud: (SQ_PSN) (CUR_STATE QKEY RATE_LIMIT),
    }
    Rts => Rts {
        Rc: () (CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE MIN_RNR_TIMER RATE_LIMIT),
        Uc: () (CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE RATE_LIMIT),
        Ud: () (CUR_STATE QKEY RATE_LIMIT),
    }
    Rts => Sqd {
        Rc: () (EN_SQD_ASYNC_NOTIFY),
        Uc: () (EN_SQD_ASYNC_NOTIFY),
        Ud: () (EN_SQD_ASYNC_NOTIFY),
    }
    Sqd => Sqd {
        Rc: () (PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC ALT_PATH
            ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE RATE_LIMIT),
        Uc: () (AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE RATE_LIMIT),
        Ud: () (PKEY_INDEX QKEY RATE_LIMIT),
    }
    Sqd => Rts {
        Rc: () (CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE RATE_LIMIT),
        Uc: () (CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE RATE_LIMIT),
        Ud: () (CUR_STATE QKEY RATE_LIMIT),
    }
    Sqe => Rts {
        Rc: () (),
        Uc: () (CUR_STATE ACCESS_FLAGS),
        Ud: () (CUR_STATE QKEY),
    }
};

/// Attributes of the receive half, which an XRC initiator does not have.
const RECEIVING: AttrMask = AttrMask::MAX_DEST_RD_ATOMIC.union(AttrMask::MIN_RNR_TIMER);

/// Attributes of the send half, which an XRC target does not have.
const SENDING: AttrMask = AttrMask::RETRY_CNT
    .union(AttrMask::RNR_RETRY)
    .union(AttrMask::MAX_QP_RD_ATOMIC)
    .union(AttrMask::RATE_LIMIT);

/// Returns the rules of a transition, `None` if it is illegal.
fn rules(qp_type: QpType, from: QpState, to: QpState) -> Option<Rules> {
    match (from, to) {
        (_, QpState::Reset) => Some(Rules::NONE),
        (QpState::Reset, QpState::Err) => None,
        (_, QpState::Err) => Some(Rules::NONE),
        _ => TABLE.iter().find(|t| t.from == from && t.to == to).map(|t| match qp_type {
            QpType::Rc => t.rc,
            QpType::Uc => t.uc,
            QpType::Ud => t.ud,
            QpType::XrcIni => t.rc.without(RECEIVING),
            QpType::XrcTgt => t.rc.without(SENDING),
        }),
    }
}

/// Device limits for attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds<'a> {
    /// The MTU of the port.
    pub active_mtu: Mtu,
    /// Maximum number of READs and atomics that a queue pair may have outstanding, in each
    /// direction.
    pub max_rd_atomic: u8,
    /// The GID table.
    pub gids: &'a [Gid],
    /// Empty slots of the GID table.
    pub empty_gids: &'a [usize],
    /// Number of entries of the P_Key table.
    pub pkeys: usize,
    /// Whether controlled Q_Keys are allowed.
    pub controlled_qkeys: bool,
}

/// Checks a modification of a queue pair in state `from`. Returns the resulting state: the one in
/// `attr`, or `from` if there is none.
///
/// # Errors
/// See [`ModifyError`]. States are checked before attributes, and attributes before their values.
pub(super) fn check(
    qp_type: QpType,
    from: QpState,
    attr: &QpAttr,
    bounds: &Bounds<'_>,
) -> Result<QpState, ModifyError> {
    let to = attr.state.unwrap_or(from);
    let rules = rules(qp_type, from, to).ok_or(ModifyError::Illegal { from, to })?;
    let given = attr.mask().difference(AttrMask::STATE);
    let missing = rules.required.difference(given);
    let surplus = given.difference(rules.required | rules.optional);
    if !missing.is_empty() || !surplus.is_empty() {
        return Err(ModifyError::Attributes { from, to, missing, surplus });
    }
    check_values(from, attr, bounds)?;
    Ok(to)
}

fn check_values(from: QpState, attr: &QpAttr, bounds: &Bounds<'_>) -> Result<(), ModifyError> {
    if let Some(claimed) = attr.cur_state.filter(|claimed| *claimed != from) {
        return Err(ModifyError::CurState { claimed, found: from });
    }
    let max_rd_atomic = bounds.max_rd_atomic.into();
    let last_pkey = u16::try_from(bounds.pkeys.saturating_sub(1)).unwrap_or(u16::MAX);
    for (attribute, found, min, max) in [
        (AttrMask::PKEY_INDEX, attr.pkey_index, 0, last_pkey),
        (AttrMask::PORT, attr.port_num.map(u16::from), 1, 1),
        (AttrMask::RETRY_CNT, attr.retry_cnt.map(u16::from), 0, 7),
        (AttrMask::RNR_RETRY, attr.rnr_retry.map(u16::from), 0, 7),
        (AttrMask::MAX_QP_RD_ATOMIC, attr.max_rd_atomic.map(u16::from), 0, max_rd_atomic),
        (AttrMask::MAX_DEST_RD_ATOMIC, attr.max_dest_rd_atomic.map(u16::from), 0, max_rd_atomic),
    ] {
        if let Some(found) = found.filter(|found| !(min..=max).contains(found)) {
            return Err(ModifyError::OutOfRange { attribute, found, min, max });
        }
    }
    if let Some(found) = attr.path_mtu.filter(|mtu| *mtu > bounds.active_mtu) {
        return Err(ModifyError::PathMtu { found, active: bounds.active_mtu });
    }
    if let Some(qkey) = attr.qkey.filter(|qkey| qkey.is_controlled())
        && !bounds.controlled_qkeys
    {
        return Err(ModifyError::PrivilegedQkey { qkey });
    }
    if attr.alt_path.is_some() {
        return Err(ModifyError::AltPath);
    }
    if let Some(found) = attr.path_mig_state.filter(|state| *state != MigState::Migrated) {
        return Err(ModifyError::MigState { found });
    }
    attr.av.map_or(Ok(()), |av| check_path(&av, bounds))
}

fn check_path(av: &AddressVector, bounds: &Bounds<'_>) -> Result<(), ModifyError> {
    let (index, gids) = (av.sgid_index, bounds.gids);
    let ours =
        *gids.get(usize::from(index)).ok_or(ModifyError::SgidIndex { index, gids: gids.len() })?;
    if bounds.empty_gids.contains(&usize::from(index)) {
        return Err(ModifyError::EmptyGid { index, gid: ours });
    }
    if ours.ip().is_ipv4() != av.gid.ip().is_ipv4() {
        return Err(ModifyError::GidFamily { gid: av.gid, index, ours });
    }
    if av.gid.ip().is_multicast() {
        return Err(ModifyError::ToGroup { gid: av.gid });
    }
    Ok(())
}

/// Error for a queue pair that was not modified. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// There is no such queue pair.
    #[error("queue pair {0} does not exist")]
    NoSuchQp(Qpn),
    /// No transition leads from one state to the other.
    #[error("cannot modify {from} to {to}: {}", Advice { from: *from, to: *to })]
    Illegal {
        /// The current state.
        from: QpState,
        /// The requested state.
        to: QpState,
    },
    /// The transition requires other attributes.
    #[error("{from} to {to} {}", Difference { missing: *missing, surplus: *surplus })]
    Attributes {
        /// The current state.
        from: QpState,
        /// The requested state.
        to: QpState,
        /// Required attributes that are missing.
        missing: AttrMask,
        /// Attributes that are not allowed.
        surplus: AttrMask,
    },
    /// The queue pair is not in the state that the caller assumed.
    #[error("the queue pair is in {found}, not in {claimed} as CUR_STATE says")]
    CurState {
        /// The state in CUR_STATE.
        claimed: QpState,
        /// The current state.
        found: QpState,
    },
    /// The send queue is still draining. The event `SQ_DRAINED` reports the end.
    #[error("the send queue is still draining")]
    Draining,
    /// READs, atomics or FLUSHes posted in SQD require a nonzero MAX_QP_RD_ATOMIC. Without it,
    /// neither they nor later requests could be sent. Flush them via ERR or RESET, or complete them
    /// in RTS.
    #[error("MAX_QP_RD_ATOMIC is 0, and the send queue holds {posted} requests that need it")]
    ReadsPosted {
        /// Number of such requests.
        posted: usize,
    },
    /// A number is too large or too small.
    #[error("{attribute} is {found}, {}", Range { min: *min, max: *max })]
    OutOfRange {
        /// The attribute.
        attribute: AttrMask,
        /// The given value.
        found: u16,
        /// Minimum.
        min: u16,
        /// Maximum.
        max: u16,
    },
    /// The mask has unknown bits.
    #[error("the mask has bits {bits:#x}, which stand for no attribute")]
    UnknownAttributes {
        /// The unknown bits.
        bits: u32,
    },
    /// The sizes of the queues are fixed at creation.
    #[doc(alias = "IBV_QP_CAP")]
    #[error("the mask has CAP, and queues cannot be resized")]
    Cap,
    /// The attribute does not have such a value.
    #[error("{attribute} is {found:#x}, which is no {expected}")]
    Value {
        /// The attribute.
        attribute: AttrMask,
        /// The given value.
        found: u32,
        /// Description of valid values.
        expected: &'static str,
    },
    /// The path MTU is larger than the port's.
    #[error("PATH_MTU is {found}, the port has {active}")]
    PathMtu {
        /// The given value.
        found: Mtu,
        /// MTU of the port.
        active: Mtu,
    },
    /// A controlled Q_Key requires a privileged program.
    #[doc(alias = "EPERM")]
    #[error("QKEY {qkey} has bit 31 set, which needs CAP_NET_RAW")]
    PrivilegedQkey {
        /// The given value.
        qkey: QKey,
    },
    /// The source GID does not exist.
    #[error("AV names source GID {index} of {gids}")]
    SgidIndex {
        /// The given value.
        index: u8,
        /// Size of the GID table.
        gids: usize,
    },
    /// No interface currently has the address of the source GID.
    #[error("AV names source GID {index}, which is empty: no interface has {gid}")]
    EmptyGid {
        /// The given value.
        index: u8,
        /// GID of the slot.
        gid: Gid,
    },
    /// One GID is IPv4, the other IPv6.
    #[error("AV leads to {gid} and names source GID {index}, {ours}: not of one IP version")]
    GidFamily {
        /// GID of the peer.
        gid: Gid,
        /// Index of the source GID.
        index: u8,
        /// The source GID.
        ours: Gid,
    },
    /// A connection needs a unicast peer.
    #[error("AV leads to the multicast group {gid}: only UD sends to groups")]
    ToGroup {
        /// The group.
        gid: Gid,
    },
    /// RoCE has no alternate path.
    #[error("ALT_PATH is given, and RoCE has no alternate paths")]
    AltPath,
    /// Without an alternate path there is nothing to arm.
    #[error("PATH_MIG_STATE is {found:?}, and without alternate path it can only be Migrated")]
    MigState {
        /// The given value.
        found: MigState,
    },
}

/// Help text for an illegal transition.
struct Advice {
    from: QpState,
    to: QpState,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.from == self.to {
            return f.write_str("nothing can be changed in that state");
        }
        let Some(path) = path(self.from, self.to) else {
            return f.write_str("only the device leads there");
        };
        f.write_str("the path is ")?;
        for (n, state) in path.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{state}")?;
        }
        Ok(())
    }
}

/// Returns the shortest path from one state to another, both included.
fn path(from: QpState, to: QpState) -> Option<Vec<QpState>> {
    (1..QpState::ALL.len()).find_map(|steps| path_of(steps, from, to))
}

/// Returns a path with this number of transitions. All types of queue pairs have the same
/// transitions.
fn path_of(steps: usize, from: QpState, to: QpState) -> Option<Vec<QpState>> {
    if steps == 0 {
        return (from == to).then(|| vec![to]);
    }
    let mut next = QpState::ALL.into_iter().filter(|next| rules(QpType::Rc, from, *next).is_some());
    next.find_map(|next| {
        let mut path = path_of(steps - 1, next, to)?;
        path.insert(0, from);
        Some(path)
    })
}

/// Missing and surplus attributes.
struct Difference {
    missing: AttrMask,
    surplus: AttrMask,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { missing, surplus } = self;
        match (missing.is_empty(), surplus.is_empty()) {
            (_, true) => write!(f, "lacks {missing}"),
            (true, false) => write!(f, "does not take {surplus}"),
            (false, false) => write!(f, "lacks {missing} and does not take {surplus}"),
        }
    }
}

/// Valid range of a number.
struct Range {
    min: u16,
    max: u16,
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { min, max } = self;
        if min == max { write!(f, "it can only be {min}") } else { write!(f, "not {min} to {max}") }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::engine::pace::RateLimit;
    use crate::mem::Access;
    use crate::psn::Psn;
    use crate::time::{AckTimeout, RnrTimer};

    /// The table of the protocol notes: transition | RC required ; optional | UC | UD | XRC_INI |
    /// XRC_TGT.
    const NOTES: &str = "
        RESET>INIT | PK PT AF ;                                | PK PT AF ;               | PK PT QK ; \
            | PK PT AF ; | PK PT AF ;
        INIT>INIT  | ; PK PT AF                                | ; PK PT AF               | ; PK PT QK \
            | ; PK PT AF | ; PK PT AF
        INIT>RTR   | AV MTU DQ RQP MDR MRN ; ALT AF PK         | AV MTU DQ RQP ; ALT AF PK | ; PK QK \
            | AV MTU DQ RQP ; ALT AF PK | AV MTU DQ RQP MDR MRN ; ALT AF PK
        RTR>RTS    | TO RC RNR SQP MRA ; CUR ALT AF MRN MIG RL | SQP ; CUR ALT AF MIG RL  | SQP ; CUR QK RL \
            | TO RC RNR SQP MRA ; CUR ALT AF MIG RL | TO SQP ; CUR ALT AF MRN MIG
        RTS>RTS    | ; CUR AF ALT MIG MRN RL                   | ; CUR AF ALT MIG RL      | ; CUR QK RL \
            | ; CUR AF ALT MIG RL | ; CUR AF ALT MIG MRN
        RTS>SQD    | ; EN                                      | ; EN                     | ; EN | ; EN | ; EN
        SQD>SQD    | ; PT AV TO RC RNR MRA MDR ALT AF PK MRN MIG RL | ; AV ALT AF PK MIG RL | ; PK QK RL \
            | ; PT AV TO RC RNR MRA ALT AF PK MIG RL | ; PT AV TO MDR ALT AF PK MRN MIG
        SQD>RTS    | ; CUR ALT AF MRN MIG RL                   | ; CUR ALT AF MIG RL      | ; CUR QK RL \
            | ; CUR ALT AF MIG RL | ; CUR ALT AF MRN MIG
        SQE>RTS    | ;                                         | ; CUR AF                 | ; CUR QK | ; | ;";

    const GID: Gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1]);
    const BOUNDS: Bounds<'_> = Bounds {
        active_mtu: Mtu::Mtu1024,
        max_rd_atomic: 16,
        gids: &[GID],
        empty_gids: &[],
        pkeys: 1,
        controlled_qkeys: false,
    };

    /// Returns the attribute for an abbreviation in the notes.
    fn attribute(short: &str) -> AttrMask {
        match short {
            "CUR" => AttrMask::CUR_STATE,
            "EN" => AttrMask::EN_SQD_ASYNC_NOTIFY,
            "AF" => AttrMask::ACCESS_FLAGS,
            "PK" => AttrMask::PKEY_INDEX,
            "PT" => AttrMask::PORT,
            "QK" => AttrMask::QKEY,
            "AV" => AttrMask::AV,
            "MTU" => AttrMask::PATH_MTU,
            "TO" => AttrMask::TIMEOUT,
            "RC" => AttrMask::RETRY_CNT,
            "RNR" => AttrMask::RNR_RETRY,
            "RQP" => AttrMask::RQ_PSN,
            "MRA" => AttrMask::MAX_QP_RD_ATOMIC,
            "ALT" => AttrMask::ALT_PATH,
            "MRN" => AttrMask::MIN_RNR_TIMER,
            "SQP" => AttrMask::SQ_PSN,
            "MDR" => AttrMask::MAX_DEST_RD_ATOMIC,
            "MIG" => AttrMask::PATH_MIG_STATE,
            "DQ" => AttrMask::DEST_QPN,
            "RL" => AttrMask::RATE_LIMIT,
            other => panic!("{other} is no attribute"),
        }
    }

    /// Returns the required and optional attributes from the notes, `None` for an illegal
    /// transition.
    fn noted(qp_type: QpType, from: QpState, to: QpState) -> Option<(AttrMask, AttrMask)> {
        if to == QpState::Reset || (to == QpState::Err && from != QpState::Reset) {
            return Some(Default::default());
        }
        let step = format!("{from}>{to}");
        let line = NOTES.lines().find(|line| line.split_whitespace().next() == Some(&step))?;
        let number = QpType::ALL.iter().position(|of| *of == qp_type).unwrap();
        let column = line.split('|').nth(number + 1).unwrap();
        let (needs, takes) = column.split_once(';').unwrap();
        let mask = |names: &str| names.split_whitespace().map(attribute).collect();
        Some((mask(needs), mask(takes)))
    }

    fn av() -> AddressVector {
        AddressVector::to(Ipv4Addr::LOCALHOST.into())
    }

    /// Returns these attributes, with valid values.
    fn attr(from: QpState, to: Option<QpState>, mask: AttrMask) -> QpAttr {
        fn given<T>(mask: AttrMask, flag: AttrMask, value: T) -> Option<T> {
            mask.contains(flag).then_some(value)
        }
        let attr = QpAttr {
            state: to,
            cur_state: given(mask, AttrMask::CUR_STATE, from),
            pkey_index: given(mask, AttrMask::PKEY_INDEX, 0),
            port_num: given(mask, AttrMask::PORT, 1),
            access: given(mask, AttrMask::ACCESS_FLAGS, Access::REMOTE_READ),
            qkey: given(mask, AttrMask::QKEY, QKey(0x1111_1111)),
            path_mtu: given(mask, AttrMask::PATH_MTU, Mtu::Mtu1024),
            dest_qpn: given(mask, AttrMask::DEST_QPN, Qpn::new(0x12)),
            rq_psn: given(mask, AttrMask::RQ_PSN, Psn::new(5)),
            sq_psn: given(mask, AttrMask::SQ_PSN, Psn::new(6)),
            max_rd_atomic: given(mask, AttrMask::MAX_QP_RD_ATOMIC, 16),
            max_dest_rd_atomic: given(mask, AttrMask::MAX_DEST_RD_ATOMIC, 0),
            min_rnr_timer: given(mask, AttrMask::MIN_RNR_TIMER, RnrTimer::default()),
            timeout: given(mask, AttrMask::TIMEOUT, AckTimeout::NEVER),
            retry_cnt: given(mask, AttrMask::RETRY_CNT, 7),
            rnr_retry: given(mask, AttrMask::RNR_RETRY, 7),
            av: given(mask, AttrMask::AV, av()),
            alt_path: given(mask, AttrMask::ALT_PATH, av()),
            path_mig_state: given(mask, AttrMask::PATH_MIG_STATE, MigState::Migrated),
            en_sqd_async_notify: given(mask, AttrMask::EN_SQD_ASYNC_NOTIFY, true),
            rate_limit: given(mask, AttrMask::RATE_LIMIT, RateLimit::kbps(1000)),
        };
        assert_eq!(attr.mask().difference(AttrMask::STATE), mask);
        attr
    }

    /// Returns the expected result of `check`.
    fn expected(
        qp_type: QpType,
        from: QpState,
        to: QpState,
        mask: AttrMask,
    ) -> Result<QpState, ModifyError> {
        let Some((needs, takes)) = noted(qp_type, from, to) else {
            return Err(ModifyError::Illegal { from, to });
        };
        let (missing, surplus) = (needs.difference(mask), mask.difference(needs | takes));
        if !(missing | surplus).is_empty() {
            return Err(ModifyError::Attributes { from, to, missing, surplus });
        }
        if mask.contains(AttrMask::ALT_PATH) { Err(ModifyError::AltPath) } else { Ok(to) }
    }

    /// Tests every type, state and next state, with every set of attributes that differs by up to
    /// two from the required ones, from all allowed ones, from none or from all.
    #[test]
    fn every_step_takes_what_the_notes_say_and_nothing_else() {
        let attributes: Vec<_> = AttrMask::all().difference(AttrMask::STATE).iter().collect();
        let steps = QpState::ALL.into_iter().flat_map(|from| QpState::ALL.map(|to| (from, to)));
        for ((from, to), qp_type) in steps.flat_map(|step| QpType::ALL.map(|t| (step, t))) {
            let (needs, takes) = noted(qp_type, from, to).unwrap_or_default();
            let everything = attributes.iter().copied().collect();
            for base in [needs, needs | takes, AttrMask::empty(), everything] {
                for (a, b) in attributes.iter().flat_map(|a| attributes.iter().map(move |b| (a, b)))
                {
                    // The same one twice leaves one change.
                    let mask = base ^ (*a | *b);
                    let wanted = expected(qp_type, from, to, mask);
                    let got = check(qp_type, from, &attr(from, Some(to), mask), &BOUNDS);
                    assert_eq!(got, wanted, "{qp_type}, {mask}");
                }
                let wanted = expected(qp_type, from, to, base);
                let got = check(qp_type, from, &attr(from, Some(to), base), &BOUNDS);
                assert_eq!(got, wanted, "{qp_type}, {base}");
            }
        }
    }

    #[test]
    fn without_a_state_it_stays_in_its_own() {
        for (qp_type, from) in QpType::ALL.into_iter().flat_map(|t| QpState::ALL.map(|s| (t, s))) {
            for mask in AttrMask::all().difference(AttrMask::STATE).iter() {
                let wanted = expected(qp_type, from, from, mask);
                assert_eq!(check(qp_type, from, &attr(from, None, mask), &BOUNDS), wanted);
            }
        }
    }

    /// INIT to RTR to RTS of an RC queue pair and SQD to SQD, with one invalid value.
    fn refused(from: QpState, change: impl FnOnce(&mut QpAttr)) -> String {
        let to = match from {
            QpState::Init => QpState::Rtr,
            QpState::Rtr => QpState::Rts,
            other => other,
        };
        let (needs, takes) = noted(QpType::Rc, from, to).unwrap();
        let mask = (needs | takes).difference(AttrMask::ALT_PATH);
        let mut attr = attr(from, Some(to), mask);
        assert_eq!(check(QpType::Rc, from, &attr, &BOUNDS), Ok(to));
        change(&mut attr);
        check(QpType::Rc, from, &attr, &BOUNDS).unwrap_err().to_string()
    }

    #[test]
    fn values_have_bounds() {
        use QpState::{Init, Rtr, Sqd};
        let v6 = Gid::from(Ipv6Addr::LOCALHOST);
        for (said, expected) in [
            (refused(Rtr, |a| a.retry_cnt = Some(8)), "RETRY_CNT is 8, not 0 to 7"),
            (refused(Rtr, |a| a.rnr_retry = Some(255)), "RNR_RETRY is 255, not 0 to 7"),
            (refused(Rtr, |a| a.max_rd_atomic = Some(17)), "MAX_QP_RD_ATOMIC is 17, not 0 to 16"),
            (
                refused(Init, |a| a.max_dest_rd_atomic = Some(17)),
                "MAX_DEST_RD_ATOMIC is 17, not 0 to 16",
            ),
            (refused(Init, |a| a.pkey_index = Some(1)), "PKEY_INDEX is 1, it can only be 0"),
            (refused(Sqd, |a| a.port_num = Some(0)), "PORT is 0, it can only be 1"),
            (
                refused(Init, |a| a.path_mtu = Some(Mtu::Mtu2048)),
                "PATH_MTU is 2048, the port has 1024",
            ),
            (
                refused(Init, |a| a.av = Some(AddressVector { sgid_index: 1, ..av() })),
                "AV names source GID 1 of 1",
            ),
            (
                refused(Sqd, |a| a.av = Some(AddressVector { gid: v6, ..av() })),
                "AV leads to ::1 and names source GID 0, ::ffff:127.0.0.1: not of one IP version",
            ),
            (
                refused(Init, |a| {
                    a.av = Some(AddressVector::to(Ipv4Addr::new(239, 1, 2, 3).into()));
                }),
                "AV leads to the multicast group ::ffff:239.1.2.3: only UD sends to groups",
            ),
            (
                refused(Rtr, |a| a.alt_path = Some(av())),
                "ALT_PATH is given, and RoCE has no alternate paths",
            ),
            (
                refused(Rtr, |a| a.path_mig_state = Some(MigState::Armed)),
                "PATH_MIG_STATE is Armed, and without alternate path it can only be Migrated",
            ),
            (
                refused(Rtr, |a| a.cur_state = Some(Sqd)),
                "the queue pair is in RTR, not in SQD as CUR_STATE says",
            ),
        ] {
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn a_controlled_qkey_needs_privilege() {
        let attr = QpAttr { qkey: Some(QKey(0x8001_0000)), ..QpAttr::default() };
        assert_eq!(
            check(QpType::Ud, QpState::Rts, &attr, &BOUNDS),
            Err(ModifyError::PrivilegedQkey { qkey: QKey(0x8001_0000) })
        );
        let privileged = Bounds { controlled_qkeys: true, ..BOUNDS };
        assert_eq!(check(QpType::Ud, QpState::Rts, &attr, &privileged), Ok(QpState::Rts));
    }

    #[test]
    fn an_illegal_step_is_answered_with_the_way() {
        let said =
            |from, to| check(QpType::Rc, from, &QpAttr::to(to), &BOUNDS).unwrap_err().to_string();
        use QpState::*;
        for (from, to, expected) in [
            (Reset, Rts, "cannot modify RESET to RTS: the path is RESET, INIT, RTR, RTS"),
            (Rtr, Init, "cannot modify RTR to INIT: the path is RTR, RESET, INIT"),
            (Err, Rts, "cannot modify ERR to RTS: the path is ERR, RESET, INIT, RTR, RTS"),
            (Init, Sqd, "cannot modify INIT to SQD: the path is INIT, RTR, RTS, SQD"),
            (Reset, Err, "cannot modify RESET to ERR: the path is RESET, INIT, ERR"),
            (Rts, Sqe, "cannot modify RTS to SQE: only the device leads there"),
            (Rtr, Rtr, "cannot modify RTR to RTR: nothing can be changed in that state"),
        ] {
            assert_eq!(said(from, to), expected);
        }
    }

    #[test]
    fn wrong_attributes_are_named() {
        let said = |to, change: fn(&mut QpAttr)| {
            let mask = AttrMask::AV | AttrMask::RQ_PSN | AttrMask::MAX_DEST_RD_ATOMIC;
            let full = mask | AttrMask::MIN_RNR_TIMER | AttrMask::PATH_MTU | AttrMask::DEST_QPN;
            let mut attr = attr(QpState::Init, Some(to), full);
            change(&mut attr);
            check(QpType::Rc, QpState::Init, &attr, &BOUNDS).unwrap_err().to_string()
        };
        let lacks = said(QpState::Rtr, |a| (a.path_mtu, a.dest_qpn) = (None, None));
        assert_eq!(lacks, "INIT to RTR lacks PATH_MTU, DEST_QPN");
        let surplus = said(QpState::Rtr, |a| a.sq_psn = Some(Psn::new(0)));
        assert_eq!(surplus, "INIT to RTR does not take SQ_PSN");
        let both = said(QpState::Rtr, |a| (a.av, a.retry_cnt) = (None, Some(1)));
        assert_eq!(both, "INIT to RTR lacks AV and does not take RETRY_CNT");
    }

    #[test]
    fn the_typed_attributes_are_what_their_steps_need() {
        use super::super::attr::{InitAttr, Peer, RtrAttr, RtsAttr};
        let connected = InitAttr::Connected { access: Access::REMOTE_WRITE };
        let datagram = InitAttr::Datagram { qkey: QKey(1) };
        let peer =
            Peer { av: av(), dest_qpn: Qpn::new(0x12), rq_psn: Psn::new(1), path_mtu: Mtu::Mtu256 };
        let min_rnr_timer = RnrTimer::default();
        let sq_psn = Psn::new(2);
        let rc = [
            connected.into(),
            RtrAttr::Rc { peer, max_dest_rd_atomic: 1, min_rnr_timer }.into(),
            RtsAttr::Rc {
                sq_psn,
                timeout: AckTimeout::NEVER,
                retry_cnt: 7,
                rnr_retry: 7,
                max_rd_atomic: 1,
            }
            .into(),
        ];
        let unreliable = RtsAttr::Unreliable { sq_psn }.into();
        let uc = [connected.into(), RtrAttr::Uc { peer }.into(), unreliable];
        let ud = [datagram.into(), RtrAttr::Ud.into(), unreliable];
        let ini = [connected.into(), uc[1], rc[2]];
        let timeout = AckTimeout::NEVER;
        let tgt = [connected.into(), rc[1], RtsAttr::XrcTgt { sq_psn, timeout }.into()];
        for (qp_type, steps) in QpType::ALL.into_iter().zip([rc, uc, ud, ini, tgt]) {
            let mut state = QpState::Reset;
            for attr in &steps {
                state = check(qp_type, state, attr, &BOUNDS).unwrap();
            }
            assert_eq!(state, QpState::Rts);
        }
    }
}
