//! The interface below the port: what becomes of it is told to every context.

use std::sync::Weak;
use std::time::Duration;

use crate::counter::counters;
use crate::ids::Mtu;
use crate::io::LinkState;
use crate::runtime::core::Core;
use crate::runtime::queue::Pushed;
use crate::time::Instant;
use crate::transport::outputs::AsyncEvent;

/// How often one looks at most: a look takes as long as a small datagram.
const PAUSE: Duration = Duration::from_millis(1);

counters! {
    named "";
    /// What has become of the interface below a device.
    pub struct LinkCounters {
        link_downed: "Times that the interface stopped carrying packets, or lost the device's address.", rxe "link_downed";
    }
}

/// What is known of the interface.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    /// As it was seen last; `None` when that cannot be known.
    state: Option<LinkState>,
    next_look: Instant,
    pub(super) counters: LinkCounters,
}

impl Core {
    /// Whether packets can come and go, as far as that is known.
    pub(crate) fn is_active(&self) -> bool {
        self.link.state.is_none_or(|state| state.is_active())
    }

    /// What has become of the interface.
    pub(crate) fn link_counters(&self) -> LinkCounters {
        self.link.counters
    }

    /// Takes notice of what the interface is like before anybody relies on it.
    pub(super) fn begin_with_link(&mut self) {
        self.link.state = self.port.poll_link();
    }

    /// Looks whether the interface has changed, and tells.
    pub(super) fn look_at_link(&mut self, now: Instant) {
        if now < self.link.next_look {
            return;
        }
        self.link.next_look = now + PAUSE;
        let Some(state) = self.port.poll_link() else { return };
        let Some(before) = self.link.state.replace(state) else { return };
        if let Some(mtu) = Mtu::for_link(state.mtu) {
            self.engine.set_active_mtu(mtu);
        }
        if before.has_address != state.has_address {
            self.tell_all(AsyncEvent::GidChange);
        }
        match (before.is_active(), state.is_active()) {
            (false, true) => self.tell_all(AsyncEvent::PortActive),
            (true, false) => {
                self.link.counters.link_downed += 1;
                self.tell_all(AsyncEvent::PortErr);
            }
            _ => {}
        }
    }

    pub(super) fn tell_all(&mut self, event: AsyncEvent) {
        for context in self.contexts.iter().filter_map(Weak::upgrade) {
            self.wake_driver |= context.push(event) == Pushed::WakeDriver;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::runtime::AckPolicy;
    use crate::runtime::queue::Queue;
    use crate::runtime::wire_of_tests::pair;

    /// CC-07
    #[test]
    fn every_context_hears_what_becomes_of_the_interface() {
        let (mut end, _) = pair(AckPolicy::Lazy, 16);
        let contexts = [(); 2].map(|()| Arc::new(Queue::new(16)));
        for context in &contexts {
            end.core.add_context(context);
        }
        let good = LinkState { has_address: true, running: true, mtu: 1500 };
        let gone = LinkState { has_address: false, running: false, ..good };
        let down = LinkState { running: false, ..good };
        let jumbo = LinkState { mtu: 9000, ..good };
        let mut told = Vec::new();
        for (ms, state) in (0..).zip([good, gone, gone, good, down, good, jumbo]) {
            end.wire.lock().unwrap().link = Some(state);
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
}
