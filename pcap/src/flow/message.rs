//! The message that a requester is sending.

use softroce::wire::{Opcode, Operation, Sequence};

use super::{Event, RequestEvent, SeenPacket};

/// The message to which the newest request belongs, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct OpenMessage {
    /// `None` when the packet before was not captured.
    sequence: Option<Sequence>,
    /// The length that an open WRITE announced, and the bytes that came of it.
    write: Option<(u32, u64)>,
}

impl OpenMessage {
    /// No message is open: the connection begins.
    pub(super) const fn idle() -> Self {
        Self { sequence: Some(Sequence::Idle), write: None }
    }

    /// Whether the packet before was not captured, so that the next may continue any message.
    pub(super) const fn is_unknown(&self) -> bool {
        self.sequence.is_none()
    }

    /// Which opcode may come next.
    pub(super) fn follow(&mut self, opcode: Opcode, out: &mut Vec<Event>) {
        match self.sequence.map(|sequence| sequence.next(opcode)) {
            Some(Ok(sequence)) => self.sequence = Some(sequence),
            Some(Err(error)) => {
                out.push(RequestEvent::Sequence(error).into());
                self.sequence = Some(after(opcode));
                self.write = None;
            }
            None => self.sequence = Some(after(opcode)),
        }
    }

    /// Whether the packets of a WRITE hold what it announced.
    pub(super) fn measure(&mut self, seen: &SeenPacket<'_>, out: &mut Vec<Event>) {
        let opcode = seen.datagram.bth.opcode;
        if opcode.operation() != Operation::Write {
            return;
        }
        let len = u64::try_from(seen.datagram.payload_len).unwrap_or(u64::MAX);
        let announced = seen.datagram.reth().map(|reth| (reth.length, 0));
        let Some((announced, before)) = announced.or(self.write.take()) else { return };
        let sent = before.saturating_add(len);
        if opcode.position().is_end() {
            if sent != u64::from(announced) {
                out.push(RequestEvent::WriteLength { announced, sent }.into());
            }
        } else {
            self.write = Some((announced, sent));
        }
    }
}

/// Where a stream stands after `opcode`, whatever came before.
fn after(opcode: Opcode) -> Sequence {
    match (opcode.operation(), opcode.position().is_end()) {
        (Operation::Send, false) => Sequence::InSend,
        (Operation::Write, false) => Sequence::InWrite,
        _ => Sequence::Idle,
    }
}
