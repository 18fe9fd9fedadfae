//! Queue pair 1, the general services interface: management datagrams in and out (IBTA vol 1, §13.5).
//!
//! It belongs to shard 0. Datagrams of the connection manager are queued for the driver; requests
//! of other classes get the response "method and attribute not supported", as from Linux.

use std::collections::VecDeque;
use std::net::IpAddr;

use smallvec::SmallVec;

use crate::engine::config::Config;
use crate::engine::table::identification;
use crate::ids::{Gid, PKey, Qpn};
use crate::net::{Burst, BurstToken, Path, RxMeta, datagram_source_port};
use crate::psn::Psn;
use crate::transport::context::Context;
use crate::transport::counters::Counters;
use crate::transport::outputs::DropReason;
use crate::wire::cm::GSI_QKEY;
use crate::wire::icrc::{Flow, Verdict};
use crate::wire::packet::{Builder, datagram_len};
use crate::wire::{Bth, Datagram, Deth, Mad, Opcode};

/// Maximum number of received datagrams that wait for the driver.
const MAX_RECEIVED: usize = 1024;

/// Maximum number of datagrams that wait to be sent.
const MAX_UNSENT: usize = 1024;

/// Hop limit of responses.
const HOP_LIMIT: u8 = 64;

/// Addresses and IP header fields of a management datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MadPath {
    /// Own address.
    pub source: IpAddr,
    /// Address of the peer.
    pub destination: IpAddr,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// Partition key.
    pub pkey: PKey,
}

/// A management datagram that arrived at queue pair 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceivedMad {
    /// The path back to the sender: its source is the address of this device to which the datagram
    /// was sent. The hop limit is the default of hosts.
    pub path: MadPath,
    /// The datagram.
    pub bytes: Box<[u8; Mad::DATAGRAM_LEN]>,
}

/// A management datagram to send from queue pair 1 to that of the peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutgoingMad {
    /// Path to the peer.
    pub path: MadPath,
    /// The datagram.
    pub bytes: Box<[u8; Mad::DATAGRAM_LEN]>,
}

/// Queue pair 1 of a device.
#[derive(Debug, Default)]
pub(super) struct Gsi {
    received: VecDeque<ReceivedMad>,
    unsent: VecDeque<OutgoingMad>,
    /// Responses to requests of other classes, which the driver passes to [`enqueue`](Self::enqueue).
    responses: VecDeque<OutgoingMad>,
    next_psn: Psn,
    /// UDP source port of each source address in use.
    source_ports: SmallVec<[(IpAddr, u16); 1]>,
}

impl Gsi {
    /// Takes a datagram for queue pair 1, or returns the reason to drop it.
    #[cold]
    pub(super) fn handle_datagram(
        &mut self,
        config: &Config,
        (flow, meta, segment): (&Flow, &RxMeta, u16),
        (packet, bytes): (&Datagram<'_>, &[u8]),
        cx: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        if config.shard != 0 {
            return Err(DropReason::UnknownQp);
        }
        let deth = packet.deth().ok_or(DropReason::WrongTransport)?;
        if packet.bth.opcode != Opcode::UdSendOnly {
            return Err(DropReason::WrongTransport);
        }
        if !config.gids.contains(&Gid::from(meta.destination)) {
            return Err(DropReason::WrongAddress);
        }
        if !config.pkeys.iter().any(|pkey| pkey.matches(packet.bth.pkey)) {
            return Err(DropReason::PKeyMismatch);
        }
        if deth.qkey != GSI_QKEY {
            return Err(DropReason::QKeyMismatch);
        }
        let mad = <&[u8; Mad::DATAGRAM_LEN]>::try_from(packet.payload);
        let mad = mad.map_err(|_| DropReason::MadLength)?;
        let verdict = flow.check_received(meta, segment, bytes);
        if verdict == Verdict::Bad {
            return Err(DropReason::BadIcrc);
        }
        identification(verdict, meta, segment, cx);
        let path = MadPath {
            source: meta.destination,
            destination: meta.source.ip(),
            traffic_class: meta.traffic_class,
            hop_limit: HOP_LIMIT,
            pkey: packet.bth.pkey,
        };
        self.dispatch(path, mad, cx.counters())
    }

    /// Queues a datagram of the connection manager, and the response to any other request.
    fn dispatch(
        &mut self,
        path: MadPath,
        bytes: &[u8; Mad::DATAGRAM_LEN],
        counters: &mut Counters,
    ) -> Result<(), DropReason> {
        let Some(head) = bytes.first_chunk() else { return Err(DropReason::MadLength) };
        let mad = Mad::parse(head);
        if mad.base_version != Mad::BASE_VERSION {
            return Err(DropReason::MadUnsupported);
        }
        match (mad.class, mad.class_version, mad.method) {
            (Mad::CM, Mad::CM_VERSION, Mad::SEND) => {
                if self.received.len() >= MAX_RECEIVED {
                    return Err(DropReason::MadQueueFull);
                }
                counters.mads_received += 1;
                self.received.push_back(ReceivedMad { path, bytes: Box::new(*bytes) });
                Ok(())
            }
            (class, _, Mad::GET | Mad::SET) if class != Mad::CM => {
                let mut response = Box::new(*bytes);
                let answer = Mad { method: Mad::GET_RESP, status: Mad::STATUS_UNSUPPORTED, ..mad };
                if let Some(head) = response.first_chunk_mut() {
                    answer.write(head);
                }
                if self.responses.len() < MAX_UNSENT {
                    self.responses.push_back(OutgoingMad { path, bytes: response });
                } else {
                    counters.mads_unsent += 1;
                }
                Err(DropReason::MadUnsupported)
            }
            _ => Err(DropReason::MadUnsupported),
        }
    }

    /// Queues a datagram, or counts it if the queue is full.
    pub(super) fn enqueue(&mut self, mad: OutgoingMad, counters: &mut Counters) {
        if self.has_room() {
            self.unsent.push_back(mad);
        } else {
            counters.mads_unsent += 1;
        }
    }

    /// Determines the UDP source port of an address by `agree`, the first time.
    pub(super) fn source_port(&mut self, source: IpAddr, agree: impl FnOnce(IpAddr, u16) -> u16) {
        if !self.source_ports.iter().any(|(ip, _)| *ip == source) {
            let port = agree(source, datagram_source_port(Qpn::GSI));
            self.source_ports.push((source, port));
        }
    }

    /// Returns the next received datagram.
    pub(super) fn poll(&mut self) -> Option<ReceivedMad> {
        self.received.pop_front()
    }

    /// Returns whether there is a datagram or a response to take.
    pub(super) fn has_received(&self) -> bool {
        !self.received.is_empty() || !self.responses.is_empty()
    }

    /// Returns the next response to a request of another class.
    pub(super) fn poll_response(&mut self) -> Option<OutgoingMad> {
        self.responses.pop_front()
    }

    /// Whether another datagram can be queued to be sent.
    pub(super) fn has_room(&self) -> bool {
        self.unsent.len() < MAX_UNSENT
    }

    /// Returns the destination of the next datagram to send.
    pub(super) fn next_destination(&self) -> Option<IpAddr> {
        self.unsent.front().map(|mad| mad.path.destination)
    }

    /// Whether there is a datagram to send.
    pub(super) fn wants_to_transmit(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Builds the next packet into `out`, which is empty. Returns false if there is none.
    #[cold]
    pub(super) fn transmit(&mut self, out: &mut Burst, counters: &mut Counters) -> bool {
        let Some(OutgoingMad { path, bytes }) = self.unsent.pop_front() else { return false };
        let wanted = datagram_source_port(Qpn::GSI);
        let agreed = self.source_ports.iter().find(|(ip, _)| *ip == path.source);
        let source_port = agreed.map_or(wanted, |(_, port)| *port);
        let MadPath { source, destination, traffic_class, hop_limit, pkey } = path;
        let to = Path { source, destination, source_port, traffic_class, hop_limit };
        out.reset(to, BurstToken(u64::from(Qpn::GSI.value())));
        let bth = Bth {
            opcode: Opcode::UdSendOnly,
            solicited: false,
            migreq: true,
            pad: 0,
            tver: 0,
            pkey,
            fecn: false,
            becn: false,
            dest_qp: Qpn::GSI,
            ack_req: false,
            psn: self.next_psn,
        };
        let len = datagram_len(bth.opcode, bytes.len());
        let datagram = out.push(len);
        let Ok(mut builder) = Builder::new(&bth, datagram) else {
            out.unpush(len);
            return false;
        };
        builder.deth(&Deth { qkey: GSI_QKEY, source_qp: Qpn::GSI });
        builder.payload_mut().copy_from_slice(bytes.as_slice());
        Flow::of_path(&to).seal(0, datagram);
        self.next_psn = self.next_psn.plus(1);
        counters.mads_sent += 1;
        counters.tx_packets += 1;
        counters.tx_bytes += out.byte_len() as u64;
        true
    }
}
