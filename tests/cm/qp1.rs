//! Queue pair 1 of an engine: which packets it takes, and which it sends.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use softroce::engine::{Config, Engine, MadPath, OutgoingMad};
use softroce::ids::{PKey, QKey, Qpn};
use softroce::mem::Memory;
use softroce::net::{Burst, ROCE_PORT, RxBuffer, RxMeta};
use softroce::psn::Psn;
use softroce::time::Instant;
use softroce::transport::outputs::DropReason;
use softroce::wire::cm::{Body, GSI_QKEY};
use softroce::wire::icrc::{Flow, Verdict};
use softroce::wire::packet::{Builder, datagram_len, padding};
use softroce::wire::{Bth, Datagram, Deth, Mad, Opcode};

use crate::side::*;

/// A packet to queue pair 1, right in every field.
#[derive(Clone)]
struct Packet {
    opcode: Opcode,
    destination: IpAddr,
    dest_qp: Qpn,
    pkey: PKey,
    qkey: QKey,
    payload: Vec<u8>,
    is_damaged: bool,
}

fn packet() -> Packet {
    let mut payload = [0; Mad::DATAGRAM_LEN];
    message(Body::Req(req())).write(&mut payload);
    Packet {
        opcode: Opcode::UdSendOnly,
        destination: OURS,
        dest_qp: Qpn::GSI,
        pkey: PKey::DEFAULT,
        qkey: GSI_QKEY,
        payload: payload.to_vec(),
        is_damaged: false,
    }
}

/// The path from queue pair 1 of the engine to that of the peer, and of a packet of the peer back to it.
fn path() -> MadPath {
    MadPath {
        source: OURS,
        destination: PEER,
        traffic_class: 0x28,
        hop_limit: 64,
        pkey: PKey::DEFAULT,
    }
}

fn engine() -> Engine {
    Engine::new(Config::new(OURS), Arc::new(Memory::new([1; 32])), [1; 32])
}

fn deliver(engine: &mut Engine, packet: &Packet) {
    let Packet { opcode, dest_qp, pkey, .. } = *packet;
    let bth = Bth {
        opcode,
        solicited: false,
        migreq: false,
        pad: u8::try_from(padding(packet.payload.len())).unwrap(),
        tver: 0,
        pkey,
        fecn: false,
        becn: false,
        dest_qp,
        ack_req: true,
        psn: Psn::new(77),
    };
    let mut bytes = vec![0; datagram_len(opcode, packet.payload.len())];
    let mut builder = Builder::new(&bth, &mut bytes).unwrap();
    if opcode.info().transport == softroce::wire::Transport::Ud {
        builder.deth(&Deth { qkey: packet.qkey, source_qp: Qpn::GSI });
    }
    let at = bytes.len() - 4 - padding(packet.payload.len()) - packet.payload.len();
    bytes[at..at + packet.payload.len()].copy_from_slice(&packet.payload);
    let source = SocketAddr::new(PEER, 0xd872);
    Flow::new(source, SocketAddr::new(packet.destination, ROCE_PORT)).seal(0, &mut bytes);
    if packet.is_damaged {
        bytes[40] ^= 1;
    }
    let meta = RxMeta {
        source,
        destination: packet.destination,
        traffic_class: 0x28,
        hop_limit: 0,
        ipv4: Some(softroce::net::Ipv4Fields { id: 0, dont_fragment: true }),
        may_omit_icrc: false,
    };
    engine.handle_buffer(Instant::ZERO, RxBuffer { data: &bytes, segment_len: 0, meta });
}

fn burst(engine: &mut Engine) -> Option<Burst> {
    let mut burst = Burst::new();
    engine.poll_transmit(Instant::ZERO, &mut burst).then_some(burst)
}

/// UD-11, CM-01
#[test]
fn queue_pair_1_takes_mads_with_its_key_only() {
    let mut engine = engine();
    deliver(&mut engine, &packet());
    let mad = engine.poll_mad().unwrap();
    assert_eq!((mad.path, mad.bytes.as_slice()), (path(), packet().payload.as_slice()));
    assert_eq!((engine.poll_mad(), engine.counters().mads_received), (None, 1));

    let good = packet();
    let mut other_version = good.payload.clone();
    other_version[0] = 2;
    let mut other_method = good.payload.clone();
    other_method[3] = 1;
    for (bad, reason) in [
        (Packet { qkey: QKey(0x8001_0001), ..good.clone() }, DropReason::QKeyMismatch),
        (Packet { qkey: QKey(0), ..good.clone() }, DropReason::QKeyMismatch),
        (Packet { pkey: PKey(0x1234), ..good.clone() }, DropReason::PKeyMismatch),
        (Packet { destination: STRANGER, ..good.clone() }, DropReason::WrongAddress),
        (Packet { payload: vec![0; 252], ..good.clone() }, DropReason::MadLength),
        (Packet { payload: vec![0; 260], ..good.clone() }, DropReason::MadLength),
        (Packet { payload: vec![], ..good.clone() }, DropReason::MadLength),
        (Packet { opcode: Opcode::RcSendOnly, ..good.clone() }, DropReason::WrongTransport),
        (Packet { is_damaged: true, ..good.clone() }, DropReason::BadIcrc),
        (Packet { payload: other_version, ..good.clone() }, DropReason::MadUnsupported),
        (Packet { payload: other_method, ..good.clone() }, DropReason::MadUnsupported),
        (Packet { dest_qp: Qpn::new(0), ..good.clone() }, DropReason::UnknownQp),
    ] {
        let before = engine.counters().dropped(reason);
        deliver(&mut engine, &bad);
        assert_eq!(engine.counters().dropped(reason), before + 1, "{reason:?}");
        assert_eq!(engine.poll_mad(), None, "{reason:?}");
    }
    assert!(burst(&mut engine).is_none());
}

#[test]
fn queue_pair_1_belongs_to_shard_0() {
    let config = Config { shard: 1, shards: 2, ..Config::new(OURS) };
    let mut engine = Engine::new(config, Arc::new(Memory::new([1; 32])), [1; 32]);
    deliver(&mut engine, &packet());
    assert_eq!(engine.counters().dropped(DropReason::UnknownQp), 1);
}

/// A subnet manager or a performance monitor learns that the class is not supported.
#[test]
fn request_of_another_class_is_answered_as_unsupported() {
    let mut engine = engine();
    for (class, method) in [(1, Mad::GET), (4, Mad::GET), (4, Mad::SET), (0x81, Mad::GET)] {
        let mut request = packet();
        (request.payload[1], request.payload[2], request.payload[3]) = (class, 1, method);
        deliver(&mut engine, &request);
        let response = engine.poll_mad_response().unwrap();
        engine.send_mad(response, |_, wanted| wanted);
        let burst = burst(&mut engine).unwrap();
        let sent = Datagram::parse(burst.data()).unwrap();
        let mad = Mad::parse(sent.payload.first_chunk().unwrap());
        assert_eq!((mad.method, mad.status, mad.class), (0x81, 0x0c, class));
        assert_eq!(sent.payload[24..], request.payload[24..]);
    }
    // Responses and unsolicited messages of other classes have no answer.
    for method in [0x81, 3, 5, 6] {
        let mut other = packet();
        (other.payload[1], other.payload[3]) = (4, method);
        deliver(&mut engine, &other);
        assert_eq!(engine.poll_mad_response(), None);
        assert!(burst(&mut engine).is_none());
    }
    assert_eq!(engine.counters().dropped(DropReason::MadUnsupported), 8);
}

#[test]
fn received_mads_are_queued_up_to_a_limit() {
    let mut engine = engine();
    for _ in 0..2000 {
        deliver(&mut engine, &packet());
    }
    assert_eq!(std::iter::from_fn(|| engine.poll_mad()).count(), 1024);
    assert_eq!(engine.counters().dropped(DropReason::MadQueueFull), 976);
}

/// UD-11, CM-01
#[test]
fn mads_leave_from_queue_pair_1_with_its_key() {
    let mut engine = engine();
    let mad = OutgoingMad { path: path(), bytes: Box::new([0x5a; Mad::DATAGRAM_LEN]) };
    for psn in 0..2 {
        let mut wanted = None;
        engine.send_mad(mad.clone(), |from, port| {
            wanted = Some((from, port));
            0xc123
        });
        assert_eq!(wanted, (psn == 0).then_some((OURS, 0xd872)), "agreed once");
        assert!(engine.wants_to_transmit());
        let burst = burst(&mut engine).unwrap();
        assert_eq!((burst.path.source, burst.path.destination), (OURS, PEER));
        let fields = (burst.path.source_port, burst.path.hop_limit, burst.path.traffic_class);
        assert_eq!((fields, burst.len()), ((0xc123, 64, 0x28), 1));
        let sent = Datagram::parse(burst.data()).unwrap();
        let bth = sent.bth;
        assert_eq!(
            (bth.opcode, bth.dest_qp, bth.psn),
            (Opcode::UdSendOnly, Qpn::GSI, Psn::new(psn))
        );
        assert_eq!((bth.ack_req, bth.migreq, bth.solicited, bth.pad), (false, true, false, 0));
        assert_eq!(
            (bth.pkey, sent.deth()),
            (PKey::DEFAULT, Some(Deth { qkey: GSI_QKEY, source_qp: Qpn::GSI }))
        );
        assert_eq!(sent.payload, [0x5a; Mad::DATAGRAM_LEN]);
        let flow = Flow::new(SocketAddr::new(OURS, 0xc123), SocketAddr::new(PEER, ROCE_PORT));
        assert_eq!(flow.check(None, 0, burst.data()), Verdict::Good);
    }
    assert_eq!((engine.counters().mads_sent, engine.wants_to_transmit()), (2, false));
    for _ in 0..2000 {
        engine.send_mad(mad.clone(), |_, port| port);
    }
    assert!(!engine.has_room_for_mad());
    assert_eq!(engine.counters().mads_unsent, 976);
}
