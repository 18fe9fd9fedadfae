//! Send windows: the limit on the data in flight to one destination address.
//!
//! A RoCE fabric is lossless or has congestion control. A UDP socket has only a receive buffer, and
//! the kernel drops the packets that do not fit. The limit therefore counts packets as the
//! receiving kernel does: by the memory they occupy (`truesize`), not by their length.

mod backlog;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use crate::net::{MAX_BURST_BYTES, MAX_BURST_SEGMENTS};
use crate::time::Instant;
use backlog::Backlog;

/// Default receive buffer of a socket, in bytes (`net.core.rmem_default`).
pub const DEFAULT_RECEIVE_BUFFER: u64 = 212_992;

/// Returns the part of a receive buffer that one sender may fill. The rest is left for other
/// senders and for the kernel's rounding.
pub const fn usable(receive_buffer: u64) -> u64 {
    receive_buffer / 4 * 3
}

/// Returns the bytes that the kernel charges to a receive buffer for a single datagram with `len`
/// bytes of payload: the headroom and tail of the packet, rounded up to the allocator's size class,
/// and the packet descriptor.
///
/// Measured on Linux 6.18: 25 datagrams of 4112 bytes, 92 of 1040 or 256 of 80 fill 212,992 bytes.
pub(crate) const fn truesize(len: usize) -> u64 {
    ((len + 384).next_power_of_two() + 512) as u64
}

/// Number of windows without connections from which on a new address reuses an idle one. Windows
/// without connections are kept for the next datagram or connection to their address. Without
/// reuse, a UD server that replies to every source address would add a window for each.
const MAX_IDLE_WINDOWS: usize = 1024;

/// Number of idle-window candidates checked for reuse when a new address needs a window.
const MAX_EVICTION_LOOKS: usize = 4;

/// Maximum number of packets of a burst to another host: as many as its kernel merges (`UDP_GRO_CNT_MAX` of Linux).
/// Each of them costs a whole packet there, so longer bursts would only fill the window in larger steps.
const MAX_SEGMENTS_TO_HOST: usize = 64;

/// Identifies one [`Window`] of a [`Windows`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WindowId(u32);

impl WindowId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// The bytes in flight to one destination, and the queue pairs that wait for room.
#[derive(Debug)]
struct Window {
    limit: u64,
    /// Bursts arrive as they were sent. If a network card segments them, each packet costs as much
    /// as a single one, even when the receiver's kernel merges them again (GRO).
    whole: bool,
    /// Bytes of packets that will be acknowledged or answered.
    in_flight: u64,
    /// Bytes of packets that will not be acknowledged.
    unacknowledged: Backlog,
    /// Queue pairs that wait for room, in FIFO order.
    queue: VecDeque<Waiter>,
    /// The window is listed in [`Windows::opened`].
    opened: bool,
    /// The local address to query for its receive-queue length, if that is possible.
    local: Option<IpAddr>,
    /// The window is listed in [`Windows::asked`].
    asked: bool,
    /// The key in [`Windows::by_address`]. `None` for a window that belongs to a single queue pair.
    address: Option<IpAddr>,
    /// Number of connections to the address. With none, an idle window may be reused for another
    /// address.
    connections: usize,
    /// The window is listed in [`Windows::passing`].
    listed: bool,
}

/// A queue pair that waits for room.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    slot: usize,
    want: u64,
}

impl Window {
    fn new(limit: u64, whole: bool) -> Self {
        Self {
            limit,
            whole,
            in_flight: 0,
            unacknowledged: Backlog::new(false),
            queue: VecDeque::new(),
            opened: false,
            local: None,
            asked: false,
            address: None,
            connections: 0,
            listed: false,
        }
    }

    /// Whether nothing is in flight there and no queue pair waits.
    fn is_idle(&self, now: Instant) -> bool {
        let listed = self.opened || self.asked || !self.queue.is_empty();
        !listed && self.in_flight == 0 && self.unacknowledged.undrained(now) == 0
    }
}

/// The windows of a device, one for each destination address.
#[derive(Debug)]
pub(crate) struct Windows {
    by_address: HashMap<IpAddr, WindowId>,
    windows: Vec<Window>,
    /// Windows without connections, and some that gained connections since. The most recently
    /// checked are at the back.
    passing: VecDeque<WindowId>,
    limit: u64,
    /// The device's own addresses.
    local: Vec<IpAddr>,
    /// Receive queues of this host can be queried.
    watches: bool,
    /// Windows with a pending query of their receive queue.
    asked: Vec<WindowId>,
    /// Windows that may have gained room and have waiters.
    opened: Vec<WindowId>,
    /// Number of unacknowledged bursts since the last
    /// [`take_unacknowledged_bursts`](Self::take_unacknowledged_bursts).
    unacknowledged_bursts: usize,
}

impl Windows {
    /// Returns an empty table with `limit` bytes for each window, for a device with these
    /// addresses. `watches`: the caller can report the receive-queue length of addresses of this
    /// host.
    pub(crate) fn new(limit: u64, local: Vec<IpAddr>, watches: bool) -> Self {
        Self {
            by_address: HashMap::new(),
            windows: Vec::new(),
            passing: VecDeque::new(),
            limit,
            local,
            watches,
            asked: Vec::new(),
            opened: Vec::new(),
            unacknowledged_bursts: 0,
        }
    }

    /// Returns the window to `destination` for a connection, which holds it until it
    /// [leaves](Self::leave).
    pub(crate) fn join(&mut self, destination: IpAddr, now: Instant) -> WindowId {
        let id = self.transient_window(destination, now);
        self.windows[id.index()].connections += 1;
        id
    }

    /// Whether a window to `destination` exists. True while there are connections to it, and
    /// usually for some time after.
    pub(crate) fn lead_to(&self, destination: IpAddr) -> bool {
        self.by_address.contains_key(&destination)
    }

    /// Removes a connection that has nothing in flight from its window. After the last one, the
    /// window remains for later datagrams and connections.
    pub(crate) fn leave(&mut self, id: WindowId) {
        let window = &mut self.windows[id.index()];
        window.connections = window.connections.saturating_sub(1);
        if window.connections == 0 && !std::mem::replace(&mut window.listed, true) {
            self.passing.push_back(id);
        }
    }

    /// Returns the window to `destination` for a datagram that is sent now. The window stays while
    /// it is busy or has connections.
    pub(crate) fn transient_window(&mut self, destination: IpAddr, now: Instant) -> WindowId {
        if let Some(id) = self.by_address.get(&destination) {
            return *id;
        }
        let window =
            Window { address: Some(destination), listed: true, ..self.towards(destination) };
        let id = match self.vacate(now) {
            Some(id) => {
                self.windows[id.index()] = window;
                id
            }
            None => self.push(window),
        };
        self.passing.push_back(id);
        self.by_address.insert(destination, id);
        id
    }

    /// Frees an idle window without connections for another address, if there are many.
    fn vacate(&mut self, now: Instant) -> Option<WindowId> {
        for _ in 0..MAX_EVICTION_LOOKS {
            if self.passing.len() < MAX_IDLE_WINDOWS {
                return None;
            }
            let id = self.passing.pop_front()?;
            let window = &mut self.windows[id.index()];
            match window.address {
                Some(address) if window.connections == 0 && window.is_idle(now) => {
                    self.by_address.remove(&address);
                    return Some(id);
                }
                Some(_) if window.connections == 0 => self.passing.push_back(id),
                _ => window.listed = false,
            }
        }
        None
    }

    fn towards(&self, destination: IpAddr) -> Window {
        // Loopback traffic is not segmented by a network card.
        let whole = self.is_here(destination);
        let watched = whole && self.watches;
        let (local, unacknowledged) = (watched.then_some(destination), Backlog::new(watched));
        Window { local, unacknowledged, ..Window::new(self.limit, whole) }
    }

    /// Adds a window for a single queue pair, which belongs to no destination.
    pub(crate) fn own(&mut self, limit: u64) -> WindowId {
        self.push(Window::new(limit, false))
    }

    fn push(&mut self, window: Window) -> WindowId {
        // 2^32 windows do not fit in memory.
        let id = WindowId(u32::try_from(self.windows.len()).unwrap_or(u32::MAX));
        self.windows.push(window);
        id
    }

    /// Returns the number of windows.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.windows.len()
    }

    /// Sets the limit of one window, in bytes.
    pub(crate) fn set_limit(&mut self, id: WindowId, limit: u64) {
        self.windows[id.index()].limit = limit;
        self.open(id);
    }

    /// Returns the maximum number of segments of a burst within a window.
    pub(crate) fn max_segments(&self, id: WindowId) -> usize {
        max_segments(self.is_whole(id))
    }

    /// Returns the maximum number of segments of a burst to this address.
    pub(crate) fn max_segments_to(&self, destination: IpAddr) -> usize {
        max_segments(self.is_here(destination))
    }

    /// Whether this host has the address: bursts arrive there as they were sent.
    fn is_here(&self, destination: IpAddr) -> bool {
        destination.is_loopback() || self.local.contains(&destination)
    }

    /// Whether bursts arrive there as they were sent.
    pub(crate) fn is_whole(&self, id: WindowId) -> bool {
        self.windows[id.index()].whole
    }

    /// Returns a snapshot of the window for one transmission.
    pub(crate) fn allowance(&self, id: WindowId, now: Instant) -> UsableWindow {
        let Window { limit, whole, .. } = self.windows[id.index()];
        UsableWindow { limit, room: self.room(id, now), whole }
    }

    /// Returns the bytes that may be sent now. A request for more than the limit needs the limit
    /// only.
    pub(crate) fn room(&self, id: WindowId, now: Instant) -> u64 {
        let window = &self.windows[id.index()];
        window.limit.saturating_sub(window.in_flight).saturating_sub(window.unacknowledged.at(now))
    }

    /// Returns the time at which half of the unacknowledged bytes will have drained. `None` when
    /// only an acknowledgement can make room.
    pub(crate) fn opens_at(&self, id: WindowId, now: Instant) -> Option<Instant> {
        self.windows[id.index()].unacknowledged.halves_at(now)
    }

    /// Charges a burst that will not be acknowledged.
    pub(crate) fn charge_unacknowledged(&mut self, id: WindowId, now: Instant, cost: u64) {
        self.unacknowledged_bursts += usize::from(cost > 0);
        let window = &mut self.windows[id.index()];
        window.unacknowledged.add(now, cost);
        if window.unacknowledged.is_to_be_told(window.limit) {
            self.ask(id);
        }
    }

    /// Returns and resets the number of unacknowledged bursts.
    pub(crate) fn take_unacknowledged_bursts(&mut self) -> usize {
        std::mem::take(&mut self.unacknowledged_bursts)
    }

    pub(crate) fn charge(&mut self, id: WindowId, cost: u64) {
        self.windows[id.index()].in_flight += cost;
    }

    /// Releases `cost` bytes and lets waiting queue pairs continue.
    pub(crate) fn release(&mut self, id: WindowId, cost: u64) {
        if cost == 0 {
            return;
        }
        let window = &mut self.windows[id.index()];
        window.in_flight = window.in_flight.saturating_sub(cost);
        self.open(id);
    }

    /// Appends the queue pair in `slot`, which needs `want` bytes, to the waiters.
    pub(crate) fn wait(&mut self, id: WindowId, slot: usize, want: u64) {
        self.windows[id.index()].queue.push_back(Waiter { slot, want });
        self.ask(id);
    }

    /// Removes the queue pair in `slot` from the waiters, because it is reset.
    pub(crate) fn forget_waiter(&mut self, id: WindowId, slot: usize) {
        self.windows[id.index()].queue.retain(|waiter| waiter.slot != slot);
        // Waiters that need less may fit.
        self.open(id);
    }

    /// Checks for room again after some time, in which unacknowledged bytes drain.
    pub(crate) fn retry(&mut self, id: WindowId) {
        self.ask(id);
        self.open(id);
    }

    /// Schedules a query of the destination's receive queue, if it can be queried and
    /// unacknowledged bytes are in flight.
    fn ask(&mut self, id: WindowId) {
        let window = &mut self.windows[id.index()];
        let matters = window.local.is_some() && window.unacknowledged.is_some();
        if matters && !std::mem::replace(&mut window.asked, true) {
            self.asked.push(id);
        }
    }

    /// Returns the next address to query for the length of its receive queue.
    pub(crate) fn next_asked(&mut self) -> Option<IpAddr> {
        let window = &mut self.windows[self.asked.pop()?.index()];
        window.asked = false;
        window.local
    }

    /// Whether [`next_asked`](Self::next_asked) would return an address.
    pub(crate) fn has_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Records the number of bytes in the receive queue of an address, of which the bytes in flight
    /// will be acknowledged. With `None` (unknown), the window falls back to the estimated drain
    /// rate.
    pub(crate) fn tell(&mut self, address: IpAddr, now: Instant, waiting: Option<u64>) {
        let Some(id) = self.by_address.get(&address).copied() else { return };
        let window = &mut self.windows[id.index()];
        let unacknowledged = waiting.map(|waiting| waiting.saturating_sub(window.in_flight));
        window.unacknowledged.tell(now, unacknowledged);
        self.open(id);
    }

    /// Whether a queue pair waits for room.
    pub(crate) fn is_waited_for(&self, id: WindowId) -> bool {
        !self.windows[id.index()].queue.is_empty()
    }

    /// Marks the window as one that may have room for its waiters.
    pub(crate) fn open(&mut self, id: WindowId) {
        let window = &mut self.windows[id.index()];
        if !window.queue.is_empty() && !std::mem::replace(&mut window.opened, true) {
            self.opened.push(id);
        }
    }

    /// Whether [`next_in_turn`](Self::next_in_turn) may return a queue pair.
    pub(crate) fn has_opened(&self) -> bool {
        !self.opened.is_empty()
    }

    /// Returns the next waiting queue pair that fits its window now. Only the first waiter of each
    /// window is checked, so the cost does not depend on the number of waiters.
    #[inline]
    pub(crate) fn next_in_turn(&mut self, now: Instant) -> Option<(WindowId, usize)> {
        while let Some(id) = self.opened.last().copied() {
            let allowance = self.allowance(id, now);
            let window = &mut self.windows[id.index()];
            if window.queue.front().is_some_and(|first| allowance.admits(first.want)) {
                return window.queue.pop_front().map(|first| (id, first.slot));
            }
            window.opened = false;
            self.opened.pop();
        }
        None
    }
}

/// The part of a window that one burst may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UsableWindow {
    limit: u64,
    room: u64,
    whole: bool,
}

impl UsableWindow {
    /// Whether there is room for `want` bytes. A request for more than the limit needs the limit
    /// only.
    pub(crate) fn admits(self, want: u64) -> bool {
        want.min(self.limit) <= self.room
    }

    /// Returns the number of packets of `takes` bytes each that fit.
    pub(crate) fn packets(self, takes: u64) -> u64 {
        self.room / takes.max(1)
    }

    /// Returns the same window without room, for a queue pair that must wait for others.
    pub(crate) fn closed(self) -> Self {
        Self { room: 0, ..self }
    }

    /// Returns the window restricted to a separate `limit`, of which `used` bytes are in use. A limit of 0 counts as one
    /// byte: it admits a burst while nothing is in use.
    pub(crate) fn within(self, limit: Option<u64>, used: u64) -> Self {
        let Some(limit) = limit.map(|limit| limit.max(1)) else { return self };
        let room = self.room.min(limit.saturating_sub(used));
        Self { limit: self.limit.min(limit), room, ..self }
    }

    /// Returns the window after `cost` bytes have been used.
    pub(crate) fn less(self, cost: u64) -> Self {
        Self { room: self.room.saturating_sub(cost), ..self }
    }

    /// Returns the cost of a packet of `len` bytes; `follows` when another one precedes it in its
    /// burst.
    pub(crate) fn takes(self, len: usize, follows: bool) -> u64 {
        if follows && self.whole { len as u64 } else { truesize(len) }
    }

    /// Returns the cost of `packets` packets of `len` bytes in as few bursts as possible.
    pub(crate) fn run(self, len: usize, packets: u32) -> u64 {
        let bursts = packets.div_ceil(per_burst(len, self.whole));
        u64::from(bursts) * truesize(len) + u64::from(packets - bursts) * self.takes(len, true)
    }

    /// Returns the room required to start a burst of `packets` packets of `len` bytes. With a lower
    /// requirement, messages would be split into ever smaller bursts.
    pub(crate) fn burst(self, len: usize, packets: u32) -> u64 {
        if packets == 1 {
            return truesize(len);
        }
        let all = self.run(len, packets.min(per_burst(len, self.whole)));
        let enough = if self.whole { all } else { all.min(self.quarter()) };
        enough.max(truesize(len))
    }

    /// Returns the maximum length in bytes of a burst of packets of `len` bytes.
    pub(crate) fn longest_burst(self, len: usize) -> usize {
        let packets = usize::try_from(self.quarter() / truesize(len)).unwrap_or(usize::MAX);
        if self.whole { MAX_BURST_BYTES } else { packets.max(1).saturating_mul(len) }
    }

    /// Returns a quarter of the limit: the maximum cost of one burst that the network card
    /// segments, and of the data sent without an acknowledgement request. Of larger bursts only
    /// about two would fit the window, and each would wait for the acknowledgement of the other.
    pub(crate) fn quarter(self) -> u64 {
        self.limit / 4
    }
}

/// Returns the maximum number of segments of a burst. `whole`: it arrives as it was sent.
fn max_segments(whole: bool) -> usize {
    if whole { MAX_BURST_SEGMENTS } else { MAX_SEGMENTS_TO_HOST }
}

/// Returns the number of packets of `len` bytes that fit one burst. `whole`: it arrives as it was sent.
pub(crate) fn per_burst(len: usize, whole: bool) -> u32 {
    let packets = (MAX_BURST_BYTES / len.max(1)).clamp(1, max_segments(whole));
    u32::try_from(packets).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_datagrams_cost_what_the_kernel_charges() {
        // Measured number of datagrams that fit a default receive buffer: 25, 92, 256. The estimate
        // may be a little lower.
        let fit = |len| DEFAULT_RECEIVE_BUFFER / truesize(len);
        assert_eq!((fit(4112), fit(1040), fit(80)), (24, 83, 208));
    }

    #[test]
    fn a_burst_costs_less_only_where_nothing_cuts_it() {
        let own = IpAddr::from([10, 0, 0, 1]);
        let mut windows = Windows::new(100_000, vec![own], false);
        let mut costs = |address: IpAddr| {
            let id = windows.join(address, Instant::ZERO);
            let window = windows.allowance(id, Instant::ZERO);
            [window.takes(4112, true), window.run(4112, 16), window.burst(4112, 16)]
        };
        let lone = truesize(4112);
        assert_eq!(costs([10, 0, 0, 2].into()), [lone, 16 * lone, 25_000]);
        // 15 fit one burst.
        let whole = [4112, 2 * lone + 14 * 4112, lone + 14 * 4112];
        assert_eq!((costs(own), costs([127, 0, 0, 2].into())), (whole, whole));
    }

    #[test]
    fn whoever_waits_for_room_has_a_turn_when_there_is_enough() {
        let mut windows = Windows::new(1000, vec![], false);
        let id = windows.join(IpAddr::from([10, 0, 0, 1]), Instant::ZERO);
        let now = Instant::ZERO;
        windows.charge(id, 1500);
        assert_eq!((windows.room(id, now), windows.next_in_turn(now)), (0, None));
        windows.wait(id, 7, 600);
        windows.wait(id, 8, 100);
        windows.release(id, 700);
        assert!(windows.has_opened());
        assert_eq!((windows.room(id, now), windows.next_in_turn(now)), (200, None), "7 is first");
        assert!(!windows.has_opened());
        windows.release(id, 400);
        let turns: Vec<_> = std::iter::from_fn(|| windows.next_in_turn(now)).collect();
        assert_eq!(turns, [(id, 7), (id, 8)]);
        assert_eq!(windows.join(IpAddr::from([10, 0, 0, 1]), Instant::ZERO), id);
    }

    #[test]
    fn whoever_wants_more_than_the_limit_waits_for_an_empty_window() {
        let mut windows = Windows::new(1000, vec![], false);
        let id = windows.join(IpAddr::from([10, 0, 0, 1]), Instant::ZERO);
        windows.charge(id, 10);
        windows.wait(id, 7, 5000);
        windows.open(id);
        assert_eq!(windows.next_in_turn(Instant::ZERO), None);
        windows.release(id, 10);
        assert_eq!(windows.next_in_turn(Instant::ZERO), Some((id, 7)));
    }

    #[test]
    fn what_nobody_acknowledges_drains_with_time() {
        let mut windows = Windows::new(100_000, vec![], false);
        let id = windows.join(IpAddr::from([10, 0, 0, 1]), Instant::ZERO);
        windows.charge_unacknowledged(id, Instant::ZERO, 80_000);
        assert_eq!(windows.room(id, Instant::ZERO), 20_000);
        let opens = windows.opens_at(id, Instant::ZERO);
        assert_eq!(opens, Some(Instant::from_micros(20)), "half of 80,000 bytes at 2 GB/s");
        assert_eq!(windows.room(id, Instant::from_micros(20)), 60_000);
        assert_eq!(windows.opens_at(id, Instant::from_micros(40)), None);
        assert_eq!(windows.room(id, Instant::from_micros(40)), 100_000);
    }

    #[test]
    fn bursts_that_nobody_acknowledges_are_counted_once() {
        let mut windows = Windows::new(100_000, vec![], false);
        let id = windows.join(IpAddr::from([10, 0, 0, 1]), Instant::ZERO);
        for cost in [1000, 0, 500] {
            windows.charge_unacknowledged(id, Instant::ZERO, cost);
        }
        let counted = [(); 2].map(|()| windows.take_unacknowledged_bursts());
        assert_eq!(counted, [2, 0], "one of them was empty");
    }

    #[test]
    fn an_address_is_asked_about_once_and_only_where_that_can_be_known() {
        let near = IpAddr::from([127, 0, 0, 2]);
        let mut windows = Windows::new(100_000, vec![], true);
        let (watched, far) = (
            windows.join(near, Instant::ZERO),
            windows.join(IpAddr::from([192, 168, 0, 1]), Instant::ZERO),
        );
        windows.charge_unacknowledged(watched, Instant::ZERO, 1000);
        for (slot, id) in [watched, watched, far].into_iter().enumerate() {
            windows.wait(id, slot, 10);
        }
        assert_eq!((windows.next_asked(), windows.next_asked()), (Some(near), None));
    }

    #[test]
    fn an_address_is_asked_about_while_there_is_room() {
        let near = IpAddr::from([127, 0, 0, 2]);
        let mut windows = Windows::new(100_000, vec![], true);
        let (watched, far) = (
            windows.join(near, Instant::ZERO),
            windows.join(IpAddr::from([192, 168, 0, 1]), Instant::ZERO),
        );
        let mut sent = |id, cost| {
            windows.charge_unacknowledged(id, Instant::ZERO, cost);
            windows.next_asked()
        };
        assert_eq!([sent(watched, 49_000), sent(watched, 1000)], [None, Some(near)]);
        assert_eq!(sent(far, 90_000), None);
    }

    #[test]
    fn what_is_closed_admits_nothing() {
        let mut windows = Windows::new(100_000, vec![], false);
        let id = windows.join(IpAddr::from([192, 168, 0, 1]), Instant::ZERO);
        let allowance = windows.allowance(id, Instant::ZERO);
        assert_eq!([allowance, allowance.closed()].map(|it| it.admits(1)), [true, false]);
    }

    #[test]
    fn what_can_be_watched_does_not_drain_by_itself() {
        let mut windows = Windows::new(100_000, vec![], true);
        let far = windows.join(IpAddr::from([10, 0, 0, 1]), Instant::ZERO);
        let ip = IpAddr::from([127, 0, 0, 2]);
        let near = windows.join(ip, Instant::ZERO);
        let at = Instant::from_micros;
        for id in [far, near] {
            windows.charge_unacknowledged(id, at(0), 80_000);
            windows.wait(id, 7, 50_000);
        }
        assert_eq!((windows.next_asked(), windows.next_asked()), (Some(ip), None));
        assert_eq!([far, near].map(|id| windows.room(id, at(1000))), [100_000, 20_000]);
        windows.charge(near, 1000);
        windows.tell(ip, at(1000), Some(31_000));
        assert_eq!(windows.room(near, at(2000)), 69_000, "1000 of what waits are in flight");
        assert_eq!(windows.next_in_turn(at(2000)), Some((near, 7)));
        // Without further reports, the estimated drain rate applies.
        windows.tell(ip, at(2000), None);
        assert_eq!(windows.room(near, at(2000)), 99_000);
    }

    #[test]
    fn datagrams_to_any_number_of_addresses_leave_a_bounded_number_of_windows() {
        let mut windows = Windows::new(100_000, vec![], false);
        let stranger = |i: usize| IpAddr::from(u32::try_from(i).unwrap().to_be_bytes());
        let connected = windows.join(IpAddr::from([192, 168, 0, 1]), Instant::ZERO);
        let held = windows.transient_window(stranger(0), Instant::ZERO);
        windows.charge_unacknowledged(held, Instant::ZERO, 1000);
        assert_eq!(
            windows.join(stranger(0), Instant::ZERO),
            held,
            "a connection goes where datagrams went"
        );
        for i in 1..10 * MAX_IDLE_WINDOWS {
            let now = Instant::from_micros(i as u64);
            let id = windows.transient_window(stranger(i), now);
            assert_eq!(windows.transient_window(stranger(i), now), id);
            windows.charge_unacknowledged(id, now, 1000);
        }
        assert!(windows.windows.len() <= MAX_IDLE_WINDOWS + 2, "{} windows", windows.windows.len());
        assert_eq!(windows.by_address.len(), windows.windows.len());
        assert_eq!(windows.join(stranger(0), Instant::ZERO), held);
        assert_eq!(windows.join(IpAddr::from([192, 168, 0, 1]), Instant::ZERO), connected);
    }

    #[test]
    fn connections_to_any_number_of_addresses_leave_a_bounded_number_of_windows() {
        let mut windows = Windows::new(100_000, vec![], false);
        let peer = |i: usize| IpAddr::from(u32::try_from(i).unwrap().to_be_bytes());
        let now = Instant::ZERO;
        let stays = windows.join(peer(0), now);
        for i in 1..10 * MAX_IDLE_WINDOWS {
            let id = windows.join(peer(i), now);
            assert_eq!(windows.join(peer(i), now), id);
            windows.charge(id, 1000);
            windows.release(id, 1000);
            windows.leave(id);
            windows.leave(id);
            // One connection is opened again.
            let often = windows.join(peer(1), now);
            windows.leave(often);
        }
        assert!(windows.windows.len() <= MAX_IDLE_WINDOWS + 1, "{} windows", windows.windows.len());
        assert!(windows.passing.len() <= MAX_IDLE_WINDOWS, "{} entries", windows.passing.len());
        assert_eq!(windows.by_address.len(), windows.windows.len());
        assert_eq!([0, 1, 2].map(|i| windows.lead_to(peer(i))), [true, true, false]);
        assert_eq!(windows.join(peer(0), now), stays);
    }

    #[test]
    fn the_last_connection_leaves_datagrams_on_their_way_in_the_window() {
        let mut windows = Windows::new(100_000, vec![], false);
        let peer = |i: usize| IpAddr::from(u32::try_from(i).unwrap().to_be_bytes());
        let now = Instant::ZERO;
        let id = windows.join(peer(0), now);
        let busy = windows.join(peer(0), now);
        windows.charge_unacknowledged(id, now, 60_000);
        windows.charge(busy, 10_000);
        windows.leave(id);
        assert_eq!(windows.room(busy, now), 30_000, "the other connection's and what drains");
        windows.release(busy, 10_000);
        windows.leave(busy);
        for i in 1..3 * MAX_IDLE_WINDOWS {
            windows.transient_window(peer(i), now);
        }
        let again = windows.join(peer(0), now);
        assert_eq!((again, windows.room(again, now)), (id, 40_000));
    }

    #[test]
    fn windows_that_were_in_use_are_given_away_later() {
        let mut windows = Windows::new(100_000, vec![], false);
        let peer = |i: usize| IpAddr::from(u32::try_from(i).unwrap().to_be_bytes());
        let (now, later) = (Instant::ZERO, Instant::from_micros(60_000_000));
        let connected: Vec<_> = (0..MAX_IDLE_WINDOWS).map(|i| windows.join(peer(i), now)).collect();
        // Each of these finds connected windows only, and then windows with bytes in flight.
        for i in MAX_IDLE_WINDOWS..2 * MAX_IDLE_WINDOWS + 100 {
            let id = windows.transient_window(peer(i), now);
            windows.charge_unacknowledged(id, now, 80_000);
        }
        let count = windows.windows.len();
        assert_eq!(count, 2 * MAX_IDLE_WINDOWS + 100);
        connected.into_iter().for_each(|id| windows.leave(id));
        for i in 0..count {
            windows.join(peer(10 * MAX_IDLE_WINDOWS + i), later);
        }
        assert_eq!(windows.windows.len(), count, "each was given to another address");
    }

    #[test]
    fn a_window_with_something_under_way_is_not_given_to_another_address() {
        let mut windows = Windows::new(100_000, vec![], false);
        let stranger = |i: usize| IpAddr::from(u32::try_from(i).unwrap().to_be_bytes());
        let now = Instant::ZERO;
        for i in 0..MAX_IDLE_WINDOWS {
            let id = windows.transient_window(stranger(i), now);
            if i % 2 == 0 {
                windows.charge_unacknowledged(id, now, 80_000);
            } else {
                windows.wait(id, i, 10);
            }
        }
        let room = |windows: &mut Windows, i| {
            let id = windows.transient_window(stranger(i), now);
            windows.room(id, now)
        };
        assert_eq!(room(&mut windows, MAX_IDLE_WINDOWS), 100_000, "a new one");
        assert_eq!(
            [0, 2, MAX_EVICTION_LOOKS].map(|i| room(&mut windows, i)),
            [20_000; 3],
            "as it was"
        );
    }
}
