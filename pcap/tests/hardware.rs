//! Captured packets of adapters, sent to an engine in the place of their peer.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use softroce::engine::{
    Config, Engine, InitAttr, Peer, QpAttr, QpCap, QpInit, QpState, QpType, RtrAttr, RtsAttr,
};
use softroce::ids::{CqId, Gid, Mtu, PdId, Qpn};
use softroce::mem::{Access, HostMemory, Memory, Region};
use softroce::net::{AddressVector, Burst, RxBuffer, RxMeta};
use softroce::psn::Psn;
use softroce::time::{AckTimeout, Instant, RnrTimer};
use softroce::transport::outputs::DropReason;
use softroce::transport::work::{
    Completion, RecvRequest, SendData, SendFlags, SendOp, SendRequest, Sge, WcOpcode, WcStatus,
};
use softroce::wire::text::PacketLine;
use softroce::wire::{Datagram, Opcode, Syndrome, encap};
use softroce_pcap::{Icrc, Reader, dissect};

const PD: PdId = PdId(1);
const CQ: CqId = CqId(1);

/// Returns the IP packets of a file of `captures/hardware`.
fn packets(file: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("captures/hardware").join(file);
    let bytes = std::fs::read(path).unwrap();
    let mut reader = Reader::new(bytes.as_slice()).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        let ip = packet.ip.unwrap();
        assert_eq!(dissect(ip).unwrap().unwrap().icrc, Icrc::Good);
        packets.push(ip.to_vec());
    }
    packets
}

/// The connection of a capture's sender, and its state before the capture.
struct Seat {
    /// Addresses of the engine and of the adapter.
    ips: [IpAddr; 2],
    qpns: [Qpn; 2],
    /// First PSN of either side.
    psns: [Psn; 2],
}

/// An engine with that connection, with 4 KiB of memory, in RTS.
struct Host {
    engine: Engine,
    region: Arc<Region>,
    qpn: Qpn,
    now: Instant,
}

impl Host {
    fn new(seat: &Seat) -> Self {
        let memory = Arc::new(Memory::new([0; 32]));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = memory.register(PD, HostMemory::alloc(4096).unwrap(), None, access).unwrap();
        let shard = u8::try_from(seat.qpns[0].value() & 0x3f).unwrap();
        let config = Config { shard, ..Config::new(seat.ips[0]) };
        let engine = Engine::new(config, memory, [0; 32]);
        let mut host = Self { engine, region, qpn: seat.qpns[0], now: Instant::ZERO };
        host.create_qp();
        let peer = Peer {
            av: AddressVector::to(Gid::from(seat.ips[1])),
            dest_qpn: seat.qpns[1],
            rq_psn: seat.psns[1],
            path_mtu: Mtu::Mtu1024,
        };
        host.modify(InitAttr::Connected { access: Access::REMOTE_WRITE });
        host.modify(RtrAttr::Rc {
            peer,
            max_dest_rd_atomic: 1,
            min_rnr_timer: RnrTimer::new(12).unwrap(),
        });
        host.modify(RtsAttr::Rc {
            sq_psn: seat.psns[0],
            timeout: AckTimeout::new(14).unwrap(),
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 1,
        });
        host
    }

    /// Creates queue pairs until one has the number in the capture: numbers are random.
    fn create_qp(&mut self) {
        let init = QpInit {
            qp_type: QpType::Rc,
            pd: PD,
            send_cq: Some(CQ),
            recv_cq: Some(CQ),
            cap: QpCap::default(),
            sq_sig_all: false,
            srq: None,
            send_ops: None,
            xrcd: None,
        };
        loop {
            let drawn = self.engine.create_qp(self.now, init).unwrap();
            if drawn == self.qpn {
                return;
            }
            self.engine.destroy_qp(self.now, drawn);
            // The number is free again after a while.
            self.now += Duration::from_secs(60);
        }
    }

    fn modify(&mut self, attr: impl Into<QpAttr>) {
        self.engine.modify_qp(self.now, self.qpn, &attr.into(), |_, wanted| wanted).unwrap();
    }

    fn sge(&self, length: u32) -> Sge {
        Sge { addr: self.region.addr(), length, lkey: self.region.lkey() }
    }

    fn send(&mut self, wr_id: u64) {
        let data = SendData::from(self.sge(192));
        let request = SendRequest {
            flags: SendFlags::SIGNALED,
            ..SendRequest::new(wr_id, SendOp::Send, data)
        };
        self.engine.post_send(self.now, self.qpn, request).unwrap();
    }

    /// Receives a captured packet with the metadata of a raw socket.
    fn receive(&mut self, ip_packet: &[u8]) {
        let ip = encap::parse_ip(ip_packet).unwrap();
        let meta = RxMeta {
            source: ip.source,
            destination: ip.destination.ip(),
            traffic_class: ip.traffic_class,
            hop_limit: ip.hop_limit,
            ipv4: ip.ipv4,
            may_omit_icrc: false,
        };
        let segment_len = ip.payload.len();
        self.engine.handle_buffer(self.now, RxBuffer { data: ip.payload, segment_len, meta });
    }

    /// Returns the packets that the engine sends, as text.
    fn sent(&mut self) -> Vec<String> {
        let (mut burst, mut lines) = (Burst::new(), Vec::new());
        while self.engine.poll_transmit(self.now, &mut burst) {
            let line = |bytes| PacketLine(&Datagram::parse(bytes).unwrap()).to_string();
            lines.extend(burst.segments().map(line));
            burst.clear();
        }
        lines
    }

    fn completions(&mut self) -> Vec<(u64, WcStatus, WcOpcode, u32)> {
        let tuple = |c: Completion| (c.wr_id, c.status, c.opcode, c.byte_len);
        std::iter::from_fn(|| self.engine.poll_completion()).map(|(_, c)| tuple(c)).collect()
    }

    fn dropped(&self) -> Vec<DropReason> {
        let counters = self.engine.counters();
        DropReason::ALL.into_iter().filter(|reason| counters.dropped(*reason) > 0).collect()
    }
}

/// An adapter asks the connection manager of an FPGA for a connection, sends 192 bytes, and acknowledges four
/// messages, two at a time.
#[test]
fn connectx_sends_and_acknowledges() {
    let capture = packets("cx_liteeth_vlan_cm_send_ack.pcap");
    let ips: Vec<_> = capture.iter().map(|packet| encap::parse_ip(packet).unwrap()).collect();
    let datagrams: Vec<_> = ips.iter().map(|ip| Datagram::parse(ip.payload).unwrap()).collect();
    let opcodes: Vec<_> = datagrams.iter().map(|packet| packet.bth.opcode).collect();
    let [request, _, send, acks @ ..] = &datagrams[..] else { panic!("{opcodes:?}") };
    assert_eq!(
        opcodes,
        [
            Opcode::UdSendOnly,
            Opcode::UdSendOnly,
            Opcode::RcSendOnly,
            Opcode::RcAcknowledge,
            Opcode::RcAcknowledge
        ]
    );

    // The request names the adapter's queue pair and the first PSN that it expects.
    let number = |at: usize| {
        let [a, b, c] = *request.payload[at..].first_chunk().unwrap();
        u32::from_be_bytes([0, a, b, c])
    };
    let (their_qpn, our_psn) = (Qpn::new(number(24 + 32)), Psn::new(number(24 + 44)));
    let aeth = |packet: &Datagram<'_>| packet.aeth().unwrap();
    assert_eq!([acks[0].bth.psn, acks[1].bth.psn], [our_psn.plus(1), our_psn.plus(3)]);
    assert_eq!([aeth(&acks[0]).msn, aeth(&acks[1]).msn], [2, 4]);
    assert!(acks.iter().all(|ack| matches!(aeth(ack).syndrome, Syndrome::Ack { .. })));

    let seat = Seat {
        ips: [ips[0].destination.ip(), ips[0].source.ip()],
        qpns: [send.bth.dest_qp, their_qpn],
        psns: [our_psn, send.bth.psn],
    };
    let mut host = Host::new(&seat);
    let receive = RecvRequest::new(9, host.sge(1024));
    host.engine.post_recv(host.now, host.qpn, receive).unwrap();
    host.receive(&capture[2]);
    let psn = send.bth.psn.value();
    assert_eq!(host.sent(), [format!("ACK psn={psn} msn=1")]);
    assert_eq!(host.completions(), [(9, WcStatus::Success, WcOpcode::Recv, 192)]);
    let mut received = [0; 192];
    host.region.read_at(0, &mut received).unwrap();
    assert_eq!(received, send.payload);

    (0..4).for_each(|wr_id| host.send(wr_id));
    assert_eq!(host.sent().len(), 4);
    let done = |wr_id| (wr_id, WcStatus::Success, WcOpcode::Send);
    for (ack, ended) in [(3, [0, 1]), (4, [2, 3])] {
        host.receive(&capture[ack]);
        let completions = host.completions();
        let found: Vec<_> = completions.iter().map(|c| (c.0, c.1, c.2)).collect();
        assert_eq!(found, ended.map(done));
    }
    assert_eq!((host.sent(), host.dropped()), (vec![], vec![]));

    // Its messages to the connection manager are for a queue pair that does not exist here.
    host.receive(&capture[0]);
    assert_eq!(host.dropped(), [DropReason::UnknownQp]);
}

/// A ConnectX-4 Lx sends a CNP: from UDP port 0, with bits set that others leave zero.
#[test]
fn cnp_of_a_connectx_is_counted() {
    let capture = packets("cx4lx_scapy_cnp.pcap");
    let ip = encap::parse_ip(&capture[0]).unwrap();
    let cnp = Datagram::parse(ip.payload).unwrap();
    assert_eq!((cnp.bth.opcode, cnp.bth.becn, ip.source.port()), (Opcode::Cnp, true, 0));
    let seat = Seat {
        ips: [ip.destination.ip(), ip.source.ip()],
        qpns: [cnp.bth.dest_qp, Qpn::new(0x77)],
        psns: [Psn::new(5), Psn::new(5)],
    };
    let mut host = Host::new(&seat);
    host.send(1);
    let sent = host.sent();
    host.receive(&capture[0]);
    assert_eq!(host.engine.counters().cnps_received, 1);
    assert_eq!((sent.len(), host.sent(), host.completions()), (1, vec![], vec![]));
    assert_eq!(host.dropped(), []);
    assert_eq!(host.engine.query_qp(host.qpn).unwrap().state, QpState::Rts);
}
