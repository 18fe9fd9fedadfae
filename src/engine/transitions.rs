//! Which state of a queue pair follows which, and with which attributes (IBTA vol 1, §11.2.4.2).
//!
//! One table; everything else follows from it.

use std::fmt;

use smallvec::SmallVec;
use thiserror::Error;

use super::attr::{AddressVector, AttrMask, MigState, QpAttr, QpState, QpType};
use crate::ids::{Gid, Mtu, QKey, Qpn};

/// What a transition needs and what else it takes, besides the state itself.
#[derive(Clone, Copy)]
struct Rules {
    required: AttrMask,
    optional: AttrMask,
}

impl Rules {
    /// Of transitions to RESET and ERR.
    const NONE: Self = Self { required: AttrMask::empty(), optional: AttrMask::empty() };
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
        $(Rc: ($($rc:ident)*) ($($rc_opt:ident)*), Uc: ($($uc:ident)*) ($($uc_opt:ident)*),
        Ud: ($($ud:ident)*) ($($ud_opt:ident)*),)?
    })*) => {
        [$(Transition {
            from: QpState::$from,
            to: QpState::$to,
            $(rc: transitions!(@rules ($($rc)*) ($($rc_opt)*)),
            uc: transitions!(@rules ($($uc)*) ($($uc_opt)*)),
            ud: transitions!(@rules ($($ud)*) ($($ud_opt)*)),)?
        }),*]
    };
    (@rules ($($required:ident)*) ($($optional:ident)*)) => {
        Rules {
            required: AttrMask::empty()$(.union(AttrMask::$required))*,
            optional: AttrMask::empty()$(.union(AttrMask::$optional))*,
        }
    };
}

/// Per type: (required) (optional). Transitions to RESET and ERR are not in it, see [`rules`].
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
            (CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE),
        Uc: (SQ_PSN) (CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE),
        Ud: (SQ_PSN) (CUR_STATE QKEY),
    }
    Rts => Rts {
        Rc: () (CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE MIN_RNR_TIMER),
        Uc: () (CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE),
        Ud: () (CUR_STATE QKEY),
    }
    Rts => Sqd {
        Rc: () (EN_SQD_ASYNC_NOTIFY),
        Uc: () (EN_SQD_ASYNC_NOTIFY),
        Ud: () (EN_SQD_ASYNC_NOTIFY),
    }
    Sqd => Sqd {
        Rc: () (PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC ALT_PATH
            ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE),
        Uc: () (AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE),
        Ud: () (PKEY_INDEX QKEY),
    }
    Sqd => Rts {
        Rc: () (CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE),
        Uc: () (CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE),
        Ud: () (CUR_STATE QKEY),
    }
    Sqe => Rts {
        Rc: () (),
        Uc: () (CUR_STATE ACCESS_FLAGS),
        Ud: () (CUR_STATE QKEY),
    }
};

/// The rules of a transition, `None` when it is not legal.
fn rules(qp_type: QpType, from: QpState, to: QpState) -> Option<Rules> {
    match (from, to) {
        (_, QpState::Reset) => Some(Rules::NONE),
        (QpState::Reset, QpState::Err) => None,
        (_, QpState::Err) => Some(Rules::NONE),
        _ => TABLE.iter().find(|t| t.from == from && t.to == to).map(|t| match qp_type {
            QpType::Rc => t.rc,
            QpType::Uc => t.uc,
            QpType::Ud => t.ud,
        }),
    }
}

/// What the device sets bounds to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds<'a> {
    /// The MTU of the port.
    pub active_mtu: Mtu,
    /// READs and atomics that a queue pair may have outstanding, in either direction.
    pub max_rd_atomic: u8,
    /// The GID table.
    pub gids: &'a [Gid],
}

/// Checks a modification of a queue pair that is in state `from`, and returns the state that it
/// leads to: the one in `attr`, or `from` when there is none.
///
/// # Errors
/// See [`ModifyError`]. States come before attributes, attributes before their values.
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
    for (attribute, found, min, max) in [
        (AttrMask::PKEY_INDEX, attr.pkey_index, 0, 0),
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
    if let Some(qkey) = attr.qkey.filter(|qkey| qkey.0 >> 31 == 1) {
        return Err(ModifyError::PrivilegedQkey { qkey });
    }
    if attr.alt_path.is_some() {
        return Err(ModifyError::AltPath);
    }
    if let Some(found) = attr.path_mig_state.filter(|state| *state != MigState::Migrated) {
        return Err(ModifyError::MigState { found });
    }
    attr.av.map_or(Ok(()), |av| check_path(&av, bounds.gids))
}

fn check_path(av: &AddressVector, gids: &[Gid]) -> Result<(), ModifyError> {
    let index = av.sgid_index;
    let source =
        *gids.get(usize::from(index)).ok_or(ModifyError::SgidIndex { index, gids: gids.len() })?;
    if source.ip().is_ipv4() != av.gid.ip().is_ipv4() {
        return Err(ModifyError::GidFamily { gid: av.gid, index, ours: source });
    }
    Ok(())
}

/// Why a queue pair was not modified. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// There is no such queue pair.
    #[error("queue pair {0} does not exist")]
    NoSuchQp(Qpn),
    /// No step leads from one state to the other.
    #[error("cannot modify {from} to {to}: {}", Advice { from: *from, to: *to })]
    Illegal {
        /// The state it is in.
        from: QpState,
        /// The state asked for.
        to: QpState,
    },
    /// The step needs other attributes.
    #[error("{from} to {to} {}", Difference { missing: *missing, surplus: *surplus })]
    Attributes {
        /// The state it is in.
        from: QpState,
        /// The state asked for.
        to: QpState,
        /// What was not given and is needed.
        missing: AttrMask,
        /// What was given and is not taken.
        surplus: AttrMask,
    },
    /// It is not in the state that the caller believed.
    #[error("the queue pair is in {found}, not in {claimed} as CUR_STATE says")]
    CurState {
        /// What the caller believed.
        claimed: QpState,
        /// The state it is in.
        found: QpState,
    },
    /// The send queue is still draining: it can only go to ERR or RESET, or on once it is drained.
    #[error("the send queue is still draining")]
    Draining,
    /// A number is too large or too small.
    #[error("{attribute} is {found}, {}", Range { min: *min, max: *max })]
    OutOfRange {
        /// Which attribute.
        attribute: AttrMask,
        /// What was given.
        found: u16,
        /// The smallest allowed.
        min: u16,
        /// The largest allowed.
        max: u16,
    },
    /// The path MTU is larger than the port's.
    #[error("PATH_MTU is {found}, the port has {active}")]
    PathMtu {
        /// What was given.
        found: Mtu,
        /// What the port has.
        active: Mtu,
    },
    /// A Q_Key of the privileged.
    #[doc(alias = "EPERM")]
    #[error("QKEY {qkey} has bit 31 set, which is for the privileged")]
    PrivilegedQkey {
        /// What was given.
        qkey: QKey,
    },
    /// There is no such source GID.
    #[error("AV names source GID {index} of {gids}")]
    SgidIndex {
        /// What was given.
        index: u8,
        /// How many there are.
        gids: usize,
    },
    /// One GID is IPv4, the other IPv6.
    #[error("AV leads to {gid} from source GID {index}, {ours}: not the same IP version")]
    GidFamily {
        /// The peer's.
        gid: Gid,
        /// The index of ours.
        index: u8,
        /// Ours.
        ours: Gid,
    },
    /// RoCE has no alternate path.
    #[error("ALT_PATH is given, and RoCE has no alternate paths")]
    AltPath,
    /// Without an alternate path there is nothing to arm.
    #[error("PATH_MIG_STATE is {found:?}, and without alternate path it can only be Migrated")]
    MigState {
        /// What was given.
        found: MigState,
    },
}

/// How to get to a state to which no step leads.
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

/// The shortest way from one state to another, both included.
fn path(from: QpState, to: QpState) -> Option<SmallVec<[QpState; 7]>> {
    let mut paths = vec![SmallVec::from_slice(&[from])];
    // No way visits a state twice, so none is longer than all states.
    for _ in QpState::ALL {
        if let Some(found) = paths.iter().find(|path| path.last() == Some(&to)) {
            return Some(found.clone());
        }
        let longer = |path: &SmallVec<[QpState; 7]>| {
            let path = path.clone();
            QpState::ALL.into_iter().filter_map(move |next| {
                let last = *path.last()?;
                rules(QpType::Rc, last, next)?;
                let mut path = path.clone();
                (!path.contains(&next)).then(|| {
                    path.push(next);
                    path
                })
            })
        };
        paths = paths.iter().flat_map(longer).collect();
    }
    None
}

/// What is wrong with a set of attributes.
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

/// What a number may be.
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
