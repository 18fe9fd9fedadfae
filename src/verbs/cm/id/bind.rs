//! Addresses and ports of ids, and listeners.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};

use crate::cm::{Bind, Listen};
use crate::engine::QpType;
use crate::runtime::cm::Attachment;
use crate::verbs::Context;
use crate::verbs::cm::Error;
use crate::verbs::cm::device::{check_gsi, check_listener, for_bind, for_listener, has};
use crate::verbs::cm::inner::{Id, IdInner, IdState, Phase, lock};
use crate::verbs::cm::ports::{self, number_of, ports};

/// Maximum backlog, as in Linux. 0 stands for it.
const MAX_BACKLOG: usize = 1024;

impl Id {
    /// Binds the id to an address and a port. Port 0 requests a free one. An unspecified address stands for every
    /// address of the device.
    ///
    /// A loopback address of another process stands for every address too: a client may bind to the address of its
    /// server. So does any loopback address on a device that has none; the id has no device then, as in Linux.
    ///
    /// # Errors
    ///
    /// [`Error::State`] unless idle, [`Error::Value`], [`Error::NotLocal`], [`Error::NotOfDevice`], [`Error::Bind`],
    /// and [`Error::Verbs`] when the device cannot be opened.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind(&self, address: SocketAddr) -> Result<(), Error> {
        let mut state = self.inner.state();
        self.inner.bind(&mut state, address, None)
    }

    /// Listens for requests. An idle id gets a free port first.
    ///
    /// `backlog` limits the number of requests that the program has neither accepted nor rejected; 0 stands for 1024.
    ///
    /// # Errors
    ///
    /// [`Error::State`] unless bound, [`Error::ForeignLoopback`], [`Error::NoGsi`], [`Error::Bind`], [`Error::Agent`],
    /// and [`Error::Verbs`] when the device cannot be opened.
    #[doc(alias = "rdma_listen")]
    pub fn listen(&self, backlog: usize) -> Result<(), Error> {
        let inner = &self.inner;
        let mut state = inner.state();
        if state.phase == Phase::Idle {
            inner.bind(&mut state, SocketAddr::from(([0, 0, 0, 0], 0)), None)?;
        }
        state.require("listen", Phase::Bound)?;
        let local = state.local.ok_or_else(|| state.refuse("listen", Phase::Bound.text()))?;
        let context = match &state.context {
            Some(context) => context.clone(),
            None => for_listener(&inner.choice())?,
        };
        // A failed device has no address, so its error comes first.
        check_gsi(&context)?;
        check_listener(&context, local.ip())?;
        if let Some(bind) = state.bind {
            ports().listen(bind)?;
        }
        let listen = Listen {
            backlog: if backlog == 0 { MAX_BACKLOG } else { backlog.min(MAX_BACKLOG) },
            destination: Some(local.ip()).filter(|ip| has(&context, *ip)).map(Into::into),
            qp_type: match inner.qp_type {
                QpType::XrcIni => QpType::XrcTgt,
                other => other,
            },
            af_only: state.options.family_only.then(|| local.ip().into()),
            token: inner.number,
        };
        let service = inner.port_space.service_id(local.port());
        inner.start(&context, |cm, _| cm.agent.listen(service, listen))?;
        state.phase = Phase::Listen;
        inner.attach(&mut state, context, local.ip());
        Ok(())
    }

    /// Sets whether another id may share the port (`RDMA_OPTION_ID_REUSEADDR`).
    ///
    /// # Errors
    ///
    /// [`Error::State`] for a listener.
    pub fn set_reuse_address(&self, reuse_address: bool) -> Result<(), Error> {
        let mut state = self.inner.state();
        if state.phase == Phase::Listen {
            return Err(state.refuse("set_reuse_address", "not listening"));
        }
        state.options.reuse_address = reuse_address;
        if let Some(bind) = state.bind {
            ports().set_reuse_address(bind, reuse_address);
        }
        Ok(())
    }

    /// Sets whether an unspecified address stands for addresses of its IP version only (`RDMA_OPTION_ID_AFONLY`).
    ///
    /// # Errors
    ///
    /// [`Error::State`] unless idle or bound.
    pub fn set_family_only(&self, family_only: bool) -> Result<(), Error> {
        let mut state = self.inner.state();
        if !matches!(state.phase, Phase::Idle | Phase::Bound) {
            return Err(state.refuse("set_family_only", "idle or bound"));
        }
        state.options.family_only = family_only;
        if let Some(bind) = state.bind {
            ports().set_family_only(bind, family_only);
        }
        Ok(())
    }
}

impl IdInner {
    /// Binds an idle id. `destination` is the address of the peer, if it is known.
    pub(super) fn bind(
        self: &Arc<Self>,
        state: &mut IdState,
        address: SocketAddr,
        destination: Option<IpAddr>,
    ) -> Result<(), Error> {
        state.require("bind", Phase::Idle)?;
        if let SocketAddr::V6(v6) = address
            && v6.ip().is_unicast_link_local()
            && v6.scope_id() == 0
        {
            let found = address.to_string();
            return Err(Error::Value { what: "link-local address without a scope", found });
        }
        let ip = address.ip().to_canonical();
        let context = match ip.is_unspecified() {
            true => None,
            false => for_bind(&self.choice(), ip, destination)?,
        };
        let chosen = self.choice().chosen;
        let known = context.as_ref().or(chosen.as_ref());
        let bind = Bind {
            space: self.port_space,
            device: known.map(|context| number_of(&context.inner.device)),
            address: SocketAddr::new(ip, address.port()),
            reuse_address: state.options.reuse_address,
            family_only: state.options.family_only,
        };
        let attachment = context.as_ref().map(|context| self.attachment(context)).transpose()?;
        let (bind, port) = ports::bind(bind)?;
        let mut local = address;
        local.set_ip(ip);
        local.set_port(port);
        (state.bind, state.local, state.phase) = (Some(bind), Some(local), Phase::Bound);
        state.attachment = attachment;
        if let Some(context) = context {
            self.attach(state, context, ip);
        }
        Ok(())
    }

    /// Registers the id at a device: it reports the failure of this device, also without a connection.
    pub(super) fn attachment(self: &Arc<Self>, context: &Context) -> Result<Attachment, Error> {
        let sink: Weak<Self> = Arc::downgrade(self);
        let first = context.inner.device.shards.first();
        Ok(first.with_old_time(|core, _| core.cm_events().attach(self.number, sink))?)
    }

    /// Sets the device and the own address of a bound id.
    pub(super) fn attach(&self, state: &mut IdState, context: Context, ip: IpAddr) {
        if let Some(bind) = state.bind {
            ports().set_device(bind, number_of(&context.inner.device), ip);
        }
        if let Some(local) = &mut state.local {
            local.set_ip(ip);
        }
        lock(&self.channel).add_device(&context.inner.device);
        state.context = Some(context);
    }
}
