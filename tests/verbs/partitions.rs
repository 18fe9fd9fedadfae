//! Partitions of devices.

use softroce::verbs::*;

use crate::node::{Node, fresh_ip, open_with, single_attempt};
use crate::within::until;

const STORAGE: PKey = PKey(0x8001);
const GUESTS: PKey = PKey(0x0002);

fn device(pkeys: &[PKey]) -> Context {
    open_with(OpenOptions::default().pkeys(pkeys.iter().copied()))
}

/// Connects two queue pairs in the partitions of these keys, and checks whether a WRITE arrives.
fn write(a: &[PKey], b: &[PKey], key: [PKey; 2], gets_through: bool) {
    let (a, b) = (Node::on(device(a)), Node::on(device(b)));
    for ((node, peer), key) in [(&a, &b), (&b, &a)].into_iter().zip(key) {
        let options = ConnectOptions {
            pkey_index: node.ctx.pkey_index(key).unwrap(),
            // A request without response must fail soon.
            timeout: AckTimeout::new(if gets_through { 20 } else { 10 }).unwrap(),
            ..single_attempt()
        };
        node.qp.connect(&peer.qp.endpoint(), &options).unwrap();
    }
    a.send(SendRequest::write(1, a.mr.sge(..8), b.mr.remote(0)));
    let dropped = || b.qp.counters().unwrap().dropped(DropReason::PKeyMismatch);
    if gets_through {
        assert_eq!((a.end(), dropped()), ((1, WcStatus::Success), 0));
        return;
    }
    assert_eq!(a.end(), (1, WcStatus::RetryExcErr));
    // The requester has failed, perhaps before the responder has processed the packet.
    until("the packet to be dropped", || {
        assert_eq!(b.cq.poll_one(), None);
        dropped() > 0
    });
}

#[test]
fn members_of_a_partition_communicate_unless_both_are_limited() {
    let both = [PKey::DEFAULT, STORAGE];
    write(&both, &[STORAGE], [STORAGE; 2], true);
    let host = PKey(GUESTS.0 | 0x8000);
    write(&[GUESTS], &[host], [GUESTS, host], true);
    write(&[GUESTS], &[GUESTS], [GUESTS; 2], false);
    // Both ports belong to both partitions, and the queue pairs to different ones.
    let all = [PKey::DEFAULT, GUESTS];
    write(&all, &all, [GUESTS, PKey::DEFAULT], false);
}

#[test]
fn pkey_table_matches_the_options() {
    let ctx = device(&[STORAGE, GUESTS]);
    assert_eq!([0, 1].map(|index| ctx.query_pkey(index).unwrap()), [STORAGE, GUESTS]);
    assert_eq!(
        [STORAGE, GUESTS, PKey::DEFAULT].map(|key| ctx.pkey_index(key)),
        [Some(0), Some(1), None]
    );
    let refused = ctx.query_pkey(2).unwrap_err().to_string();
    assert_eq!(refused, "index 2 is not in the P_Key table, which has 2");
    let info = ctx.device_info().unwrap();
    assert_eq!((info.pkeys, info.limits.max_pkeys), (vec![STORAGE, GUESTS], 2));
    // Later contexts cannot change the table.
    let again = OpenOptions::default().ip(ctx.ip()).pkeys([PKey::DEFAULT]);
    assert!(matches!(Context::open(again), Err(Error::Open(_))));
}

#[test]
fn invalid_pkey_table_is_refused() {
    for (pkeys, expected) in [
        (&[][..], "the P_Key table is empty: a port belongs to one partition at least"),
        (&[PKey(0x8000)][..], "P_Key 0x8000 names no partition: its lower 15 bits are 0"),
        (
            &[PKey::DEFAULT, STORAGE, PKey(0x0001)][..],
            "P_Keys 0x8001 and 0x0001 name the same partition",
        ),
    ] {
        let options = OpenOptions::default().ip(fresh_ip()).pkeys(pkeys.iter().copied());
        assert_eq!(Context::open(options).unwrap_err().to_string(), expected);
    }
}
