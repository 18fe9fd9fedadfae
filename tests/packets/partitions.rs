//! Partitions: a port in several partitions, and queue pairs in one each.
//!
//! The P_Key table contains the default partition, partition 1 as a limited member and partition 2 as a full member.
//! The first PSN is 5, and the path MTU is 256.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use crate::support::script::{PEER_QPN, Script, rts_qp_of, target};
use crate::support::{request, sge};
use softroce::engine::{ModifyError, QpAttr, QpState, QpType};
use softroce::ids::PKey;
use softroce::transport::outputs::DropReason;
use softroce::transport::work::{SendOp, SendRequest};

const TABLE: [PKey; 3] = [PKey::DEFAULT, PKey(0x0001), PKey(0x8002)];
const TYPES: [QpType; 3] = [QpType::Rc, QpType::Uc, QpType::Ud];

/// Creates a queue pair in RTS, in the partition with this index.
fn in_partition(qp_type: QpType, index: u16) -> Script {
    let mut t = Script::reset(rts_qp_of(qp_type), |config| config.pkeys = TABLE.to_vec());
    t.modify(QpAttr { pkey_index: Some(index), ..t.step(QpState::Init) }).unwrap();
    t.bring_to(QpState::Rts);
    t
}

fn send(t: &mut Script, qp_type: QpType) {
    let send: SendRequest = request(1, SendOp::Send, &[sge(&t.data, 0, 8)]);
    t.post(if qp_type == QpType::Ud { send.to(target(PEER_QPN)) } else { send }).unwrap();
}

/// Returns a message with this P_Key.
fn message(qp_type: QpType, psn: u32, pkey: PKey) -> String {
    let to = match qp_type {
        QpType::Ud => format!(" qkey=0x00001234 srcqp={PEER_QPN}"),
        _ => String::new(),
    };
    let key = if pkey == PKey::DEFAULT { String::new() } else { format!(" pkey={pkey}") };
    format!("SEND_ONLY psn={psn}{key}{to} len=8")
}

/// PKT-12: with the membership bit.
#[test]
fn packets_carry_the_pkey_of_their_queue_pair() {
    for qp_type in TYPES {
        for (index, said) in [(0, ""), (1, " pkey=0x0001"), (2, " pkey=0x8002")] {
            let mut t = in_partition(qp_type, index);
            send(&mut t, qp_type);
            let sent = t.all(0)[0].line();
            let key = sent.split(' ').find(|word| word.starts_with("pkey=")).unwrap_or_default();
            assert_eq!(key, said.trim_start(), "{qp_type}: {sent}");
            if qp_type != QpType::Rc {
                t.sends();
            }
        }
    }
}

/// PKT-12: other partitions of the port do not count.
#[test]
fn packets_of_other_partitions_and_between_limited_members_are_dropped() {
    let cases = [
        (0, 0xffff, true),
        (0, 0x7fff, true),
        (0, 0x8001, false),
        (0, 0x8002, false),
        (1, 0x8001, true),
        (1, 0x0001, false),
        (1, 0xffff, false),
        (1, 0x8002, false),
        (2, 0x8002, true),
        (2, 0x0002, true),
        (2, 0x8001, false),
        (2, 0x7fff, false),
    ];
    for qp_type in TYPES {
        for (index, pkey, is_taken) in cases {
            let mut t = in_partition(qp_type, index);
            t.post_recv(64);
            t.rx(0, &message(qp_type, 5, PKey(pkey)));
            t.all(0);
            let drops = t.engine.qp_counters(t.qpn).unwrap().dropped(DropReason::PKeyMismatch);
            let found = (t.recvs().len(), drops);
            assert_eq!(found, (is_taken.into(), (!is_taken).into()), "{qp_type} {index} {pkey:#x}");
        }
    }
}

/// In SQD a queue pair may change its partition.
#[test]
fn queue_pair_changes_its_partition_in_sqd() {
    for qp_type in TYPES {
        let mut t = in_partition(qp_type, 0);
        t.modify(QpAttr::to(QpState::Sqd)).unwrap();
        t.modify(QpAttr { pkey_index: Some(2), ..QpAttr::default() }).unwrap();
        t.modify(QpAttr::to(QpState::Rts)).unwrap();
        send(&mut t, qp_type);
        assert!(t.all(0)[0].line().contains(" pkey=0x8002"));
        if qp_type != QpType::Rc {
            t.sends();
        }
        t.events();
        assert_eq!(t.engine.query_qp(t.qpn).unwrap().attr.pkey_index, Some(2));
    }
}

#[test]
fn pkey_index_beyond_the_table_is_refused() {
    let mut t = Script::reset(rts_qp_of(QpType::Rc), |config| config.pkeys = TABLE.to_vec());
    let refused = t.modify(QpAttr { pkey_index: Some(3), ..t.step(QpState::Init) }).unwrap_err();
    assert!(matches!(refused, ModifyError::OutOfRange { found: 3, min: 0, max: 2, .. }));
    assert_eq!(refused.to_string(), "PKEY_INDEX is 3, not 0 to 2");
    assert_eq!(t.state(), QpState::Reset);
}
