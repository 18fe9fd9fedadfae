//! Each rule has a finding on a capture that breaks it, exactly that one, and none on a capture that keeps it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod packets;

use std::time::Duration;

use packets::{P, ack, data, mad, nak, p, read, rnr, send};
use softroce::ids::{PKey, QKey, Qpn};
use softroce::wire::packet::datagram_len;
use softroce::wire::{NakCode, Opcode::*, Syndrome};
use softroce_pcap::check::{Checker, Rule, Severity};
use softroce_pcap::flow::Limits;

/// Returns the findings as `packet severity rule`.
fn check(packets: &[P]) -> Vec<String> {
    let bytes: Vec<_> = packets.iter().map(|p| (p.build(), p.after, p.cut)).collect();
    check_bytes(&bytes)
}

fn check_bytes(packets: &[(Vec<u8>, u64, Option<usize>)]) -> Vec<String> {
    let mut checker = Checker::new(Limits::default());
    let mut now = Duration::from_secs(1);
    let mut all = Vec::new();
    for (number, (bytes, after, cut)) in (1..).zip(packets) {
        now += Duration::from_micros(*after);
        let captured = &bytes[..cut.unwrap_or(bytes.len())];
        for finding in checker.ip_packet(number, Some(now), captured) {
            all.push(format!("{} {} {}", finding.packet, finding.severity, finding.rule));
        }
    }
    all
}

/// Packets, and their findings.
type Case = (Vec<P>, &'static [&'static str]);

fn headers() -> Vec<Case> {
    let only = || send(RcSendOnly, 1, 8);
    vec![
        (vec![only().with(|p| p.source_port = 4791)], &["1 quirk udp.source_port"]),
        (vec![only().with(|p| p.df = false)], &["1 violation ip.header"]),
        (vec![only().with(|p| p.bth.tver = 1)], &["1 violation bth.tver"]),
        (vec![only().with(|p| p.bth.dest_qp = Qpn::new(0))], &["1 violation bth.destqp"]),
        (vec![only().with(|p| p.bth.dest_qp = Qpn::new(1))], &["1 violation bth.destqp"]),
        (vec![only().with(|p| p.bth.dest_qp = Qpn::new(0xff_ffff))], &["1 violation bth.destqp"]),
        (vec![only(), p(UcSendOnly, 2).len(8)], &["2 violation bth.transport"]),
        (vec![only().with(|p| p.bth.pkey = PKey(0x8000))], &["1 violation bth.pkey"]),
        (
            vec![only(), send(RcSendOnly, 2, 8).with(|p| p.bth.pkey = PKey(0x8001))],
            &["2 violation bth.pkey"],
        ),
        (vec![read(1, 8).len(4)], &["1 violation packet.length"]),
        (vec![only().with(|p| p.reserved = 1)], &["1 quirk bth.reserved"]),
        (vec![only().with(|p| p.bth.fecn = true)], &["1 quirk bth.reserved"]),
        (vec![only().with(|p| p.bth.migreq = false); 1], &["1 quirk bth.reserved"]),
        (vec![only().len(5).with(|p| p.pad_byte = 1)], &["1 violation bth.padcnt"]),
        (vec![only().len(5).with(|p| p.bth.pad = 2)], &["1 violation bth.padcnt"]),
        (vec![only().with(|p| p.spoil = true)], &["1 violation icrc.bad"]),
        (vec![p(UcSendOnly, 1).len(8).asking()], &["1 quirk bth.ackreq"]),
        (vec![only(), ack(1, 1).asking()], &["2 violation bth.ackreq"]),
        (vec![send(RcSendFirst, 1, 256).with(|p| p.bth.solicited = true)], &["1 violation bth.se"]),
        (
            vec![p(RcWriteOnly, 1).asking().with(|p| p.bth.solicited = true)],
            &["1 violation bth.se"],
        ),
        (vec![p(Cnp, 0).with(|p| p.bth.becn = true)], &[]),
        (vec![p(Cnp, 0)], &["1 violation cnp.shape"]),
        (vec![p(Cnp, 3).with(|p| p.bth.becn = true)], &["1 violation cnp.shape"]),
        (vec![p(Cnp, 0).len(4).with(|p| p.bth.becn = true)], &["1 violation cnp.shape"]),
        (
            vec![p(UdSendOnly, 1).with(|p| p.destination = "239.1.1.1".parse().unwrap())],
            &["1 quirk ud.multicast_qp"],
        ),
        (
            vec![p(UdSendOnly, 1).len(256).with(|p| {
                p.bth.dest_qp = Qpn::new(1);
                p.deth.qkey = QKey(1);
            })],
            &["1 violation gsi.qkey"],
        ),
        (
            vec![p(UdSendOnly, 1).len(100).with(|p| p.bth.dest_qp = Qpn::new(1))],
            &["1 violation gsi.mad"],
        ),
    ]
}

fn requests() -> Vec<Case> {
    let first = || send(RcSendFirst, 1, 256);
    let write = |opcode, psn, len: usize| send(opcode, psn, len).dma(0x1000, 600);
    vec![
        (vec![first(), send(RcSendMiddle, 2, 512)], &["2 violation mtu.first_middle"]),
        (vec![send(RcSendFirst, 1, 100)], &["1 violation mtu.first_middle"]),
        (vec![first(), send(RcSendLast, 4, 8)], &["2 note psn.gap"]),
        (
            vec![read(1, 1000), send(RcSendFirst, 5, 256), send(RcSendOnly, 3, 8)],
            &["3 violation psn.inside_read"],
        ),
        // The capture does not show whether the READ takes 4 PSNs, or fewer and requests were lost.
        (
            vec![read(1, 1000), send(RcSendOnly, 5, 8), send(RcSendOnly, 3, 8)],
            &["3 note rc.retransmission"],
        ),
        // The READ may take fewer PSNs, and a FIRST may be missing.
        (vec![read(1, 1000), send(RcSendLast, 3, 8)], &[]),
        (
            vec![first(), send(RcSendLast, 2, 8), read(3, 600), send(RcSendOnly, 4, 8)],
            &["4 violation psn.inside_read"],
        ),
        (
            vec![first(), send(RcSendMiddle, 2, 256), send(RcSendOnly, 3, 8)],
            &["3 violation message.no_last"],
        ),
        (vec![first(), write(RcWriteLast, 2, 8)], &["2 violation message.mixed"]),
        (
            vec![send(RcSendOnly, 1, 8), send(RcSendMiddle, 2, 256)],
            &["2 violation message.no_first"],
        ),
        (vec![first(), send(RcSendLast, 2, 0)], &["2 violation payload.length"]),
        (vec![first(), send(RcSendLast, 2, 300)], &["2 violation payload.length"]),
        (
            vec![
                write(RcWriteFirst, 1, 256),
                write(RcWriteMiddle, 2, 256),
                write(RcWriteLast, 3, 88),
            ],
            &[],
        ),
        (
            vec![write(RcWriteFirst, 1, 256), write(RcWriteLast, 2, 88)],
            &["2 violation write.length"],
        ),
        (vec![read(1, (1 << 31) + 1)], &["1 violation reth.length"]),
        (vec![read(1, 8).dma(u64::MAX - 3, 8)], &["1 violation reth.overflow"]),
        (
            vec![p(RcFetchAdd, 1).asking().with(|p| p.atomic.addr = 4)],
            &["1 violation atomic.alignment"],
        ),
        (vec![p(RcAtomicWrite, 1).asking().len(4).dma(8, 8)], &["1 violation atomic_write.shape"]),
        (vec![p(RcAtomicWrite, 1).asking().len(8).dma(4, 8)], &["1 violation atomic_write.shape"]),
        (
            vec![p(UcSendFirst, 1).len(256), p(UcSendLast, 4).len(8), p(UcSendMiddle, 5).len(256)],
            &["2 note uc.psn_gap", "3 violation message.no_first"],
        ),
    ]
}

fn repetitions() -> Vec<Case> {
    let only = |psn| send(RcSendOnly, psn, 8);
    let long = || vec![send(RcSendFirst, 1, 256), send(RcSendLast, 2, 8), read(3, 600)];
    let again = |packet: P| [long(), vec![packet.after(2000)]].concat();
    vec![
        (vec![only(1), only(1).after(900)], &["2 note rc.retransmission.timeout"]),
        (
            vec![only(1), only(1).with(|p| p.bth.ack_req = false).after(2000)],
            &["2 violation rc.retransmission.ackreq", "2 note rc.retransmission.timeout"],
        ),
        // The network may have duplicated the packet.
        (vec![only(1), only(1).with(|p| p.bth.ack_req = false)], &["2 note rc.retransmission"]),
        (
            vec![only(1), only(1).with(|p| p.fill = 1)],
            &["2 violation rc.retransmission", "2 note rc.retransmission"],
        ),
        (vec![only(1), p(RcFetchAdd, 1).asking()], &["2 violation rc.retransmission"]),
        (
            vec![only(1), only(2), nak(2, 1, NakCode::PsnSequence), only(2)],
            &["3 note rc.nak.sequence", "4 note rc.retransmission.nak"],
        ),
        (
            vec![only(1), rnr(1, 0), only(1).after(1300)],
            &["2 note rc.rnr_nak", "3 note rc.rnr_retransmission"],
        ),
        (
            vec![only(1), rnr(1, 0), only(1).after(900).with(|p| p.id = 1)],
            &[
                "2 note rc.rnr_nak",
                "3 violation rc.rnr_retransmission",
                "3 note rc.rnr_retransmission",
            ],
        ),
        (
            vec![only(1), rnr(1, 0), only(1).after(900)],
            &["2 note rc.rnr_nak", "3 note rc.rnr_retransmission", "3 note rc.rnr_retransmission"],
        ),
        (again(read(4, 344).dma(0x1100, 344)), &["4 note rc.retransmission.timeout"]),
        (
            again(read(4, 344).dma(0x1200, 344)),
            &["4 violation read.resumed", "4 note rc.retransmission.timeout"],
        ),
        (
            vec![read(1, 8), only(2), ack(2, 2), read(1, 8)],
            &["3 note rc.implied_nak", "4 note rc.implied_nak"],
        ),
        (
            vec![
                p(RcFlush, 1).asking().dma(0x1000, 8),
                p(RcFlush, 1).asking().dma(0, 8).after(2000),
            ],
            &["2 quirk rc.retransmission", "2 note rc.retransmission.timeout"],
        ),
    ]
}

/// Connections with the numbers of earlier ones.
fn connected_anew() -> Vec<Case> {
    let only = |psn| send(RcSendOnly, psn, 8);
    let refused = || vec![only(5), only(6), nak(5, 0, NakCode::InvalidRequest)];
    let then = |packets: &[P]| [refused(), packets.to_vec()].concat();
    let moved = |p: P| p.with(|p| p.source_port = 0xc777);
    let to = |qp, p: P| p.with(|p| p.bth.dest_qp = Qpn::new(qp));
    let other = |psn| send(RcWriteOnly, psn, 4).dma(0x2000, 4);
    vec![
        // The queue pair of the peer has the same number.
        (
            then(&[other(5), ack(5, 1), other(6), ack(6, 2)]),
            &["3 note rc.nak.fatal", "4 note psn.gap"],
        ),
        (vec![only(5), only(6), moved(other(5)), moved(ack(5, 1))], &["3 note psn.gap"]),
        (vec![only(5), moved(other(9)), moved(ack(9, 1))], &["2 note psn.gap"]),
        (vec![only(5), only(6), ack(6, 2), moved(only(5)), moved(ack(5, 1))], &["4 note psn.gap"]),
        (vec![only(5), only(6), other(5)], &["3 violation rc.retransmission"]),
        // This queue pair has the same number, and that of the peer another.
        (
            then(&[to(0x13, only(5)), ack(5, 1), to(0x13, only(6)), ack(6, 3)]),
            &["3 note rc.nak.fatal", "5 note rc.ack_unseen", "7 violation aeth.msn"],
        ),
        (
            vec![
                only(5),
                ack(5, 9),
                to(0x13, only(5)),
                moved(ack(5, 1)),
                to(0x13, only(6)),
                moved(ack(6, 2)),
            ],
            &["4 note rc.ack_unseen"],
        ),
        // An earlier connection is no reason.
        (
            [vec![to(0x13, only(6))], then(&[ack(6, 1)])].concat(),
            &["4 note rc.nak.fatal", "5 violation rc.response_after_fatal_nak"],
        ),
    ]
}

fn answers() -> Vec<Case> {
    let only = |psn| send(RcSendOnly, psn, 8);
    let sequence_nak = |psn, msn| nak(psn, msn, NakCode::PsnSequence);
    let atomic = |psn| p(RcFetchAdd, psn).asking();
    let result = |psn, msn, old| data(RcAtomicAcknowledge, psn, msn, 0).with(|p| p.old = old);
    let syndrome = |p: P, syndrome| p.with(|p| p.aeth.syndrome = syndrome);
    let credits = |p: P, credits| syndrome(p, Syndrome::Ack { credits });
    let reading = |answer: &[P]| [vec![read(1, 600)], answer.to_vec()].concat();
    let first = || data(RcReadResponseFirst, 1, 1, 256);
    let middle = || data(RcReadResponseMiddle, 2, 0, 256);
    let last = |len| data(RcReadResponseLast, 3, 1, len);
    let flush = || p(RcFlush, 1).asking().dma(0x1000, 8);
    vec![
        (vec![only(1), ack(1, 1), only(2), ack(2, 2)], &[]),
        (reading(&[first(), middle(), last(88)]), &[]),
        (
            vec![atomic(1), result(1, 1, 5), atomic(1).after(2000), result(1, 1, 5)],
            &["3 note rc.retransmission.timeout"],
        ),
        (
            vec![atomic(1), result(1, 1, 5), atomic(1).after(2000), result(1, 1, 6)],
            &["3 note rc.retransmission.timeout", "4 violation atomic.duplicate_result"],
        ),
        (vec![only(1), ack(1, 1), only(2), ack(2, 4)], &["4 violation aeth.msn"]),
        (
            vec![only(1), ack(1, 1), only(2), nak(2, 2, NakCode::RemoteAccess)],
            &["4 violation aeth.msn", "4 violation rc.nak.access"],
        ),
        (vec![only(1), ack(1, 1), ack(3, 3)], &["3 note rc.ack_unseen"]),
        (
            vec![only(1), syndrome(ack(1, 1), Syndrome::Reserved(0x40))],
            &["2 violation aeth.syndrome"],
        ),
        (vec![only(1), nak(1, 0, NakCode::Reserved(9))], &["2 violation aeth.nak_code"]),
        (vec![only(1), nak(1, 0, NakCode::InvalidRequest)], &["2 note rc.nak.fatal"]),
        (
            vec![only(1), only(2), nak(1, 0, NakCode::InvalidRequest), ack(2, 1)],
            &["3 note rc.nak.fatal", "4 violation rc.response_after_fatal_nak"],
        ),
        // A request after the NAK: the response may be of a new connection.
        (
            vec![only(1), nak(1, 0, NakCode::InvalidRequest), only(1).after(2000), ack(1, 1)],
            &[
                "2 note rc.nak.fatal",
                "3 note rc.retransmission.timeout",
                "4 note rc.response_after_fatal_nak",
            ],
        ),
        (vec![only(1), nak(1, 0, NakCode::RemoteAccess)], &["2 violation rc.nak.access"]),
        (vec![read(1, 8), rnr(1, 0)], &["2 violation rc.rnr_nak"]),
        (
            vec![only(1), only(2), rnr(1, 0), nak(1, 0, NakCode::PsnSequence)],
            &["3 note rc.rnr_nak", "4 quirk rc.nak_after_rnr"],
        ),
        // The request to which the second NAK responds may be missing from the capture.
        (
            vec![only(1), only(2), sequence_nak(1, 0), sequence_nak(1, 0).after(20_000)],
            &["3 note rc.nak.sequence", "4 note rc.nak.sequence"],
        ),
        (
            vec![
                only(1),
                only(2),
                sequence_nak(1, 0),
                only(3).after(19_000),
                sequence_nak(1, 0).after(1000),
            ],
            &["3 note rc.nak.sequence", "5 violation rc.nak.sequence"],
        ),
        // The request to which the responder sent it is missing, and perhaps the repeated first one.
        (
            vec![only(1), only(2), sequence_nak(1, 0), only(3), sequence_nak(1, 0).after(20_000)],
            &["3 note rc.nak.sequence", "5 note rc.nak.sequence"],
        ),
        (
            vec![only(1), only(2), sequence_nak(1, 0), sequence_nak(1, 0)],
            &["3 note rc.nak.sequence", "4 note rc.nak.sequence"],
        ),
        (
            vec![only(1), only(2), ack(2, 2), only(3), nak(1, 2, NakCode::PsnSequence)],
            &["5 violation rc.nak.sequence"],
        ),
        (vec![only(1), only(2), ack(2, 2), ack(1, 1)], &["4 note rc.duplicate_ack"]),
        (
            vec![only(1), only(2), ack(2, 2), only(2).after(2000), ack(1, 2)],
            &["4 note rc.retransmission.timeout", "5 quirk rc.duplicate_ack"],
        ),
        // The newest request that an acknowledgement covers: the atomic and the READ have responses of their own.
        (
            vec![
                only(1),
                atomic(2),
                result(2, 2, 5),
                p(RcReadRequest, 3).asking().dma(0x1000, 600),
                data(RcReadResponseFirst, 3, 3, 256),
                data(RcReadResponseMiddle, 4, 0, 256),
                data(RcReadResponseLast, 5, 3, 88),
                ack(1, 3),
            ],
            &[],
        ),
        // The network may have duplicated the SEND behind the point of capture, and lost a response before it.
        (vec![only(1), atomic(2), ack(2, 2)], &["3 note rc.implied_nak"]),
        (vec![atomic(1), ack(1, 1)], &["2 violation rc.implied_nak"]),
        // Credits for one more, then one that asks for credits, then one too many.
        (
            vec![
                only(1),
                credits(ack(1, 1), 1),
                only(2),
                only(3),
                only(4),
                credits(ack(4, 4), 31),
                only(5),
            ],
            &["5 quirk aeth.syndrome"],
        ),
        (vec![only(1), credits(ack(1, 1), 0), send(RcWriteOnly, 2, 0).dma(0, 0), read(3, 8)], &[]),
        (reading(&[first(), last(88)]), &["3 note read.response_gap"]),
        // Resumed in two places: a response may begin at either, or continue.
        (
            reading(&[
                first(),
                read(2, 344).dma(0x1100, 344).after(2000),
                read(3, 88).dma(0x1200, 88).after(2000),
                data(RcReadResponseFirst, 2, 1, 256),
                last(88),
                data(RcReadResponseOnly, 3, 1, 88),
            ]),
            &["3 note rc.retransmission.timeout", "4 note rc.retransmission.timeout"],
        ),
        (reading(&[first(), data(RcReadResponseFirst, 2, 1, 256)]), &["3 violation read.response"]),
        (reading(&[first(), middle(), middle()]), &["4 note read.duplicate_response"]),
        (reading(&[first(), middle(), last(80)]), &["4 violation read.response"]),
        (
            reading(&[first(), middle(), data(RcReadResponseMiddle, 3, 0, 256)]),
            &["4 violation read.response"],
        ),
        (
            reading(&[first(), middle(), syndrome(last(88), Syndrome::Nak(NakCode::RemoteAccess))]),
            &["4 violation aeth.not_ack"],
        ),
        (reading(&[ack(1, 1)]), &["2 violation rc.implied_nak"]),
        // The READ has the PSNs 1 to 3.
        (reading(&[first(), middle(), ack(3, 1)]), &["4 violation rc.implied_nak"]),
        // Each request before the READ was acknowledged before the READ was sent.
        (vec![only(1), ack(1, 1), read(2, 8), ack(2, 2)], &["4 violation rc.implied_nak"]),
        (vec![only(1), read(2, 8), ack(1, 1), ack(2, 2)], &["4 note rc.implied_nak"]),
        // A repeated READ is executed again; its memory may have changed.
        (
            reading(&[
                first(),
                middle(),
                last(88),
                read(1, 600).after(2000),
                first(),
                middle().with(|p| p.fill = 1),
                last(88),
            ]),
            &["5 note rc.retransmission.timeout", "7 note read.duplicate_response"],
        ),
        // As ONLY or MIDDLE it has the same data.
        (
            reading(&[
                first(),
                middle(),
                last(88),
                read(2, 344).dma(0x1100, 344).after(2000),
                data(RcReadResponseFirst, 2, 1, 256),
                last(88),
            ]),
            &["5 note rc.retransmission.timeout"],
        ),
        // The rest of a READ that was not captured, after a READ of unknown length in packets.
        (
            vec![
                read(1, 512),
                read(4, 344),
                data(RcReadResponseMiddle, 4, 0, 256),
                data(RcReadResponseLast, 5, 3, 88),
            ],
            &["3 note rc.implied_nak"],
        ),
        // Responses without requests.
        (
            vec![only(1), ack(0x2_0001, 1), ack(0x2_0001, 1), ack(1, 1), only(2), ack(2, 2)],
            &["2 note rc.ack_unseen", "3 note rc.ack_unseen"],
        ),
        // The capture does not show which NAK is the later one, because nothing before the first request was
        // captured.
        (
            vec![
                send(RcSendMiddle, 3, 256),
                sequence_nak(3, 4),
                send(RcSendMiddle, 2, 256),
                sequence_nak(2, 4),
            ],
            &["2 note rc.nak.sequence", "3 note rc.retransmission", "4 note rc.nak.sequence"],
        ),
        // The response to the later request came first.
        (
            vec![read(1, 8), only(2), ack(2, 2), data(RcReadResponseOnly, 1, 1, 8)],
            &["3 note rc.implied_nak", "4 note rc.response_order"],
        ),
        (
            vec![read(1, 8), only(2), ack(2, 2), read(1, 8), data(RcReadResponseOnly, 1, 2, 8)],
            &["3 note rc.implied_nak", "4 note rc.implied_nak"],
        ),
        (
            reading(&[
                first(),
                middle(),
                last(88),
                read(2, 344).dma(0x1100, 344).after(2000),
                middle(),
                last(88),
            ]),
            &["5 note rc.retransmission.timeout", "6 quirk read.response"],
        ),
        (
            reading(&[
                first(),
                read(2, 344).dma(0x1100, 344).after(2000),
                data(RcReadResponseFirst, 2, 1, 256),
                last(88),
            ]),
            &["3 note rc.retransmission.timeout"],
        ),
        (vec![only(1), data(RcReadResponseOnly, 1, 1, 0)], &["2 violation read.response"]),
        (vec![flush(), data(RcReadResponseOnly, 1, 1, 0)], &[]),
        (vec![flush(), data(RcReadResponseOnly, 1, 1, 8)], &["2 violation flush.response"]),
        (vec![flush(), ack(1, 1)], &["2 violation flush.response"]),
        (
            vec![
                send(RcSendFirst, 1, 256),
                send(RcSendLast, 2, 8),
                read(3, 600),
                data(RcReadResponseFirst, 3, 2, 512),
            ],
            &["4 violation mtu.first_middle"],
        ),
    ]
}

/// Cases that no [`P`] can express.
fn raw() -> Vec<(Vec<u8>, &'static str)> {
    let whole = send(RcSendOnly, 1, 8).build();
    let change = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        let udp = bytes.len() - 20;
        let len = u16::try_from(udp).unwrap().to_be_bytes();
        bytes[24..26].copy_from_slice(&len);
        let total = u16::try_from(udp + 20).unwrap().to_be_bytes();
        bytes[2..4].copy_from_slice(&total);
        if let Some((icrc, _)) = softroce::wire::icrc::of_ip_packet(&bytes) {
            let at = bytes.len() - 4;
            bytes[at..].copy_from_slice(&icrc.to_le_bytes());
        }
        bytes
    };
    // A FLUSH with an ICRC that covers the headers twice.
    let mut flush = p(RcFlush, 1).asking().dma(0x1000, 8).build();
    let (plain, _) = softroce::wire::icrc::of_ip_packet(&flush).unwrap();
    let at = flush.len() - 4;
    let mut twice = crc32fast::Hasher::new_with_initial(plain);
    twice.update(&flush[28..at]);
    flush[at..].copy_from_slice(&twice.finalize().to_le_bytes());
    vec![
        (change(&|bytes| bytes[28] = 0x3f), "1 violation bth.opcode"),
        (change(&|bytes| bytes[28] = 0xc1), "1 note bth.opcode"),
        (change(&|bytes| bytes[28] = RcReadRequest.byte()), "1 violation packet.length"),
        (change(&|bytes| bytes.truncate(38)), "1 violation packet.length"),
        (change(&|bytes| bytes[6] = 0x20), "1 violation ip.header"),
        (flush, "1 quirk icrc.method"),
    ]
}

fn all() -> Vec<Case> {
    [headers(), requests(), repetitions(), connected_anew(), answers(), managers(), conversations()]
        .concat()
}

#[test]
fn each_case_has_exactly_its_findings() {
    let wrong: Vec<_> = all()
        .into_iter()
        .enumerate()
        .map(|(at, (packets, expected))| (at, check(&packets), expected, packets[0].bth.opcode))
        .filter(|(_, found, expected, _)| found != expected)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (bytes, expected) in raw() {
        assert_eq!(check_bytes(&[(bytes, 0, None)]), [expected]);
    }
}

#[test]
fn every_rule_has_a_case() {
    let mut found: Vec<_> = all().iter().flat_map(|(packets, _)| check(packets)).collect();
    found.extend(raw().into_iter().map(|(_, found)| found.to_owned()));
    for rule in Rule::ALL {
        assert!(found.iter().any(|found| found.ends_with(rule.name())), "{rule}");
    }
}

#[test]
fn truncated_packet_is_followed_with_unknown_icrc() {
    let mut checker = Checker::new(Limits::default());
    let packet = send(RcSendOnly, 1, 512).build();
    assert!(checker.ip_packet(1, None, &packet[..60]).is_empty());
    let counts = checker.counts();
    assert_eq!((counts.roce_packets, counts.icrc.good, counts.icrc.unknown), (1, 0, 1));
    let findings = checker.ip_packet(2, None, &ack(1, 1).with(|p| p.aeth.msn = 0x55).build());
    assert!(findings.is_empty(), "the MSN is not known before: {findings:?}");
    let findings = checker.ip_packet(3, None, &send(RcSendOnly, 3, 8).build()).to_vec();
    assert_eq!((findings[0].rule, findings[0].severity), (Rule::PsnGap, Severity::Note));
}

#[test]
fn length_of_a_truncated_packet_is_no_violation() {
    let first = send(RcSendFirst, 1, 256);
    let cut = |p: P| p.with(|p| p.cut = Some(60));
    assert_eq!(
        check(&[first.clone(), send(RcSendMiddle, 2, 512)]),
        ["2 violation mtu.first_middle"]
    );
    assert_eq!(
        check(&[first.clone(), cut(send(RcSendMiddle, 2, 512))]),
        ["2 note mtu.first_middle"]
    );
    // Longer than any packet: an unsegmented burst.
    assert_eq!(check(&[first, cut(send(RcSendMiddle, 2, 9000))]), ["2 note icrc.bad"]);
}

/// Returns a message of a connection manager with these fields; `tid` is its transaction ID.
fn managing(attribute: u8, tid: u8, body: &[(usize, &[u8])], way: [&str; 2]) -> P {
    let head: [(usize, &[u8]); 2] = [(15, &[tid]), (16, &[0, attribute])];
    let [from, to] = way.map(|ip| ip.parse().unwrap());
    mad(&[&head[..], body].concat(), from, to)
}

const ON: [&str; 2] = ["10.0.0.1", "10.0.0.2"];
const BACK: [&str; 2] = ["10.0.0.2", "10.0.0.1"];

/// The connection is 9 to its active side, 8 to its passive one. The first PSN is 1, the MTU 256.
fn req(tid: u8) -> P {
    let body: [(usize, &[u8]); 7] = [
        (24, &[0, 0, 0, 9]),
        (24 + 32, &[0, 0, 0x11, 4]),
        (24 + 39, &[2]),
        (24 + 44, &[0, 0, 0x70, 0]),
        (24 + 50, &[0x10]),
        (24 + 56 + 10, &[0xff, 0xff, 10, 0, 0, 1]),
        (24 + 72 + 10, &[0xff, 0xff, 10, 0, 0, 2]),
    ];
    managing(0x10, tid, &body, ON)
}

/// Two READs at once, no more.
fn rep(tid: u8) -> P {
    let body: [(usize, &[u8]); 5] = [
        (24, &[0, 0, 0, 8]),
        (28, &[0, 0, 0, 9]),
        (24 + 12, &[0, 0, 0x12, 0]),
        (24 + 20, &[0, 0, 0x01, 0]),
        (24 + 24, &[2, 4]),
    ];
    managing(0x13, tid, &body, BACK)
}

/// Returns a message; its first field is the sender's ID of the connection.
fn named(attribute: u8, tid: u8, way: [&str; 2]) -> P {
    let ids = if way == ON { [9, 8] } else { [8, 9] };
    // A DREQ names the queue pair of its receiver.
    let qp = if attribute == 0x15 { 0x1a - ids[1] } else { 0 };
    let body: [(usize, &[u8]); 3] =
        [(24, &[0, 0, 0, ids[0]]), (28, &[0, 0, 0, ids[1]]), (24 + 8, &[0, 0, qp])];
    managing(attribute, tid, &body, way)
}

/// Returns a REJ of a REQ with a reason.
fn rej(reason: u8) -> P {
    named(0x12, 1, BACK).with(|p| p.bytes.as_mut().unwrap()[24 + 11] = reason)
}

/// Conversations of connection managers that do not go as planned.
fn conversations() -> Vec<Case> {
    let [rtu, dreq, drep] = [0x14, 0x15, 0x16];
    let byte = |p: P, at: usize, value| p.with(|p| p.bytes.as_mut().unwrap()[at] = value);
    let sidr_req = || {
        let body: [(usize, &[u8]); 2] = [(24, &[0, 0, 0, 9]), (24 + 8, &[0, 0, 0, 0, 1, 17, 0, 7])];
        managing(0x17, 1, &body, ON)
    };
    let sidr_rep = |status| managing(0x18, 1, &[(24, &[0, 0, 0, 9]), (28, &[status])], BACK);
    // Addresses of rdma_cm, of a version and an IP version, to TCP port 7.
    let with_ip = |version: u8| {
        let service = byte(byte(byte(req(1), 24 + 12, 1), 24 + 13, 6), 24 + 15, 7);
        byte(byte(service, 24 + 140, version), 24 + 141, 0x40)
    };
    vec![
        (vec![req(1), req(1), rep(1)], &["2 note cm.retransmission"]),
        (vec![req(1), byte(req(1), 24 + 39, 3)], &["2 violation cm.retransmission"]),
        // Another attempt with the ID of one that has ended.
        (vec![req(1), rej(28), byte(req(1), 24 + 39, 3)], &["2 note cm.reject"]),
        (vec![req(1), rep(1), rep(1), named(rtu, 1, ON)], &["3 note cm.retransmission"]),
        (vec![req(1), rep(1), byte(rep(1), 27, 7)], &["3 violation cm.second_reply"]),
        (
            vec![req(1), rep(1), named(dreq, 1, ON), named(dreq, 1, ON), named(drep, 1, BACK)],
            &["4 note cm.retransmission"],
        ),
        (
            vec![req(1), rep(1), byte(named(dreq, 1, ON), 24 + 10, 0x11)],
            &["3 violation cm.dreq_qp"],
        ),
        (vec![req(1), rej(8)], &["2 note cm.reject.no_listener"]),
        (vec![req(1), rej(10)], &["2 note cm.reject.stale"]),
        (vec![req(1), rej(26)], &["2 note cm.reject.mtu"]),
        (vec![req(1), rej(12)], &["2 note cm.reject"]),
        (vec![sidr_req(), sidr_rep(0)], &[]),
        (vec![sidr_req(), sidr_req(), sidr_rep(0)], &["2 note cm.retransmission"]),
        (vec![sidr_req(), sidr_rep(1)], &["2 note cm.sidr"]),
        (vec![byte(req(1), 24 + 56 + 15, 9)], &["1 note cm.addresses"]),
        (vec![with_ip(0)], &[]),
        (vec![with_ip(1)], &["1 violation cm.addresses"]),
    ]
}

fn managers() -> Vec<Case> {
    let [rej, rtu, dreq, drep, mra] = [0x12, 0x14, 0x15, 0x16, 0x11];
    let of_rep = |p: P| p.with(|p| p.bytes.as_mut().unwrap()[24 + 8] = 0x40);
    let start = |rest: &[P]| [vec![req(1), rep(1)], rest.to_vec()].concat();
    let response = |psn, msn| data(RcReadResponseOnly, psn, msn, 8);
    vec![
        (start(&[send(RcSendOnly, 1, 8), ack(1, 1)]), &[]),
        (start(&[send(RcSendOnly, 1, 8), ack(1, 2)]), &["4 violation aeth.msn"]),
        (start(&[send(RcSendOnly, 3, 8)]), &["3 note psn.gap"]),
        (start(&[send(RcSendFirst, 1, 512)]), &["3 violation mtu.first_middle"]),
        // A connection with the same queue pairs, twice.
        (
            start(&[
                send(RcSendOnly, 1, 8),
                nak(1, 0, NakCode::InvalidRequest),
                req(2),
                rep(2),
                send(RcSendOnly, 1, 8),
                ack(1, 1),
                rep(2),
                send(RcSendOnly, 2, 8),
                ack(2, 1),
            ]),
            &["4 note rc.nak.fatal", "9 note cm.retransmission", "11 violation aeth.msn"],
        ),
        // Transaction IDs.
        (start(&[named(rtu, 1, ON), named(dreq, 3, BACK), named(drep, 3, ON)]), &[]),
        (start(&[named(rtu, 2, ON)]), &["3 violation cm.transaction_id"]),
        (vec![req(1), rep(2)], &["2 violation cm.transaction_id"]),
        (start(&[named(dreq, 3, ON), named(drep, 1, BACK)]), &["4 violation cm.transaction_id"]),
        (
            vec![req(1), named(mra, 1, BACK), named(rej, 2, BACK)],
            &["2 note cm.mra", "3 violation cm.transaction_id", "3 note cm.reject"],
        ),
        (start(&[of_rep(named(mra, 3, ON))]), &["3 violation cm.transaction_id", "3 note cm.mra"]),
        (start(&[of_rep(named(rej, 1, ON))]), &["3 note cm.reject"]),
        // The REQ accepts four READs at once.
        (
            vec![req(1), rep(1).with(|p| p.bytes.as_mut().unwrap()[24 + 25] = 5)],
            &["2 violation cm.rep_depth"],
        ),
        // Messages without a request, or to another request, have any transaction ID.
        (vec![req(1), named(rtu, 7, BACK), named(drep, 7, BACK)], &[]),
        // READs at once.
        (start(&[read(1, 8), read(2, 8), response(1, 1), read(3, 8), response(2, 2)]), &[]),
        (
            start(&[
                read(1, 8),
                read(2, 8),
                p(RcFetchAdd, 3).asking(),
                response(1, 1),
                read(4, 8),
                response(2, 2),
            ]),
            &["6 violation read.outstanding"],
        ),
        // Without a response, or with responses that were not captured, there is no finding.
        (start(&[read(1, 8), read(2, 8), read(3, 8)]), &[]),
        (vec![read(1, 8), read(2, 8), read(3, 8), response(1, 1)], &[]),
    ]
}

#[test]
fn answers_find_their_connection_among_several() {
    // Four connections between the same hosts with the same PSNs; the ports distinguish them.
    let mut packets = Vec::new();
    let pair = |n: u32| (Qpn::new(0x11 + 0x100 * n), Qpn::new(0x12 + 0x100 * n));
    for n in 0..4 {
        let (asking, answering) = pair(n);
        packets.push(send(RcSendOnly, 5, 8).with(|p| {
            p.bth.dest_qp = answering;
            p.source_port = softroce::net::source_port(0, asking, answering);
        }));
    }
    for n in (0..4).rev() {
        let (asking, answering) = pair(n);
        packets.push(ack(5, n + 1).with(|p| {
            p.bth.dest_qp = asking;
            p.source_port = softroce::net::source_port(0, asking, answering);
        }));
        packets.push(send(RcSendOnly, 6, 8).with(|p| p.bth.dest_qp = answering));
        packets.push(ack(6, n + 2).with(|p| p.bth.dest_qp = asking));
    }
    assert!(check(&packets).is_empty());
    packets.push(ack(6, 9).with(|p| p.bth.dest_qp = pair(2).0));
    assert_eq!(check(&packets), ["17 violation aeth.msn"]);
}

#[test]
fn answers_of_queue_pairs_connected_to_themselves_belong_to_their_own_requests() {
    // Three queue pairs of one address, each connected to itself, with the same PSNs.
    let host: std::net::IpAddr = "10.0.0.1".parse().unwrap();
    let own = |packet: P, n: u32| {
        packet.with(|p| {
            let qp = Qpn::new(0x11 + n);
            (p.source, p.destination) = (host, host);
            p.bth.dest_qp = qp;
            p.source_port = softroce::net::source_port(0, qp, qp);
        })
    };
    let mut packets = Vec::new();
    for n in 0..3 {
        // Different numbers of messages, so that answers that are taken for another's have a wrong MSN.
        packets.extend((0..=n).map(|psn| own(send(RcSendOnly, 5 + psn, 8), n)));
    }
    for n in (0..3).rev() {
        packets.push(own(ack(5 + n, n + 1), n));
        packets.push(own(send(RcSendOnly, 6 + n, 8), n));
        packets.push(own(ack(6 + n, n + 2), n));
    }
    assert_eq!(check(&packets), [""; 0]);
    packets.push(own(ack(6, 9), 0));
    assert_eq!(check(&packets), ["16 violation aeth.msn"]);
}

#[test]
fn queue_pairs_connected_to_themselves_are_not_confused_without_ports() {
    // The ports say nothing, as with an adapter that chooses them by another formula.
    let host: std::net::IpAddr = "10.0.0.1".parse().unwrap();
    let own = |packet: P, n: u32| {
        packet.with(|p| {
            (p.source, p.destination) = (host, host);
            p.bth.dest_qp = Qpn::new(0x11 + n);
            p.source_port = 0xd000;
        })
    };
    let packets = [
        own(send(RcSendOnly, 5, 8), 0),
        own(send(RcSendOnly, 5, 8), 1),
        own(send(RcSendOnly, 6, 8), 1),
        own(ack(5, 1), 0),
        own(ack(6, 2), 1),
        own(send(RcSendOnly, 6, 8), 0),
        own(ack(6, 2), 0),
    ];
    assert_eq!(check(&packets), [""; 0]);
}

#[test]
fn response_to_a_read_shows_the_mtu_only_if_it_fits_the_read() {
    // The next request shows that the answer has four packets: 256 bytes each would be sixteen.
    let short_first = [
        read(1, 4096),
        send(RcSendOnly, 5, 8),
        data(RcReadResponseFirst, 1, 1, 256),
        data(RcReadResponseFirst, 1, 1, 1024),
        data(RcReadResponseMiddle, 2, 1, 1024),
        data(RcReadResponseMiddle, 3, 1, 1024),
        data(RcReadResponseLast, 4, 1, 1024),
        ack(5, 2),
        send(RcSendFirst, 6, 1024),
    ];
    let found = check(&short_first);
    assert!(found.iter().all(|finding| !finding.contains("mtu")), "{found:?}");
}

#[test]
fn each_connection_may_have_its_partition() {
    let packet = send(RcSendOnly, 1, 8).with(|p| p.bth.pkey = PKey(0x8001));
    assert!(check(&[packet]).is_empty());
    assert_eq!(datagram_len(RcSendOnly, 8), 24);
}

#[test]
fn atomic_after_a_psn_wrap_may_have_another_result() {
    let first_response = |psn| data(RcReadResponseFirst, psn, 2, 256);
    let half = 1 << 23;
    let result =
        |psn, msn, old| p(RcAtomicAcknowledge, psn).with(|p| (p.aeth.msn, p.old) = (msn, old));
    let packets = [
        p(RcFetchAdd, 1).asking(),
        result(1, 1, 5),
        read(2, 1 << 31),
        first_response(2),
        read(2 + half, (half - 1) << 8),
        p(RcFetchAdd, 1).asking(),
        result(1, 4, 6),
    ];
    let mut checker = Checker::new(Limits { window: 1, ..Limits::default() });
    let mut found = Vec::new();
    for (number, packet) in (1..).zip(&packets) {
        found.extend_from_slice(checker.ip_packet(number, None, &packet.build()));
    }
    assert!(found.iter().all(|finding| finding.rule != Rule::DuplicateAtomic), "{found:?}");
    assert!(found.iter().all(|finding| finding.packet < 6), "{found:?}");
}
