//! A network with loss, duplicates, reordering and corruption, generated on this side.

use softroce::verbs::*;

use super::pair::{Pair, Setup, TARGET, timeout};

const SIZE: usize = 20_000;
const ROUNDS: usize = 16;

/// Messages and atomics of both sides, several at a time: each arrives once.
fn everything_arrives(spec: &str) {
    let impair = Some(spec.parse().unwrap());
    // Many losses are detected by a timeout only, so it must be short: 0.27 s.
    let options = ConnectOptions { timeout: timeout(16), ..Setup::default().options };
    let mut pair = Pair::new(Setup { impair, options, ..Setup::default() });
    let lkey = pair.peer.mr.lkey;
    let (counter, result) = (TARGET - 64, TARGET - 128);
    let (there, here) = (pair.peer.mr.remote(counter), pair.mr.remote(counter));
    for round in 0..ROUNDS {
        let (source, sink) = (round * SIZE, TARGET + round * SIZE);
        let seed = u32::try_from(round).unwrap();
        pair.fill(source, SIZE, seed);
        pair.peer.fill(source, SIZE, !seed);
        let id = round as u64;
        let (half, list) = (SIZE / 2, |at| [(at, SIZE / 2, lkey)]);

        // The first half by SEND, the second by WRITE; then a READ and atomics.
        pair.peer.post_recv(id, &list(sink));
        pair.qp.post_recv(RecvRequest::new(id, pair.mr.sge(sink..sink + half))).unwrap();
        let (ours, theirs) = (pair.mr.remote(sink + half), pair.peer.mr.remote(sink + half));
        let local = pair.mr.sge(source..source + half);
        let rest = pair.mr.sge(source + half..source + SIZE);
        let back = pair.mr.sge(0..half);
        for request in [
            SendRequest::send(id, local).signaled(),
            SendRequest::write(id, rest, theirs),
            SendRequest::read(id, back, pair.peer.mr.remote(sink + half)),
            SendRequest::fetch_add(id, pair.mr.sge(result..result + 8), there, 1).signaled(),
        ] {
            pair.qp.post_send(request).unwrap();
        }
        pair.peer.post_send(id, &SendOp::Send, 2, &list(source));
        pair.peer.post_send(id, &SendOp::Write { to: ours }, 0, &list(source + half));
        pair.peer.post_send(id, &SendOp::FetchAdd { at: here, add: 1 }, 2, &[(result, 8, lkey)]);
        for _ in 0..3 {
            assert_eq!(pair.ours().status, WcStatus::Success, "round {round}");
            assert_eq!(pair.theirs().status, WcStatus::Success as u8, "round {round}");
        }
        let found = (pair.mr.load_u64(result), pair.peer.load(result));
        // An atomic that its sender repeats under another PSN is a new one.
        let executed = pair.qp.counters().unwrap().rx_atomic_requests;
        assert_eq!(
            found,
            (Ok(id), id),
            "round {round}: what the atomics found; {executed} executed here"
        );
        // The READ overwrites the memory of the first message, which was checked before.
        let mut read = vec![0; half];
        pair.mr.read_at(0, &mut read).unwrap();
        let sent: Vec<u8> = {
            let mut bytes = vec![0; half];
            pair.mr.read_at(source + half, &mut bytes).unwrap();
            bytes
        };
        assert!(read == sent, "round {round}: the READ brought what was written");
    }
    for round in 0..ROUNDS {
        let seed = u32::try_from(round).unwrap();
        pair.peer.check(TARGET + round * SIZE, SIZE, seed);
        pair.check(TARGET + round * SIZE, SIZE, !seed);
    }
    let rounds = ROUNDS as u64;
    assert_eq!((pair.peer.load(counter), pair.mr.load_u64(counter)), (rounds, Ok(rounds)));
}

/// CC-08
#[test]
#[ignore = "needs a peer"]
fn everything_arrives_once_when_one_percent_is_lost_repeated_and_late() {
    everything_arrives("loss=0.01,dup=0.01,reorder=0.01,seed=1");
}

#[test]
#[ignore = "needs a peer"]
fn everything_arrives_once_when_five_percent_are_lost_repeated_and_late() {
    everything_arrives("loss=0.05,dup=0.05,reorder=0.05,seed=2");
}

#[test]
#[ignore = "needs a peer"]
fn everything_arrives_once_when_one_percent_is_corrupt_too() {
    everything_arrives("loss=0.01,dup=0.01,reorder=0.01,corrupt=0.01,seed=3");
}

/// CC-08
#[test]
#[ignore = "needs a peer"]
fn everything_arrives_once_when_five_percent_are_corrupt_too() {
    everything_arrives("loss=0.05,dup=0.05,reorder=0.05,corrupt=0.05,seed=4");
}
