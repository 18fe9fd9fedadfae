//! Records of a capture that a device sends to a client.

use std::time::Duration;

use thiserror::Error;

use crate::port::Direction;

/// Maximum length in bytes of a record's packet: that of an IP packet.
const MAX_PACKET_BYTES: u32 = 1 << 16;

/// The header of a record, of 24 bytes in the byte order of the machine:
///
/// ```text
///  0             8             12            16            20            24
///  | time, ns    | length      | original    | dropped     | direction   |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// Time since the Unix epoch.
    pub time: Duration,
    /// Length in bytes of the packet in the record, which follows the header.
    pub len: u32,
    /// Length in bytes of the packet on the wire.
    pub original_len: u32,
    /// Number of packets that were dropped since the previous record.
    pub dropped: u32,
    /// Direction; `None` at the end of the capture.
    pub direction: Option<Direction>,
}

/// Error for bytes that are no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The length is impossible.
    #[error("a record has {found} bytes, expected at most {MAX_PACKET_BYTES}")]
    Length {
        /// Length found.
        found: u32,
    },
    /// The direction is unknown.
    #[error("a record has direction {found}, expected 0 to 2")]
    Direction {
        /// Direction found.
        found: u32,
    },
}

impl RecordHeader {
    /// Length of a header in bytes.
    pub const LEN: usize = 24;

    /// Returns whether the record ends the capture. It has no packet.
    pub fn is_end(&self) -> bool {
        self.direction.is_none()
    }

    /// Returns the bytes of the header.
    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let direction: u32 = match self.direction {
            None => 0,
            Some(Direction::Sent) => 1,
            Some(Direction::Received) => 2,
        };
        let nanos = u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX);
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&nanos.to_ne_bytes());
        let words = [self.len, self.original_len, self.dropped, direction];
        for (place, word) in bytes[8..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Parses a header.
    ///
    /// # Errors
    ///
    /// [`RecordError`].
    pub fn parse(bytes: &[u8; Self::LEN]) -> Result<Self, RecordError> {
        let [a, b, c, d, e, f, g, h, rest @ ..] = *bytes;
        let mut words = rest.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word));
        let [len, original_len, dropped, direction] =
            std::array::from_fn(|_| words.next().unwrap_or_default());
        if len > MAX_PACKET_BYTES {
            return Err(RecordError::Length { found: len });
        }
        let direction = match direction {
            0 => None,
            1 => Some(Direction::Sent),
            2 => Some(Direction::Received),
            found => return Err(RecordError::Direction { found }),
        };
        let time = Duration::from_nanos(u64::from_ne_bytes([a, b, c, d, e, f, g, h]));
        Ok(Self { time, len, original_len, dropped, direction })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_parsed_as_it_was_written() {
        for direction in [None, Some(Direction::Sent), Some(Direction::Received)] {
            let header = RecordHeader {
                time: Duration::from_nanos(0x0102_0304_0506_0708),
                len: 60,
                original_len: 4096,
                dropped: 7,
                direction,
            };
            assert_eq!(RecordHeader::parse(&header.to_bytes()), Ok(header));
            assert_eq!(header.is_end(), direction.is_none());
        }
    }

    #[test]
    fn impossible_header_is_an_error() {
        let header = RecordHeader {
            time: Duration::ZERO,
            len: u32::MAX,
            original_len: 0,
            dropped: 0,
            direction: None,
        };
        let error = RecordHeader::parse(&header.to_bytes()).unwrap_err().to_string();
        assert_eq!(error, "a record has 4294967295 bytes, expected at most 65536");
        let mut bytes = RecordHeader { len: 0, ..header }.to_bytes();
        bytes[20..].copy_from_slice(&9_u32.to_ne_bytes());
        let error = RecordHeader::parse(&bytes).unwrap_err();
        assert_eq!(error, RecordError::Direction { found: 9 });
    }
}
