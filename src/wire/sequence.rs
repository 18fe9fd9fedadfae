//! Which opcode may follow which in one requester's stream.
//!
//! A message of several packets is FIRST, any number of MIDDLEs and LAST, all of one operation, and
//! nothing comes between them (IBTA vol 1, §9.7.4.1.2):
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
    /// Where the stream stands after a request packet with this opcode.
    ///
    /// # Errors
    ///
    /// When the packet may not come here; the stream stands where it stood.
    #[inline]
    pub const fn next(self, opcode: Opcode) -> Result<Self, SequenceError> {
        self.after(opcode.info())
    }

    /// Where the stream stands after a request packet with an opcode that has been looked up.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next).
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

/// Why a packet may not come where it came.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum SequenceError {
    /// A MIDDLE or LAST while no message is open.
    #[error("{found} while no message is open")]
    Unopened {
        /// What came.
        found: Opcode,
    },
    /// Something else than its MIDDLE or LAST while a message is open.
    #[error("{found} while a {open} is open")]
    Unfinished {
        /// The operation of the open message: `SEND` or `WRITE`.
        open: &'static str,
        /// What came.
        found: Opcode,
    },
    /// A response or a CNP, which belong to no stream of requests.
    #[error("{found} is not a request")]
    NotARequest {
        /// What came.
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
    fn messages_follow_one_another() {
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
    fn errors_say_what_was_open_and_what_came() {
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
