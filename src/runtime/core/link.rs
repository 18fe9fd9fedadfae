//! Interfaces below the port: every context gets events about their changes.

use std::mem;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Weak;
use std::time::Duration;

use smallvec::SmallVec;

use crate::ids::Mtu;
use crate::port::{Control, Datapath, LinkState};
use crate::runtime::core::Core;
use crate::runtime::core::link_state::LinkCounters;
use crate::runtime::env::LogLevel;
use crate::runtime::log::log;
use crate::time::Instant;
use crate::transport::outputs::AsyncEvent;

/// Minimum of changes that one poll processes.
const MIN_LINK_CHANGES_PER_POLL: usize = 16;

/// Minimum interval of polls: a poll takes as long as a small datagram.
const LINK_POLL_INTERVAL: Duration = Duration::from_millis(1);

impl Core {
    /// Returns whether packets can be sent and received, as far as that is known.
    pub(crate) fn is_active(&self) -> bool {
        let states = &self.link.states;
        states.len() < self.engine.config().address_count()
            || states.iter().any(LinkState::is_active)
    }

    /// Returns the interface that has one of the device's addresses, or had it last; 0 if it is unknown.
    pub(crate) fn interface_of(&self, ip: IpAddr) -> u32 {
        let state = self.link.states.iter().find(|state| state.ip == ip);
        state.map_or(0, |state| state.interface)
    }

    /// Returns the counters of the interfaces.
    pub(crate) fn link_counters(&self) -> LinkCounters {
        self.link.counters
    }

    /// Reads the state of the interfaces before the device is used.
    pub(super) fn read_link_state(&mut self) {
        self.process_links();
    }

    /// Processes changes of the interfaces. They may change without end: the rest is left to the next poll.
    fn process_links(&mut self) {
        for _ in 0..MIN_LINK_CHANGES_PER_POLL.max(2 * self.engine.config().gids.len()) {
            let Some(state) = self.port.poll_link() else { return };
            self.process_link(state);
        }
    }

    /// Polls for changes of the interfaces, and reports them. The port then also checks its descriptors.
    pub(super) fn poll_link(&mut self, now: Instant) {
        if now < self.link.next_poll {
            return;
        }
        self.link.next_poll = now + LINK_POLL_INTERVAL;
        let before = descriptor_numbers(&self.port);
        self.process_links();
        let after = descriptor_numbers(&self.port);
        if before == after {
            return;
        }
        self.descriptors_changed = true;
        if before.iter().any(|number| !after.contains(number)) {
            // The next poll opens it again.
            self.link.next_poll = now;
            let lost = "something else in this process has closed a descriptor of the device";
            log(LogLevel::Warn, &format_args!("{lost}, which opens it again"));
        }
    }

    /// Processes the state of the interface of an address. The MTU of the port is the minimum of all, because the
    /// sender of a UD message does not name its interface.
    fn process_link(&mut self, state: LinkState) {
        let was_active = self.is_active();
        let Some(known) = self.link.states.iter_mut().find(|known| known.ip == state.ip) else {
            // The first report is no change. An address that could be bound exists, though perhaps without an
            // interface.
            self.link.states.push(state);
            return;
        };
        let before = mem::replace(known, state);
        let least = self.link.states.iter().map(|state| state.mtu).min();
        if let Some(mtu) = least.and_then(Mtu::for_link) {
            self.engine.set_active_mtu(mtu);
        }
        if before.has_address != state.has_address {
            self.engine.set_address_present(state.ip, state.has_address);
            self.report_to_contexts(AsyncEvent::GidChange);
        }
        match (was_active, self.is_active()) {
            (false, true) => self.report_to_contexts(AsyncEvent::PortActive),
            (true, false) => {
                self.link.counters.link_downed += 1;
                self.report_to_contexts(AsyncEvent::PortErr);
            }
            _ => {}
        }
    }

    pub(super) fn report_to_contexts(&mut self, event: AsyncEvent) {
        for context in self.contexts.iter().filter_map(Weak::upgrade) {
            self.wakes |= context.push(event).wakes();
        }
    }
}

/// Returns the numbers of a port's descriptors. A thread that sleeps on them does not borrow the port, which may close
/// some meanwhile, and then wakes the thread.
pub(crate) fn descriptor_numbers(port: &dyn Datapath) -> SmallVec<[RawFd; 4]> {
    port.descriptors().iter().map(AsRawFd::as_raw_fd).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::{Config, Engine, gid_table};
    use crate::mem::Memory;
    use crate::runtime::AckPolicy;
    use crate::runtime::queue::Queue;
    use crate::runtime::wire_of_tests::pair;

    /// CC-07
    #[test]
    fn every_context_gets_events_of_the_interface() {
        let (mut end, _) = pair(AckPolicy::Lazy, 16);
        let contexts = [(); 2].map(|()| Arc::new(Queue::new(16)));
        for context in &contexts {
            end.core.add_context(context);
        }
        let ip = end.core.port.info().ip;
        let good = LinkState { ip, interface: 2, has_address: true, running: true, mtu: 1500 };
        let gone = LinkState { has_address: false, running: false, ..good };
        let down = LinkState { running: false, ..good };
        let jumbo = LinkState { mtu: 9000, ..good };
        let mut told = Vec::new();
        for (ms, state) in (0..).zip([good, gone, gone, good, down, good, jumbo]) {
            end.wire.lock().unwrap().links.push_back(state);
            end.core.turn(Instant::from_micros(1000 * ms));
            let [first, second] =
                contexts.each_ref().map(|context| std::iter::from_fn(|| context.pop()).collect());
            let (first, second): (Vec<AsyncEvent>, Vec<AsyncEvent>) = (first, second);
            assert_eq!(first, second);
            assert_eq!(end.core.is_active(), state.is_active());
            told.push(first);
        }
        use AsyncEvent::{GidChange, PortActive, PortErr};
        let expected = [
            &[][..],
            &[GidChange, PortErr],
            &[],
            &[GidChange, PortActive],
            &[PortErr],
            &[PortActive],
            &[],
        ];
        assert_eq!(told, expected);
        assert_eq!(end.core.link_counters().link_downed, 2);
        assert_eq!(end.core.engine.config().active_mtu, Mtu::Mtu4096);
    }

    #[test]
    fn a_look_ends_though_the_interface_changes_all_the_time() {
        let (mut end, _) = pair(AckPolicy::Lazy, 16);
        let ip = end.core.port.info().ip;
        let state = LinkState { ip, interface: 2, has_address: true, running: true, mtu: 1500 };
        end.wire.lock().unwrap().links.extend([state; MIN_LINK_CHANGES_PER_POLL + 1]);
        end.core.turn(Instant::ZERO);
        assert_eq!(end.wire.lock().unwrap().links.len(), 1);
    }

    /// CC-07
    #[test]
    fn the_port_is_down_when_no_address_is_left() {
        let (mut end, _) = pair(AckPolicy::Lazy, 16);
        let ips: [IpAddr; 2] = [[10, 255, 0, 1].into(), [10, 255, 0, 7].into()];
        let config = Config { gids: gid_table(&ips), ..Config::new(ips[0]) };
        end.core.engine = Engine::new(config, Arc::new(Memory::new([1; 32])), [1; 32]);
        let context = Arc::new(Queue::new(16));
        end.core.add_context(&context);
        let states = [(ips[0], 1500), (ips[1], 9000)];
        let [first, second] = states.map(|(ip, mtu)| LinkState {
            ip,
            interface: 2,
            has_address: true,
            running: true,
            mtu,
        });
        let gone = |state| LinkState { has_address: false, running: false, ..state };
        let mut told = Vec::new();
        let turns = [
            &[first, second][..],
            &[gone(first)],
            &[gone(second)],
            &[first],
            &[second, gone(first)],
            &[gone(second), first, second],
        ];
        for (ms, states) in (0..).zip(turns) {
            end.wire.lock().unwrap().links.extend(states);
            end.core.turn(Instant::from_micros(1000 * ms));
            let events: Vec<AsyncEvent> = std::iter::from_fn(|| context.pop()).collect();
            let is_there = [2, 3].map(|index| end.core.engine.gid(index).is_some());
            told.push((is_there, end.core.is_active(), events));
        }
        use AsyncEvent::{GidChange, PortActive, PortErr};
        let expected = [
            ([true, true], true, vec![]),
            ([false, true], true, vec![GidChange]),
            ([false, false], false, vec![GidChange, PortErr]),
            ([true, false], true, vec![GidChange, PortActive]),
            ([false, true], true, vec![GidChange, GidChange]),
            ([true, true], true, vec![GidChange, PortErr, GidChange, PortActive, GidChange]),
        ];
        assert_eq!(told, expected);
        assert_eq!(end.core.link_counters().link_downed, 2);
        // MTU of the narrower interface.
        assert_eq!(end.core.engine.config().active_mtu, Mtu::Mtu1024);
        assert_eq!(ips.map(|ip| end.core.interface_of(ip)), [2, 2]);
        let stranger = [10, 255, 0, 8].into();
        assert_eq!(end.core.interface_of(stranger), 0);
    }
}
