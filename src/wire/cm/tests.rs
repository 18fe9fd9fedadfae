use super::*;
use crate::ids::{Mtu, PKey};
use crate::psn::Psn;

/// Returns a datagram with these bytes in its body.
fn datagram(attribute: u16, body: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; Mad::DATAGRAM_LEN];
    let mad = Mad {
        base_version: 1,
        class: Mad::CM,
        class_version: 2,
        method: Mad::SEND,
        transaction_id: 0x10,
        attribute,
        ..Mad::default()
    };
    mad.write(bytes.first_chunk_mut().unwrap());
    for (at, part) in body {
        bytes[Mad::LEN + at..][..part.len()].copy_from_slice(part);
    }
    bytes
}

fn text(bytes: &[u8]) -> String {
    Message::parse(bytes).unwrap().to_string()
}

#[test]
fn a_reply() {
    let ids = [0, 0, 0, 1, 0, 0, 0, 2];
    let numbers = [0, 0, 0x12, 0, 0, 0, 0, 0, 0, 0, 5, 0, 3, 4, 0x7d, 0xf0];
    let rep = datagram(0x13, &[(0, &ids), (12, &numbers), (28, &[9; 8]), (36, b"hi")]);
    let message = Message::parse(&rep).unwrap();
    let expected = Rep {
        local_id: CommId(1),
        remote_id: CommId(2),
        qkey: QKey(0),
        qpn: Qpn::new(0x12),
        ece_vendor_high: 0,
        eecn: 0,
        ece_vendor_middle: 0,
        starting_psn: Psn::new(5),
        ece_vendor_low: 0,
        responder_resources: 3,
        initiator_depth: 4,
        target_ack_delay: 15,
        failover: 2,
        flow_control: true,
        rnr_retry_count: 7,
        srq: true,
        ca_guid: Guid(0x0909_0909_0909_0909),
    };
    assert_eq!(message.body, Body::Rep(expected));
    assert_eq!((message.private_data.len(), &message.private_data[..3]), (196, &b"hi\0"[..]));
    let mut out = [0; Rep::LEN];
    expected.write(&mut out);
    assert_eq!(out, rep[Mad::LEN..][..Rep::LEN]);
    let line = "CM REP tid=0x10 local_id=0x00000001 remote_id=0x00000002 qpn=0x000012 starting_psn=5 \
                responder_resources=3 initiator_depth=4 target_ack_delay=15 failover=2 \
                flow_control=1 rnr_retry_count=7 srq=1 ca_guid=0x0909090909090909 private_data=2";
    assert_eq!(text(&rep), line);
}

#[test]
fn other_cm_messages_have_one_line() {
    let ids = [0, 0, 0, 1, 0, 0, 0, 2];
    let line = |attribute, rest: &[u8]| text(&datagram(attribute, &[(0, &ids), (8, rest)]));
    let with =
        |name, rest| format!("CM {name} tid=0x10 local_id=0x00000001 remote_id=0x00000002{rest}");
    assert_eq!(line(0x14, &[]), with("RTU", ""));
    assert_eq!(line(0x15, &[0, 0, 0x13]), with("DREQ", " remote_qpn=0x000013"));
    assert_eq!(line(0x16, &[]), with("DREP", ""));
    assert_eq!(line(0x11, &[0x40, 0xa0]), with("MRA", " message=1 service_timeout=20"));
    let rejected = with("REJ", " message=2 info_len=16 reason=26 (invalid path MTU)");
    assert_eq!(line(0x12, &[0x80, 0x20, 0, 26]), rejected);
    let sidr =
        datagram(0x18, &[(0, &[0, 0, 0, 7]), (8, &[0, 0, 0x20]), (20, &[1, 0x23, 0x45, 0x67])]);
    let expected = "CM SIDR_REP tid=0x10 request_id=0x00000007 qpn=0x000020 qkey=0x01234567";
    assert_eq!(text(&sidr), expected);
    assert_eq!(text(&datagram(0x19, &[])), "CM LAP tid=0x10 attribute=0x0019");
}

#[test]
fn rdma_cm_addresses_follow_the_ip_version() {
    let service = [0, 0, 0, 0, 1, 0x11, 0x1d, 0x2f];
    let mut header = [0; IpHeader::LEN];
    let ip = IpHeader {
        version: 0,
        ip_version: 6,
        source_port: 7,
        source_ip: "fd00::1".parse().unwrap(),
        destination_ip: "fd00::2".parse().unwrap(),
    };
    ip.write(&mut header);
    let with = datagram(0x17, &[(8, &service), (16, &header), (52, &[5])]);
    let message = Message::parse(&with).unwrap();
    assert_eq!((message.ip, message.private_data.len()), (Some(ip), 180));
    assert_eq!(ServiceId(0x0111_1d2f).ip_port(), Some((17, 7471)));
    // Messages for other services have no such addresses.
    let without = datagram(0x17, &[(16, &header)]);
    let message = Message::parse(&without).unwrap();
    assert_eq!((message.ip, message.private_data.len()), (None, 216));
}

#[test]
fn request_survives_parse_and_write() {
    // All bytes differ, so mixed-up fields are detected.
    let body: Vec<u8> = (0..140).map(|i: u8| i.wrapping_mul(29).wrapping_add(3)).collect();
    let bytes = datagram(0x10, &[(0, &body)]);
    let Body::Req(mut req) = Message::parse(&bytes).unwrap().body else { panic!("{bytes:?}") };
    assert_eq!(req.path_mtu, None, "11 is no code of an MTU");
    req.path_mtu = Some(Mtu::Mtu1024);
    let mut out = [0; Req::LEN];
    req.write(&mut out);
    assert_eq!(Req::parse(&out), req);
    let reserved = [4, 24, 25, 26, 27, 50, 90, 91, 94, 95, 134, 135, 138, 139];
    for at in (0..Req::LEN).filter(|at| !reserved.contains(at)) {
        assert_eq!(out[at], body[at], "byte {at}");
    }
    assert_eq!(out[50], 0x30 | body[50] & 0x0f);
    assert_eq!(req.pkey, PKey(u16::from_be_bytes([body[48], body[49]])));
}

#[test]
fn truncated_message_names_the_missing_part() {
    let bytes = datagram(0x14, &[]);
    let error = |len: usize| Message::parse(&bytes[..len]).unwrap_err().to_string();
    assert_eq!(error(255), "truncated in CM message: need 232 bytes, have 231");
    assert_eq!(error(23), "truncated in MAD: need 24 bytes, have 23");
}

#[test]
fn every_message_shows_its_name_and_fields() {
    for (attribute, name, first) in [
        (0x10, "REQ", "local_id"),
        (0x11, "MRA", "local_id"),
        (0x12, "REJ", "local_id"),
        (0x13, "REP", "local_id"),
        (0x14, "RTU", "local_id"),
        (0x15, "DREQ", "local_id"),
        (0x16, "DREP", "local_id"),
        (0x17, "SIDR_REQ", "request_id"),
        (0x18, "SIDR_REP", "request_id"),
        (0x19, "LAP", "attribute"),
        (0x1a, "APR", "attribute"),
        (0x1b, "message", "attribute"),
    ] {
        let bytes = datagram(attribute, &[]);
        let message = Message::parse(&bytes).unwrap();
        let mut fields = Vec::new();
        message.each_field(&mut |name, _| fields.push(name));
        assert_eq!((message.body.name(), fields.first()), (name, Some(&first)), "{attribute:#x}");
    }
}

#[test]
fn every_assigned_rejection_reason_has_its_own_text() {
    let words = |reason: u16| {
        let bytes = datagram(0x12, &[(10, &reason.to_be_bytes())]);
        match Message::parse(&bytes).unwrap().body {
            Body::Rej(rej) => rej.reason_text(),
            other => panic!("{other:?}"),
        }
    };
    let assigned: std::collections::HashSet<_> = (1..=33).chain([35]).map(words).collect();
    assert_eq!(assigned.len(), 34);
    assert_eq!([words(8), words(28)], ["invalid service id", "the consumer's decision"]);
    for reason in [0, 34, 0xffff] {
        assert_eq!(words(reason), "a reason that is not assigned");
    }
}

#[test]
fn written_message_parses_to_itself() {
    let ids = Ids { local_id: CommId(1), remote_id: CommId(2) };
    let info = Info::new(&[7; 100]);
    assert_eq!((info.used(3), info.used(255).len()), (&[7; 3][..], 72));
    let reject = Rej {
        local_id: CommId(1),
        remote_id: CommId(2),
        message: 1,
        info_len: 72,
        reason: 12,
        info,
    };
    let reply = SidrRep::parse(&[0x11; SidrRep::LEN]).with_ece_vendor(0x12_3456);
    assert_eq!(reply.ece_vendor(), 0x12_3456);
    assert_eq!(Rep::parse(&[0x11; Rep::LEN]).with_ece_vendor(0xab_cdef).ece_vendor(), 0xab_cdef);
    for body in [Body::Rej(reject), Body::SidrRep(reply), Body::Rtu(ids), Body::Drep(ids)] {
        let mut message =
            Message { transaction_id: 9, modifier: 5, body, ip: None, private_data: &[3; 300] };
        let mut bytes = [0xff; Mad::DATAGRAM_LEN];
        message.write(&mut bytes);
        message.private_data = &[3; 300][..message.private_data_len()];
        assert_eq!(Message::parse(&bytes), Ok(message));
    }
}
