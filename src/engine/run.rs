//! Fast path for runs of packets of one kind: MIDDLE packets, or single-packet messages. Their BTHs
//! differ only in the PSN, so the checks of the first one also hold for those that follow it in the
//! same buffer.

use crate::engine::qp::QueuePair;
use crate::engine::remote::Arrival;
use crate::net::{RxBuffer, RxMeta};
use crate::psn::Psn;
use crate::transport::context::Context;
use crate::wire::icrc::{self, IncrementalIcrc};
use crate::wire::{Bth, Datagram, OpcodeFlags};

/// Remaining datagrams of a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments<'a> {
    rest: &'a [u8],
    len: usize,
    /// Index of the next one in the buffer.
    index: u16,
}

impl<'a> Segments<'a> {
    pub(crate) fn of(buffer: &RxBuffer<'a>) -> Self {
        Self { rest: buffer.data, len: buffer.stride(), index: 0 }
    }

    /// Returns the next datagram and its index without removing it.
    fn peek(&self) -> Option<(u16, &'a [u8])> {
        let bytes = self.rest.get(..self.len).unwrap_or(self.rest);
        (!bytes.is_empty()).then_some((self.index, bytes))
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let next = self.peek()?;
        self.rest = &self.rest[next.1.len()..];
        self.index = self.index.wrapping_add(1);
        Some(next)
    }
}

/// A run: datagrams that follow a packet of the same kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    /// The previous packet of the run, and its bytes.
    like: Datagram<'a>,
    bytes: &'a [u8],
    /// The BTH of the next packet.
    bth: [u8; Bth::LEN],
    /// Its PSN.
    psn: Psn,
}

impl<'a> Run<'a> {
    /// Returns the run that may begin with a packet, the datagram `bytes`. `None` if the packet is
    /// neither a MIDDLE packet nor a single-packet RC message without a response of its own, or if
    /// its identification was not predicted.
    #[inline]
    pub(crate) fn after(
        arrival: &Arrival<'a>,
        bytes: &'a [u8],
        behind: &Segments<'_>,
    ) -> Option<Self> {
        if behind.rest.len() < bytes.len() {
            return None;
        }
        let like = arrival.packet;
        let goes_on = like.info.has(OpcodeFlags::REPEATS);
        let bth = bytes.first_chunk().filter(|_| goes_on && arrival.is_predicted)?;
        let mut run = Self { like: *like, bytes, bth: *bth, psn: like.bth.psn };
        run.advance();
        Some(run)
    }

    /// Passes the datagrams of the run to a queue pair until one is rejected.
    #[inline(never)]
    pub(crate) fn receive(
        mut self,
        segments: &mut Segments<'_>,
        meta: &RxMeta,
        qp: &mut QueuePair,
        cx: &mut Context<'_>,
    ) {
        if segments.peek().is_none_or(|(_, bytes)| !self.is_next(bytes)) {
            return;
        }
        let series = qp.peer_flow(meta).and_then(|flow| flow.incremental(self.bytes));
        let Some(series) = series else { return };
        while let Some((segment, bytes)) = segments.peek()
            && let Some(packet) = self.next(&series, meta, segment, bytes)
            && qp.handle_next(cx, &packet)
        {
            cx.counters().arrived(meta, bytes.len());
            self.advance();
            segments.next();
        }
    }

    /// Moves to the next PSN.
    fn advance(&mut self) {
        self.psn = self.psn.next();
        Bth::write_psn(&mut self.bth, self.psn);
    }

    fn is_next(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.bytes.len() && bytes.starts_with(&self.bth)
    }

    /// Parses `bytes` if it is the next packet and its ICRC is the predicted one or not needed.
    fn next<'b>(
        &self,
        series: &IncrementalIcrc,
        meta: &RxMeta,
        segment: u16,
        bytes: &'b [u8],
    ) -> Option<Datagram<'b>> {
        if !self.is_next(bytes) {
            return None;
        }
        let packet = self.like.with(self.psn, bytes)?;
        // Over XRC each packet carries a queue number, which is the same for a whole message.
        let same = packet.info.has(OpcodeFlags::START) || packet.xrceth() == self.like.xrceth();
        let is_exempt = icrc::is_exempt(meta, bytes);
        (same && (is_exempt || series.holds(meta.ipv4, segment, bytes))).then_some(packet)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use super::*;
    use crate::net::ROCE_PORT;
    use crate::wire::icrc::Flow;
    use crate::wire::packet::{Builder, datagram_len};
    use crate::wire::{Opcode, Reth};

    const META: RxMeta = RxMeta {
        source: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0xc001),
        destination: IpAddr::V4(Ipv4Addr::LOCALHOST),
        traffic_class: 0,
        hop_limit: 64,
        ipv4: None,
        may_omit_icrc: false,
    };

    fn flow() -> Flow {
        Flow::new(META.source, SocketAddr::new(META.destination, ROCE_PORT))
    }

    /// Returns a packet with `payload` bytes of payload and the ICRC for an identification.
    fn packet(bth: Bth, payload: usize, id: u16) -> Vec<u8> {
        let mut bytes = vec![0; datagram_len(bth.opcode, payload)];
        Builder::new(&bth, &mut bytes).unwrap().payload_mut().fill(7);
        flow().seal(id, &mut bytes);
        bytes
    }

    fn arrival<'a>(packet: &'a Datagram<'a>, bytes: &'a [u8]) -> Arrival<'a> {
        Arrival { packet, bytes, meta: &META, id: 0, is_predicted: true, addressed: Ok(()) }
    }

    /// Returns one more datagram of the same length.
    fn behind(bytes: &[u8]) -> Segments<'_> {
        Segments { rest: bytes, len: bytes.len(), index: 1 }
    }

    #[test]
    fn what_follows_is_of_one_kind_and_in_order() {
        let first =
            Bth { opcode: Opcode::RcWriteMiddle, psn: Psn::new(0xff_ffff), ..Bth::default() };
        let next = Bth { psn: Psn::new(0), ..first };
        let begins = packet(first, 256, 3);
        let like = Datagram::parse(&begins).unwrap();
        let mut run = Run::after(&arrival(&like, &begins), &begins, &behind(&begins)).unwrap();
        let series = flow().incremental(&begins).unwrap();
        let takes = |run: &Run<'_>, bytes: &[u8], segment| {
            let next = run.next(&series, &META, segment, bytes);
            next.map(|packet| (packet.bth.psn.value(), packet.payload.len()))
        };
        for other in [
            Bth { psn: Psn::new(1), ..next },
            Bth { ack_req: true, ..next },
            Bth { opcode: Opcode::RcSendMiddle, ..next },
            Bth { becn: true, ..next },
        ] {
            assert_eq!(takes(&run, &packet(other, 256, 4), 4), None, "{other:?}");
        }
        assert_eq!(takes(&run, &packet(next, 252, 4), 4), None, "shorter");
        assert_eq!(takes(&run, &packet(next, 256, 5), 4), None, "another identification");
        let mut damaged = packet(next, 256, 4);
        damaged[40] ^= 1;
        assert_eq!(takes(&run, &damaged, 4), None);
        assert_eq!(takes(&run, &packet(next, 256, 4), 4), Some((0, 256)));
        run.advance();
        let after = packet(Bth { psn: Psn::new(1), ..first }, 256, 5);
        assert!(run.next(&series, &META, 5, &after).is_some());
    }

    #[test]
    fn messages_of_one_packet_may_go_to_different_places() {
        let first = Bth { opcode: Opcode::RcWriteOnly, psn: Psn::new(7), ..Bth::default() };
        let to = |psn, addr| {
            let bth = Bth { psn: Psn::new(psn), ..first };
            let mut bytes = vec![0; datagram_len(bth.opcode, 8)];
            let reth = Reth { addr, length: 8, ..Reth::default() };
            Builder::new(&bth, &mut bytes).unwrap().reth(&reth).payload_mut().fill(1);
            flow().seal(0, &mut bytes);
            bytes
        };
        let begins = to(7, 0x1000);
        let like = Datagram::parse(&begins).unwrap();
        let run = Run::after(&arrival(&like, &begins), &begins, &behind(&begins)).unwrap();
        let series = flow().incremental(&begins).unwrap();
        let bytes = to(8, 0x2000);
        let next = run.next(&series, &META, 0, &bytes).unwrap();
        assert_eq!(next, Datagram::parse(&bytes).unwrap());
        assert_eq!(next.reth().map(|reth| reth.addr), Some(0x2000));
    }

    #[test]
    fn nothing_follows_what_is_neither_in_the_middle_nor_a_message() {
        let begins = |opcode, is_predicted| {
            let bytes = packet(Bth { opcode, ..Bth::default() }, 256, 0);
            let packet = Datagram::parse(&bytes).unwrap();
            let arrival = Arrival { is_predicted, ..arrival(&packet, &bytes) };
            Run::after(&arrival, &bytes, &behind(&bytes)).is_some()
        };
        for opcode in [Opcode::RcWriteMiddle, Opcode::UcSendMiddle, Opcode::RcSendOnly] {
            assert!(begins(opcode, true), "{opcode:?}");
            assert!(!begins(opcode, false), "an identification that was solved for");
        }
        for opcode in [Opcode::RcWriteLast, Opcode::RcWriteOnlyImm, Opcode::UdSendOnly] {
            assert!(!begins(opcode, true), "{opcode:?}");
        }
    }
}
