//! What must have come of what was posted, however the network and the other end behaved.

use std::collections::{BTreeMap, BTreeSet};

use softroce::engine::QpType;
use softroce::transport::work::{WcOpcode, WcStatus};

use super::end::{Effect, End, TARGET, piece};

/// The header before a datagram.
pub(crate) const GRH: usize = 40;

/// Looks at both directions of a connection. `ended` says that all has had its time.
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

/// Whether the end may have failed by itself for what its peer sent to it.
fn may_be_at_fault(end: &End, peer: &End) -> bool {
    let faulty = end.harmed.target || end.harmed.inbox;
    faulty && !peer.sent.is_empty()
}

/// Send requests complete in order: some with success, of which the unsignaled are silent; then one may
/// fail; then the rest is flushed. Returns how many have succeeded for sure.
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
            assert!(may_fail(end.status, from, to), "request {index}: {end:?}, {:?}", from.harmed);
        } else {
            assert_eq!(end.status, WcStatus::WrFlushErr, "request {index}");
        }
        failed = true;
    }
    let succeeded = from.send_ends.iter().rev().find(|end| end.status.is_success());
    let mut sure = succeeded.map_or(0, |end| end.wr_id as usize + 1);
    if let Some(first) = from.send_ends.iter().find(|end| !end.status.is_success()) {
        // What was silent before it has succeeded.
        sure = sure.max(first.wr_id as usize);
    }
    if !ended || from.harmed.gone {
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

/// Whether the first request to fail may fail like this.
fn may_fail(status: WcStatus, from: &End, to: &End) -> bool {
    let reliable = from.qp_type == QpType::Rc;
    match status {
        WcStatus::WrFlushErr => from.harmed.error || may_be_at_fault(from, to),
        WcStatus::RetryExcErr => reliable && (from.may_time_out || to.may_time_out),
        WcStatus::RemAccessErr => reliable && to.harmed.target,
        WcStatus::RemOpErr => reliable && to.harmed.inbox,
        WcStatus::LocProtErr => from.harmed.answers,
        _ => false,
    }
}

/// Receives complete in the order in which they were posted: some with messages; then one may fail, and
/// the rest is flushed.
fn receives(to: &End, from: &End) {
    let mut failed = false;
    for (index, end) in to.recv_ends.iter().enumerate() {
        assert_eq!(end.wr_id as usize, index, "{end:?}");
        if end.status.is_success() {
            assert!(!failed, "{end:?}");
            continue;
        }
        let at_fault = may_be_at_fault(to, from);
        // Whose own requests have failed has failed as a whole.
        let own = to.send_ends.iter().any(|end| !end.status.is_success());
        let may = match end.status {
            WcStatus::WrFlushErr => failed || to.harmed.error || at_fault || own,
            WcStatus::LocProtErr => !failed && to.harmed.inbox,
            WcStatus::LocAccessErr => !failed && to.harmed.target,
            _ => false,
        };
        assert!(may, "{end:?}, {:?}", to.harmed);
        failed = true;
    }
}

fn events(end: &End, peer: &End) {
    let most = usize::from(may_be_at_fault(end, peer));
    assert!(end.events.len() <= most, "{:?}, {:?}", end.events, end.harmed);
}

/// Exactly once, and in order: there is a number of requests, `sure` at least, after which the other end
/// is as it is, with the first packets of the next one perhaps.
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
        if let Some((into, bytes)) = answer.filter(|_| done < sure && !from.harmed.answers) {
            assert!(
                piece(&from.answers, into, bytes.len()) == bytes,
                "the answer to {done} differs"
            );
        }
        if sent.effect.is_told() {
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

/// Whether the first packets of a WRITE make memory what it is.
fn begun(effect: &Effect, memory: &mut [u8], found: &[u8], mtu: usize) -> bool {
    let Effect::Write { at, bytes, .. } = effect else { return false };
    (0..bytes.len()).step_by(mtu).any(|offset| {
        let end = bytes.len().min(offset + mtu);
        memory[at + offset..at + end].copy_from_slice(&bytes[offset..end]);
        memory == found
    })
}

/// What a request does to the target. Returns what an answer of so many bytes brings, and where to.
fn apply(effect: &Effect, memory: &mut [u8]) -> Option<(usize, Vec<u8>)> {
    let mut exchange = |counter: usize, new: &dyn Fn(u64) -> u64| {
        let word = &mut memory[TARGET + 8 * counter..][..8];
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

/// The notice of a message, and its bytes.
fn message(to: &End, number: usize, effect: &Effect) {
    let end = &to.recv_ends[number];
    let (opcode, bytes, imm, placed) = match effect {
        Effect::Send { bytes, imm } => (WcOpcode::Recv, bytes, *imm, !to.harmed.inbox),
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

/// Of the messages of an unreliable connection some are told of, whole and none twice. Every byte of the target is what it was or what one of them has put there.
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
    assert_eq!(explained.iter().position(|explained| !explained), None, "nobody wrote this byte");
}

/// Datagrams arrive whole, no more often than a network that copies once makes them, and in any order.
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
        if !to.harmed.inbox {
            let found = piece(&to.inbox, to.receives[place].at + GRH, bytes.len());
            assert!(found == *bytes, "datagram {number} differs");
        }
        *times.entry(number).or_default() += 1;
    }
    assert!(times.values().all(|times| *times <= 2), "{times:?}");
}

/// The number of a message, by its immediate data.
fn number(imm: Option<u32>, from: &End) -> usize {
    let imm = imm.unwrap();
    assert_eq!(u64::from(imm >> 20), from.life, "a message of another life");
    (imm & 0xf_ffff) as usize
}
