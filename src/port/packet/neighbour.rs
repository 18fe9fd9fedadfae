//! Routes to neighbours on the link of a port, cached from the kernel's tables.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::net::IpAddr;
use std::time::Duration;

use super::unresolved::{NeighbourBytes, UnresolvedBytes};
use crate::net::Burst;
use crate::port::shared::frame::Link;
use crate::sys::{Neighbour, RtNetlink};
use crate::time::Instant;

/// Time for which a resolved route is cached.
const RESOLVED_ROUTE_TTL: Duration = Duration::from_millis(500);

/// Time for which an unresolved route is cached: the neighbour may answer soon.
const UNRESOLVED_ROUTE_TTL: Duration = Duration::from_millis(1);

/// Maximum number of cached destinations, after which the cache is cleared.
const MAX_CACHED_ROUTES: usize = 4096;

/// Interface of a port, and the routes to neighbours on its link.
#[derive(Debug)]
pub(super) struct Neighbours {
    netlink: RtNetlink,
    ip: IpAddr,
    interface: u32,
    link_address: [u8; 6],
    known: HashMap<IpAddr, CachedRoute>,
    waiting: UnresolvedBytes,
}

/// How a burst is sent to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// In frames of this port.
    Frames {
        link: Link,
        /// Path MTU, as far as the kernel knows it.
        mtu: usize,
    },
    /// By the kernel: the route does not use this interface, or the kernel has to probe the neighbour.
    ByKernel,
    /// By the kernel, which does not know the link address and resolves it on the first packet.
    Unresolved,
}

/// Next hop of a route.
#[derive(Clone, Copy, Debug)]
struct Hop {
    ip: IpAddr,
    /// MTU of the route.
    mtu: usize,
}

#[derive(Clone, Copy, Debug)]
struct CachedRoute {
    until: Instant,
    route: Route,
    share: NeighbourBytes,
}

impl Neighbours {
    /// Opens the routes of the interface with the address `ip`; `None` if it is not Ethernet.
    pub(super) fn new(ip: IpAddr, interface: u32) -> io::Result<Option<Self>> {
        let netlink = RtNetlink::open()?;
        let Some(link_address) = netlink.link_address(interface)? else { return Ok(None) };
        let waiting = UnresolvedBytes::default();
        Ok(Some(Self { netlink, ip, interface, link_address, known: HashMap::new(), waiting }))
    }

    /// Moves to another interface, or to a changed one. Returns `false` if it is not Ethernet, or does not exist.
    pub(super) fn follow(&mut self, interface: u32) -> bool {
        self.known.clear();
        self.netlink.reopen_if_lost();
        let Ok(Some(link_address)) = self.netlink.link_address(interface) else { return false };
        (self.interface, self.link_address) = (interface, link_address);
        true
    }

    /// Returns how to send a burst to `destination` now.
    pub(super) fn route_to(&mut self, now: Instant, destination: IpAddr) -> Route {
        let known = self.known.get(&destination);
        if let Some(known) = known.filter(|known| now < known.until) {
            return known.route;
        }
        self.netlink.reopen_if_lost();
        let mut share = known.map(|known| known.share).unwrap_or_default();
        let hop = self.next_hop(destination).ok().flatten();
        let found = hop.map(|hop| {
            (hop, self.netlink.neighbour(self.interface, hop.ip).unwrap_or(Neighbour::Failed))
        });
        let frames = |to, Hop { mtu, .. }| {
            let link = Link { source: self.link_address, destination: to };
            Route::Frames { link, mtu }
        };
        let (route, cached) = match found {
            None => (Route::ByKernel, Route::ByKernel),
            Some((hop, Neighbour::Reachable(to))) => (frames(to, hop), frames(to, hop)),
            Some((hop, Neighbour::Stale(to))) => (Route::ByKernel, frames(to, hop)),
            Some((_, Neighbour::Incomplete | Neighbour::Failed)) => {
                (Route::Unresolved, Route::Unresolved)
            }
        };
        if !matches!(found, Some((_, Neighbour::Incomplete))) {
            self.waiting.release(mem::take(&mut share));
        }
        if self.known.len() >= MAX_CACHED_ROUTES {
            self.known.clear();
        }
        let until = now
            + if cached == Route::Unresolved { UNRESOLVED_ROUTE_TTL } else { RESOLVED_ROUTE_TTL };
        self.known.insert(destination, CachedRoute { until, route: cached, share });
        route
    }

    /// Returns whether the kernel has room for a burst to an unresolved neighbour, and counts it if so.
    pub(super) fn may_queue(&mut self, now: Instant, burst: &Burst) -> bool {
        let known = self.known.get_mut(&burst.path.destination);
        known.is_some_and(|known| self.waiting.try_charge(now, &mut known.share, burst))
    }

    /// Returns the next hop on this interface; `None` if the route uses another.
    fn next_hop(&self, destination: IpAddr) -> io::Result<Option<Hop>> {
        let route = self.netlink.route(self.ip, destination)?;
        let own = route.filter(|route| route.interface.is_none_or(|index| index == self.interface));
        let mtu = |mtu: Option<u32>| mtu.and_then(|mtu| usize::try_from(mtu).ok());
        Ok(own.map(|route| Hop { ip: route.next_hop, mtu: mtu(route.mtu).unwrap_or(usize::MAX) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_are_routed_by_the_kernel() {
        let ip = "127.0.0.1".parse().unwrap();
        let index = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
        let interface = index.trim().parse().unwrap();
        let mut neighbours = Neighbours::new(ip, interface).unwrap().unwrap();
        assert_eq!(neighbours.link_address, [0; 6]);
        let now = Instant::ZERO;
        assert_eq!(neighbours.route_to(now, "127.0.0.2".parse().unwrap()), Route::ByKernel);
        assert!(neighbours.next_hop("127.0.0.2".parse().unwrap()).unwrap().is_none());
    }

    #[test]
    fn an_interface_that_does_not_exist_is_none() {
        assert!(Neighbours::new("127.0.0.1".parse().unwrap(), 0x7fff_fff0).unwrap().is_none());
    }
}
