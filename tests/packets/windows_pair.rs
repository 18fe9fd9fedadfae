//! Many windows are bound, sent to the peer, written and invalidated at once, over a lossy network.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Link, PD, World, full_access, pattern, sge};
use softroce::ids::{MwId, Qpn, Rkey};
use softroce::mem::{Access, BindInfo, MwType, Region};
use softroce::port::sim::Conditions;
use softroce::transport::work::{RemoteAddr, SendData, SendRequest, WcStatus};

const PEER: usize = 0;
const OWNER: usize = 1;
const WINDOWS: usize = 8;
const ROUNDS: usize = 40;
/// Length of a window in bytes: several packets.
const LEN: usize = 3000;

/// One window of the owner.
struct GrantedWindow {
    id: MwId,
    rkey: Rkey,
    /// How many times the peer has invalidated it.
    rounds: usize,
}

struct WindowTraffic {
    world: World,
    qps: [Qpn; 2],
    region: Arc<Region>,
    keys: Arc<Region>,
    source: Arc<Region>,
    windows: Vec<GrantedWindow>,
    /// Windows in the order in which the owner has sent their keys.
    told: VecDeque<usize>,
    /// Number of sent keys.
    lent: usize,
}

impl WindowTraffic {
    fn new(seed: u64, loss: f64) -> Self {
        let mut world = World::new(seed, 2);
        let delay = Duration::from_micros(5);
        let conditions =
            Conditions { loss, duplicate: loss, reorder: loss, delay, ..Conditions::default() };
        world.network.set_conditions(conditions);
        let qps = world.pair(&Link { timeout: 10, ..Link::default() });
        let access = Access::LOCAL_WRITE | Access::MW_BIND;
        let region = world.nodes[OWNER].region(WINDOWS * LEN, 0x10_0000, access);
        let keys = world.nodes[PEER].region(4096, 0x20_0000, full_access());
        let source = world.nodes[PEER].region(LEN, 0x30_0000, full_access());
        source.write_at(0, &pattern(1, LEN)).unwrap();
        let memory = world.nodes[OWNER].memory.clone();
        let windows = (0..WINDOWS)
            .map(|_| {
                let id = memory.alloc_window(PD, MwType::Type2).unwrap();
                GrantedWindow { id, rkey: memory.window_key(id).unwrap(), rounds: 0 }
            })
            .collect();
        Self { world, qps, region, keys, source, windows, told: VecDeque::new(), lent: 0 }
    }

    /// Binds a window under the next key, and sends the key immediately after.
    fn grant(&mut self, n: usize) {
        let (owner, peer) = (self.qps[OWNER], self.qps[PEER]);
        self.world.post_recv(OWNER, owner, n as u64, &[]);
        // Separate memory for each message in flight.
        let at = 8 * (self.lent % WINDOWS);
        self.lent += 1;
        self.world.post_recv(PEER, peer, at as u64, &[sge(&self.keys, at, 8)]);
        let window = &mut self.windows[n];
        window.rkey = window.rkey.inc();
        let rkey = window.rkey;
        let info = BindInfo {
            lkey: self.region.lkey(),
            addr: self.region.addr() + (n * LEN) as u64,
            length: LEN as u64,
            access: Access::REMOTE_WRITE,
        };
        let bind = SendRequest::bind_mw(1, window.id, rkey, info);
        self.world.post_send(OWNER, owner, bind);
        let mut message = [0; 8];
        message[..4].copy_from_slice(&rkey.0.to_le_bytes());
        message[4] = n as u8;
        let tell = SendRequest::send(2, SendData::inline(&message));
        self.world.post_send(OWNER, owner, tell);
        self.told.push_back(n);
    }

    /// Writes through the received window, and invalidates it.
    fn write_and_invalidate(&mut self, at: usize) {
        let mut message = [0; 8];
        self.keys.read_at(at, &mut message).unwrap();
        let rkey = Rkey(u32::from_le_bytes(*message.first_chunk().unwrap()));
        let n = usize::from(message[4]);
        let to = RemoteAddr { addr: self.region.addr() + (n * LEN) as u64, rkey };
        let write = SendRequest::write(3, sge(&self.source, 0, LEN), to);
        self.world.post_send(PEER, self.qps[PEER], write);
        let back = SendRequest::send_inv(4, SendData::none(), rkey);
        self.world.post_send(PEER, self.qps[PEER], back);
    }

    /// Handles all completions. Returns false when there are none.
    fn serve(&mut self) -> bool {
        for node in [PEER, OWNER] {
            assert_eq!(self.world.nodes[node].sends, [], "nothing is signaled, so nothing failed");
        }
        let told: Vec<_> = self.world.nodes[PEER].recvs.drain(..).collect();
        let back: Vec<_> = self.world.nodes[OWNER].recvs.drain(..).collect();
        for end in &told {
            assert_eq!(end.status, WcStatus::Success);
            self.write_and_invalidate(end.wr_id as usize);
        }
        for end in &back {
            let n = self.told.pop_front().unwrap();
            let window = &mut self.windows[n];
            assert_eq!(end.invalidated, Some(window.rkey), "in the order in which they were told");
            window.rounds += 1;
            let mut found = vec![0; LEN];
            self.region.read_at(n * LEN, &mut found).unwrap();
            assert!(found == pattern(1, LEN), "written before it was given back");
            self.region.write_at(n * LEN, &vec![0; LEN]).unwrap();
            if window.rounds < ROUNDS {
                self.grant(n);
            }
        }
        !told.is_empty() || !back.is_empty()
    }
}

fn run(seed: u64, loss: f64) -> u64 {
    let mut lending = WindowTraffic::new(seed, loss);
    (0..WINDOWS).for_each(|n| lending.grant(n));
    loop {
        lending.world.settle();
        if !lending.serve() && !lending.world.advance() {
            break;
        }
    }
    let rounds: Vec<_> = lending.windows.iter().map(|window| window.rounds).collect();
    assert_eq!(rounds, [ROUNDS; WINDOWS], "seed {seed:#x}");
    let nodes = &lending.world.nodes;
    nodes.iter().map(|node| node.engine.counters().retransmitted).sum()
}

/// RSP-37
#[test]
fn windows_are_granted_and_invalidated_in_order() {
    assert_eq!(run(1, 0.0), 0);
}

/// A duplicate SEND with invalidate arrives when the window is bound again, and a bind is between retransmitted
/// packets.
#[test]
fn windows_are_granted_and_invalidated_despite_loss_and_duplicates() {
    for seed in 2..42 {
        assert!(run(seed, 0.05) > 0, "seed {seed:#x}");
    }
}
