//! The acknowledge extended transport header (AETH).
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

/// The acknowledge extended transport header (IBTA vol 1, §9.3.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aeth {
    /// Type of the acknowledgement, with its parameter.
    pub syndrome: Syndrome,
    /// Message sequence number: messages that the responder has completed, modulo 2^24.
    pub msn: u32,
}

impl Aeth {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Credit code for "no flow control". This device sends no other code.
    pub const UNLIMITED_CREDITS: u8 = 31;

    /// Parses the header.
    pub const fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let [syndrome, n0, n1, n2] = *bytes;
        Self { syndrome: Syndrome::from_byte(syndrome), msn: u32::from_be_bytes([0, n0, n1, n2]) }
    }

    /// Writes the header, with the low 24 bits of `msn`.
    pub const fn write(&self, bytes: &mut [u8; Self::LEN]) {
        let [_, n0, n1, n2] = self.msn.to_be_bytes();
        *bytes = [self.syndrome.byte(), n0, n1, n2];
    }
}

/// Syndrome: the first byte of the AETH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// The responder has executed the packets up to this PSN.
    Ack {
        /// Credit code of 5 bits for available receive requests; see [`credit_count`].
        credits: u8,
    },
    /// The packet with this PSN found no receive request. The responder has executed all packets before it.
    Rnr {
        /// Minimum time until the requester retransmits.
        timer: RnrTimer,
    },
    /// The responder did not execute the packet with this PSN, but all packets before it.
    Nak(NakCode),
    /// Reserved syndrome, as the whole byte.
    Reserved(u8),
}

impl Syndrome {
    /// Parses the byte.
    pub const fn from_byte(byte: u8) -> Self {
        match byte >> 5 {
            0 => Self::Ack { credits: byte },
            1 => Self::Rnr { timer: RnrTimer::from_syndrome(byte) },
            3 => Self::Nak(NakCode::from_code(byte & 0x1f)),
            _ => Self::Reserved(byte),
        }
    }

    /// Returns the byte, with the low 5 bits of the parameter.
    pub const fn byte(self) -> u8 {
        match self {
            Self::Ack { credits } => credits & 0x1f,
            Self::Rnr { timer } => 0x20 | timer.code(),
            Self::Nak(code) => 0x60 | code.code() & 0x1f,
            Self::Reserved(byte) => byte,
        }
    }
}

/// Reason of a NAK (IBTA vol 1, §9.7.5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NakCode {
    /// PSN sequence error: a packet is missing, and the requester retransmits from this PSN on.
    PsnSequence,
    /// Invalid request: the request violates the protocol or is not supported.
    InvalidRequest,
    /// Remote access error: key, bounds or access rights are not valid.
    RemoteAccess,
    /// Remote operational error: the responder failed to execute the request.
    RemoteOperational,
    /// Invalid RD request, for reliable datagrams only.
    InvalidRdRequest,
    /// Reserved codes 5 to 31.
    Reserved(u8),
}

impl NakCode {
    /// Returns the meaning of the 5-bit code.
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

    /// Returns the 5-bit code.
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

/// Returns the number of receive requests for a credit code, or `None` for [`Aeth::UNLIMITED_CREDITS`] (IBTA vol 1,
/// §9.7.7.2). Only the low 5 bits of `code` count.
///
/// The numbers grow alternately by a half and a third: 2, 3, 4, 6, 8, 12, …
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
    fn every_syndrome_byte_survives_parse_and_write() {
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
    fn credit_codes_match_the_table() {
        let counts: Vec<_> = (0..31).map(|code| credit_count(code).unwrap()).collect();
        let table = [
            0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
            1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
        ];
        assert_eq!(counts, table);
        assert_eq!(credit_count(31), None);
    }
}
