//! The packets of a message, and how GSO sends carry a stream of messages.

use serde::{Deserialize, Serialize};

/// Base transport header.
const BTH_LEN: usize = 12;
/// Datagram extended transport header, in every packet of UD.
const DETH_LEN: usize = 8;
/// RDMA extended transport header, in the first packet of a WRITE.
const RETH_LEN: usize = 16;
/// Immediate data, in the last packet of a message that has any.
const IMM_LEN: usize = 4;
/// ACK extended transport header, in the first and last packet of a READ response.
const AETH_LEN: usize = 4;
/// Atomic extended transport header, in the request.
const ATOMIC_ETH_LEN: usize = 28;
/// The value that an atomic returns.
const ATOMIC_ACK_ETH_LEN: usize = 8;
/// Invariant CRC, behind every packet.
pub(super) const ICRC_LEN: usize = 4;
/// Maximum UDP payload over IPv4.
const MAX_UDP_PAYLOAD: usize = 65_507;

/// Operation whose packets are imitated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Operation {
    /// All packets of a message have the same headers.
    Send,
    /// A message is one packet with a DETH.
    Datagram,
    /// The first packet has a RETH.
    Write,
    /// The first packet has a RETH, and the last immediate data.
    WriteImm,
    /// The packets of a READ response: the first and last have an AETH.
    Read,
    /// A READ request: one packet.
    ReadRequest,
    /// An atomic request: one packet.
    Atomic,
    /// An atomic acknowledgement: one packet.
    AtomicAnswer,
}

impl Operation {
    /// Returns whether a ping-pong consists of request and response, instead of two equal messages.
    pub fn is_answered(self) -> bool {
        matches!(self, Self::Read | Self::Atomic)
    }
}

/// Messages of one size, segmented at one MTU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shape {
    pub operation: Operation,
    /// Bytes of a message.
    pub size: usize,
    /// Payload bytes of a full packet.
    pub mtu: usize,
}

impl Shape {
    /// Returns the number of packets in a message.
    pub fn packets(&self) -> usize {
        match self.operation {
            Operation::ReadRequest | Operation::Atomic | Operation::AtomicAnswer => 1,
            _ => self.size.div_ceil(self.mtu).max(1),
        }
    }

    /// Returns the shape that the active side of a ping-pong sends.
    pub(super) fn ping(self) -> Self {
        match self.operation {
            Operation::Read => Self { operation: Operation::ReadRequest, ..self },
            _ => self,
        }
    }

    /// Returns the shape that the other side sends.
    pub(super) fn pong(self) -> Self {
        match self.operation {
            Operation::Atomic => Self { operation: Operation::AtomicAnswer, ..self },
            _ => self,
        }
    }

    /// Returns the UDP payload length of packet `index` of a message.
    pub(super) fn datagram(&self, index: usize) -> usize {
        let (first, last) = (index == 0, index + 1 == self.packets());
        let when = |condition, bytes| if condition { bytes } else { 0 };
        let extension = match self.operation {
            Operation::Send => 0,
            Operation::Datagram => DETH_LEN,
            Operation::Write => when(first, RETH_LEN),
            Operation::WriteImm => when(first, RETH_LEN) + when(last, IMM_LEN),
            Operation::Read => when(first || last, AETH_LEN),
            Operation::ReadRequest => return BTH_LEN + RETH_LEN + ICRC_LEN,
            Operation::Atomic => return BTH_LEN + ATOMIC_ETH_LEN + ICRC_LEN,
            Operation::AtomicAnswer => return BTH_LEN + AETH_LEN + ATOMIC_ACK_ETH_LEN + ICRC_LEN,
        };
        let payload = if last { self.size - index * self.mtu } else { self.mtu };
        BTH_LEN + extension + payload.next_multiple_of(4) + ICRC_LEN
    }

    /// Returns the length of all datagrams of a message.
    pub(super) fn wire_bytes(&self) -> usize {
        (0..self.packets()).map(|index| self.datagram(index)).sum()
    }
}

/// The datagrams of one send: `count` of `segment` bytes, of which the last may be shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Burst {
    pub(super) count: usize,
    pub(super) segment: usize,
    /// Total length.
    pub(super) bytes: usize,
}

/// The bursts of a stream of messages.
#[derive(Clone, Debug)]
pub(super) struct Bursts {
    shape: Shape,
    /// Index in the current message.
    next_packet: usize,
    max_segments: usize,
    across_messages: bool,
}

impl Bursts {
    /// Returns the bursts of an endless stream; the kernel takes `max_segments` in one send.
    pub(super) fn stream(shape: Shape, max_segments: usize) -> Self {
        Self { shape, next_packet: 0, max_segments, across_messages: true }
    }

    /// Returns the bursts of one message.
    pub(super) fn message(shape: Shape, max_segments: usize) -> Vec<Burst> {
        let mut bursts = Self { across_messages: false, ..Self::stream(shape, max_segments) };
        let mut all = vec![bursts.next()];
        while bursts.next_packet != 0 {
            all.push(bursts.next());
        }
        all
    }

    /// Returns the next burst: equal datagrams, as many as one send takes.
    ///
    /// A shorter datagram ends a burst. Only the last packet of a message does so; the second packet of a WRITE,
    /// which is shorter than the first, starts a new burst instead.
    pub(super) fn next(&mut self) -> Burst {
        let segment = self.shape.datagram(self.next_packet);
        let mut burst = Burst { count: 1, segment, bytes: segment };
        self.step();
        while burst.count < self.max_segments && (self.across_messages || self.next_packet != 0) {
            let len = self.shape.datagram(self.next_packet);
            let is_last = self.next_packet + 1 == self.shape.packets();
            let fits = burst.bytes + len <= MAX_UDP_PAYLOAD;
            if !fits || len > segment || len < segment && !is_last {
                break;
            }
            burst.count += 1;
            burst.bytes += len;
            self.step();
            if len < segment {
                break;
            }
        }
        burst
    }

    fn step(&mut self) {
        self.next_packet = (self.next_packet + 1) % self.shape.packets();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bursts(operation: Operation, size: usize, mtu: usize, n: usize) -> Vec<(usize, usize)> {
        let mut bursts = Bursts::stream(Shape { operation, size, mtu }, 128);
        (0..n).map(|_| bursts.next()).map(|burst| (burst.count, burst.bytes)).collect()
    }

    #[test]
    fn the_first_of_a_write_travels_alone() {
        let expected = [(1, 4128), (15, 15 * 4112), (1, 4128), (15, 15 * 4112)];
        assert_eq!(bursts(Operation::Write, 65536, 4096, 4), expected);
        // One send takes fewer than 63 packets of 1040 bytes.
        let expected = [(1, 1056), (62, 62 * 1040), (1, 1040), (1, 1056)];
        assert_eq!(bursts(Operation::Write, 65536, 1024, 4), expected);
    }

    #[test]
    fn sends_fill_bursts_across_messages() {
        assert_eq!(bursts(Operation::Send, 65536, 4096, 2), [(15, 15 * 4112); 2]);
        assert_eq!(bursts(Operation::Send, 64, 4096, 2), [(128, 128 * 80); 2]);
        assert_eq!(bursts(Operation::Send, 0, 4096, 1), [(128, 128 * 16)]);
    }

    #[test]
    fn a_shorter_last_packet_closes_a_burst() {
        let expected = [(3, 2 * 1040 + 96), (3, 2 * 1040 + 96)];
        assert_eq!(bursts(Operation::Send, 2 * 1024 + 77, 1024, 2), expected);
        assert_eq!(bursts(Operation::Write, 6000, 4096, 1), [(2, 4128 + 1920)]);
    }

    #[test]
    fn the_last_of_a_read_goes_with_the_first_of_the_next() {
        let expected = [(1, 4116), (14, 14 * 4112), (2, 2 * 4116), (14, 14 * 4112)];
        assert_eq!(bursts(Operation::Read, 65536, 4096, 4), expected);
    }

    #[test]
    fn bursts_of_a_lone_message_end_with_it() {
        let shape = Shape { operation: Operation::Send, size: 65536, mtu: 4096 };
        let counts: Vec<_> = Bursts::message(shape, 128).iter().map(|burst| burst.count).collect();
        assert_eq!(counts, [15, 1]);
        assert_eq!(Bursts::message(Shape { size: 64, ..shape }, 128).len(), 1);
    }

    #[test]
    fn the_bytes_of_a_message_are_those_of_its_bursts() {
        use Operation::{Datagram, Read, Send, Write, WriteImm};
        for operation in [Send, Datagram, Write, WriteImm, Read] {
            for size in [0, 1, 64, 4096, 4097, 65536, 100_003] {
                let shape = Shape { operation, size, mtu: 1024 };
                let packets: usize = (0..shape.packets()).map(|i| shape.datagram(i)).sum();
                assert_eq!(packets, shape.wire_bytes());
                let header = shape.wire_bytes() - size.next_multiple_of(4);
                let extension = match operation {
                    Datagram => 8 * shape.packets(),
                    Write => 16,
                    WriteImm => 16 + 4,
                    Read => 4 * shape.packets().min(2),
                    _ => 0,
                };
                assert_eq!(header, 16 * shape.packets() + extension);
            }
        }
    }

    #[test]
    fn what_is_answered_has_other_packets_there_than_back() {
        let of = |operation, size| Shape { operation, size, mtu: 1024 };
        let bytes = |shape: Shape| (shape.ping().wire_bytes(), shape.pong().wire_bytes());
        assert_eq!(bytes(of(Operation::Read, 3000)), (32, 3 * 16 + 2 * 4 + 3000));
        assert_eq!(bytes(of(Operation::Atomic, 8)), (44, 28));
        assert_eq!(bytes(of(Operation::Write, 64)), (96, 96));
    }

    #[test]
    fn immediate_data_makes_the_last_packet_the_longest_behind_the_first() {
        // FIRST, two equal MIDDLEs, and LAST, which is longer than those.
        let expected = [(1, 1056), (2, 2 * 1040), (1, 1044), (1, 1056)];
        assert_eq!(bursts(Operation::WriteImm, 4096, 1024, 4), expected);
    }
}
