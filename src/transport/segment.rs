//! Segmentation of messages into packets.

use crate::wire::Position;

/// A message of `length` bytes over a path with an MTU of `mtu` bytes.
///
/// ```text
///  length ≤ mtu    ONLY
///  otherwise       FIRST  MIDDLE …  LAST      all but LAST carry exactly mtu bytes
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segmentation {
    pub(crate) length: u32,
    pub(crate) mtu: u32,
}

/// The part of a message in one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) position: Position,
    /// Offset of its payload in the message.
    pub(crate) offset: u32,
    /// Payload bytes.
    pub(crate) len: u32,
}

impl Segmentation {
    /// Number of packets. A message of 0 bytes is one packet.
    pub(crate) const fn packets(self) -> u32 {
        if self.length == 0 { 1 } else { self.length.div_ceil(self.mtu) }
    }

    /// Returns the part in packet `index`, counted from 0 and below [`packets`](Self::packets).
    pub(crate) const fn segment(self, index: u32) -> Segment {
        let offset = index * self.mtu;
        let rest = self.length.saturating_sub(offset);
        let is_last = rest <= self.mtu;
        let position = Position::new(index == 0, is_last);
        Segment { position, offset, len: if is_last { rest } else { self.mtu } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_fall_into_full_packets_and_a_rest() {
        let shape = |length| -> Vec<_> {
            let message = Segmentation { length, mtu: 256 };
            (0..message.packets())
                .map(|i| message.segment(i))
                .map(|p| (p.position, p.len))
                .collect()
        };
        use Position::{First, Last, Middle, Only};
        assert_eq!(shape(0), [(Only, 0)]);
        assert_eq!(shape(256), [(Only, 256)]);
        assert_eq!(shape(257), [(First, 256), (Last, 1)]);
        assert_eq!(shape(768), [(First, 256), (Middle, 256), (Last, 256)]);
    }

    #[test]
    fn the_longest_message_is_2_to_the_31() {
        let message = Segmentation { length: 1 << 31, mtu: 256 };
        assert_eq!(message.packets(), 1 << 23);
        let last = message.segment(message.packets() - 1);
        assert_eq!((last.position, last.offset, last.len), (Position::Last, (1 << 31) - 256, 256));
    }
}
