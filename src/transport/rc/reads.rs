//! Segmentation of READs into READ requests.
//!
//! READ responses are not acknowledged, so the responder cannot know how many bytes wait in the
//! requester's socket. The requester therefore requests at most as much at once as its own receive
//! buffer holds. A long READ becomes several READ requests with successive PSNs and addresses,
//! which a peer cannot distinguish from several READs.

use crate::wire::Position;

/// Segmentation of READs: one request for every `chunk` response packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadPlan {
    chunk: u32,
}

impl ReadPlan {
    /// Returns a plan with requests for at most `chunk` response packets.
    pub(crate) fn new(chunk: u32) -> Self {
        Self { chunk: chunk.max(1) }
    }

    /// Returns a plan with requests for a part of the `packets` that fit the receive buffer, of
    /// which `at_once` may be outstanding.
    ///
    /// Space is released when a response is complete. A request for the whole buffer would be the
    /// only one, and the path would be idle until the next request arrives. With a quarter each,
    /// responses arrive continuously if each takes at least a third of a round trip. More parts
    /// would cost more bursts.
    pub(crate) fn filling(packets: u32, at_once: u8) -> Self {
        Self::new(packets / u32::from(at_once.clamp(1, 4)))
    }

    /// Returns the end (exclusive) of the request for response packet `index` of `packets`.
    ///
    /// The boundaries do not depend on the point at which a response was interrupted, so a late
    /// packet of an earlier response equals that of the new one.
    pub(crate) fn end(self, index: u32, packets: u32) -> u32 {
        let start = index - index % self.chunk;
        start.saturating_add(self.chunk).min(packets)
    }

    /// Whether response packet `index` of `packets` may have this position, if the READ was
    /// requested again from `resumed_at` on.
    ///
    /// The response to a resumed READ begins with FIRST or ONLY like any response; kernel rxe
    /// continues with MIDDLE or LAST as if no packet were lost. Both are valid.
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
