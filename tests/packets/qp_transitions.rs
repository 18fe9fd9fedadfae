//! Results of `modify_qp` for every transport, state, next state and attribute: with each required attribute missing,
//! and with each other one present. The results are in `qp_transitions/table.txt`, which `SNAPSHOTS=write` writes;
//! review changes before a commit.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::fmt::Write as _;
use std::path::Path;

use crate::support::script::{PEER, PEER_QPN, Script, ok, rts_qp_of, target};
use crate::support::{Link, XRCD, request, sge};
use softroce::engine::{AttrMask, FlatAttr, MigState, ModifyError, QpAttr, QpState, QpType};
use softroce::ids::{Gid, Lkey, Mtu};
use softroce::mem::Access;
use softroce::net::AddressVector;
use softroce::transport::outputs::AsyncEvent;
use softroce::transport::work::{SendOp, SendRequest, Sge, WcOpcode};

/// QPS-01, QPS-02, QPS-13: errors name each missing required attribute and each superfluous one, and a refused
/// modification changes nothing.
#[test]
fn every_transition_takes_the_attributes_of_the_table() {
    let mut table = String::new();
    for qp_type in QpType::ALL {
        for from in QpState::ALL {
            if in_state(qp_type, from).map(Script::leave).is_none() {
                writeln!(table, "{qp_type} {from}: no way leads there").unwrap();
                continue;
            }
            for to in QpState::ALL {
                writeln!(table, "{qp_type} {from} to {to}: {}", step(qp_type, from, to)).unwrap();
            }
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/packets/qp_transitions/table.txt");
    if std::env::var_os("SNAPSHOTS").is_some_and(|what| what == "write") {
        std::fs::write(&file, &table).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap();
    let differs = expected.lines().zip(table.lines()).find(|(expected, found)| expected != found);
    assert_eq!(differs, None, "(expected, found); SNAPSHOTS=write writes what is found");
    assert_eq!(expected, table);
}

/// QPS-09: only RESET and ERR are permitted, and others change nothing.
#[test]
fn refused_transition_while_draining_changes_nothing() {
    for qp_type in [QpType::Rc, QpType::XrcIni] {
        let mut t = in_state(qp_type, QpState::Rts).unwrap();
        assert_eq!(t.all(0).len(), 1);
        t.modify(QpAttr::to(QpState::Sqd)).unwrap();
        let before = inside(&t);
        for to in [QpState::Rts, QpState::Sqd] {
            assert_eq!(t.modify(QpAttr::to(to)), Err(ModifyError::Draining));
            assert_eq!(inside(&t), before, "{qp_type} SQD to {to}");
        }
        t.rx(1, "ACK psn=5 msn=1");
        assert_eq!(t.sends(), [ok(1, WcOpcode::Send, 8)]);
        assert_eq!(t.events(), [AsyncEvent::SqDrained(t.qpn)]);
    }
}

/// Returns the row of a transition.
fn step(qp_type: QpType, from: QpState, to: QpState) -> String {
    let modify = |given| modify(qp_type, from, to, given);
    let needed = match modify(AttrMask::empty()) {
        Ok(()) => AttrMask::empty(),
        Err(ModifyError::Attributes { missing, .. }) => missing,
        Err(error) => {
            assert_eq!(error, ModifyError::Illegal { from, to });
            for given in attributes() {
                assert_eq!(modify(given), Err(error), "with {given}");
            }
            return error.to_string();
        }
    };
    let none = AttrMask::empty();
    for missing in needed.iter() {
        let error = ModifyError::Attributes { from, to, missing, surplus: none };
        assert_eq!(modify(needed.difference(missing)), Err(error));
    }
    let mut taken = none;
    for given in attributes().filter(|attribute| !needed.contains(*attribute)) {
        match modify(needed | given) {
            Ok(()) => taken |= given,
            // The transition permits an alternate path, which the device does not support.
            Err(ModifyError::AltPath) => {
                assert_eq!(given, AttrMask::ALT_PATH);
                taken |= given;
            }
            Err(error) => {
                let expected = ModifyError::Attributes { from, to, missing: none, surplus: given };
                assert_eq!(error, expected);
            }
        }
    }
    assert_eq!(modify(needed), Ok(()));
    match (needed.is_empty(), taken.is_empty()) {
        (true, true) => "takes nothing".to_owned(),
        (true, false) => format!("may have {taken}"),
        (false, true) => format!("needs {needed}"),
        (false, false) => format!("needs {needed}; may have {taken}"),
    }
}

/// Returns the result of a transition with these attributes. A refused transition changes nothing in the engine, and
/// causes no completion, event or packet.
fn modify(qp_type: QpType, from: QpState, to: QpState, given: AttrMask) -> Result<(), ModifyError> {
    let mut t = in_state(qp_type, from).unwrap();
    let before = inside(&t);
    let attr = attr(from, to, given);
    let verdict = t.modify(attr);
    match verdict {
        Ok(()) => {
            let info = t.engine.query_qp(t.qpn).unwrap();
            assert_eq!(info.state, to);
            let kept = info.attr.mask();
            let lost = given.difference(kept | AttrMask::CUR_STATE);
            let forgets = matches!(to, QpState::Reset | QpState::Err);
            assert!(lost.is_empty() || forgets, "{from} to {to}: {lost} is not kept");
        }
        Err(error) => {
            assert_eq!(inside(&t), before, "{qp_type} {from} to {to} with {given}: {error}");
            if from == to {
                let unsaid = QpAttr { state: None, ..attr };
                assert_eq!(t.modify(unsaid), verdict, "without a state it stays in its own");
            }
        }
    }
    t.leave();
    verdict
}

/// Returns the state of the engine without its epoch number, which every call advances.
fn inside(t: &Script) -> String {
    let all = format!("{:?}", t.engine);
    let parts = all.split("epoch: ");
    parts.map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit())).collect()
}

/// Returns every attribute except the state.
fn attributes() -> impl Iterator<Item = AttrMask> {
    AttrMask::all().difference(AttrMask::STATE).iter()
}

/// Returns these attributes with valid values.
fn attr(from: QpState, to: QpState, given: AttrMask) -> QpAttr {
    let path = AddressVector::to(Gid::from(PEER));
    let flat = FlatAttr {
        qp_state: to as u32,
        cur_qp_state: from as u32,
        path_mtu: Mtu::Mtu1024 as u32,
        path_mig_state: MigState::Migrated as u32,
        qkey: 0x1111,
        rq_psn: 0x12,
        sq_psn: 0x34,
        dest_qp_num: PEER_QPN.value(),
        qp_access_flags: Access::REMOTE_READ.bits(),
        ah_attr: path,
        alt_ah_attr: path,
        en_sqd_async_notify: 1,
        max_rd_atomic: 3,
        max_dest_rd_atomic: 2,
        min_rnr_timer: 1,
        port_num: 1,
        timeout: 9,
        retry_cnt: 6,
        rnr_retry: 5,
        rate_limit: 1000,
        ..FlatAttr::default()
    };
    flat.select((given | AttrMask::STATE).bits()).unwrap()
}

/// Creates a queue pair in this state with receive requests, where permitted, and unsent send requests. `None` when
/// the transport does not have the state.
fn in_state(qp_type: QpType, state: QpState) -> Option<Script> {
    let xrcd = (qp_type == QpType::XrcTgt).then_some(XRCD);
    let mut t = Script::reset(Link { xrcd, ..rts_qp_of(qp_type) }, |_| {});
    let receives = !matches!(qp_type, QpType::XrcIni | QpType::XrcTgt);
    let sends = qp_type != QpType::XrcTgt;
    match state {
        QpState::Sqe if matches!(qp_type, QpType::Uc | QpType::Ud) => {
            t.bring_to(QpState::Rts);
            let nowhere = [Sge { lkey: Lkey(0), ..sge(&t.data, 0, 8) }];
            let to = (qp_type == QpType::Ud).then(|| target(PEER_QPN).into());
            t.post(SendRequest { to, ..request(1, SendOp::Send, &nowhere) }).unwrap();
            t.quiet(0);
            assert_eq!(t.sends().len(), 1);
        }
        QpState::Sqe => {
            t.leave();
            return None;
        }
        QpState::Err => {
            t.bring_to(QpState::Rts);
            t.modify(QpAttr::to(QpState::Err)).unwrap();
        }
        _ => t.bring_to(state),
    }
    t.events();
    assert_eq!(t.state(), state);
    if receives && state != QpState::Reset && state != QpState::Err {
        t.post_recv(64);
    }
    if sends && matches!(state, QpState::Rts | QpState::Sqd) {
        t.send(1, 8);
    }
    Some(t)
}
