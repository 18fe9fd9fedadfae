//! Lists of work requests.

use smallvec::{Drain, SmallVec};

use super::Error;
use crate::net::MAX_BURST_SEGMENTS;

/// Posts a list piece by piece, each as long as a burst may be, so that what is made is still in the
/// cache when it is posted, and posted when it is sent. `post` returns how many of a piece were taken,
/// and with an error no more are made.
#[inline]
pub(super) fn post_in_pieces<T>(
    requests: impl IntoIterator<Item = T>,
    mut post: impl FnMut(Drain<'_, [T; MAX_BURST_SEGMENTS]>) -> (usize, Result<(), Error>),
) -> (usize, Result<(), Error>) {
    let mut requests = requests.into_iter();
    let mut piece = SmallVec::<[T; MAX_BURST_SEGMENTS]>::new();
    let mut total = 0;
    loop {
        // Before `post` takes the device's lock: whoever makes them may use the device.
        piece.extend(requests.by_ref().take(MAX_BURST_SEGMENTS));
        let is_last = piece.len() < MAX_BURST_SEGMENTS;
        let (taken, result) = post(piece.drain(..));
        total += taken;
        if is_last || result.is_err() {
            return (total, result);
        }
    }
}
