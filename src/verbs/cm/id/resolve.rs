//! Addresses and routes to peers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::cm::{self, CmPath};
use crate::verbs::cm::device::{active_mtu, for_destination, has, route};
use crate::verbs::cm::inner::{Id, Phase};
use crate::verbs::cm::{Error, EventKind};

impl Id {
    /// Determines the device and the own address for connections to `destination`. An idle id is bound first, to
    /// `source` or to a free port. [`EventKind::AddrResolved`] follows at once; the port resolves the address of the next
    /// hop when it sends.
    ///
    /// An unspecified destination is the device itself, and so is a loopback address if the device has none.
    ///
    /// # Errors
    ///
    /// [`Error::State`] unless idle or bound, [`Error::NoRoute`], [`Error::NoSource`], [`Error::Value`] for addresses of
    /// different IP versions, and those of [`bind`](Self::bind).
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_addr(
        &self,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        timeout: Duration,
    ) -> Result<(), Error> {
        let _ = timeout;
        let mut destination = destination;
        destination.set_ip(destination.ip().to_canonical());
        let mut state = self.inner.state();
        if state.phase == Phase::Idle {
            let any: IpAddr = match destination.ip() {
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            let source = source.unwrap_or(SocketAddr::new(any, 0));
            self.inner.bind(&mut state, source, Some(destination.ip()))?;
        }
        state.require("resolve_addr", Phase::Bound)?;
        let bound = state.local.map(|local| local.ip());
        let device = match &state.context {
            Some(context) => context.clone(),
            None => for_destination(&self.inner.choice(), destination.ip())?,
        };
        let (by_route, destination) = route(&device, destination)?;
        let from = bound.filter(|ip| has(&device, *ip)).unwrap_or(by_route);
        if from.is_ipv4() != destination.is_ipv4() {
            let found = format!("{from} and {}", destination.ip());
            return Err(Error::Value { what: "pair of addresses", found });
        }
        if state.attachment.is_none() {
            state.attachment = Some(self.inner.attachment(&device)?);
        }
        state.peer = Some(destination);
        state.phase = Phase::AddrResolved;
        self.inner.attach(&mut state, device, from);
        drop(state);
        self.inner.report(EventKind::AddrResolved);
        Ok(())
    }

    /// Determines the path to the peer. [`EventKind::RouteResolved`] follows at once.
    ///
    /// # Errors
    ///
    /// [`Error::State`] before [`resolve_addr`](Self::resolve_addr); [`Error::Value`] for a timeout of zero, as Linux.
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(&self, timeout: Duration) -> Result<(), Error> {
        let mut state = self.inner.state();
        state.require("resolve_route", Phase::AddrResolved)?;
        if timeout.is_zero() {
            return Err(Error::Value { what: "timeout", found: String::from("0") });
        }
        let (Some(context), Some(local), Some(peer)) = (&state.context, state.local, state.peer)
        else {
            return Err(state.refuse("resolve_route", Phase::AddrResolved.text()));
        };
        let class = state.options.traffic_class;
        state.path = Some(cm::path(local, peer, active_mtu(context)?, class));
        state.phase = Phase::RouteResolved;
        drop(state);
        self.inner.report(EventKind::RouteResolved);
        Ok(())
    }

    /// Sets the path to the peer (`RDMA_OPTION_IB_PATH`), instead of [`resolve_route`](Self::resolve_route).
    ///
    /// # Errors
    ///
    /// [`Error::State`] before [`resolve_addr`](Self::resolve_addr).
    pub fn set_path(&self, path: CmPath) -> Result<(), Error> {
        let mut state = self.inner.state();
        state.require("set_path", Phase::AddrResolved)?;
        state.path = Some(path);
        state.phase = Phase::RouteResolved;
        drop(state);
        self.inner.report(EventKind::RouteResolved);
        Ok(())
    }
}
