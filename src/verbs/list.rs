//! Lists of work requests.

use smallvec::SmallVec;

use super::Error;
use crate::net::MAX_BURST_SEGMENTS;

/// Requests of a list that are posted together: one burst at most.
pub(super) type Piece<T> = SmallVec<[T; MAX_BURST_SEGMENTS]>;

/// Posts a list in pieces: each piece is sent while its requests are in the cache. `post` returns how many requests of
/// a piece it has posted. The rest of the piece is dropped, and an error ends the list.
///
/// The compiler generates this function in the crate of the caller, for its iterator. `post` should be a call of one
/// function that is not generic: then the engine below it is compiled once, in this crate, where its small functions
/// are inlined.
#[inline]
pub(super) fn post_in_pieces<T>(
    requests: impl IntoIterator<Item = T>,
    mut post: impl FnMut(&mut Piece<T>) -> (usize, Result<(), Error>),
) -> (usize, Result<(), Error>) {
    let mut requests = requests.into_iter();
    let mut piece = Piece::new();
    let mut total = 0;
    loop {
        // The iterator runs before `post` takes the device's lock, because it may use the device. `SmallVec::extend`
        // calls the iterator in two places, which prevents inlining.
        while piece.len() < MAX_BURST_SEGMENTS {
            let Some(request) = requests.next() else { break };
            piece.push(request);
        }
        let is_last = piece.len() < MAX_BURST_SEGMENTS;
        let (taken, result) = post(&mut piece);
        piece.clear();
        total += taken;
        if is_last || result.is_err() {
            return (total, result);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::time::Duration;

    use super::MAX_BURST_SEGMENTS;
    use crate::runtime::now;
    use crate::sync::taken;
    use crate::verbs::*;

    /// Checks with the counters of `runtime::hot_path` that the public calls take each lock once.
    #[test]
    fn list_and_its_polls_take_each_lock_once() {
        let count = 2 * MAX_BURST_SEGMENTS + 1;
        let ctx = Context::open(OpenOptions::loopback()).unwrap();
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(count, None).unwrap());
        let cap = QpCap { max_send_wr: u32::try_from(count).unwrap(), ..QpCap::default() };
        let qp = pd.create_qp(&QpConfig { cap, ..QpConfig::rc(&cq) }).unwrap();
        qp.connect(&qp.endpoint(), &ConnectOptions::default()).unwrap();
        let write = SendRequest::write(0, SendData::inline(b""), RemoteAddr::default()).signaled();
        let posted = taken(|| qp.post_sends(iter::repeat_n(write, count)).1.unwrap());
        assert_eq!(posted, ["Core"; 3]);

        let (shard, queue) = ("Core", "State<TimestampedCompletion, EventFd, ShardSet>");
        let mut completions = Vec::new();
        let (start, limit) = (now(), Duration::from_secs(60));
        while completions.len() < count {
            assert!(now() - start < limit, "{} of {count} completions", completions.len());
            let mut found = 0;
            let locks = taken(|| found = cq.poll(&mut completions, count));
            // The device's thread may make progress instead, or hold the shard's lock.
            let known: &[&[&str]] = match found {
                0 => &[&[], &[shard]],
                _ => &[&[queue], &[shard, queue], &[shard, queue, queue]],
            };
            assert!(known.iter().any(|known| locks == *known), "{found} completions: {locks:?}");
        }
    }
}
