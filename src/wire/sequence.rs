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

use super::{Opcode, Operation, Position};

/// Where a stream of requests stands: between messages or inside one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Sequence {
    /// Between messages.
    #[default]
    Idle,
    /// After the FIRST of a SEND and before its LAST.
    InSend,
    /// After the FIRST of a WRITE and before its LAST.
    InWrite,
}

impl Sequence {
    /// Where the stream stands after a request packet with this opcode.
    ///
    /// # Errors
    ///
    /// When the packet may not come here; the stream stands where it stood.
    pub const fn next(self, opcode: Opcode) -> Result<Self, SequenceError> {
        let of = match opcode.operation() {
            Operation::Send => Self::InSend,
            Operation::Write => Self::InWrite,
            operation if operation.is_request() => Self::Idle,
            _ => return Err(SequenceError::NotARequest { found: opcode }),
        };
        match (self, opcode.position()) {
            (Self::Idle, Position::Only) => Ok(Self::Idle),
            (Self::Idle, Position::First) => Ok(of),
            (Self::Idle, Position::Middle | Position::Last) => {
                Err(SequenceError::Unopened { found: opcode })
            }
            (Self::InSend, Position::Middle) if matches!(of, Self::InSend) => Ok(self),
            (Self::InSend, Position::Last) if matches!(of, Self::InSend) => Ok(Self::Idle),
            (Self::InSend, _) => Err(SequenceError::Unfinished { open: "SEND", found: opcode }),
            (Self::InWrite, Position::Middle) if matches!(of, Self::InWrite) => Ok(self),
            (Self::InWrite, Position::Last) if matches!(of, Self::InWrite) => Ok(Self::Idle),
            (Self::InWrite, _) => Err(SequenceError::Unfinished { open: "WRITE", found: opcode }),
        }
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
