//! Order of opcodes in the request packets of one requester.
//!
//! A message of several packets consists of one FIRST, any number of MIDDLEs and one LAST of the same operation,
//! without other packets between them (IBTA vol 1, §9.7.4.1.2):
//!
//! ```text
//!                 ONLY, READ, ATOMIC, FLUSH
//!                      ┌──────┐
//!                      │      ▼        FIRST
//!                  ┌───┴──────────┐ ─────────▶ ┌──────────────────┐
//!                  │     idle     │            │ in SEND or WRITE │ ──┐ MIDDLE
//!                  └──────────────┘ ◀───────── └──────────────────┘ ◀─┘ of the same
//!                                      LAST
//!                                   of the same
//! ```

use thiserror::Error;

pub use super::opcode::Sequence;
use super::{Opcode, OpcodeInfo};

impl Sequence {
    /// Returns the state after a request packet with this opcode.
    ///
    /// # Errors
    ///
    /// [`SequenceError`] when the packet is out of sequence. The state then does not change.
    #[inline]
    pub const fn next(self, opcode: Opcode) -> Result<Self, SequenceError> {
        self.after(opcode.info())
    }

    /// Returns the state after a request packet, by the properties of its opcode.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    #[inline]
    pub const fn after(self, info: &OpcodeInfo) -> Result<Self, SequenceError> {
        if info.is_request() && self as u8 == info.before as u8 {
            return Ok(info.after);
        }
        let found = info.opcode;
        Err(match self {
            _ if !info.is_request() => SequenceError::NotARequest { found },
            Self::Idle => SequenceError::Unopened { found },
            Self::InSend => SequenceError::Unfinished { open: "SEND", found },
            Self::InWrite => SequenceError::Unfinished { open: "WRITE", found },
        })
    }
}

/// Error for a packet that is out of sequence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum SequenceError {
    /// A MIDDLE or LAST without a FIRST before.
    #[error("{found} while no message is open")]
    Unopened {
        /// Opcode of the packet.
        found: Opcode,
    },
    /// A packet other than MIDDLE or LAST within a message.
    #[error("{found} while a {open} is open")]
    Unfinished {
        /// Operation of the unfinished message: `SEND` or `WRITE`.
        open: &'static str,
        /// Opcode of the packet.
        found: Opcode,
    },
    /// A response or a CNP, which are not part of a sequence of requests.
    #[error("{found} is not a request")]
    NotARequest {
        /// Opcode of the packet.
        found: Opcode,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(opcodes: &[Opcode]) -> Result<Sequence, String> {
        let mut sequence = Sequence::Idle;
        for &opcode in opcodes {
            sequence = sequence.next(opcode).map_err(|error| error.to_string())?;
        }
        Ok(sequence)
    }

    #[test]
    fn sequence_accepts_consecutive_messages() {
        use Opcode::*;
        let stream = [
            RcSendFirst,
            RcSendMiddle,
            RcSendMiddle,
            RcSendLastInv,
            RcSendOnly,
            RcReadRequest,
            RcWriteFirst,
            RcWriteLastImm,
            RcFetchAdd,
            RcFlush,
            RcAtomicWrite,
            RcWriteFirst,
        ];
        assert_eq!(run(&stream), Ok(Sequence::InWrite));
        assert_eq!(run(&stream[..3]), Ok(Sequence::InSend));
        assert_eq!(run(&[UcSendFirst, UcSendLast]), Ok(Sequence::Idle));
    }

    #[test]
    fn sequence_errors_name_both_operations() {
        use Opcode::*;
        let error = |opcodes: &[Opcode]| run(opcodes).unwrap_err();
        assert_eq!(error(&[RcSendMiddle]), "RC SEND_MIDDLE while no message is open");
        assert_eq!(error(&[XrcWriteLast]), "XRC WRITE_LAST while no message is open");
        assert_eq!(error(&[RcSendFirst, RcSendFirst]), "RC SEND_FIRST while a SEND is open");
        assert_eq!(error(&[RcSendFirst, RcWriteLast]), "RC WRITE_LAST while a SEND is open");
        assert_eq!(error(&[UcWriteFirst, UcWriteOnly]), "UC WRITE_ONLY while a WRITE is open");
        assert_eq!(error(&[RcWriteFirst, RcReadRequest]), "RC READ_REQUEST while a WRITE is open");
        assert_eq!(error(&[RcSendFirst, RcCompareSwap]), "RC COMPARE_SWAP while a SEND is open");
        assert_eq!(error(&[RcAcknowledge]), "RC ACKNOWLEDGE is not a request");
    }
}
