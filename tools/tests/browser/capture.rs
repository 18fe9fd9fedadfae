//! Captures of any number of packets and connections, with losses.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fs::File;
use std::io::BufWriter;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use softroce::ids::Qpn;
use softroce::net::{self, source_port};
use softroce::psn::Psn;
use softroce::wire::encap::Headers;
use softroce::wire::packet::{ICRC_LEN, datagram_len};
use softroce::wire::{Aeth, Bth, Builder, NakCode, Opcode, Syndrome};
use softroce_pcap::{LinkType, Record, Writer};

const PAYLOAD: usize = 1024;
/// Packets of a message.
const PACKETS: u32 = 16;
/// Captured bytes of a packet at most: all of its headers. No ICRC is captured, so none need be right.
const SNAP_LEN: usize = 64;
/// Time between two packets of a connection, and from a request to its answer, in nanoseconds.
const GAP_NS: u64 = 2_000;
const ROUND_TRIP_NS: u64 = 30_000;
const TIMEOUT_NS: u64 = 4_194_304;
/// One message in so many is repaired after a NAK, and one after a timeout.
const MESSAGES_TO_NAK: u64 = 50;
const MESSAGES_TO_TIMEOUT: u64 = 2_000;

/// A packet to be sent, and the time after the one before.
struct Next {
    after: u64,
    opcode: Opcode,
    psn: Psn,
    /// Of an answer.
    syndrome: Option<Syndrome>,
}

/// A connection that writes messages.
struct Connection {
    hosts: [IpAddr; 2],
    qps: [Qpn; 2],
    psn: Psn,
    msn: u32,
    next: VecDeque<Next>,
    random: u64,
}

impl Connection {
    fn new(n: u32) -> Self {
        let host = |last| IpAddr::from([192, 0, 2, last]);
        let random = 0x9e37_79b9_7f4a_7c15 ^ u64::from(n) << 32;
        let qps = [Qpn::new(0x100 + n), Qpn::new(0x10_0000 + n)];
        let psn = Psn::new(0x1_0000 * (n & 0x7f));
        Self { hosts: [host(1), host(2)], qps, psn, msn: 0, next: VecDeque::new(), random }
    }

    /// Returns a pseudorandom number below `limit` (xorshift).
    fn random(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    /// Plans the next message.
    fn plan(&mut self) {
        let opcode = |at| match at {
            0 => Opcode::RcWriteFirst,
            at if at == PACKETS - 1 => Opcode::RcWriteLast,
            _ => Opcode::RcWriteMiddle,
        };
        let first = self.psn;
        let request =
            |after, at| Next { after, opcode: opcode(at), psn: first.plus(at), syndrome: None };
        let answer = |at, syndrome| Next {
            after: ROUND_TRIP_NS,
            opcode: Opcode::RcAcknowledge,
            psn: first.plus(at),
            syndrome: Some(syndrome),
        };
        let idle = self.random(20) * GAP_NS;
        self.next.extend(
            (0..PACKETS).map(|at| request(if at == 0 { GAP_NS + idle } else { GAP_NS }, at)),
        );
        if self.random(MESSAGES_TO_TIMEOUT) == 0 {
            // Two packets: one alone, without an identification of its own, may be a copy that the network made.
            self.next.extend(
                (PACKETS - 2..PACKETS)
                    .map(|at| request(if at == PACKETS - 2 { TIMEOUT_NS } else { GAP_NS }, at)),
            );
        } else if self.random(MESSAGES_TO_NAK) == 0 {
            let lost = u32::try_from(self.random(u64::from(PACKETS - 1))).unwrap();
            self.next.push_back(answer(lost, Syndrome::Nak(NakCode::PsnSequence)));
            self.next.extend((lost..PACKETS).map(|at| request(GAP_NS, at)));
        }
        self.next
            .push_back(answer(PACKETS - 1, Syndrome::Ack { credits: Aeth::UNLIMITED_CREDITS }));
        self.psn = first.plus(PACKETS);
    }

    /// Returns the time until the next packet.
    fn wait(&mut self) -> u64 {
        if self.next.is_empty() {
            self.plan();
        }
        self.next[0].after
    }

    /// Writes the next packet to `frame`, from its IP header on; returns the length of the whole packet.
    fn packet(&mut self, frame: &mut Vec<u8>) -> usize {
        let next = self.next.pop_front().unwrap();
        let sender = usize::from(next.syndrome.is_some());
        let bth = Bth {
            opcode: next.opcode,
            dest_qp: self.qps[1 - sender],
            psn: next.psn,
            ack_req: next.opcode == Opcode::RcWriteLast,
            ..Bth::default()
        };
        let path = net::Path {
            source: self.hosts[sender],
            destination: self.hosts[1 - sender],
            source_port: source_port(0, self.qps[0], self.qps[1]),
            traffic_class: 2,
            hop_limit: 64,
        };
        let len = datagram_len(next.opcode, if sender == 0 { PAYLOAD } else { 0 });
        frame.clear();
        Headers::write(&path, 0, len, frame);
        let start = frame.len();
        frame.resize(start + len, 0);
        let mut builder = Builder::new(&bth, &mut frame[start..]).unwrap();
        if let Some(syndrome) = next.syndrome {
            self.msn += u32::from(matches!(syndrome, Syndrome::Ack { .. }));
            builder.aeth(&Aeth { syndrome, msn: self.msn & 0xff_ffff });
        }
        if let Some(reth) = next.opcode.layout().reth {
            assert!(reth > 0);
            let length = PACKETS * u32::try_from(PAYLOAD).unwrap();
            builder.reth(&softroce::wire::Reth { length, ..Default::default() });
        }
        frame.len()
    }
}

/// Writes a capture of `packets` packets of `connections` connections, of which only the headers were captured.
pub(crate) fn write(path: &Path, packets: u64, connections: u32) {
    let file = BufWriter::new(File::create(path).unwrap());
    let mut writer = Writer::new(file, LinkType::Raw, "a test").unwrap();
    let mut all: Vec<_> = (0..connections).map(Connection::new).collect();
    let mut due: BinaryHeap<_> =
        all.iter_mut().enumerate().map(|(n, connection)| Reverse((connection.wait(), n))).collect();
    let mut frame = Vec::new();
    for _ in 0..packets {
        let Reverse((now, n)) = due.pop().unwrap();
        let len = all[n].packet(&mut frame);
        due.push(Reverse((now + all[n].wait(), n)));
        let record = Record {
            time: Duration::from_secs(1_750_000_000) + Duration::from_nanos(now),
            frame: &frame[..(len - ICRC_LEN).min(SNAP_LEN)],
            original_len: u32::try_from(len).unwrap(),
            ..Record::default()
        };
        writer.record(&record).unwrap();
    }
    writer.flush().unwrap();
}
