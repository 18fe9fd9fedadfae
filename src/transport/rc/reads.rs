//! Segmentation of READs into READ requests.
//!
//! READ responses are not acknowledged, so the responder cannot know how much of them waits in the requester's socket. The
//! requester therefore requests no more at once than its own receive buffer holds. A long READ becomes several READ
//! requests with successive PSNs and addresses, which a peer cannot tell from several READs.

use crate::wire::Position;

/// The cut of READs into requests: one for every `chunk` response packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadPlan {
    chunk: u32,
}

impl ReadPlan {
    /// Requests for at most `chunk` response packets.
    pub(crate) fn new(chunk: u32) -> Self {
        Self { chunk: chunk.max(1) }
    }

    /// Requests for a part of the `packets` that fit the receive buffer, of which `at_once` may be
    /// outstanding.
    ///
    /// Room is free again when a request is answered to its end. One that asks for all of it would be
    /// alone, and nothing be under way while the next one is; with a quarter each, answers come without
    /// end where they take no less than a third of a round trip. Requests cost bursts, so there are no more.
    pub(crate) fn filling(packets: u32, at_once: u8) -> Self {
        Self::new(packets / u32::from(at_once.clamp(1, 4)))
    }

    /// Where the request ends that asks for response packet `index` of `packets`, exclusive.
    ///
    /// The cuts do not depend on where an answer was interrupted, so that a late packet of an
    /// earlier answer looks as the new answer's would.
    pub(crate) fn end(self, index: u32, packets: u32) -> u32 {
        let start = index - index % self.chunk;
        start.saturating_add(self.chunk).min(packets)
    }

    /// Whether response packet `index` of `packets` may come with this position, when the READ was
    /// asked again from `resumed_at` on.
    ///
    /// The answer to a resumed READ begins with FIRST or ONLY as any answer does; kernel rxe
    /// continues with MIDDLE or LAST as if nothing had been lost. Both are right.
    pub(crate) fn accepts(
        self,
        position: Position,
        index: u32,
        packets: u32,
        resumed_at: u32,
    ) -> bool {
        let is_last = index + 1 == self.end(index, packets);
        let opening = if is_last { Position::Only } else { Position::First };
        let continuing = if is_last { Position::Last } else { Position::Middle };
        if index.is_multiple_of(self.chunk) {
            position == opening
        } else {
            position == continuing || (index >= resumed_at && position == opening)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Position::{First, Last, Middle, Only};
    use super::*;

    #[test]
    fn a_long_read_is_cut_into_requests() {
        let plan = ReadPlan::new(4);
        assert_eq!([0, 3, 4, 7, 8].map(|i| plan.end(i, 9)), [4, 4, 8, 8, 9]);
        let shape = [First, Middle, Middle, Last, First, Middle, Middle, Last, Only];
        for (index, position) in (0..).zip(shape) {
            assert!(plan.accepts(position, index, 9, u32::MAX), "packet {index} is {position:?}");
        }
        assert!(!plan.accepts(Middle, 0, 9, u32::MAX));
        assert!(!plan.accepts(First, 1, 9, u32::MAX));
    }

    #[test]
    fn several_requests_fill_the_receive_buffer() {
        let chunk = |at_once| ReadPlan::filling(62, at_once).end(0, 1000);
        assert_eq!([0, 1, 2, 3, 4, 128].map(chunk), [62, 62, 31, 20, 15, 15]);
        assert_eq!(ReadPlan::filling(3, 16).end(0, 1000), 1);
    }

    #[test]
    fn a_resumed_read_may_open_or_continue() {
        let plan = ReadPlan::new(100);
        let forms = |index| [First, Middle, Last, Only].map(|p| plan.accepts(p, index, 9, index));
        assert_eq!(forms(5), [true, true, false, false]);
        assert_eq!(forms(8), [false, false, true, true]);
    }
}
