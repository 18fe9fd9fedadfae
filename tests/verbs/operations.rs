//! Every operation, between two devices and within one.

use softroce::verbs::*;

use crate::node::{MEMORY_BYTES, Node, open, open_ipv6_loopback, open_with, pattern};
use crate::prerequisite;

/// Runs a test with both nodes on one device, and with each on its own device.
fn both_ways(test: impl Fn(Node, Node)) {
    let ctx = open();
    let (a, b) = Node::pair_on(ctx.clone(), ctx);
    test(a, b);
    let (a, b) = Node::pair();
    test(a, b);
}

#[test]
fn send_fills_a_receive_request() {
    both_ways(|a, b| {
        let sent = a.fill(0, 3000, 1);
        b.recv(7, 100..4000);
        a.run(SendRequest::send(1, a.mr.sge(..3000)));
        let expected = Completion {
            wr_id: 7,
            status: WcStatus::Success,
            opcode: WcOpcode::Recv,
            byte_len: 3000,
            imm: None,
            invalidated: None,
            source_qp: None,
            ip_version: None,
            qpn: b.qp.qpn(),
            solicited: false,
        };
        assert_eq!(b.next(), expected);
        assert_eq!(b.bytes(100, 3000), sent);
    });
}

#[test]
fn inline_send_carries_its_bytes_and_an_immediate() {
    both_ways(|a, b| {
        b.recv(7, 0..64);
        a.run(SendRequest::send_imm(1, SendData::inline(b"inline"), 0xdead_beef).solicited());
        let got = b.next();
        assert_eq!((got.byte_len, got.imm, got.solicited), (6, Some(0xdead_beef), true));
        assert_eq!(b.bytes(0, 6), b"inline");
    });
}

#[test]
fn messages_are_gathered_and_scattered() {
    both_ways(|a, b| {
        let sent = a.fill(0, 5000, 2);
        let pieces = [b.mr.sge(10..1010), b.mr.sge(2000..2001), b.mr.sge(8000..16000)];
        b.qp.post_recv(RecvRequest::scattered(7, &pieces)).unwrap();
        let pieces = [a.mr.sge(..1), a.mr.sge(1..4999), a.mr.sge(4999..5000)];
        a.run(SendRequest::send(1, pieces));
        assert_eq!((b.next().byte_len, b.end_of_queue()), (5000, true));
        let got = [b.bytes(10, 1000), b.bytes(2000, 1), b.bytes(8000, 3999)].concat();
        assert_eq!(got, sent);
    });
}

#[test]
fn write_changes_remote_memory_and_nothing_else() {
    both_ways(|a, b| {
        let sent = a.fill(0, 10_000, 3);
        a.run(SendRequest::write(1, a.mr.sge(..10_000), b.mr.remote(5)));
        assert_eq!(b.bytes(5, 10_000), sent);
        assert_eq!((b.bytes(0, 5), b.bytes(10_005, 5)), (vec![0; 5], vec![0; 5]));
        assert!(b.end_of_queue());
    });
}

#[test]
fn write_with_immediate_takes_a_receive_request() {
    both_ways(|a, b| {
        let sent = a.fill(0, 5000, 4);
        b.qp.post_recv(RecvRequest::scattered(7, &[])).unwrap();
        a.run(SendRequest::write_imm(1, a.mr.sge(..5000), b.mr.remote(0), 42));
        let got = b.next();
        assert_eq!((got.wr_id, got.opcode), (7, WcOpcode::RecvRdmaWithImm));
        assert_eq!((got.byte_len, got.imm), (5000, Some(42)));
        assert_eq!(b.bytes(0, 5000), sent);
    });
}

#[test]
fn read_fetches_remote_memory() {
    both_ways(|a, b| {
        let there = b.fill(100, 70_000, 5);
        a.send(SendRequest::read(
            1,
            [a.mr.sge(..60_000), a.mr.sge(100_000..110_000)],
            b.mr.remote(100),
        ));
        let got = a.next();
        assert_eq!((got.status, got.opcode), (WcStatus::Success, WcOpcode::RdmaRead));
        assert_eq!(got.byte_len, 70_000);
        assert_eq!([a.bytes(0, 60_000), a.bytes(100_000, 10_000)].concat(), there);
    });
}

#[test]
fn atomics_return_the_old_value() {
    both_ways(|a, b| {
        let result = a.mr.sge(..8);
        b.mr.store_u64(64, 10).unwrap();
        a.run(SendRequest::fetch_add(1, result, b.mr.remote(64), u64::MAX));
        assert_eq!((a.mr.load_u64(0), b.mr.load_u64(64)), (Ok(10), Ok(9)));
        a.run(SendRequest::compare_swap(2, result, b.mr.remote(64), 10, 11));
        assert_eq!((a.mr.load_u64(0), b.mr.load_u64(64)), (Ok(9), Ok(9)));
        a.run(SendRequest::compare_swap(3, result, b.mr.remote(64), 9, 1 << 40));
        assert_eq!((a.mr.load_u64(0), b.mr.load_u64(64)), (Ok(9), Ok(1 << 40)));
    });
}

#[test]
fn empty_messages_are_sent_written_and_read() {
    both_ways(|a, b| {
        b.qp.post_recv(RecvRequest::scattered(7, &[])).unwrap();
        let nothing = || SendData::inline(b"");
        a.run(SendRequest::send(1, nothing()));
        assert_eq!((b.end(), b.end_of_queue()), ((7, WcStatus::Success), true));
        a.run(SendRequest::write(2, nothing(), RemoteAddr::default()));
        a.run(SendRequest::read(3, [], RemoteAddr::default()));
    });
}

#[test]
fn megabyte_messages_run_in_both_directions_at_once() {
    both_ways(|a, b| {
        let half = MEMORY_BYTES / 2;
        let (from_a, from_b) = (a.fill(0, half, 6), b.fill(0, half, 7));
        a.send(SendRequest::write(1, a.mr.sge(..half), b.mr.remote(half)));
        b.send(SendRequest::write(2, b.mr.sge(..half), a.mr.remote(half)));
        assert_eq!((a.end(), b.end()), ((1, WcStatus::Success), (2, WcStatus::Success)));
        assert!(b.bytes(half, half) == from_a && a.bytes(half, half) == from_b);
    });
}

#[test]
fn list_of_requests_executes_in_order() {
    let (a, b) = Node::pair();
    for i in 0..100 {
        b.recv(i, 0..64);
    }
    let requests = (0..100).map(|i| SendRequest::send(i, SendData::inline(&[7])).signaled());
    let (taken, result) = a.qp.post_sends(requests);
    result.unwrap();
    assert_eq!(taken, 100);
    for i in 0..100 {
        assert_eq!((a.end(), b.end()), ((i, WcStatus::Success), (i, WcStatus::Success)));
    }
}

#[test]
fn list_of_requests_stops_at_the_first_invalid_one() {
    let (a, _b) = Node::pair();
    let good = || SendRequest::write(1, SendData::inline(b""), RemoteAddr::default());
    let bad = SendRequest::read(2, SendData::inline(b"x"), RemoteAddr::default());
    let (taken, result) = a.qp.post_sends([good(), good(), bad, good()]);
    let expected = format!("queue pair {}: a request with a response cannot be inline", a.qp.qpn());
    assert_eq!((taken, result.unwrap_err().to_string()), (2, expected));
}

#[test]
fn only_signaled_requests_complete_unless_sq_sig_all() {
    let (a, b) = Node::pair();
    let write = |wr_id| SendRequest::write(wr_id, SendData::inline(b"x"), b.mr.remote(0));
    a.qp.post_send(write(1)).unwrap();
    a.run(write(2));
    let qp = a.pd.create_qp(&QpConfig { sq_sig_all: true, ..QpConfig::rc(&a.cq) }).unwrap();
    let other = Node::on(b.ctx.clone());
    qp.connect(&other.qp.endpoint(), &ConnectOptions::default()).unwrap();
    other.qp.connect(&qp.endpoint(), &ConnectOptions::default()).unwrap();
    qp.post_send(SendRequest::write(3, SendData::inline(b"x"), other.mr.remote(0))).unwrap();
    assert_eq!(a.end(), (3, WcStatus::Success));
}

#[test]
fn data_survives_loss_duplication_and_reordering() {
    let spec = "loss=0.02,reorder=0.02,dup=0.01,corrupt=0.01,seed=1";
    let bad = || OpenOptions::default().impair(spec.parse().unwrap());
    let (a, b) = (Node::on(open_with(bad())), Node::on(open_with(bad())));
    let timeout = AckTimeout::new(12).unwrap();
    a.connect(&b, &ConnectOptions { timeout, path_mtu: Some(Mtu::Mtu1024), ..Default::default() });
    let half = MEMORY_BYTES / 2;
    let sent = a.fill(0, half, 8);
    a.run(SendRequest::write(1, a.mr.sge(..half), b.mr.remote(0)));
    assert!(b.bytes(0, half) == sent);
    a.run(SendRequest::read(2, a.mr.sge(half..), b.mr.remote(0)));
    assert!(a.bytes(half, half) == sent);
    for i in 0..100 {
        let len = 37 * i;
        b.recv(i as u64, 0..4096);
        a.mr.write_at(0, &pattern(len, i as u32)).unwrap();
        a.run(SendRequest::send(3, a.mr.sge(..len)));
        assert_eq!(b.next().byte_len as usize, len);
        assert_eq!(b.bytes(0, len), pattern(len, i as u32));
    }
    a.mr.store_u64(0, 0).unwrap();
    b.mr.store_u64(8, 0).unwrap();
    for i in 0..100 {
        a.run(SendRequest::fetch_add(i, a.mr.sge(..8), b.mr.remote(8), 1));
        assert_eq!(a.mr.load_u64(0), Ok(i));
    }
    let counters = a.ctx.device_info().unwrap().counters;
    assert!(counters.retransmitted > 0, "the network was too good: {counters:?}");
}

#[test]
fn reorder_buffer_keeps_packets_behind_a_loss() {
    for (options, keeps) in
        [(OpenOptions::default(), true), (OpenOptions::default().reorder_buffer(0), false)]
    {
        let lossy = OpenOptions::default().impair("loss=0.05,seed=1".parse().unwrap());
        let (a, b) = (Node::on(open_with(lossy)), Node::on(open_with(options)));
        let (timeout, path_mtu) = (AckTimeout::new(12).unwrap(), Some(Mtu::Mtu256));
        a.connect(&b, &ConnectOptions { timeout, path_mtu, ..Default::default() });
        let sent = a.fill(0, MEMORY_BYTES, 8);
        a.run(SendRequest::write(1, a.mr.sge(..), b.mr.remote(0)));
        assert!(b.bytes(0, MEMORY_BYTES) == sent);
        let counters = b.ctx.counters().unwrap().protocol;
        assert!(counters.out_of_sequence > 0, "the network was too good");
        assert_eq!(counters.kept_ahead > 0, keeps, "{counters:?}");
    }
}

#[test]
fn ipv6_carries_every_operation() {
    let options = OpenOptions::default().ip("::1".parse().unwrap());
    let Some((_turn, ctx)) = open_ipv6_loopback(options) else {
        return prerequisite::missing("IPv6 (::1)");
    };
    let (a, b) = Node::pair_on(ctx.clone(), ctx);
    assert_eq!(a.qp.endpoint().gid.to_string(), "::1");
    let sent = a.fill(0, 100_000, 9);
    a.run(SendRequest::write(1, a.mr.sge(..100_000), b.mr.remote(0)));
    assert!(b.bytes(0, 100_000) == sent);
}

impl Node {
    /// Returns whether the completion queue is empty.
    fn end_of_queue(&self) -> bool {
        self.cq.poll_one().is_none()
    }
}
