//! UC and UD over the simulated network.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use softroce::engine::{PostError, QpState, QpType};
use softroce::ids::{Gid, Mtu, QKey};
use softroce::io::sim::{Conditions, HostConfig};
use softroce::net::AddressVector;
use softroce::transport::outputs::DropReason;
use softroce::transport::work::{SendOp, UdTarget, WcOpcode, WcStatus};
use support::{Link, QKEY, World, full_access, pattern, remote, request, sge};

const AREA: usize = 1 << 16;

fn link(qp_type: QpType) -> Link {
    Link { qp_type, ..Link::default() }
}

/// UC-02, UC-03, UC-04: what arrives of a message is all of it or nothing.
#[test]
fn uc_delivers_whole_messages_in_order_or_not_at_all() {
    let mut lost = 0;
    for seed in 0..200 {
        let mut world = World::new(seed, 2);
        let conditions = Conditions {
            loss: 0.03,
            duplicate: 0.01,
            reorder: 0.02,
            delay: Duration::from_micros(5),
            ..Conditions::default()
        };
        world.network.set_conditions(conditions);
        let qps = world.pair(&Link { psn: [0xff_fff0, 7], ..link(QpType::Uc) });
        let source = world.nodes[0].region(AREA, 1 << 32, full_access());
        let inbox = world.nodes[1].region(AREA, 2 << 32, full_access());
        source.write_at(0, &pattern(seed, AREA)).unwrap();
        for message in 0..16 {
            world.post_recv(1, qps[1], message, &[sge(&inbox, message as usize * 4096, 4096)]);
        }
        for message in 0..16 {
            let len = 1 + message as usize * 255;
            let op = SendOp::SendImm { imm: message as u32 };
            let from = sge(&source, message as usize * 17, len);
            world.post_send(0, qps[0], request(message, op, &[from]));
        }
        world.run(Duration::from_secs(1));
        assert_eq!(
            world.nodes[0].sends.len(),
            16,
            "seed {seed}: sends complete when they are sent"
        );
        let mut newest = None;
        for (slot, completion) in world.nodes[1].recvs.iter().enumerate() {
            assert_eq!(completion.status, WcStatus::Success);
            assert_eq!(completion.wr_id, slot as u64, "seed {seed}: receives are used in order");
            let message = completion.imm.unwrap() as usize;
            let len = 1 + message * 255;
            assert_eq!(completion.byte_len as usize, len, "seed {seed}: message {message} is torn");
            let mut found = vec![0; len];
            inbox.read_at(slot * 4096, &mut found).unwrap();
            assert_eq!(found, pattern(seed, AREA)[message * 17..][..len], "seed {seed}");
            newest = newest.max(Some(message));
        }
        lost += 16 - world.nodes[1].recvs.len() as u64;
        assert_eq!(world.state(1, qps[1]), QpState::Rts);
    }
    assert!(lost > 100, "the network lost {lost} messages; it should have lost more");
}

/// UC-01, UC-05, UC-06: errors are silent and change nothing.
#[test]
fn uc_drops_what_it_cannot_take_and_goes_on() {
    let mut world = World::new(1, 2);
    let qps = world.pair(&link(QpType::Uc));
    let local = world.nodes[0].region(AREA, 1 << 32, full_access());
    let there = world.nodes[1].region(AREA, 2 << 32, full_access());
    world.post_send(0, qps[0], request(1, SendOp::Send, &[sge(&local, 0, 5000)]));
    let mut to = remote(&there, 0);
    to.rkey.0 ^= 1;
    world.post_send(0, qps[0], request(2, SendOp::Write { to }, &[sge(&local, 0, 5000)]));
    local.write_at(0, &pattern(3, 100)).unwrap();
    world.run(Duration::from_secs(1));
    let to = remote(&there, 8);
    world.post_recv(1, qps[1], 9, &[]);
    let op = SendOp::WriteImm { to, imm: 77 };
    world.post_send(0, qps[0], request(3, op, &[sge(&local, 0, 100)]));
    world.run(Duration::from_secs(1));
    let counters = world.nodes[1].engine.counters();
    assert_eq!(counters.dropped(DropReason::NoReceive), 1);
    assert_eq!(counters.dropped(DropReason::Refused), 1);
    assert_eq!(counters.tx_packets, 0, "UC never answers");
    let [completion] = world.nodes[1].recvs[..] else { panic!("{:?}", world.nodes[1].recvs) };
    assert_eq!(
        (completion.wr_id, completion.opcode, completion.byte_len, completion.imm),
        (9, WcOpcode::RecvRdmaWithImm, 100, Some(77))
    );
    let mut found = [0; 100];
    there.read_at(8, &mut found).unwrap();
    assert_eq!(found[..], pattern(3, 100));
}

/// UC-07, and what UD has not.
#[test]
fn operations_that_a_service_lacks_are_refused_when_posted() {
    let mut world = World::new(1, 2);
    let memory = world.nodes[0].region(AREA, 1 << 32, full_access());
    let read = SendOp::Read { from: remote(&memory, 0) };
    let write = SendOp::Write { to: remote(&memory, 0) };
    for (qp_type, op) in [(QpType::Uc, read), (QpType::Ud, write), (QpType::Ud, read)] {
        let qps = world.pair(&link(qp_type));
        let refused = world.nodes[0].engine.post_send(
            world.now,
            qps[0],
            request(1, op, &[sge(&memory, 0, 8)]),
        );
        let operation = op.wc_opcode();
        assert_eq!(refused, Err(PostError::NoSuchOperation { qp_type, operation }));
    }
}

/// UD-04, UD-06, UD-12: three hosts, each to the two others.
#[test]
fn ud_reaches_the_host_and_queue_pair_it_names() {
    let mut world = World::new(5, 3);
    let link = link(QpType::Ud);
    let qps = [0, 1, 2].map(|node| {
        let qpn = world.create_qp(node, &link);
        world.connect(node, qpn, (node, qpn), &link, [0, 0]);
        qpn
    });
    let memory =
        [0, 1, 2].map(|node: usize| world.nodes[node].region(AREA, 1 << 32, full_access()));
    for (node, memory) in memory.iter().enumerate() {
        memory.write_at(0, &pattern(node as u64, 100)).unwrap();
        for slot in 0..2 {
            let at = 1024 + slot as usize * 512;
            world.post_recv(node, qps[node], slot, &[sge(memory, at, 512)]);
        }
    }
    for from in 0..3 {
        for to in (0..3).filter(|to| *to != from) {
            let op = SendOp::SendImm { imm: (from * 10 + to) as u32 };
            let mut send = request(to as u64, op, &[sge(&memory[from], 0, 100)]);
            let av = AddressVector::to(Gid::from(world.nodes[to].ip));
            send.to = Some(UdTarget { av, qpn: qps[to], qkey: QKEY });
            world.post_send(from, qps[from], send);
        }
    }
    world.run(Duration::from_secs(1));
    for (node, memory) in memory.iter().enumerate() {
        let mut senders = BTreeSet::new();
        assert_eq!(world.nodes[node].recvs.len(), 2);
        for completion in &world.nodes[node].recvs {
            let from = completion.imm.unwrap() as usize / 10;
            assert_eq!(completion.imm, Some((from * 10 + node) as u32));
            assert_eq!((completion.byte_len, completion.source_qp), (140, Some(qps[from])));
            let mut bytes = [0; 140];
            memory.read_at(1024 + completion.wr_id as usize * 512, &mut bytes).unwrap();
            assert_eq!(bytes[40..], pattern(from as u64, 100));
            assert_eq!(bytes[..20], [0; 20]);
            assert_eq!(bytes[20], 0x45, "an IPv4 header");
            assert_eq!(bytes[32..36], [10, 0, 0, from as u8 + 1]);
            let sum: u32 = bytes[20..40]
                .chunks(2)
                .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
                .sum();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "its checksum is right");
            senders.insert(from);
        }
        assert_eq!(senders.len(), 2);
    }
}

/// UD-01, UD-02, UD-05, UD-08.
#[test]
fn ud_counts_what_it_drops_and_uses_no_receive_for_it() {
    let mut world = World::with(6, 2, HostConfig::default(), |config| {
        config.active_mtu = Mtu::Mtu1024;
    });
    let link = link(QpType::Ud);
    let qps = world.pair(&link);
    let here = world.nodes[0].region(AREA, 1 << 32, full_access());
    let there = world.nodes[1].region(AREA, 1 << 32, full_access());
    world.post_recv(1, qps[1], 1, &[sge(&there, 0, 139)]);
    let av = AddressVector::to(Gid::from(world.nodes[1].ip));
    let mut send = |wr_id, len, qkey| {
        let mut send = request(wr_id, SendOp::Send, &[sge(&here, 0, len)]);
        send.to = Some(UdTarget { av, qpn: qps[1], qkey });
        world.post_send(0, qps[0], send);
    };
    send(1, 64, QKey(0x9999));
    send(2, 100, QKEY);
    send(3, 1025, QKEY);
    send(4, 99, QKey(0x8000_0000));
    world.run(Duration::from_secs(1));
    let counters = world.nodes[1].engine.counters();
    assert_eq!(counters.dropped(DropReason::QKeyMismatch), 1);
    assert_eq!(counters.dropped(DropReason::Refused), 1, "40 + 100 bytes do not fit 139");
    assert_eq!(counters.rx_packets, 3, "a message longer than the MTU goes nowhere");
    let statuses: Vec<_> = world.nodes[0].sends.iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(statuses, [1, 2, 3, 4].map(|id| (id, WcStatus::Success)));
    let recvs: Vec<_> = world.nodes[1].recvs.iter().map(|c| (c.wr_id, c.byte_len)).collect();
    assert_eq!(recvs, [(1, 139)], "bit 31 stands for the sender's own key");
}

/// A counting receiver loses nothing although nobody acknowledges.
#[test]
fn uc_and_ud_do_not_overrun_a_default_socket_that_is_emptied_in_time() {
    for qp_type in [QpType::Uc, QpType::Ud] {
        let host = HostConfig { receive_buffer: 212_992, ..HostConfig::default() };
        let mut world = World::with(8, 2, host, |_| {});
        let link = Link { mtu: Mtu::Mtu4096, ..link(qp_type) };
        let qps = world.pair(&link);
        let here = world.nodes[0].region(AREA, 1 << 32, full_access());
        let there = world.nodes[1].region(AREA, 1 << 32, full_access());
        let av = AddressVector::to(Gid::from(world.nodes[1].ip));
        for wr_id in 0..128 {
            world.post_recv(1, qps[1], wr_id, &[sge(&there, 0, 4096 + 40)]);
            let mut send = request(wr_id, SendOp::Send, &[sge(&here, 0, 4096)]);
            send.to = Some(UdTarget { av, qpn: qps[1], qkey: QKEY });
            world.post_send(0, qps[0], send);
        }
        world.run(Duration::from_secs(1));
        assert_eq!(world.nodes[1].recvs.len(), 128, "{qp_type}");
    }
}
