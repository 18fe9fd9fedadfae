//! Completion queues: size, moderation, and the fields of completions.

use std::time::Duration;

use softroce::runtime::wall_clock;
use softroce::verbs::*;

use crate::choice::Choice;
use crate::node::{Node, WAIT_LIMIT, open, single_attempt};
use crate::within::{found, until};

/// Returns a queue pair that is its own peer, with a completion queue of these attributes.
fn alone(ctx: Context, config: &CqConfig<'_>) -> Node {
    let cq = ctx.create_cq_ex(config).unwrap();
    let node = Node::with_cq(ctx, cq);
    node.qp.connect(&node.qp.endpoint(), &single_attempt()).unwrap();
    node
}

/// Posts WRITEs with these numbers, all signaled.
fn write(node: &Node, wr_ids: std::ops::Range<u64>) {
    for wr_id in wr_ids {
        node.send(SendRequest::write(wr_id, SendData::inline(b"x"), node.mr.remote(0)));
    }
}

/// Waits until this many WRITEs have succeeded, without taking their completions.
fn complete_writes(node: &Node, writes: u64) {
    let other = node.ctx.create_cq(1, None).unwrap();
    until("the WRITEs to succeed", || {
        // Polling an empty queue makes progress.
        assert_eq!(other.poll_one(), None);
        node.ctx.device_info().unwrap().counters.writes_completed >= writes
    });
}

#[test]
fn resized_cq_keeps_its_completions_in_order() {
    let node = alone(open(), &CqConfig::new(4));
    write(&node, 0..4);
    complete_writes(&node, 4);
    let said = node.cq.resize(3).unwrap_err();
    assert!(matches!(said, Error::CqTooSmall { depth: 3, held: 4, .. }), "{said}");
    assert_eq!(node.cq.depth(), 4);
    node.cq.resize(8).unwrap();
    write(&node, 4..8);
    complete_writes(&node, 8);
    let mut ended = Vec::new();
    assert_eq!(node.cq.poll(&mut ended, 5), 5);
    node.cq.resize(3).unwrap();
    node.cq.poll(&mut ended, 5);
    let ended: Vec<_> = ended.iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(ended, (0..8).map(|wr_id| (wr_id, WcStatus::Success)).collect::<Vec<_>>());
    assert_eq!(node.ctx.poll_event(), None);
}

#[test]
fn create_cq_refuses_an_invalid_depth() {
    let ctx = open();
    let cq = ctx.create_cq(4, None).unwrap();
    for depth in [0, CompletionQueue::MAX_DEPTH + 1] {
        let said = cq.resize(depth).unwrap_err().to_string();
        let expected = format!("the depth of a completion queue is {depth}, not 1 to 4194304");
        assert_eq!(said, expected);
    }
    let said = ctx.create_cq_ex(&CqConfig { comp_vector: 1, ..CqConfig::new(1) }).unwrap_err();
    assert_eq!(said.to_string(), "comp_vector is 1, not 0 to 0");
}

#[test]
fn ignored_overrun_discards_only_the_oldest_completion() {
    let node = alone(open(), &CqConfig { ignore_overrun: true, ..CqConfig::new(2) });
    write(&node, 0..5);
    complete_writes(&node, 5);
    assert_eq!(node.end(), (3, WcStatus::Success));
    assert_eq!(node.end(), (4, WcStatus::Success));
    assert_eq!((node.cq.poll_one(), node.ctx.poll_event()), (None, None));
    assert_eq!(node.qp.state().unwrap(), QpState::Rts);
}

#[test]
fn moderated_cq_announces_completions_together() {
    let ctx = open();
    let channel = ctx.create_channel().unwrap();
    let node = alone(ctx, &CqConfig { channel: Some(&channel), ..CqConfig::new(16) });
    node.cq.modify(Moderation { count: 3, period: 0 }).unwrap();
    node.cq.req_notify(false);
    write(&node, 0..2);
    complete_writes(&node, 2);
    assert!(channel.wait(Duration::ZERO).is_err(), "two are not enough");
    write(&node, 2..3);
    assert!(channel.wait(WAIT_LIMIT).unwrap() == node.cq);
    // The change of the moderation announces this completion: neither count nor time has been reached.
    node.cq.req_notify(false);
    write(&node, 3..4);
    complete_writes(&node, 4);
    node.cq.modify(Moderation::default()).unwrap();
    assert!(channel.wait(WAIT_LIMIT).unwrap() == node.cq);
    // The device's thread runs the timer.
    node.cq.modify(Moderation { count: 9, period: 1 }).unwrap();
    node.cq.req_notify(false);
    write(&node, 4..5);
    assert!(channel.wait(WAIT_LIMIT).unwrap() == node.cq);
}

#[test]
fn polling_returns_every_field_of_a_completion() {
    let node = alone(open(), &CqConfig { wc_flags: WcFlags::SUPPORTED, ..CqConfig::new(16) });
    let before = node.ctx.query_rt_values().raw_clock;
    let wall_before = wall_clock(before);
    node.recv(7, 0..64);
    node.qp.post_send(SendRequest::send_imm(1, SendData::inline(b"abc"), 0x1234)).unwrap();
    let mut polling = found("the message", || node.cq.start_poll());
    assert_eq!((polling.wr_id(), polling.status()), (7, WcStatus::Success));
    assert_eq!((polling.opcode(), polling.vendor_err()), (WcOpcode::Recv, 0));
    assert_eq!((polling.byte_len(), polling.imm_data()), (3, Some(0x1234)));
    assert_eq!((polling.qp_num(), polling.src_qp()), (node.qp.qpn(), None));
    let after = node.ctx.query_rt_values().raw_clock;
    assert!(before <= polling.completion_ts() && polling.completion_ts() <= after);
    // The two clocks are read at different times, and the wall clock may be adjusted by a little.
    let (wall, slack) = (polling.completion_wallclock(), Duration::from_secs(1));
    assert!(wall_before - slack < wall && wall < wall_clock(after) + slack);
    assert!(!polling.next_poll());
    assert_eq!(polling.completion().wr_id, 7, "it stays where it is");
}

#[test]
fn polling_returns_completions_in_order() {
    let node = alone(open(), &CqConfig::new(16));
    write(&node, 0..5);
    complete_writes(&node, 5);
    let mut polling = node.cq.start_poll().unwrap();
    let mut seen = vec![polling.wr_id()];
    while polling.next_poll() {
        seen.push(polling.wr_id());
    }
    assert_eq!(seen, [0, 1, 2, 3, 4]);
    assert!(node.cq.start_poll().is_none());
}

/// A completion queue keeps the order of its completions during random changes of its size.
#[test]
fn random_resizing_keeps_all_completions() {
    for seed in 1..=20 {
        let node = alone(open(), &CqConfig::new(64));
        let mut choice = Choice::new(seed);
        let (mut posted, mut seen) = (0, Vec::new());
        while posted < 400 {
            let outstanding = posted - seen.len() as u64;
            // Free space of the queues.
            let room = (node.cq.depth() as u64).min(100).saturating_sub(outstanding);
            let batch = choice.below(room.min(40) + 1);
            write(&node, posted..posted + batch);
            posted += batch;
            node.cq.poll(&mut seen, choice.below(60) as usize);
            // Not smaller than the number of outstanding completions.
            let outstanding = posted - seen.len() as u64;
            let depth = outstanding.max(1) + choice.below(100);
            node.cq.resize(depth as usize).unwrap();
        }
        while seen.len() < posted as usize {
            seen.push(node.next());
        }
        let wr_ids: Vec<_> = seen.iter().map(|c| (c.wr_id, c.status)).collect();
        let expected: Vec<_> = (0..posted).map(|wr_id| (wr_id, WcStatus::Success)).collect();
        assert_eq!(wr_ids, expected, "seed {seed}");
        assert_eq!(node.ctx.poll_event(), None, "seed {seed}");
    }
}
