//! The acknowledge extended header: how the responder fares.
//!
//! ```text
//!        7   6   5   4   3   2   1   0
//!      ┌───┬───────┬───────────────────┬───────────────────────────────────────┐
//!   0  │ 0 │ type  │ value             │ message sequence number 24            │
//!      └───┴───────┴───────────────────┴───────────────────────────────────────┘
//!            0 0     credit count code      ACK
//!            0 1     timer code             RNR NAK: no receive request was there, ask again later
//!            1 0                            reserved
//!            1 1     NAK code               NAK: will not do it
//! ```

use crate::time::RnrTimer;

/// The acknowledge extended header (IBTA vol 1, §9.3.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aeth {
    /// ACK, NAK or RNR NAK, and what belongs to it.
    pub syndrome: Syndrome,
    /// How many messages the responder has completed, modulo 2^24.
    pub msn: u32,
}

impl Aeth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// The credit code that says nothing about receive requests. We send no other.
    pub const UNLIMITED_CREDITS: u8 = 31;

    /// Reads the header.
    pub const fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let [syndrome, n0, n1, n2] = *bytes;
        Self { syndrome: Syndrome::from_byte(syndrome), msn: u32::from_be_bytes([0, n0, n1, n2]) }
    }

    /// Writes the header, of `msn` the low 24 bits.
    pub const fn write(&self, bytes: &mut [u8; Self::LEN]) {
        let [_, n0, n1, n2] = self.msn.to_be_bytes();
        *bytes = [self.syndrome.byte(), n0, n1, n2];
    }
}

/// The first byte of the AETH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// The packet with this PSN and all before it were executed.
    Ack {
        /// A code, 5 bits, for the receive requests at hand; see [`credit_count`].
        credits: u8,
    },
    /// The packet with this PSN found no receive request. All before it were executed.
    Rnr {
        /// How long the requester must wait before it asks again.
        timer: RnrTimer,
    },
    /// The packet with this PSN was not executed. All before it were.
    Nak(NakCode),
    /// Not assigned: the whole byte.
    Reserved(u8),
}

impl Syndrome {
    /// Reads the byte.
    pub const fn from_byte(byte: u8) -> Self {
        match byte >> 5 {
            0 => Self::Ack { credits: byte },
            1 => Self::Rnr { timer: RnrTimer::from_syndrome(byte) },
            3 => Self::Nak(NakCode::from_code(byte & 0x1f)),
            _ => Self::Reserved(byte),
        }
    }

    /// The byte. Of a value that does not fit 5 bits the low 5 are taken.
    pub const fn byte(self) -> u8 {
        match self {
            Self::Ack { credits } => credits & 0x1f,
            Self::Rnr { timer } => 0x20 | timer.code(),
            Self::Nak(code) => 0x60 | code.code() & 0x1f,
            Self::Reserved(byte) => byte,
        }
    }
}

/// Why a responder did not execute a request (IBTA vol 1, §9.7.5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NakCode {
    /// A packet is missing: send again from this PSN on. No fault.
    PsnSequence,
    /// The request is against the rules, or of a kind that is not supported.
    InvalidRequest,
    /// The key, the range or the permission is wrong.
    RemoteAccess,
    /// The responder could not do it.
    RemoteOperational,
    /// Reliable datagram only.
    InvalidRdRequest,
    /// Not assigned: 5 to 31.
    Reserved(u8),
}

impl NakCode {
    /// The meaning of the 5-bit code.
    pub const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::PsnSequence,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperational,
            4 => Self::InvalidRdRequest,
            reserved => Self::Reserved(reserved),
        }
    }

    /// The 5-bit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::PsnSequence => 0,
            Self::InvalidRequest => 1,
            Self::RemoteAccess => 2,
            Self::RemoteOperational => 3,
            Self::InvalidRdRequest => 4,
            Self::Reserved(code) => code,
        }
    }
}

/// How many receive requests a credit code stands for, or `None` for
/// [`Aeth::UNLIMITED_CREDITS`] (IBTA vol 1, §9.7.7.2). Only the low 5 bits of `code` count.
///
/// The codes grow by turns of a half and a third: 2, 3, 4, 6, 8, 12, …
pub const fn credit_count(code: u8) -> Option<u16> {
    match code & 0x1f {
        Aeth::UNLIMITED_CREDITS => None,
        0 => Some(0),
        1 => Some(1),
        even if even % 2 == 0 => Some(1 << (even / 2)),
        odd => Some(3 << (odd / 2 - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let bytes = [0x2e, 0, 0, 5];
        let timer = RnrTimer::new(14).unwrap();
        let aeth = Aeth { syndrome: Syndrome::Rnr { timer }, msn: 5 };
        assert_eq!(Aeth::parse(&bytes), aeth);
        let mut out = [0xaa; Aeth::LEN];
        aeth.write(&mut out);
        assert_eq!(out, bytes);
    }

    #[test]
    fn every_syndrome_byte_is_told_apart_and_comes_back() {
        for byte in 0..=255 {
            let syndrome = Syndrome::from_byte(byte);
            assert_eq!(syndrome.byte(), byte);
            let reserved = matches!(byte, 0x40..=0x5f | 0x80..);
            assert_eq!(matches!(syndrome, Syndrome::Reserved(_)), reserved, "{byte:#x}");
        }
        assert_eq!(Syndrome::from_byte(0x1f), Syndrome::Ack { credits: Aeth::UNLIMITED_CREDITS });
        assert_eq!(Syndrome::from_byte(0x62), Syndrome::Nak(NakCode::RemoteAccess));
        assert_eq!(Syndrome::from_byte(0x65), Syndrome::Nak(NakCode::Reserved(5)));
    }

    #[test]
    fn credit_codes_follow_the_table() {
        let counts: Vec<_> = (0..31).map(|code| credit_count(code).unwrap()).collect();
        let table = [
            0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
            1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
        ];
        assert_eq!(counts, table);
        assert_eq!(credit_count(31), None);
    }
}
