//! Expected effects of posted requests, on any network and with any peer.

use std::collections::{BTreeMap, BTreeSet};

use softroce::engine::QpType;
use softroce::transport::work::{WcOpcode, WcStatus};

use super::end::{Effect, End, TARGET_BYTES, piece};

/// Length of the header before a datagram, in bytes.
pub(crate) const GRH: usize = 40;

/// Checks both directions of a connection. With `ended`, all timeouts have passed.
pub(crate) fn connection(ends: &[End; 2], mtu: usize, ended: bool) {
    for (from, to) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
        let sure = sends(from, to, ended);
        receives(to, from);
        match from.qp_type {
            QpType::Rc => reliable(from, to, sure, mtu),
            QpType::Uc => unreliable(from, to),
            _ => datagrams(from, to),
        }
        events(from, to);
    }
}

/// Returns whether the end may have failed because of its peer's requests.
fn may_be_at_fault(end: &End, peer: &End) -> bool {
    let faulty = end.disturbances.target || end.disturbances.inbox;
    faulty && !peer.sent.is_empty()
}

/// Send requests complete in order: some succeed, the unsignaled ones without completions; then one may fail; then
/// the rest is flushed. Returns the number of certain successes.
fn sends(from: &End, to: &End, ended: bool) -> usize {
    let (mut next, mut failed) = (0, false);
    for end in &from.send_ends {
        let index = end.wr_id as usize;
        let skipped =
            from.sent.get(next..index).unwrap_or_else(|| panic!("{end:?}: next is {next}"));
        assert!(skipped.iter().all(|sent| !sent.signaled && !failed), "{end:?}: next is {next}");
        next = index + 1;
        if end.status.is_success() {
            let sent = &from.sent[index];
            assert!(!failed && sent.signaled, "{end:?}");
            assert_eq!((end.opcode, end.byte_len), (sent.opcode, sent.byte_len), "request {index}");
            continue;
        }
        if !failed {
            assert!(
                may_fail(end.status, from, to),
                "request {index}: {end:?}, {:?}",
                from.disturbances
            );
        } else {
            assert_eq!(end.status, WcStatus::WrFlushErr, "request {index}");
        }
        failed = true;
    }
    let succeeded = from.send_ends.iter().rev().find(|end| end.status.is_success());
    let mut sure = succeeded.map_or(0, |end| end.wr_id as usize + 1);
    if let Some(first) = from.send_ends.iter().find(|end| !end.status.is_success()) {
        // Earlier requests without completions have succeeded.
        sure = sure.max(first.wr_id as usize);
    }
    if !ended || from.disturbances.gone {
        return sure;
    }
    if failed {
        assert_eq!(next, from.sent.len(), "who has failed says so of every request");
        return sure;
    }
    let rest = from.sent.get(next..).unwrap_or_default();
    assert!(rest.iter().all(|sent| !sent.signaled), "{next} of {} are done", from.sent.len());
    from.sent.len()
}

/// Returns whether the first failed request may have this status.
fn may_fail(status: WcStatus, from: &End, to: &End) -> bool {
    let reliable = from.qp_type == QpType::Rc;
    match status {
        WcStatus::WrFlushErr => from.disturbances.error || may_be_at_fault(from, to),
        WcStatus::RetryExcErr => reliable && (from.may_time_out || to.may_time_out),
        WcStatus::RemAccessErr => reliable && to.disturbances.target,
        WcStatus::RemOpErr => reliable && to.disturbances.inbox,
        WcStatus::LocProtErr => from.disturbances.answers,
        _ => false,
    }
}

/// Receives complete in posting order: some with messages; then one may fail, and the rest is flushed.
fn receives(to: &End, from: &End) {
    let mut failed = false;
    for (index, end) in to.recv_ends.iter().enumerate() {
        assert_eq!(end.wr_id as usize, index, "{end:?}");
        if end.status.is_success() {
            assert!(!failed, "{end:?}");
            continue;
        }
        let at_fault = may_be_at_fault(to, from);
        // A queue pair with a failed request has failed as a whole.
        let own = to.send_ends.iter().any(|end| !end.status.is_success());
        let may = match end.status {
            WcStatus::WrFlushErr => failed || to.disturbances.error || at_fault || own,
            WcStatus::LocProtErr => !failed && to.disturbances.inbox,
            WcStatus::LocAccessErr => !failed && to.disturbances.target,
            _ => false,
        };
        assert!(may, "{end:?}, {:?}", to.disturbances);
        failed = true;
    }
}

fn events(end: &End, peer: &End) {
    let most = usize::from(may_be_at_fault(end, peer));
    assert!(end.events.len() <= most, "{:?}, {:?}", end.events, end.disturbances);
}

/// Exactly once and in order: some number of requests, at least `sure`, explains the state of the other end, perhaps
/// with the first packets of the next request.
fn reliable(from: &End, to: &End, sure: usize, mtu: usize) {
    let told = to.recv_ends.iter().filter(|end| end.status.is_success()).count();
    let found = to.target_now();
    let mut memory = to.before.clone();
    let mut taken = 0;
    for done in 0..=from.sent.len() {
        let fits = done >= sure && taken == told;
        if fits && memory == found {
            return;
        }
        let Some(sent) = from.sent.get(done) else { break };
        if fits && begun(&sent.effect, &mut memory.clone(), &found, mtu) {
            return;
        }
        let answer = apply(&sent.effect, &mut memory);
        if let Some((into, bytes)) = answer.filter(|_| done < sure && !from.disturbances.answers) {
            assert!(
                piece(&from.answers, into, bytes.len()) == bytes,
                "the answer to {done} differs"
            );
        }
        if sent.effect.takes_receive() {
            if taken < told {
                message(to, taken, &sent.effect);
            }
            taken += 1;
        }
    }
    panic!(
        "no number of requests explains it: {} posted, {sure} succeeded, {told} told of, {} are all",
        from.sent.len(),
        taken
    );
}

/// Returns whether the first packets of a WRITE explain the memory.
fn begun(effect: &Effect, memory: &mut [u8], found: &[u8], mtu: usize) -> bool {
    let Effect::Write { at, bytes, .. } = effect else { return false };
    (0..bytes.len()).step_by(mtu).any(|offset| {
        let end = bytes.len().min(offset + mtu);
        memory[at + offset..at + end].copy_from_slice(&bytes[offset..end]);
        memory == found
    })
}

/// Applies a request to the target. Returns the offset and the bytes of its response.
fn apply(effect: &Effect, memory: &mut [u8]) -> Option<(usize, Vec<u8>)> {
    let mut exchange = |counter: usize, new: &dyn Fn(u64) -> u64| {
        let word = &mut memory[TARGET_BYTES + 8 * counter..][..8];
        let old = u64::from_ne_bytes(*word.first_chunk().unwrap());
        word.copy_from_slice(&new(old).to_ne_bytes());
        old.to_ne_bytes().to_vec()
    };
    match effect {
        Effect::Write { at, bytes, .. } => {
            memory[*at..at + bytes.len()].copy_from_slice(bytes);
            None
        }
        Effect::Add { counter, add, into } => {
            Some((*into, exchange(*counter, &|old| old.wrapping_add(*add))))
        }
        Effect::Swap { counter, expect, swap, into } => {
            let new = |old| if old == *expect { *swap } else { old };
            Some((*into, exchange(*counter, &new)))
        }
        Effect::Read { into, bytes } => Some((*into, bytes.clone())),
        Effect::Send { .. } => None,
    }
}

/// Checks the completion of a message, and its bytes.
fn message(to: &End, number: usize, effect: &Effect) {
    let end = &to.recv_ends[number];
    let (opcode, bytes, imm, placed) = match effect {
        Effect::Send { bytes, imm } => (WcOpcode::Recv, bytes, *imm, !to.disturbances.inbox),
        Effect::Write { bytes, imm, .. } => (WcOpcode::RecvRdmaWithImm, bytes, *imm, false),
        _ => return,
    };
    let expected = (opcode, bytes.len(), imm);
    assert_eq!((end.opcode, end.byte_len as usize, end.imm), expected, "message {number}");
    if placed {
        let found = piece(&to.inbox, to.receives[number].at, bytes.len());
        assert!(found == *bytes, "message {number} differs");
    }
}

/// Messages of an unreliable connection are reported complete and at most once. Every byte of the target is unchanged
/// or from one of them.
fn unreliable(from: &End, to: &End) {
    let mut told = BTreeSet::new();
    for (place, end) in to.recv_ends.iter().enumerate() {
        if !end.status.is_success() {
            continue;
        }
        let number = number(end.imm, from);
        assert!(told.insert(number), "{number} is told of again");
        message(to, place, &from.sent[number].effect);
    }
    let found = to.target_now();
    let mut explained: Vec<_> = found.iter().zip(&to.before).map(|(a, b)| a == b).collect();
    for sent in &from.sent {
        let Effect::Write { at, bytes, .. } = &sent.effect else { continue };
        for (offset, byte) in (*at..).zip(bytes) {
            explained[offset] |= found[offset] == *byte;
        }
    }
    assert_eq!(
        explained.iter().position(|explained| !explained),
        None,
        "a byte that no message wrote"
    );
}

/// Datagrams arrive complete, at most twice on a network that duplicates packets, and in any order.
fn datagrams(from: &End, to: &End) {
    let mut times = BTreeMap::<_, usize>::new();
    for (place, end) in to.recv_ends.iter().enumerate() {
        if !end.status.is_success() {
            continue;
        }
        let number = number(end.imm, from);
        let Effect::Send { bytes, .. } = &from.sent[number].effect else { unreachable!() };
        let told = (end.opcode, end.byte_len as usize, end.source_qp);
        assert_eq!(told, (WcOpcode::Recv, GRH + bytes.len(), Some(from.qpn)), "datagram {number}");
        if !to.disturbances.inbox {
            let found = piece(&to.inbox, to.receives[place].at + GRH, bytes.len());
            assert!(found == *bytes, "datagram {number} differs");
        }
        *times.entry(number).or_default() += 1;
    }
    assert!(times.values().all(|times| *times <= 2), "{times:?}");
}

/// Returns the number of a message, from its immediate data.
fn number(imm: Option<u32>, from: &End) -> usize {
    let imm = imm.unwrap();
    assert_eq!(u64::from(imm >> 20), from.life, "a message of another life");
    (imm & 0xf_ffff) as usize
}
