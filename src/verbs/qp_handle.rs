//! Operations common to queue pairs with and without a send queue.

use std::net::IpAddr;
use std::sync::Arc;

use crate::engine::{InitAttr, Peer, PostError, QpAttr, QpInfo, QpState, QpType, RtrAttr, RtsAttr};
use crate::ids::Qpn;
use crate::net::AddressVector;
use crate::port::udp::local_receive_buffer;
use crate::psn::Psn;
use crate::runtime::{Shard, find_device};
use crate::verbs::context::ContextInner;
use crate::verbs::{ConnectOptions, Counters, Endpoint, Error};

/// A queue pair of the device.
#[derive(Debug)]
pub(super) struct QpHandle {
    pub(super) shard: Arc<Shard>,
    pub(super) qpn: Qpn,
    pub(super) qp_type: QpType,
    /// PSN of its first request.
    pub(super) psn: Psn,
}

impl QpHandle {
    /// Returns the endpoint at the source address of its path, or at the first address of the device if it has none
    /// yet.
    pub(super) fn endpoint(&self, context: &ContextInner) -> Endpoint {
        // A queue pair of a failed device has no path.
        let path = self.query().ok().and_then(|info| info.attr.av);
        let from = path.and_then(|av| self.endpoint_at(context, av.sgid_index).ok());
        from.unwrap_or(Endpoint { gid: context.device.ip.into(), qpn: self.qpn, psn: self.psn })
    }

    pub(super) fn endpoint_at(&self, context: &ContextInner, index: u8) -> Result<Endpoint, Error> {
        let gid = context.slot(index.into())?;
        Ok(Endpoint { gid, qpn: self.qpn, psn: self.psn })
    }

    pub(super) fn modify(&self, context: &ContextInner, attr: &QpAttr) -> Result<(), Error> {
        let qpn = self.qpn;
        let modified = self.shard.with(|core, now| core.modify_qp(now, qpn, attr))?;
        modified.map_err(|source| Error::Modify { qpn, source })?;
        if let Some((from, peer)) = attr.av.map(|av| (av.sgid_index, av.gid.ip())) {
            let bytes = local_receive_buffer(context.slot(from.into())?.ip(), peer);
            self.open_peer_window(context, peer, bytes)?;
        }
        Ok(())
    }

    pub(super) fn query(&self) -> Result<QpInfo, Error> {
        let qpn = self.qpn;
        let found = self.shard.with(|core, _| core.engine.query_qp(qpn))?;
        // The queue pair exists as long as a handle.
        found.ok_or(Error::Post { qpn, source: PostError::NoSuchQp(qpn) })
    }

    pub(super) fn counters(&self) -> Result<Counters, Error> {
        let qpn = self.qpn;
        let found = self.shard.with(|core, _| core.engine.qp_counters(qpn))?;
        found.ok_or(Error::Post { qpn, source: PostError::NoSuchQp(qpn) })
    }

    pub(super) fn connect(
        &self,
        context: &ContextInner,
        peer: &Endpoint,
        options: &ConnectOptions,
    ) -> Result<(), Error> {
        let ip = peer.gid.ip();
        if self.query()?.state == QpState::Reset {
            let init = InitAttr::Connected { access: options.access };
            let pkey_index = Some(options.pkey_index);
            self.modify(context, &QpAttr { pkey_index, ..init.into() })?;
        }
        let av = AddressVector {
            sgid_index: options.sgid_index,
            traffic_class: options.traffic_class,
            hop_limit: options.hop_limit,
            ..AddressVector::to(peer.gid)
        };
        let active_mtu = self.shard.with(|core, _| core.engine.config().active_mtu)?;
        let path_mtu = options.path_mtu.unwrap_or(active_mtu);
        let peer = Peer { av, dest_qpn: peer.qpn, rq_psn: peer.psn, path_mtu };
        self.modify(context, &self.to_rtr(peer, options).into())?;
        let of_this_process = || find_device(ip).map(|device| device.receive_buffer);
        self.open_peer_window(context, ip, options.peer_receive_buffer.or_else(of_this_process))?;
        self.modify(context, &self.to_rts(options).into())
    }

    /// Opens the flow-control window to a peer, with the size of its receive buffer if known.
    fn open_peer_window(
        &self,
        context: &ContextInner,
        peer: IpAddr,
        bytes: Option<u64>,
    ) -> Result<(), Error> {
        let device = &context.device;
        Ok(device.peers.add_connection(&device.shards, &self.shard, peer, bytes)?)
    }

    fn to_rtr(&self, peer: Peer, options: &ConnectOptions) -> RtrAttr {
        match self.qp_type {
            QpType::Rc | QpType::XrcTgt => RtrAttr::Rc {
                peer,
                max_dest_rd_atomic: options.max_rd_atomic,
                min_rnr_timer: options.min_rnr_timer,
            },
            QpType::Uc | QpType::Ud | QpType::XrcIni => RtrAttr::Uc { peer },
        }
    }

    fn to_rts(&self, options: &ConnectOptions) -> RtsAttr {
        let (sq_psn, timeout) = (self.psn, options.timeout);
        match self.qp_type {
            QpType::Rc | QpType::XrcIni => RtsAttr::Rc {
                sq_psn,
                timeout,
                retry_cnt: options.retry_cnt,
                rnr_retry: options.rnr_retry,
                max_rd_atomic: options.max_rd_atomic,
            },
            QpType::XrcTgt => RtsAttr::XrcTgt { sq_psn, timeout },
            QpType::Uc | QpType::Ud => RtsAttr::Unreliable { sq_psn },
        }
    }
}
