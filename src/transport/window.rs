//! How much may be on its way to one address.
//!
//! A RoCE fabric is lossless or has congestion control; a UDP socket has a receive buffer, and what
//! does not fit is gone. So the packets in flight to one destination are limited as the receiving
//! kernel counts them: by the memory they occupy, not by their length.

mod backlog;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use crate::net::{MAX_BURST_BYTES, MAX_BURST_SEGMENTS};
use crate::time::Instant;
use backlog::Backlog;

/// The receive buffer of a socket that asked for nothing (`net.core.rmem_default`).
pub const DEFAULT_RECEIVE_BUFFER: u64 = 212_992;

/// The part of a receive buffer that may be filled: the rest is for what others send, and for the
/// kernel's rounding.
pub const fn usable(receive_buffer: u64) -> u64 {
    receive_buffer / 4 * 3
}

/// Bytes that a kernel charges a receive buffer for a lone datagram with `len` bytes of payload:
/// the packet's headroom and tail, rounded up to what its allocator hands out, and its descriptor.
///
/// Measured on Linux 6.18: 25 datagrams of 4112 bytes, 92 of 1040 or 256 of 80 fill 212,992 bytes.
pub(crate) const fn truesize(len: usize) -> u64 {
    ((len + 384).next_power_of_two() + 512) as u64
}

/// Windows to addresses without connections, which are kept for the next datagram or connection there. A UD server
/// answers whatever source address a datagram names.
const MAX_IDLE_WINDOWS: usize = 1024;

/// Of those, how many are looked at for one that a new address may have.
const MAX_EVICTION_LOOKS: usize = 4;

/// Names one [`Window`] of a [`Windows`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WindowId(usize);

/// What is in flight to one destination, and who waits for room.
#[derive(Debug)]
struct Window {
    limit: u64,
    /// Bursts arrive as they were sent. Where a network card cuts them, each packet costs what a
    /// lone one does, even when the receiver's kernel merges them again.
    whole: bool,
    /// What will be acknowledged or answered.
    in_flight: u64,
    /// What will not.
    unacknowledged: Backlog,
    /// Who waits for room, in turn.
    queue: VecDeque<Waiter>,
    /// It stands in [`Windows::opened`].
    opened: bool,
    /// The address of which it can be asked what waits there.
    local: Option<IpAddr>,
    /// It stands in [`Windows::asked`].
    asked: bool,
    /// The address that it is found by. A window of its own has none.
    address: Option<IpAddr>,
    /// Connections to the address. Without them another address may have the window when it is idle.
    connections: usize,
    /// It stands in [`Windows::passing`].
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

    /// Whether nothing is on its way there, and nobody waits.
    fn is_idle(&self, now: Instant) -> bool {
        let listed = self.opened || self.asked || !self.queue.is_empty();
        !listed && self.in_flight == 0 && self.unacknowledged.undrained(now) == 0
    }
}

/// The windows of a device, one a destination address.
#[derive(Debug)]
pub(crate) struct Windows {
    by_address: HashMap<IpAddr, WindowId>,
    windows: Vec<Window>,
    /// Windows without connections, and some that have got connections since: those looked at last are behind.
    passing: VecDeque<WindowId>,
    limit: u64,
    /// The device's own addresses.
    local: Vec<IpAddr>,
    /// What waits at hosts of this machine can be asked.
    watches: bool,
    /// Windows of which it is to be asked.
    asked: Vec<WindowId>,
    /// Windows that have got room since somebody looked, and for which somebody waits.
    opened: Vec<WindowId>,
    /// Bursts that nobody will acknowledge, since this was last asked.
    unacknowledged_bursts: usize,
}

impl Windows {
    /// Windows of `limit` bytes each, for a device with these addresses. `watches`: what waits at
    /// hosts of this machine will be told when it is asked for.
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

    /// The window to `destination` for a connection, until that [leaves](Self::leave) it.
    pub(crate) fn join(&mut self, destination: IpAddr, now: Instant) -> WindowId {
        let id = self.transient_window(destination, now);
        self.windows[id.0].connections += 1;
        id
    }

    /// Whether a window leads to `destination`: as long as there are connections to it, and mostly for some time after.
    pub(crate) fn lead_to(&self, destination: IpAddr) -> bool {
        self.by_address.contains_key(&destination)
    }

    /// A connection of which nothing is in flight any more ends. The last one leaves the window to the datagrams
    /// and connections to come.
    pub(crate) fn leave(&mut self, id: WindowId) {
        let window = &mut self.windows[id.0];
        window.connections = window.connections.saturating_sub(1);
        if window.connections == 0 && !std::mem::replace(&mut window.listed, true) {
            self.passing.push_back(id);
        }
    }

    /// The window to `destination` as long as it is not idle, or has connections: for a datagram that goes there now.
    pub(crate) fn transient_window(&mut self, destination: IpAddr, now: Instant) -> WindowId {
        if let Some(id) = self.by_address.get(&destination) {
            return *id;
        }
        let window =
            Window { address: Some(destination), listed: true, ..self.towards(destination) };
        let id = match self.vacate(now) {
            Some(id) => {
                self.windows[id.0] = window;
                id
            }
            None => self.push(window),
        };
        self.passing.push_back(id);
        self.by_address.insert(destination, id);
        id
    }

    /// Takes an idle window without connections from its address, if there are many.
    fn vacate(&mut self, now: Instant) -> Option<WindowId> {
        for _ in 0..MAX_EVICTION_LOOKS {
            if self.passing.len() < MAX_IDLE_WINDOWS {
                return None;
            }
            let id = self.passing.pop_front()?;
            let window = &mut self.windows[id.0];
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
        // No card cuts what does not leave the host.
        let whole = destination.is_loopback() || self.local.contains(&destination);
        let watched = whole && self.watches;
        let (local, unacknowledged) = (watched.then_some(destination), Backlog::new(watched));
        Window { local, unacknowledged, ..Window::new(self.limit, whole) }
    }

    /// A window of its own, which belongs to no destination.
    pub(crate) fn own(&mut self, limit: u64) -> WindowId {
        self.push(Window::new(limit, false))
    }

    fn push(&mut self, window: Window) -> WindowId {
        self.windows.push(window);
        WindowId(self.windows.len() - 1)
    }

    /// How many windows there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.windows.len()
    }

    /// Sets how much one destination bears.
    pub(crate) fn set_limit(&mut self, id: WindowId, limit: u64) {
        self.windows[id.0].limit = limit;
        self.open(id);
    }

    /// Whether bursts arrive there as they were sent.
    pub(crate) fn is_whole(&self, id: WindowId) -> bool {
        self.windows[id.0].whole
    }

    /// The window as a transmission finds it.
    pub(crate) fn allowance(&self, id: WindowId, now: Instant) -> UsableWindow {
        let Window { limit, whole, .. } = self.windows[id.0];
        UsableWindow { limit, room: self.room(id, now), whole }
    }

    /// What else may go now. Whoever wants more than the limit gets along with the limit.
    pub(crate) fn room(&self, id: WindowId, now: Instant) -> u64 {
        let window = &self.windows[id.0];
        window.limit.saturating_sub(window.in_flight).saturating_sub(window.unacknowledged.at(now))
    }

    /// When there will be room for waiting alone: half of what nobody acknowledges is gone by then.
    /// `None` when only an acknowledgement makes room.
    pub(crate) fn opens_at(&self, id: WindowId, now: Instant) -> Option<Instant> {
        self.windows[id.0].unacknowledged.halves_at(now)
    }

    /// Charges for a burst that nobody will acknowledge.
    pub(crate) fn charge_unacknowledged(&mut self, id: WindowId, now: Instant, cost: u64) {
        self.unacknowledged_bursts += usize::from(cost > 0);
        let window = &mut self.windows[id.0];
        window.unacknowledged.add(now, cost);
        if window.unacknowledged.is_to_be_told(window.limit) {
            self.ask(id);
        }
    }

    /// How many such bursts there were since this was last asked.
    pub(crate) fn take_unacknowledged_bursts(&mut self) -> usize {
        std::mem::take(&mut self.unacknowledged_bursts)
    }

    pub(crate) fn charge(&mut self, id: WindowId, cost: u64) {
        self.windows[id.0].in_flight += cost;
    }

    /// Gives `cost` back and lets those go on who waited.
    pub(crate) fn release(&mut self, id: WindowId, cost: u64) {
        if cost == 0 {
            return;
        }
        let window = &mut self.windows[id.0];
        window.in_flight = window.in_flight.saturating_sub(cost);
        self.open(id);
    }

    /// Remembers that the queue pair in `slot` waits for `want`, behind those who wait already.
    pub(crate) fn wait(&mut self, id: WindowId, slot: usize, want: u64) {
        self.windows[id.0].queue.push_back(Waiter { slot, want });
        self.ask(id);
    }

    /// The queue pair in `slot` waits no more: it is reset.
    pub(crate) fn forget_waiter(&mut self, id: WindowId, slot: usize) {
        self.windows[id.0].queue.retain(|waiter| waiter.slot != slot);
        // Others may fit that wanted less.
        self.open(id);
    }

    /// Time has passed, which makes room where nobody acknowledges.
    pub(crate) fn retry(&mut self, id: WindowId) {
        self.ask(id);
        self.open(id);
    }

    /// Asks what waits at the destination, if it can be known and matters.
    fn ask(&mut self, id: WindowId) {
        let window = &mut self.windows[id.0];
        let matters = window.local.is_some() && window.unacknowledged.is_some();
        if matters && !std::mem::replace(&mut window.asked, true) {
            self.asked.push(id);
        }
    }

    /// The next address of which it is to be told what waits there.
    pub(crate) fn next_asked(&mut self) -> Option<IpAddr> {
        let window = &mut self.windows[self.asked.pop()?.0];
        window.asked = false;
        window.local
    }

    /// Whether [`next_asked`](Self::next_asked) has one.
    pub(crate) fn has_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Tells what waits at an address: of that, what is in flight will be acknowledged. `None` when
    /// it is not known, so that time must do.
    pub(crate) fn tell(&mut self, address: IpAddr, now: Instant, waiting: Option<u64>) {
        let Some(id) = self.by_address.get(&address).copied() else { return };
        let window = &mut self.windows[id.0];
        let unacknowledged = waiting.map(|waiting| waiting.saturating_sub(window.in_flight));
        window.unacknowledged.tell(now, unacknowledged);
        self.open(id);
    }

    /// Whether somebody waits.
    pub(crate) fn is_waited_for(&self, id: WindowId) -> bool {
        !self.windows[id.0].queue.is_empty()
    }

    /// There may be room for who waits.
    pub(crate) fn open(&mut self, id: WindowId) {
        let window = &mut self.windows[id.0];
        if !window.queue.is_empty() && !std::mem::replace(&mut window.opened, true) {
            self.opened.push(id);
        }
    }

    /// Whether [`next_in_turn`](Self::next_in_turn) may have somebody.
    pub(crate) fn has_opened(&self) -> bool {
        !self.opened.is_empty()
    }

    /// The next queue pair that has waited for a window and for which it has room now. Only the
    /// first in each queue is looked at, so it costs the same however many wait.
    #[inline]
    pub(crate) fn next_in_turn(&mut self, now: Instant) -> Option<(WindowId, usize)> {
        while let Some(id) = self.opened.last().copied() {
            let allowance = self.allowance(id, now);
            let window = &mut self.windows[id.0];
            if window.queue.front().is_some_and(|first| allowance.admits(first.want)) {
                return window.queue.pop_front().map(|first| (id, first.slot));
            }
            window.opened = false;
            self.opened.pop();
        }
        None
    }
}

/// What a window allows one burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UsableWindow {
    limit: u64,
    room: u64,
    whole: bool,
}

impl UsableWindow {
    /// Whether there is room. Whoever wants more than the limit gets along with the limit.
    pub(crate) fn admits(self, want: u64) -> bool {
        want.min(self.limit) <= self.room
    }

    /// How many packets there is room for that take so much each.
    pub(crate) fn packets(self, takes: u64) -> u64 {
        self.room / takes.max(1)
    }

    /// What is allowed while others have their turn.
    pub(crate) fn closed(self) -> Self {
        Self { room: 0, ..self }
    }

    /// What is allowed whoever has a limit of his own, of which `used` is used.
    pub(crate) fn within(self, limit: Option<u64>, used: u64) -> Self {
        let Some(limit) = limit else { return self };
        let room = self.room.min(limit.saturating_sub(used));
        Self { limit: self.limit.min(limit), room, ..self }
    }

    /// What is allowed after `cost` has been used.
    pub(crate) fn less(self, cost: u64) -> Self {
        Self { room: self.room.saturating_sub(cost), ..self }
    }

    /// What a packet of `len` bytes takes; `follows`, when another precedes it in its burst.
    pub(crate) fn takes(self, len: usize, follows: bool) -> u64 {
        if follows && self.whole { len as u64 } else { truesize(len) }
    }

    /// What `packets` packets of `len` bytes take in as few bursts as possible.
    pub(crate) fn run(self, len: usize, packets: u32) -> u64 {
        let bursts = packets.div_ceil(per_burst(len));
        u64::from(bursts) * truesize(len) + u64::from(packets - bursts) * self.takes(len, true)
    }

    /// What there must be room for before a burst begins that would carry `packets` packets of `len`
    /// bytes. To begin with less would split messages into ever smaller bursts.
    pub(crate) fn burst(self, len: usize, packets: u32) -> u64 {
        let all = self.run(len, packets.min(per_burst(len)));
        let enough = if self.whole { all } else { all.min(self.quarter()) };
        enough.max(truesize(len))
    }

    /// The bytes of the longest burst of packets of `len` bytes at most.
    pub(crate) fn longest_burst(self, len: usize) -> usize {
        let packets = usize::try_from(self.quarter() / truesize(len)).unwrap_or(usize::MAX);
        if self.whole { MAX_BURST_BYTES } else { packets.max(1).saturating_mul(len) }
    }

    /// What one burst that is cut, and what goes without a question, takes at most: where hardly two fill the window,
    /// one waits for the other.
    pub(crate) fn quarter(self) -> u64 {
        self.limit / 4
    }
}

/// Packets of `len` bytes that fit one burst.
pub(crate) fn per_burst(len: usize) -> u32 {
    let packets = (MAX_BURST_BYTES / len.max(1)).clamp(1, MAX_BURST_SEGMENTS);
    u32::try_from(packets).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_datagrams_cost_what_the_kernel_charges() {
        // How many fit a default receive buffer, measured: 25, 92, 256. Ours may be a little lower.
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
        // Where nobody tells any more, time must do.
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
            // One comes back.
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
        // Each of these finds connected ones only, and then those with something under way.
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
