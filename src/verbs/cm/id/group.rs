//! Multicast groups of UD ids. RoCE has no subnet administrator: the group is an address, and a join ends at once.

use std::net::{IpAddr, SocketAddr};

use crate::engine::QpType;
use crate::ids::QKey;
use crate::net::AddressVector;
use crate::verbs::cm::inner::{Id, Membership, Phase};
use crate::verbs::cm::{Error, EventKind, MulticastGroup, MulticastId};

impl Id {
    /// Joins an IPv4 multicast group. [`EventKind::MulticastJoined`] follows at once. The program attaches its queue pair
    /// to the group, which makes the port join it; a sender need not.
    ///
    /// # Errors
    ///
    /// [`Error::QpType`] unless UD, [`Error::State`] unless bound to a device, [`Error::Group`], [`Error::Value`] for an
    /// address that is not a group, [`Error::Verbs`] when the device has failed.
    #[doc(alias = "rdma_join_multicast")]
    pub fn join_multicast(&self, group: SocketAddr) -> Result<MulticastId, Error> {
        let ip = group.ip().to_canonical();
        let mut state = self.inner.state();
        let has_device = state.context.is_some();
        if !has_device || !matches!(state.phase, Phase::Bound | Phase::AddrResolved) {
            return Err(state.refuse("join_multicast", "bound to a device"));
        }
        if self.inner.qp_type != QpType::Ud {
            return Err(Error::QpType { call: "join_multicast", found: self.inner.qp_type });
        }
        if !ip.is_multicast() {
            return Err(Error::Value { what: "multicast group", found: ip.to_string() });
        }
        if ip.is_ipv6() {
            return Err(Error::Group { group: ip });
        }
        if let Some(context) = &state.context {
            context.inner.device.shards.check()?;
        }
        let id = MulticastId(state.next_group);
        state.next_group += 1;
        let source = state.local.map(|local| local.ip());
        let gids = state.context.iter().flat_map(|context| &context.inner.device.gids);
        let is_source = |gid: IpAddr| Some(gid) == source || gid.is_ipv4();
        let index = gids.map(|gid| gid.ip()).position(is_source).unwrap_or_default();
        let address = AddressVector {
            sgid_index: u8::try_from(index).unwrap_or_default(),
            traffic_class: state.options.traffic_class,
            ..AddressVector::to(ip.into())
        };
        let group = MulticastGroup { id, address, qkey: QKey(state.qkey.0) };
        state.groups.push(Membership { group, reported: 0 });
        drop(state);
        self.inner.report(EventKind::MulticastJoined(group));
        Ok(id)
    }

    /// Leaves a group. Returns the number of its events that the program has taken, `None` for an unknown group.
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave_multicast(&self, group: MulticastId) -> Option<u32> {
        let mut state = self.inner.state();
        let at = state.groups.iter().position(|member| member.group.id == group)?;
        Some(state.groups.remove(at).reported)
    }
}
