//! UD, packet by packet: one packet per message, between any queue pairs with the same queue key.
//!
//! The queue key is 0x1234, the port's MTU 256, and the first PSN is 5, which receivers ignore.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::net::{IpAddr, SocketAddr};

use crate::support::script::{OURS, PEER, PEER_QPN, Script, bytes, failed, ok, rts_qp_of, target};
use crate::support::{pattern, request, sge};
use softroce::engine::{AttrMask, ModifyError, PostError, QpAttr, QpState, QpType};
use softroce::ids::{Gid, Lkey, Mtu, QKey, Qpn};
use softroce::mem::{Access, Region};
use softroce::net::{
    AddressVector, IpVersion, Ipv4Fields, ROCE_PORT, RxMeta, datagram_source_port,
};
use softroce::transport::outputs::{AsyncEvent, DropReason};
use softroce::transport::work::{
    Completion, RemoteAddr, SendFlags, SendOp, SendRequest, Sge, UdTarget, WcOpcode, WcStatus,
};
use softroce::wire::Datagram;
use softroce::wire::icrc::Flow;

const SEND: WcOpcode = WcOpcode::Send;
const OTHER_QPN: Qpn = Qpn::new(0xabcdef);

/// Creates a queue pair in RTS.
fn ud() -> Script {
    Script::with(rts_qp_of(QpType::Ud), |config| config.active_mtu = Mtu::Mtu256)
}

/// Returns the completion of a message of `len` bytes and the 40 bytes before it, from [`PEER_QPN`].
fn came(wr_id: u64, len: u32) -> Completion {
    let ip_version = Some(IpVersion::V4);
    Completion { source_qp: Some(PEER_QPN), ip_version, ..ok(wr_id, WcOpcode::Recv, 40 + len) }
}

/// Returns a message from [`PEER_QPN`] with the right queue key.
fn message(psn: u32, len: usize) -> String {
    format!("SEND_ONLY psn={psn} qkey=0x00001234 srcqp={PEER_QPN} len={len}")
}

/// Checks that a message takes the oldest receive, `wr_id`.
#[track_caller]
fn takes(t: &mut Script, psn: u32, wr_id: u64) {
    t.rx(0, &message(psn, 8));
    assert_eq!(t.recvs(), [came(wr_id, 8)]);
    assert_eq!(t.received(wr_id, 48)[40..], pattern(psn.into(), 8));
}

// ---- receiving ----

/// UD-06, UD-12, PKT-22
#[test]
fn ud_completion_has_source_length_immediate_and_solicited() {
    let mut t = ud();
    for wr_id in 1..=3 {
        assert_eq!(t.post_recv(296), wr_id);
    }
    t.rx(0, "SEND_ONLY psn=5 qkey=0x00001234 srcqp=0xabcdef len=256");
    t.rx(0, "SEND_ONLY_IMM psn=6 solicited qkey=0x00001234 srcqp=0x000001 imm=0x01020304 len=3");
    t.rx(0, &message(7, 0));
    let second = Completion {
        imm: Some(0x0102_0304),
        solicited: true,
        source_qp: Some(Qpn::GSI),
        ..came(2, 3)
    };
    let first = Completion { source_qp: Some(OTHER_QPN), ..came(1, 256) };
    assert_eq!(t.recvs(), [first, second, came(3, 0)]);
    assert_eq!(t.received(1, 296)[40..], pattern(5, 256));
    assert_eq!(t.received(2, 44)[40..], [pattern(6, 3), vec![0]].concat(), "no padding");
}

/// UD-01
#[test]
fn message_with_another_qkey_is_dropped_and_counted() {
    let mut t = ud();
    t.post_recv(64);
    let keys = [0, 0x1235, 0x8000_1234, 0x3412_0000, u32::MAX];
    for (dropped, qkey) in (1..).zip(keys) {
        t.rx(0, &format!("SEND_ONLY psn=5 qkey=0x{qkey:08x} srcqp=0x000012 len=8"));
        assert_eq!(t.dropped(DropReason::QKeyMismatch), dropped, "{qkey:#x}");
    }
    assert_eq!((t.events(), t.state()), (vec![], QpState::Rts));
    takes(&mut t, 5, 1);
}

/// UD-07
#[test]
fn ud_receiver_ignores_the_psn() {
    let mut t = ud();
    for (wr_id, psn) in (1..).zip([5, 5, 4, 1000, 0xff_ffff, 0, 8_388_608, 5]) {
        t.post_recv(64);
        takes(&mut t, psn, wr_id);
    }
    let counters = t.engine.counters();
    assert_eq!((counters.out_of_sequence, counters.duplicate_requests), (0, 0));
}

/// §4.7: there is no response, with or without AckReq.
#[test]
fn receiver_sends_no_response() {
    let mut t = ud();
    t.post_recv(64);
    for qkey in ["0x00001234", "0x00000001", "0x00001234"] {
        t.rx(0, &format!("SEND_ONLY psn=5 ackreq qkey={qkey} srcqp={PEER_QPN} len=8"));
    }
    t.quiet(10_000_000);
    assert_eq!(t.recvs(), [came(1, 8)]);
}

/// §4.7
#[test]
fn message_without_a_receive_is_dropped() {
    let mut t = ud();
    t.rx(0, &message(5, 8));
    assert_eq!((t.recvs(), t.dropped(DropReason::NoReceive)), (vec![], 1));
    t.post_recv(64);
    takes(&mut t, 6, 1);
}

#[test]
fn stream_reports_before_it_exhausts_the_receives() {
    let mut t = ud();
    for _ in 0..100 {
        t.post_recv(100);
    }
    let stream = |t: &mut Script, count| {
        for psn in 0..count {
            t.rx(0, &message(psn, 8));
        }
        t.engine.is_short_of_receives()
    };
    assert!(!stream(&mut t, 63));
    assert!(stream(&mut t, 1));
    // After a post, the application has polled recently, so no pause is necessary.
    t.post_recv(100);
    assert!(!t.engine.is_short_of_receives());
    assert!(!stream(&mut t, 10));
    assert_eq!(t.recvs().len(), 74);
}

/// UD-05: the 40 bytes count, and the receive stays posted for a message that fits.
#[test]
fn message_longer_than_its_receive_is_dropped() {
    let mut t = ud();
    t.post_recv(139);
    t.rx(0, &message(5, 100));
    assert_eq!((t.recvs(), t.dropped(DropReason::Refused)), (vec![], 1));
    assert_eq!(t.received(1, 139), [0; 139], "its buffer is untouched");
    t.rx(0, &message(6, 99));
    assert_eq!((t.recvs(), t.state()), (vec![came(1, 99)], QpState::Rts));

    t.post_recv(39);
    t.post_recv(40);
    t.rx(0, &message(7, 0));
    assert_eq!((t.recvs(), t.dropped(DropReason::Refused)), (vec![], 2), "it is in front");
}

/// An empty message fills 40 bytes.
#[test]
fn receive_of_40_bytes_takes_an_empty_message() {
    let mut t = ud();
    t.post_recv(40);
    t.rx(0, &message(5, 0));
    assert_eq!(t.recvs(), [came(1, 0)]);
    t.post_recv(40);
    t.rx(0, &message(6, 1));
    assert_eq!((t.recvs(), t.dropped(DropReason::Refused)), (vec![], 1));
}

/// UD-08, at the receiver.
#[test]
fn message_longer_than_the_mtu_is_dropped() {
    let mut t = ud();
    t.post_recv(1000);
    t.rx(0, &message(5, 257));
    assert_eq!((t.recvs(), t.dropped(DropReason::Refused)), (vec![], 1));
    t.rx(0, &message(6, 256));
    assert_eq!(t.recvs(), [came(1, 256)]);
}

/// The 40 bytes and the payload may scatter to different elements.
#[test]
fn grh_and_payload_scatter_to_different_sges() {
    let mut t = ud();
    let (head, body) = (sge(&t.answers, 0, 40), sge(&t.mem, 100, 60));
    t.post_recv_sges(&[head, body]).unwrap();
    t.rx(0, &message(5, 50));
    assert_eq!(t.recvs(), [came(1, 50)]);
    assert_eq!((t.answer(41)[20], t.answer(41)[40]), (0x45, 0), "an IPv4 header and no more");
    assert_eq!(bytes(&t.mem, 99, 52), [vec![0], pattern(5, 50), vec![0]].concat());
}

/// §4.7: a receive without write access would block the queue, so the queue pair fails.
#[test]
fn receive_with_invalid_memory_fails_the_queue_pair() {
    let mut t = ud();
    let region = t.region(4096, 0x90_0000, Access::LOCAL_WRITE);
    t.post_recv_sges(&[Sge { lkey: Lkey(1), ..sge(&region, 0, 64) }]).unwrap();
    t.post_recv(64);
    t.rx(0, &message(5, 8));
    assert_eq!(t.recvs(), [failed(1, WcStatus::LocProtErr), failed(2, WcStatus::WrFlushErr)]);
    assert_eq!((t.state(), t.events()), (QpState::Err, vec![]));
}

/// The list is checked as far as the 40 bytes and the payload reach.
#[test]
fn receive_is_checked_as_far_as_the_message_reaches() {
    let mut t = ud();
    let area = t.region(4096, 0x90_0000, Access::LOCAL_WRITE);
    let unknown = Sge { lkey: Lkey(1), ..sge(&area, 0, 64) };
    for (psn, sges, len) in
        [(5, vec![sge(&area, 0, 50), unknown], 10), (6, vec![sge(&area, 4046, 64)], 10)]
    {
        let receive = t.post_recv_sges(&sges).unwrap();
        t.rx(0, &message(psn, len));
        assert_eq!(t.recvs(), [came(receive, 10)]);
    }
    let receive = t.post_recv_sges(&[sge(&area, 4046, 64)]).unwrap();
    t.rx(0, &message(7, 11));
    assert_eq!(t.recvs(), [failed(receive, WcStatus::LocProtErr)]);
    assert_eq!(t.state(), QpState::Err);
}

/// A queue pair receives messages from any address at any local address.
#[test]
fn ud_queue_pair_accepts_messages_from_any_address() {
    let mut t = ud();
    let from: [IpAddr; 3] = [PEER, "192.0.2.77".parse().unwrap(), OURS];
    for (wr_id, from) in (1..).zip(from) {
        t.post_recv(64);
        let source = SocketAddr::new(from, 1000 + wr_id as u16);
        let mut packet = t.packet(&message(5, 8));
        Flow::new(source, SocketAddr::new(OURS, ROCE_PORT)).seal(0, &mut packet);
        let meta = RxMeta { source, ..t.meta() };
        t.rx_meta(0, &packet, meta);
        assert_eq!(t.recvs(), [came(wr_id, 8)], "{from}");
        let header = t.received(wr_id, 40).try_into().unwrap();
        assert_eq!(AddressVector::to_sender(&header).map(|av| av.gid.ip()), Some(from));
    }
}

/// CRC-13: senders with different patterns of IPv4 identifications may send to one queue pair.
#[test]
fn ip_id_pattern_is_learned_per_sender() {
    let mut t = ud();
    for round in 0..20 {
        for (from, id) in [(PEER, 0), ([10, 0, 0, 3].into(), 0xbee0 + round)] {
            let wr_id = t.post_recv(64);
            let source = SocketAddr::new(from, 0xc001);
            let mut packet = t.packet(&message(5, 8));
            Flow::new(source, SocketAddr::new(OURS, ROCE_PORT)).seal(id, &mut packet);
            let meta = RxMeta { source, ..t.meta() };
            t.rx_meta(0, &packet, meta);
            assert_eq!(t.recvs(), [came(wr_id, 8)], "round {round}, from {from}");
        }
    }
}

/// PKT-10
#[test]
fn message_for_another_queue_pair_is_dropped() {
    let mut t = ud();
    t.post_recv(64);
    let line =
        |qpn| format!("UD SEND_ONLY qp=0x{qpn:06x} psn=5 qkey=0x00001234 srcqp=0x000012 len=8");
    for (dropped, qpn) in (1..).zip([0, 0xff_ffff, t.qpn.value() ^ 0x40]) {
        t.rx(0, &line(qpn));
        assert_eq!(t.dropped(DropReason::UnknownQp), dropped, "{}", line(qpn));
    }
    // Queue pair 1 exists, and has another queue key.
    t.rx(0, &line(1));
    assert_eq!(t.dropped(DropReason::QKeyMismatch), 1);
    takes(&mut t, 5, 1);
}

// ---- the 40 bytes ----

/// Returns the IPv4 header of a message of 8 bytes from [`PEER`].
fn ipv4_header(tos: u8, id: u16, flags: u8, ttl: u8) -> [u8; 20] {
    let [id0, id1] = id.to_be_bytes();
    // 20 + 8 (UDP) + 12 (BTH) + 8 (DETH) + 8 + 4 (ICRC).
    let mut header =
        [0x45, tos, 0, 60, id0, id1, flags, 0, ttl, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1];
    let sum: u32 = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

/// UD-04: fields as reported by the socket, and the identification as recovered from the ICRC or as seen.
#[test]
fn ipv4_header_as_received_precedes_the_payload() {
    let mut t = ud();
    let meta = RxMeta { traffic_class: 0xb9, hop_limit: 17, ..t.meta() };
    let seen = |id, dont_fragment| Some(Ipv4Fields { id, dont_fragment });
    let cases = [
        (0, None, ipv4_header(0xb9, 0, 0x40, 17)),
        (0x1234, None, ipv4_header(0xb9, 0x1234, 0x40, 17)),
        (0xffff, seen(0xffff, true), ipv4_header(0xb9, 0xffff, 0x40, 17)),
    ];
    for (wr_id, (id, ipv4, expected)) in (1..).zip(cases) {
        t.post_recv(64);
        let mut packet = t.packet(&message(5, 8));
        Flow::new(meta.source, SocketAddr::new(OURS, ROCE_PORT)).seal(id, &mut packet);
        t.rx_meta(0, &packet, RxMeta { ipv4, ..meta });
        assert_eq!(t.recvs(), [came(wr_id, 8)]);
        let found = t.received(wr_id, 40);
        assert_eq!(found[..20], [0; 20]);
        assert_eq!(found[20..], expected);
    }
}

/// UD-04: each packet of a burst has its own identification.
#[test]
fn merged_packets_have_their_own_headers() {
    let mut t = ud();
    for wr_id in 1..=3 {
        assert_eq!(t.post_recv(64), wr_id);
    }
    let lines = [5, 6, 7].map(|psn| message(psn, 8));
    t.rx_merged(0, &lines.each_ref().map(String::as_str));
    assert_eq!(t.recvs(), [1, 2, 3].map(|wr_id| came(wr_id, 8)));
    for wr_id in 1..=3 {
        let expected = ipv4_header(0, wr_id as u16 - 1, 0x40, 64);
        assert_eq!(t.received(wr_id, 40)[20..], expected);
        assert_eq!(t.received(wr_id, 48)[40..], pattern(4 + wr_id, 8));
    }
}

/// UD-04, PKT-23
#[test]
fn ipv6_header_precedes_the_payload() {
    let [ours, peer]: [IpAddr; 2] = ["2001:db8::1", "2001:db8::2"].map(|ip| ip.parse().unwrap());
    let mut t = Script::with(rts_qp_of(QpType::Ud), |config| config.gids.push(ours.into()));
    t.post_recv(64);
    let source = SocketAddr::new(peer, 0xc001);
    let mut packet = t.packet(&message(5, 8));
    Flow::new(source, SocketAddr::new(ours, ROCE_PORT)).seal(0, &mut packet);
    let meta = RxMeta { source, destination: ours, traffic_class: 0xb9, hop_limit: 17, ..t.meta() };
    t.rx_meta(0, &packet, meta);
    assert_eq!(t.recvs(), [Completion { ip_version: Some(IpVersion::V6), ..came(1, 8) }]);
    let mut expected = vec![0x6b, 0x90, 0, 0, 0, 40, 17, 17];
    for ip in ["2001:db8::2", "2001:db8::1"] {
        expected.extend(ip.parse::<std::net::Ipv6Addr>().unwrap().octets());
    }
    assert_eq!(t.received(1, 40), expected);

    // The header leads back to the sender.
    let header = t.received(1, 40).try_into().unwrap();
    let av = AddressVector { sgid_index: 1, ..AddressVector::to_sender(&header).unwrap() };
    t.post(to(1, 8, &t.data.clone(), UdTarget { av, ..target(PEER_QPN) })).unwrap();
    let sent = &t.all(0)[0];
    assert_eq!((sent.path.source, sent.path.destination), (ours, peer));
    assert_eq!(sent.path.traffic_class, 0xb9);
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
}

// ---- sending ----

/// Returns a signaled SEND of `len` bytes to a target.
fn to(wr_id: u64, len: usize, from: &Region, target: UdTarget) -> SendRequest {
    request(wr_id, SendOp::Send, &[sge(from, 0, len)]).to(target)
}

/// UD-06, UD-12, at the sender.
#[test]
fn message_completes_when_it_is_sent() {
    let mut t = ud();
    t.send(1, 256);
    t.post_flags(2, SendOp::SendImm { imm: 7 }, 3, SendFlags::SOLICITED);
    let (qpn, imm) = (t.qpn, "imm=0x00000007");
    let sent = t.tx(0, &format!("SEND_ONLY psn=5 qkey=0x00001234 srcqp={qpn} len=256"));
    assert_eq!(sent.payload(), t.sent_data(0..256));
    let line = format!("SEND_ONLY_IMM psn=6 solicited qkey=0x00001234 srcqp={qpn} {imm} len=3");
    t.tx(0, &line);
    assert_eq!(t.sends(), [ok(1, SEND, 256)], "the other one is not signaled");
    t.quiet(10_000_000);
}

/// UD-02
#[test]
fn qkey_with_the_high_bit_selects_the_own_qkey() {
    let mut t = ud();
    let data = t.data.clone();
    let keys = [(0x8000_0000, 0x1234), (0xffff_ffff, 0x1234), (0x7fff_ffff, 0x7fff_ffff), (0, 0)];
    for (psn, (given, sent)) in (5..).zip(keys) {
        let target = UdTarget { qkey: QKey(given), ..target(PEER_QPN) };
        t.post(to(psn, 8, &data, target)).unwrap();
        t.tx(0, &format!("SEND_ONLY psn={psn} qkey=0x{sent:08x} srcqp={} len=8", t.qpn));
    }
    assert_eq!(t.sends().len(), 4);
}

/// UD-03
#[test]
fn controlled_qkey_is_refused() {
    let mut t = Script::reset(rts_qp_of(QpType::Ud), |_| {});
    let qkey = QKey(0x8001_0000);
    let init = QpAttr { qkey: Some(qkey), ..t.step(QpState::Init) };
    assert_eq!(t.modify(init), Err(ModifyError::PrivilegedQkey { qkey }));
    assert_eq!(t.state(), QpState::Reset);
    t.bring_to(QpState::Rts);
    let attr = QpAttr { qkey: Some(qkey), ..QpAttr::to(QpState::Rts) };
    assert_eq!(t.modify(attr), Err(ModifyError::PrivilegedQkey { qkey }));
    t.post_recv(64);
    takes(&mut t, 5, 1);
}

/// UD-01, UD-02: the queue key may change in RTS, for both directions.
#[test]
fn new_qkey_takes_effect() {
    let mut t = ud();
    t.post_recv(64);
    t.modify(QpAttr { qkey: Some(QKey(0x77)), ..QpAttr::to(QpState::Rts) }).unwrap();
    t.rx(0, &message(5, 8));
    assert_eq!(t.dropped(DropReason::QKeyMismatch), 1);
    t.rx(0, &format!("SEND_ONLY psn=6 qkey=0x00000077 srcqp={PEER_QPN} len=8"));
    assert_eq!(t.recvs(), [came(1, 8)]);
    let own = UdTarget { qkey: QKey(1 << 31), ..target(PEER_QPN) };
    t.post(to(1, 8, &t.data.clone(), own)).unwrap();
    t.tx(0, &format!("SEND_ONLY psn=5 qkey=0x00000077 srcqp={} len=8", t.qpn));
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
}

/// UD-08: it completes in order, without a PSN.
#[test]
fn message_longer_than_the_mtu_is_not_sent_and_completes() {
    let mut t = ud();
    for (wr_id, len) in [(1, 257), (2, 8), (3, 4096), (4, 256), (5, 60_000)] {
        t.send(wr_id, len);
    }
    let qpn = t.qpn;
    t.tx(0, &format!("SEND_ONLY psn=5 qkey=0x00001234 srcqp={qpn} len=8"));
    t.tx(0, &format!("SEND_ONLY psn=6 qkey=0x00001234 srcqp={qpn} len=256"));
    t.quiet(0);
    let ends = [(1, 257), (2, 8), (3, 4096), (4, 256), (5, 60_000)];
    assert_eq!(t.sends(), ends.map(|(wr_id, len)| ok(wr_id, SEND, len)));
    assert_eq!(t.state(), QpState::Rts);
}

/// One queue pair sends to many hosts: one PSN sequence, one source port, and a burst for consecutive messages to one
/// host.
#[test]
fn each_message_goes_to_its_address_handle() {
    let mut t = ud();
    let data = t.data.clone();
    let host = |d: u8| IpAddr::from([10, 0, 0, d]);
    let to_host = |d, tos| {
        let av = AddressVector { traffic_class: tos, ..AddressVector::to(Gid::from(host(d))) };
        UdTarget { av, qpn: Qpn::new(u32::from(d)), qkey: QKey(u32::from(d) << 8) }
    };
    let order = [(2, 0), (2, 0), (3, 0), (2, 0), (4, 0), (4, 0xb8)];
    for (wr_id, (d, tos)) in (0..).zip(order) {
        t.post(to(wr_id, 8, &data, to_host(d, tos))).unwrap();
    }
    let sent = t.all(0);
    assert_eq!(t.sends(), [0, 1, 2, 3, 4, 5].map(|wr_id| ok(wr_id, SEND, 8)));
    for (psn, ((d, tos), sent)) in (5..).zip(order.into_iter().zip(&sent)) {
        assert_eq!((sent.path.destination, sent.path.traffic_class), (host(d), tos));
        assert_eq!(sent.path.source_port, datagram_source_port(t.qpn));
        let packet = Datagram::parse(&sent.bytes).unwrap();
        assert_eq!(packet.bth.dest_qp, Qpn::new(u32::from(d)));
        let qkey = u32::from(d) << 8;
        let line = format!("SEND_ONLY psn={psn} qkey=0x{qkey:08x} srcqp={} len=8", t.qpn);
        assert_eq!(sent.line(), line);
    }
    let bursts: Vec<_> = sent.iter().map(|one| one.burst - sent[0].burst).collect();
    assert_eq!(bursts, [0, 0, 1, 2, 3, 4]);
}

/// PKT-01, PKT-02: switches distinguish flows by the source port, which the flow label determines.
#[test]
fn flow_label_determines_the_source_port() {
    let mut t = ud();
    t.engine.agree_on_flow(0, 0x12345, |_, wanted| wanted);
    t.engine.agree_on_flow(0, 0x54321, |_, _| 0xc777);
    t.engine.agree_on_flow(0, 0x54321, |_, _| panic!("it is agreed on"));
    t.engine.agree_on_flow(0, 0, |_, _| panic!("no label, no flow"));
    let data = t.data.clone();
    let own = datagram_source_port(t.qpn);
    let flows = [(0, own), (0x12345, 0xe341), (0x12345, 0xe341), (0x54321, 0xc777), (7, own)];
    for (wr_id, (flow_label, _)) in (0..).zip(flows) {
        let av = AddressVector { flow_label, ..AddressVector::to(Gid::from(PEER)) };
        t.post(to(wr_id, 8, &data, UdTarget { av, ..target(PEER_QPN) })).unwrap();
    }
    let sent = t.all(0);
    assert_eq!(t.sends(), [0, 1, 2, 3, 4].map(|wr_id| ok(wr_id, SEND, 8)));
    let ports: Vec<_> = sent.iter().map(|one| one.path.source_port).collect();
    assert_eq!(ports, flows.map(|(_, port)| port));
    let bursts: Vec<_> = sent.iter().map(|one| one.burst - sent[0].burst).collect();
    assert_eq!(bursts, [0, 1, 1, 2, 3]);
}

/// §4.7: all operations except SEND.
#[test]
fn ud_refuses_all_operations_except_send() {
    let mut t = ud();
    let at = RemoteAddr::default();
    for op in [
        SendOp::Write { to: at },
        SendOp::WriteImm { to: at, imm: 1 },
        SendOp::Read { from: at },
        SendOp::FetchAdd { at, add: 1 },
        SendOp::CompareSwap { at, expect: 0, swap: 1 },
    ] {
        let refused = t.post(request(1, op, &[sge(&t.answers, 0, 8)]).to(target(PEER_QPN)));
        let (qp_type, operation) = (QpType::Ud, op.wc_opcode());
        assert_eq!(refused, Err(PostError::NoSuchOperation { qp_type, operation }));
    }
    t.quiet(1000);
}

#[test]
fn message_without_an_address_handle_is_refused() {
    let mut t = ud();
    let refused = t.post(request(1, SendOp::Send, &[]));
    assert_eq!(refused, Err(PostError::NoTarget));
    let v6 = Gid::from("2001:db8::2".parse::<IpAddr>().unwrap());
    let v4 = Gid::from(PEER);
    for (gid, index) in [(v6, 0), (v4, 1), (v4, 255)] {
        let av = AddressVector { sgid_index: index, ..AddressVector::to(gid) };
        let refused = t.post(request(1, SendOp::Send, &[]).to(UdTarget { av, ..target(PEER_QPN) }));
        assert_eq!(refused, Err(PostError::Address { gid, index }));
    }
    t.quiet(1000);
}

// ---- states ----

/// QPS-15
#[test]
fn request_with_invalid_memory_leads_to_sqe() {
    let mut t = ud();
    t.post_recv(64);
    let (data, qpn) = (t.data.clone(), t.qpn);
    t.send(1, 8);
    let bad = Sge { lkey: Lkey(1), ..sge(&data, 0, 8) };
    t.post(request(2, SendOp::Send, &[bad]).to(target(PEER_QPN))).unwrap();
    t.send(3, 8);
    t.tx(0, &format!("SEND_ONLY psn=5 qkey=0x00001234 srcqp={qpn} len=8"));
    t.quiet(0);
    let ends = [failed(2, WcStatus::LocProtErr), failed(3, WcStatus::WrFlushErr)];
    assert_eq!(t.sends(), [vec![ok(1, SEND, 8)], ends.into()].concat());
    assert_eq!(t.state(), QpState::Sqe);
    takes(&mut t, 5, 1);
    t.modify(QpAttr::to(QpState::Rts)).unwrap();
    t.send(4, 8);
    t.tx(0, &format!("SEND_ONLY psn=6 qkey=0x00001234 srcqp={qpn} len=8"));
    assert_eq!(t.sends(), [ok(4, SEND, 8)]);
}

/// QPS-09: messages have one packet, so none is partly sent.
#[test]
fn sqd_sends_nothing() {
    let mut t = ud();
    t.modify(QpAttr::to(QpState::Sqd)).unwrap();
    assert_eq!(t.events(), [AsyncEvent::SqDrained(t.qpn)]);
    t.send(1, 8);
    t.quiet(1000);
    t.modify(QpAttr::to(QpState::Rts)).unwrap();
    t.tx(1000, &format!("SEND_ONLY psn=5 qkey=0x00001234 srcqp={} len=8", t.qpn));
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
}

/// QPS-09: SQD holds a posted, unsent message.
#[test]
fn sqd_holds_a_posted_message() {
    let mut t = ud();
    t.send(1, 8);
    t.modify(QpAttr::to(QpState::Sqd)).unwrap();
    assert_eq!(t.events(), [AsyncEvent::SqDrained(t.qpn)]);
    t.quiet(1000);
    assert_eq!(t.sends(), []);
    t.modify(QpAttr::to(QpState::Rts)).unwrap();
    t.tx(1000, &format!("SEND_ONLY psn=5 qkey=0x00001234 srcqp={} len=8", t.qpn));
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
}

/// QPS-07, QPS-08: INIT drops messages, RTR receives them, and the first raises no event.
#[test]
fn messages_are_received_from_rtr_on() {
    let mut t = Script::reset(rts_qp_of(QpType::Ud), |_| {});
    t.bring_to(QpState::Init);
    t.post_recv(64);
    t.rx(0, &message(5, 8));
    assert_eq!((t.recvs(), t.dropped(DropReason::QpState)), (vec![], 1));
    t.bring_to(QpState::Rtr);
    takes(&mut t, 6, 1);
    let refused = t.post(request(1, SendOp::Send, &[]).to(target(PEER_QPN)));
    assert!(matches!(refused, Err(PostError::State { found: QpState::Rtr, .. })), "{refused:?}");
}

/// QPS-01: INIT requires a queue key.
#[test]
fn init_requires_a_qkey() {
    let mut t = Script::reset(rts_qp_of(QpType::Ud), |_| {});
    let attr = QpAttr { qkey: None, ..t.step(QpState::Init) };
    let (from, to) = (QpState::Reset, QpState::Init);
    let (missing, surplus) = (AttrMask::QKEY, AttrMask::empty());
    assert_eq!(t.modify(attr), Err(ModifyError::Attributes { from, to, missing, surplus }));
}

/// QPS-04
#[test]
fn err_flushes_both_queues() {
    let mut t = ud();
    t.post_recv(64);
    t.modify(QpAttr::to(QpState::Sqd)).unwrap();
    t.events();
    t.send(1, 8);
    t.modify(QpAttr::to(QpState::Err)).unwrap();
    assert_eq!(t.sends(), [failed(1, WcStatus::WrFlushErr)]);
    assert_eq!(t.recvs(), [failed(1, WcStatus::WrFlushErr)]);
    t.rx(0, &message(5, 8));
    assert_eq!(t.dropped(DropReason::QpState), 1);
}
