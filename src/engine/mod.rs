//! One shard of a device: the protocol without clock, threads or sockets.
//!
//! An [`Engine`] handles inputs and produces outputs. Time is an argument and randomness a seed:
//! the same inputs give the same bytes. Its methods are of three kinds, as in quinn-proto:
//! | inputs: in any order, any number | |
//! |---|---|
//! | [`handle_buffer`](Engine::handle_buffer) | received datagrams; memory is written when it returns |
//! | [`handle_timeout`](Engine::handle_timeout) | expired timers |
//! | [`handle_backlog`](Engine::handle_backlog) | the receive-queue length of a host |
//! | [`handle_transmit_error`](Engine::handle_transmit_error) | a burst that a port failed to send |
//! | [`handle_cq_overflow`](Engine::handle_cq_overflow) | an overrun of a completion queue |
//! | [`post_send`](Engine::post_send), [`post_sends`](Engine::post_sends), [`post_recv`](Engine::post_recv), [`post_recvs`](Engine::post_recvs) | work requests |
//! | [`create_srq`](Engine::create_srq), [`modify_srq`](Engine::modify_srq), [`destroy_srq`](Engine::destroy_srq), [`post_srq_recv`](Engine::post_srq_recv) | shared receive queues |
//! | [`create_qp`](Engine::create_qp), [`modify_qp`](Engine::modify_qp), [`destroy_qp`](Engine::destroy_qp) | queue pairs |
//! | [`attach_mcast`](Engine::attach_mcast), [`detach_mcast`](Engine::detach_mcast) | multicast groups |
//! | [`send_mad`](Engine::send_mad) | management datagrams of queue pair 1 |
//! | [`set_gid_present`](Engine::set_gid_present), [`set_active_mtu`](Engine::set_active_mtu) | changes of addresses and interface |
//!
//! | outputs: returned once; poll after every input until there is none | |
//! |---|---|
//! | [`poll_transmit`](Engine::poll_transmit) | the next burst |
//! | [`poll_requests`](Engine::poll_requests) | the next burst of requests of one queue pair, out of turn |
//! | [`poll_acknowledgement`](Engine::poll_acknowledgement) | the next acknowledgement, at the end of the process |
//! | [`poll_completion`](Engine::poll_completion) | the next completion |
//! | [`poll_event`](Engine::poll_event) | the next asynchronous event |
//! | [`poll_backlog`](Engine::poll_backlog) | the next host to query for its receive-queue length |
//! | [`poll_left_group`](Engine::poll_left_group) | a multicast group that the port has to leave |
//! | [`poll_mad`](Engine::poll_mad) | a management datagram for the connection manager |
//! | [`poll_mad_response`](Engine::poll_mad_response) | a management datagram for `send_mad` |
//! | [`poll_first_packet`](Engine::poll_first_packet) | a queue pair that has received its first packet |
//!
//! | queries: repeatable | |
//! |---|---|
//! | [`poll_timeout`](Engine::poll_timeout) | the time to call `handle_timeout` |
//! | [`query_qp`](Engine::query_qp), [`gid`](Engine::gid), [`counters`](Engine::counters), [`qp_counters`](Engine::qp_counters), [`activity_by_qp`](Engine::activity_by_qp), [`config`](Engine::config) | |

mod activity;
pub(crate) mod attr;
mod config;
mod create;
mod flat;
mod flow_cache;
mod gids;
mod groups;
mod gsi;
mod halves;
mod identification;
mod management;
mod mcast;
mod pace;
mod peering;
mod post;
mod posting;
mod qp;
mod receives;
mod remote;
mod run;
mod send_ops;
mod srq;
mod table;
pub(crate) mod timers;
mod transitions;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

pub use activity::QpActivity;
pub use attr::{AttrMask, InitAttr, MigState, Peer, QpAttr, QpState, QpType, RtrAttr, RtsAttr};
pub use config::Config;
pub use create::{CreateError, QpInit};
pub use flat::FlatAttr;
pub use gids::{MIN_GID_TABLE_LEN, gid_table};
pub use gsi::{MadPath, OutgoingMad, ReceivedMad};
pub use mcast::McastError;
pub use pace::RateLimit;
pub use post::{PostError, QpCap};
pub use send_ops::SendOps;
pub use srq::{SrqAttr, SrqError, SrqInit, SrqModify};
pub use transitions::ModifyError;

pub use crate::transport::srq::XrcSrq;

use crate::engine::flow_cache::FlowCache;
use crate::engine::groups::Groups;
use crate::engine::gsi::Gsi;
use crate::engine::peering::FlowPorts;
use crate::engine::qp::{QueuePair, TxScope};
use crate::engine::run::{Run, Segments};
use crate::engine::table::{QpTable, drop_reason};
use crate::engine::timers::Timers;
use crate::engine::transitions::Bounds;
use crate::ids::{CqId, Mtu, Qpn};
use crate::mem::{EpochGuard, EpochHandle, Memory};
use crate::net::{Burst, BurstToken, RxBuffer, RxMeta, TransmitErrorKind};
use crate::time::Instant;
use crate::transport::connection::Identity;
use crate::transport::context::Shared;
use crate::transport::counters::Tally;
use crate::transport::outputs::{AsyncEvent, Counters, DropReason, Outputs};
use crate::transport::rc::ahead::ReorderBuffer;
use crate::transport::srq::SrqTable;
use crate::transport::window::{WindowId, Windows, usable};
use crate::transport::work::Completion;
use crate::wire::Datagram;

/// State and attributes of a queue pair.
#[derive(Clone, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_query_qp")]
pub struct QpInfo {
    /// Its state.
    pub state: QpState,
    /// Every attribute set since RESET.
    pub attr: QpAttr,
    /// Attributes at creation, as granted. With a shared receive queue, the limits of its own
    /// receive queue are 0.
    #[doc(alias = "cap")]
    pub init: QpInit,
    /// In SQD: some requests started before it are not complete.
    pub sq_draining: bool,
    /// The UDP source port of its packets, once it has a path; for UD, that of the first source
    /// GID.
    pub source_port: Option<u16>,
}

/// One shard of a device.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    shared: Shared,
    epoch: EpochHandle,
    qps: QpTable,
    /// Slots of queue pairs that may have something to send, in FIFO order.
    ready: VecDeque<usize>,
    timers: Timers,
    groups: Groups,
    gsi: Gsi,
    flows: FlowPorts,
    /// Slots of the GID table without an address.
    empty_gids: Vec<usize>,
    /// Queue pairs may have controlled Q_Keys.
    controlled_qkeys: bool,
    flow_cache: FlowCache,
    ended: VecDeque<(Qpn, Counters)>,
}

impl Engine {
    /// Returns an engine that accesses registered memory in `memory` and derives its queue pair
    /// numbers from `seed`.
    pub fn new(config: Config, memory: Arc<Memory>, seed: [u8; 32]) -> Self {
        let epoch = memory.epoch_handle();
        let local = config.gids.iter().map(|gid| gid.ip()).collect();
        let mut windows =
            Windows::new(usable(config.peer_receive_buffer), local, config.watches_backlogs);
        // READ responses to this device need a window that no destination shares.
        let read_window = windows.own(usable(config.receive_buffer));
        Self {
            qps: QpTable::new(config.max_qp, config.shard, seed),
            shared: Shared {
                windows,
                read_window,
                srqs: SrqTable::new(config.shard, config.shards),
                reorder: ReorderBuffer::new(config.reorder_buffer),
                tally: Tally::default(),
                outputs: Outputs::default(),
                memory,
            },
            config,
            epoch,
            ready: VecDeque::new(),
            timers: Timers::default(),
            groups: Groups::default(),
            gsi: Gsi::default(),
            flows: FlowPorts::default(),
            empty_gids: Vec::new(),
            controlled_qkeys: false,
            flow_cache: FlowCache::default(),
            ended: VecDeque::new(),
        }
    }

    // ---- inputs ----

    /// Handles received datagrams. When it returns, their data is in registered memory. No datagram
    /// can make it fail: unacceptable ones are dropped and counted.
    pub fn handle_buffer(&mut self, now: Instant, rx: RxBuffer<'_>) {
        if rx.data.is_empty() {
            let counters = self.shared.tally.row(None);
            counters.rx_packets += 1;
            counters.drop(DropReason::Malformed);
            return;
        }
        let meta = &rx.meta;
        let mut segments = Segments::of(&rx);
        if meta.destination.is_multicast() {
            return self.handle_group_buffer(now, meta, segments);
        }
        let mut touched = None;
        let turn = self.epoch.enter();
        let mut cx = self.shared.context(now, &turn, None);
        while let Some((segment, bytes)) = segments.next() {
            cx.slot = None;
            let parsed = Datagram::parse(bytes);
            let admitted = match &parsed {
                Ok(packet) => {
                    self.qps.admit(&mut self.flow_cache, meta, segment, (packet, bytes), &mut cx)
                }
                Err(error) => Err(drop_reason(error)),
            };
            cx.counters().arrived(meta, bytes.len());
            match admitted {
                Ok((slot, mut arrival)) => {
                    if let Some(before) = touched.replace(slot)
                        && before != slot
                    {
                        write_out(&mut self.qps, &turn, before);
                        update_readiness(&mut self.qps, &mut self.ready, &mut self.timers, before);
                    }
                    let Some(qp) = self.qps.get_mut(slot) else { continue };
                    let run = Run::after(&arrival, bytes, &segments);
                    if let Err(reason) = qp.handle_packet(&mut cx, &mut arrival) {
                        cx.counters().drop(reason);
                    } else if let Some(run) = run {
                        run.receive(&mut segments, meta, qp, &mut cx);
                    }
                }
                Err(DropReason::UnknownQp)
                    if let Ok(packet) = &parsed
                        && packet.bth.dest_qp == Qpn::GSI =>
                {
                    let (config, gsi) = (&self.config, &mut self.gsi);
                    let way = (&self.flow_cache.of(meta), meta, segment);
                    let taken = gsi.handle_datagram(config, way, (packet, bytes), &mut cx);
                    if let Err(reason) = taken {
                        cx.counters().drop(reason);
                    }
                }
                Err(reason) => cx.counters().drop(reason),
            }
        }
        if let Some(slot) = touched {
            write_out(&mut self.qps, &turn, slot);
            update_readiness(&mut self.qps, &mut self.ready, &mut self.timers, slot);
        }
    }

    /// Handles datagrams that were sent to a multicast group.
    #[inline(never)]
    fn handle_group_buffer(&mut self, now: Instant, meta: &RxMeta, segments: Segments<'_>) {
        let flow = self.flow_cache.of(meta);
        let turn = self.epoch.enter();
        let mut cx = self.shared.context(now, &turn, None);
        for (segment, bytes) in segments {
            cx.slot = None;
            let (ours, way) = (&self.config.gids, (&flow, meta, segment));
            let taken = self.groups.deliver(&mut self.qps, ours, way, bytes, &mut cx);
            if let Err(reason) = taken {
                cx.counters().arrived(meta, bytes.len());
                cx.counters().drop(reason);
            }
        }
    }

    /// Handles the expired timers of queue pairs.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(slot) = self.timers.expired(now) {
            let turn = self.epoch.enter();
            let mut cx = self.shared.context(now, &turn, Some(slot));
            if let Some(qp) = self.qps.get_mut(slot) {
                if let Some(window) = qp.waiting {
                    cx.shared.windows.retry(window);
                    if let Some(at) = cx.shared.windows.opens_at(window, now) {
                        self.timers.schedule(slot, at);
                    }
                }
                if qp.deadline().is_some_and(|deadline| deadline <= now) {
                    qp.handle_timeout(&mut cx);
                }
            }
            drop(turn);
            self.update_readiness(slot);
        }
    }

    /// Counts a burst that a port failed to send, identified by its token. A reliable connection
    /// recovers it like a loss.
    pub fn handle_transmit_error(
        &mut self,
        now: Instant,
        token: BurstToken,
        kind: TransmitErrorKind,
    ) {
        let _ = (now, kind);
        let slot = u32::try_from(token.0).ok().and_then(|qpn| self.qps.slot(Qpn::new(qpn)));
        self.shared.tally.row(slot).transmit_errors += 1;
    }

    /// Handles an overrun of a completion queue: raises an event, and fails the queue pairs that
    /// complete there.
    pub fn handle_cq_overflow(&mut self, now: Instant, cq: CqId) {
        self.shared.outputs.events.push_back(AsyncEvent::CqErr(cq));
        self.fail_srqs(cq);
        for slot in self.qps.completing_at(cq) {
            let turn = self.epoch.enter();
            let mut cx = self.shared.context(now, &turn, Some(slot));
            if let Some(qp) = self.qps.get_mut(slot)
                && qp.state != QpState::Reset
            {
                qp.stop(&mut cx);
            }
        }
    }

    /// Creates a queue pair in RESET.
    ///
    /// # Errors
    ///
    /// [`CreateError`]; nothing has changed.
    pub fn create_qp(&mut self, now: Instant, init: QpInit) -> Result<Qpn, CreateError> {
        let QpInit { qp_type, pd, send_ops, srq, .. } = init;
        let surplus = send_ops.unwrap_or_default().difference(SendOps::of(qp_type));
        if !surplus.is_empty() {
            return Err(CreateError::SendOps { qp_type, surplus });
        }
        self.check_sources(&init)?;
        let (send_cq, recv_cq) = init.cqs()?;
        let qpn = self.qps.free_number(now)?;
        let mut cap = init.cap.granted();
        if let Some(shared) = srq.and_then(|srqn| self.shared.srqs.get_mut(srqn)) {
            shared.users += 1;
            (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        }
        cap = cap.of(qp_type);
        let id = Identity { qpn, pd, send_cq, recv_cq };
        let init = QpInit { cap, send_cq, recv_cq, ..init };
        let slot = self.qps.insert(QueuePair::new(id, init));
        self.shared.tally.begin(slot);
        Ok(qpn)
    }

    /// Sets whether queue pairs may have [controlled](crate::ids::QKey::is_controlled) Q_Keys, as
    /// privileged programs do. By default they may not.
    pub fn allow_controlled_qkeys(&mut self, allowed: bool) {
        self.controlled_qkeys = allowed;
    }

    /// Changes the state or attributes of a queue pair. When the queue pair gets its path, `agree`
    /// determines the UDP source port: it receives the local address and the preferred port, and
    /// returns the port to use. For a UD queue pair it is called for each local address.
    ///
    /// # Errors
    ///
    /// [`ModifyError`]; nothing has changed.
    pub fn modify_qp(
        &mut self,
        now: Instant,
        qpn: Qpn,
        attr: &QpAttr,
        agree: impl FnMut(IpAddr, u16) -> u16,
    ) -> Result<(), ModifyError> {
        let slot = self.qps.slot(qpn).ok_or(ModifyError::NoSuchQp(qpn))?;
        let turn = self.epoch.enter();
        let mut cx = self.shared.context(now, &turn, Some(slot));
        let Some(qp) = self.qps.get_mut(slot) else { return Err(ModifyError::NoSuchQp(qpn)) };
        let bounds = Bounds {
            active_mtu: self.config.active_mtu,
            max_rd_atomic: self.config.max_rd_atomic,
            gids: &self.config.gids,
            empty_gids: &self.empty_gids,
            pkeys: self.config.pkeys.len(),
            controlled_qkeys: self.controlled_qkeys,
        };
        let to = transitions::check(qp.qp_type, qp.state, attr, &bounds)?;
        if qp.is_draining() && !matches!(to, QpState::Err | QpState::Reset) {
            return Err(ModifyError::Draining);
        }
        // Those requests and all later ones would never be sent.
        if let (Some(0), posted @ 1..) = (attr.max_rd_atomic, qp.awaited()) {
            return Err(ModifyError::ReadsPosted { posted });
        }
        let from = qp.state;
        match to {
            QpState::Reset => {
                qp.reset(&mut cx);
                drop(turn);
                return Ok(());
            }
            QpState::Err => {
                qp.stop(&mut cx);
                drop(turn);
                self.update_readiness(slot);
                return Ok(());
            }
            _ => {}
        }
        qp.cold.attr.merge(attr);
        qp.state = to;
        if let Some(limit) = attr.rate_limit {
            qp.set_rate(limit);
        }
        let remote = peering::remote(qp, &self.config, (&mut cx.shared.windows, now), agree);
        if let Some(remote) = remote {
            match (from, to) {
                (QpState::Init, QpState::Rtr) => qp.start_receiving(remote),
                _ => qp.reconfigure(remote),
            }
        }
        match (from, to) {
            (QpState::Rtr, QpState::Rts) => {
                qp.start_sending(self.config.receive_buffer, &cx.shared.windows)
            }
            (QpState::Rts, QpState::Sqd) => qp.start_draining(&mut cx),
            (QpState::Sqd | QpState::Sqe, QpState::Rts) => qp.resume_sending(),
            _ => {}
        }
        drop(turn);
        self.update_readiness(slot);
        Ok(())
    }

    /// Removes a queue pair. Its requests end without completions, the memory windows bound for it
    /// are invalidated, and it leaves all multicast groups. Its number is not reused while packets
    /// for it may still be in flight.
    pub fn destroy_qp(&mut self, now: Instant, qpn: Qpn) {
        let Some(slot) = self.qps.slot(qpn) else { return };
        let turn = self.epoch.enter();
        let mut cx = self.shared.context(now, &turn, Some(slot));
        if let Some(qp) = self.qps.get_mut(slot) {
            qp.reset(&mut cx);
            let srq = qp.receives.srq().and_then(|srqn| cx.shared.srqs.get_mut(srqn));
            if let Some(srq) = srq {
                srq.users -= 1;
            }
        }
        self.groups.forget(slot);
        self.qps.remove(now, slot);
        self.ended.push_back((qpn, self.shared.tally.end(slot)));
        while self.ended.len() > self.config.remembers_ended {
            self.ended.pop_front();
        }
    }

    /// Sets the receive buffer size of the socket at `peer`, in bytes as its kernel counts. The
    /// engine fills up to three quarters of it.
    ///
    /// The value is valid while there are connections to the peer. Later the engine may discard it,
    /// if there are many peers.
    pub fn set_peer_receive_buffer(&mut self, now: Instant, peer: IpAddr, bytes: u64) {
        let window = self.shared.windows.transient_window(peer, now);
        self.shared.windows.set_limit(window, usable(bytes));
    }

    /// Returns whether the engine has a receive buffer size for a peer.
    pub fn knows_peer(&self, peer: IpAddr) -> bool {
        self.shared.windows.lead_to(peer)
    }

    /// Sets the receive-queue length of `host` in bytes, as its kernel counts: the result of the
    /// query by [`poll_backlog`](Self::poll_backlog). `None` if it is unknown.
    pub fn handle_backlog(&mut self, now: Instant, host: IpAddr, waiting: Option<u64>) {
        self.shared.windows.tell(host, now, waiting);
    }

    /// Sets the MTU of the port's interface. Connected queue pairs keep their MTU.
    pub fn set_active_mtu(&mut self, mtu: Mtu) {
        self.config.active_mtu = mtu;
    }

    // ---- outputs ----

    /// Builds the next burst into `out`. Returns false, with `out` empty, if there is nothing to
    /// send.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Burst) -> bool {
        if self.wants_to_transmit() {
            return self.next_burst(now, out);
        }
        out.clear();
        false
    }

    // Not inlined, so that a call without anything to send saves no registers.
    #[inline(never)]
    fn next_burst(&mut self, now: Instant, out: &mut Burst) -> bool {
        if self.gsi.wants_to_transmit() && self.management_datagram(now, out) {
            return true;
        }
        loop {
            // Queue pairs that waited for a window go first.
            let (slot, in_turn) = match self.shared.windows.next_in_turn(now) {
                Some((window, slot)) => (slot, Some(window)),
                None => match self.ready.pop_front() {
                    Some(slot) => (slot, None),
                    None => {
                        out.clear();
                        return false;
                    }
                },
            };
            if let Some(next) = self.ready.front() {
                self.qps.prefetch(*next);
                self.shared.tally.prefetch(*next);
            }
            let Some(qp) = self.qps.get_mut(slot) else { continue };
            debug_assert!(in_turn.is_none() || qp.waiting == in_turn, "waits elsewhere");
            match in_turn {
                None => qp.ready = false,
                Some(_) => qp.waiting = None,
            }
            if self.build(now, slot, in_turn, TxScope::Everything, out) {
                return true;
            }
        }
    }

    /// Builds the next datagram of queue pair 1 into `out`. It never waits for the window of its destination, but other
    /// datagrams do for it.
    #[cold]
    fn management_datagram(&mut self, now: Instant, out: &mut Burst) -> bool {
        let Some(destination) = self.gsi.next_destination() else { return false };
        if !self.gsi.transmit(out, self.shared.tally.row(None)) {
            return false;
        }
        let window = self.shared.windows.transient_window(destination, now);
        let cost = self.shared.windows.allowance(window, now).takes(out.byte_len(), false);
        self.shared.windows.charge_unacknowledged(window, now, cost);
        true
    }

    /// Builds the next burst of one queue pair's requests into `out`, out of turn, after a
    /// doorbell. Returns false, with `out` empty, if there is none.
    ///
    /// A pending acknowledgement is included only in a burst of several packets. After a single
    /// packet it would have to be segmented, which costs time, so it stays for
    /// [`poll_transmit`](Self::poll_transmit).
    pub fn poll_requests(&mut self, now: Instant, qpn: Qpn, out: &mut Burst) -> bool {
        out.clear();
        let Some(slot) = self.qps.slot(qpn) else { return false };
        if !self.qps.get(slot).is_some_and(QueuePair::wants_to_request) {
            return false;
        }
        let built = self.build(now, slot, None, TxScope::Requests, out);
        if let Some(qp) = self.qps.get_mut(slot)
            && !qp.wants_to_send()
            && self.ready.back() == Some(&slot)
        {
            self.ready.pop_back();
            qp.ready = false;
        }
        built
    }

    /// Builds the next datagram of queue pair 1, or the next pending acknowledgement of a queue pair,
    /// into `out`, before anything else.
    /// Returns false, with `out` empty, if there is none.
    ///
    /// It is meant for the end of the process: it removes queue pairs without an acknowledgement
    /// from the ready list. It reads no registered memory, takes no lock and allocates nothing.
    pub fn poll_acknowledgement(&mut self, out: &mut Burst) -> bool {
        out.clear();
        if self.gsi.transmit(out, self.shared.tally.row(None)) {
            return true;
        }
        while let Some(slot) = self.ready.pop_front() {
            let Some(qp) = self.qps.get_mut(slot) else { continue };
            qp.ready = false;
            qp.begin_burst(&self.shared.windows, out);
            qp.acknowledge(out);
            if !out.is_empty() {
                let counters = self.shared.tally.row(Some(slot));
                counters.tx_packets += out.len() as u64;
                counters.tx_bytes += out.byte_len() as u64;
                return true;
            }
        }
        false
    }

    /// Returns the next host to query for its receive-queue length: a queue pair waits for its
    /// window, or half of the window is used. `None` unless the driver [can query receive
    /// queues](Config::watches_backlogs).
    pub fn poll_backlog(&mut self) -> Option<IpAddr> {
        self.shared.windows.next_asked()
    }

    /// Returns whether the queue pair has an acknowledgement to send, and no other response before it.
    pub fn owes_acknowledgement(&self, qpn: Qpn) -> bool {
        self.qps
            .slot(qpn)
            .and_then(|slot| self.qps.get(slot))
            .is_some_and(|qp| qp.owes_acknowledgement())
    }

    /// Returns the queue pair if its acknowledgement is the only packet to send. The driver may
    /// delay it to cover later packets too, within the timeout of the peer.
    pub fn owes_only_acknowledgement(&self) -> Option<Qpn> {
        let is_alone = self.ready.len() == 1 && !self.gsi.wants_to_transmit();
        let alone = is_alone && !self.shared.windows.has_opened();
        let qp = self.qps.get(*self.ready.front().filter(|_| alone)?)?;
        qp.owes_only_acknowledgement().then_some(qp.id.qpn)
    }

    /// Returns the completion queue of the next completion.
    pub fn completes_at(&self) -> Option<CqId> {
        self.shared.outputs.completions.front().map(|(cq, _)| *cq)
    }

    /// Returns the next completions as long as they are for this queue.
    pub fn poll_completions_at(&mut self, cq: CqId) -> impl Iterator<Item = Completion> {
        std::iter::from_fn(move || match self.completes_at() {
            Some(next) if next == cq => self.poll_completion().map(|(_, completion)| completion),
            _ => None,
        })
    }

    /// Returns the next completion and its queue.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<(CqId, Completion)> {
        self.shared.outputs.completions.pop_front()
    }

    /// Returns the next asynchronous event.
    pub fn poll_event(&mut self) -> Option<AsyncEvent> {
        self.shared.outputs.events.pop_front()
    }

    // ---- queries ----

    /// Returns whether there is a completion, an event, a management datagram or a first packet to take.
    pub fn has_output(&self) -> bool {
        !self.shared.outputs.is_empty() || self.gsi.has_received()
    }

    /// Returns the time at which to call [`handle_timeout`](Self::handle_timeout): never too late,
    /// perhaps too early.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) may return a burst.
    pub fn wants_to_transmit(&self) -> bool {
        !self.ready.is_empty() || self.shared.windows.has_opened() || self.gsi.wants_to_transmit()
    }

    /// Returns whether [`poll_backlog`](Self::poll_backlog) would return a host.
    pub fn wants_backlog(&self) -> bool {
        self.shared.windows.has_asked()
    }

    /// Returns the number of bursts of UC and UD packets built since the last call. No
    /// acknowledgements limit them, so a driver that sends many should receive in between.
    pub fn take_unacknowledged(&mut self) -> usize {
        self.shared.windows.take_unacknowledged_bursts()
    }

    /// Returns whether a stream of UC or UD messages is about to exhaust the receive requests.
    /// Messages without a receive request are lost, so the driver may leave them in the socket
    /// until the application has posted more.
    pub fn is_short_of_receives(&self) -> bool {
        self.shared.outputs.shortage.is_near()
    }

    /// Returns the state and attributes of a queue pair.
    pub fn query_qp(&self, qpn: Qpn) -> Option<QpInfo> {
        let qp = self.qps.get(self.qps.slot(qpn)?)?;
        Some(QpInfo {
            state: qp.state,
            attr: qp.cold.attr,
            init: qp.cold.init,
            sq_draining: qp.is_draining(),
            source_port: qp.source_ports().first().copied(),
        })
    }

    /// Returns the counters of all queue pairs, destroyed ones included, and of packets without a
    /// queue pair.
    pub fn counters(&self) -> Counters {
        self.shared.tally.sum()
    }

    /// Returns the counters of a queue pair.
    pub fn qp_counters(&self, qpn: Qpn) -> Option<Counters> {
        self.qps.slot(qpn).map(|slot| self.shared.tally.of(slot))
    }

    /// Returns the counters of each queue pair: first those of the [most
    /// recently](Config::remembers_ended) destroyed ones, then those of existing ones.
    pub fn counters_by_qp(&self) -> impl Iterator<Item = (Qpn, Counters)> {
        let live = self.qps.iter().map(|(slot, qp)| (qp.id.qpn, self.shared.tally.of(slot)));
        self.ended.iter().copied().chain(live)
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Builds the next burst of the queue pair in `slot`. Returns false if there is none.
    fn build(
        &mut self,
        now: Instant,
        slot: usize,
        in_turn: Option<WindowId>,
        scope: TxScope,
        out: &mut Burst,
    ) -> bool {
        let turn = self.epoch.enter();
        let mut cx = self.shared.context(now, &turn, Some(slot));
        cx.in_turn = in_turn;
        let Some(qp) = self.qps.get_mut(slot) else {
            out.clear();
            return false;
        };
        qp.begin_burst(&cx.shared.windows, out);
        let left = qp.transmit(&mut cx, scope, out);
        if let Some((window, want)) = left.blocked
            && qp.waiting.is_none()
        {
            qp.waiting = Some(window);
            cx.counters().window_waits += 1;
            cx.shared.windows.wait(window, slot, want);
            if let Some(at) = cx.shared.windows.opens_at(window, now) {
                self.timers.schedule(slot, at);
            }
        }
        if left.more && !std::mem::replace(&mut qp.ready, true) {
            self.ready.push_back(slot);
        }
        if let Some(deadline) = qp.deadline() {
            self.timers.schedule(slot, deadline);
        }
        let counters = self.shared.tally.row(Some(slot));
        counters.tx_packets += out.len() as u64;
        counters.tx_bytes += out.byte_len() as u64;
        !out.is_empty()
    }

    #[inline]
    fn update_readiness(&mut self, slot: usize) {
        update_readiness(&mut self.qps, &mut self.ready, &mut self.timers, slot);
    }

    /// Determines the UDP source port of UD messages from this source GID with this flow label, as
    /// [`modify_qp`](Self::modify_qp) does for a queue pair. Messages of other flows, or with label
    /// 0, use the queue pair's port.
    pub fn agree_on_flow(
        &mut self,
        sgid_index: u8,
        flow_label: u32,
        agree: impl FnOnce(IpAddr, u16) -> u16,
    ) {
        if let Some(source) = self.config.gids.get(usize::from(sgid_index))
            && flow_label != 0
        {
            self.flows.agree((sgid_index, flow_label), |wanted| agree(source.ip(), wanted));
        }
    }
}

/// Writes the staged data of the packets for the queue pair in `slot`. If that fails, marks its
/// memory as faulted.
fn write_out(qps: &mut QpTable, turn: &EpochGuard<'_>, slot: usize) {
    if turn.write_out().is_err()
        && let Some(qp) = qps.get_mut(slot)
    {
        qp.mark_faulted();
    }
}

/// Updates the list of ready queue pairs and the timers after an input for the queue pair in `slot`.
#[inline]
fn update_readiness(
    qps: &mut QpTable,
    ready: &mut VecDeque<usize>,
    timers: &mut Timers,
    slot: usize,
) {
    let Some(qp) = qps.get_mut(slot) else { return };
    if !qp.ready && qp.wants_to_send() {
        qp.ready = true;
        ready.push_back(slot);
    }
    if let Some(deadline) = qp.deadline() {
        timers.schedule(slot, deadline);
    }
}
