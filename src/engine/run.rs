//! Packets in the middle of a message. One after the other they differ in PSN and payload alone, so what was
//! found out about the first holds for those that follow it in one buffer.

use crate::engine::qp::QueuePair;
use crate::engine::service::Arrival;
use crate::net::{RxBuffer, RxMeta};
use crate::psn::Psn;
use crate::transport::connection::Context;
use crate::transport::inbound::Middle;
use crate::wire::icrc::{Flow, Series};
use crate::wire::packet::ICRC_LEN;
use crate::wire::{Bth, Opcode, Position};

/// The datagrams of a buffer that are still to be looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments<'a> {
    rest: &'a [u8],
    len: usize,
    /// The place of the next one in the buffer.
    index: u16,
}

impl<'a> Segments<'a> {
    pub(crate) fn of(buffer: &RxBuffer<'a>) -> Self {
        Self { rest: buffer.data, len: buffer.stride(), index: 0 }
    }

    /// The next datagram and its place, which is still to be looked at.
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

/// What follows a packet in the middle of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    /// The packet that it follows.
    like: &'a [u8],
    opcode: Opcode,
    /// The PSN of the next packet.
    next: Psn,
}

impl<'a> Run<'a> {
    /// What may follow a packet that is `bytes`. `None` when that is not in the middle of a message, or asks
    /// for an answer, or its ICRC was not the one to be expected.
    #[inline]
    pub(crate) fn after(arrival: &Arrival<'a>, bytes: &'a [u8]) -> Option<Self> {
        let bth = &arrival.packet.bth;
        let is_middle = bth.opcode.position() == Position::Middle;
        let may_go_on = is_middle && !bth.ack_req && bth.pad == 0 && arrival.is_predicted;
        may_go_on.then(|| Self { like: bytes, opcode: bth.opcode, next: bth.psn.next() })
    }

    /// Hands a queue pair the datagrams that go on, as long as nothing is the matter with them.
    #[inline(never)]
    pub(crate) fn receive(
        mut self,
        flow: &Flow,
        segments: &mut Segments<'_>,
        meta: &RxMeta,
        qp: &mut QueuePair,
        cx: &mut Context<'_>,
    ) {
        if segments.peek().is_none_or(|(_, bytes)| bytes.len() != self.like.len()) {
            return;
        }
        let Some(series) = flow.series(self.like) else { return };
        while let Some((segment, bytes)) = segments.peek()
            && let Some(middle) = self.next(&series, meta, segment, bytes)
            && qp.handle_middle(cx, &middle)
        {
            cx.counters().arrived(meta, bytes.len());
            self.next = self.next.next();
            segments.next();
        }
    }

    /// The packet that is `bytes`, if it is the next one and its ICRC the one to be expected.
    fn next<'b>(
        &self,
        series: &Series,
        meta: &RxMeta,
        segment: u16,
        bytes: &'b [u8],
    ) -> Option<Middle<'b>> {
        let headers = self.opcode.header_len();
        let mut expected = [0; Bth::LEN];
        expected.copy_from_slice(self.like.get(..Bth::LEN)?);
        Bth::write_psn(&mut expected, self.next);
        let follows = bytes.len() == self.like.len()
            && bytes.starts_with(&expected)
            && bytes.get(Bth::LEN..headers) == self.like.get(Bth::LEN..headers)
            && series.holds(meta.ipv4, segment, bytes);
        let payload = bytes.get(headers..bytes.len() - ICRC_LEN).filter(|_| follows)?;
        Some(Middle { opcode: self.opcode, psn: self.next, payload })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use super::*;
    use crate::net::ROCE_PORT;
    use crate::wire::Datagram;
    use crate::wire::packet::{Builder, datagram_len};

    const META: RxMeta = RxMeta {
        source: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0xc001),
        destination: IpAddr::V4(Ipv4Addr::LOCALHOST),
        traffic_class: 0,
        hop_limit: 64,
        ipv4: None,
    };

    fn flow() -> Flow {
        Flow::new(META.source, SocketAddr::new(META.destination, ROCE_PORT))
    }

    /// A packet with so many bytes of payload, sealed for an identification.
    fn packet(bth: Bth, payload: usize, id: u16) -> Vec<u8> {
        let mut bytes = vec![0; datagram_len(bth.opcode, payload)];
        Builder::new(&bth, &mut bytes).unwrap().payload_mut().fill(7);
        flow().seal(id, &mut bytes);
        bytes
    }

    fn arrival(bytes: &[u8], is_predicted: bool) -> Arrival<'_> {
        let packet = Datagram::parse(bytes).unwrap();
        Arrival { packet, meta: &META, id: 0, is_predicted, addressed: Ok(()) }
    }

    #[test]
    fn what_follows_is_of_one_kind_and_in_order() {
        let first =
            Bth { opcode: Opcode::RcWriteMiddle, psn: Psn::new(0xff_ffff), ..Bth::default() };
        let next = Bth { psn: Psn::new(0), ..first };
        let begins = packet(first, 256, 3);
        let mut run = Run::after(&arrival(&begins, true), &begins).unwrap();
        let series = flow().series(&begins).unwrap();
        let takes = |run: &Run<'_>, bytes: &[u8], segment| {
            let next = run.next(&series, &META, segment, bytes);
            next.map(|middle| (middle.psn.value(), middle.payload.len()))
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
        run.next = Psn::new(1);
        let after = packet(Bth { psn: Psn::new(1), ..first }, 256, 5);
        assert!(run.next(&series, &META, 5, &after).is_some());
    }

    #[test]
    fn nothing_follows_what_is_not_in_the_middle() {
        let middle = Bth { opcode: Opcode::RcWriteMiddle, ..Bth::default() };
        let begins = |bth, is_predicted| {
            let bytes = packet(bth, 256, 0);
            Run::after(&arrival(&bytes, is_predicted), &bytes).is_some()
        };
        assert!(begins(middle, true));
        assert!(!begins(middle, false), "an identification that was solved for");
        assert!(!begins(Bth { ack_req: true, ..middle }, true));
        assert!(!begins(Bth { opcode: Opcode::RcWriteLast, ..middle }, true));
    }
}
