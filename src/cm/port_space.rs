//! Port spaces: which identifiers of the connection manager own which ports.
//!
//! A bind is a port space, an address and a port. Two binds of one port conflict if they have the same address, or if
//! either has a wildcard address, as in Linux (`cma_check_port`):
//!
//! | both binds | conflict |
//! |---|---|
//! | have `REUSEADDR`, and neither listens | no |
//! | are IPv6-only or IPv4-only, of different families | no |
//! | are of different devices | no |
//! | otherwise, with equal addresses or a wildcard address | yes |
//!
//! A bind without a device conflicts with the binds of every device, because it may become one of any.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use thiserror::Error;

use crate::wire::cm::ServiceId;

/// A port space (`enum rdma_port_space`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
#[doc(alias = "rdma_port_space")]
pub enum PortSpace {
    /// Reliable connections.
    #[doc(alias = "RDMA_PS_TCP")]
    Tcp = 0x0106,
    /// Unreliable datagrams.
    #[doc(alias = "RDMA_PS_UDP")]
    Udp = 0x0111,
    /// Any transport service.
    #[doc(alias = "RDMA_PS_IB")]
    Ib = 0x013f,
}

impl PortSpace {
    /// Every port space.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Ib];

    /// Returns the port space with this number, or `None`.
    pub fn new(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|space| *space as u16 == number)
    }

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Ib => "IB",
        }
    }

    /// Returns the port space and the port of a service ID; `None` for a service ID of another kind.
    pub fn of_service(service: ServiceId) -> Option<(Self, u16)> {
        let number = u16::try_from(service.0 >> 16).ok()?;
        let [.., high, low] = service.0.to_be_bytes();
        Some((Self::new(number)?, u16::from_be_bytes([high, low])))
    }

    /// Returns the service ID of a port.
    pub const fn service_id(self, port: u16) -> ServiceId {
        ServiceId((self as u64) << 16 | port as u64)
    }
}

/// Number of a bind in its [`PortTable`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BindId(u64);

/// Number of a device: binds of different devices never conflict.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DeviceNumber(pub u64);

/// Attributes of a bind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bind {
    /// The port space.
    pub space: PortSpace,
    /// The device, if it is known.
    pub device: Option<DeviceNumber>,
    /// Address and port. Port 0 requests a free one. An unspecified address stands for all.
    pub address: SocketAddr,
    /// Option `REUSEADDR`.
    pub reuse_address: bool,
    /// Option `AFONLY`: an unspecified IPv6 address does not include IPv4.
    pub family_only: bool,
}

/// Ports that a program may have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortRules {
    /// The first port that requires no privilege. 0 for a privileged program.
    pub first_unprivileged: u16,
    /// Ports for binds that request any.
    pub ephemeral: RangeInclusive<u16>,
}

impl Default for PortRules {
    /// Returns the defaults of Linux.
    fn default() -> Self {
        Self { first_unprivileged: 1024, ephemeral: 32_768..=60_999 }
    }
}

/// Error for an address or port that cannot be bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BindError {
    /// The port requires a privilege.
    #[doc(alias = "EACCES")]
    #[error("port {port} requires CAP_NET_BIND_SERVICE: ports from {first} on do not")]
    Privileged {
        /// Requested port.
        port: u16,
        /// First port that requires no privilege.
        first: u16,
    },
    /// Another bind has the same address and port.
    #[doc(alias = "EADDRINUSE")]
    #[error("{address} is in use")]
    InUse {
        /// Requested address.
        address: SocketAddr,
    },
    /// Another bind has the port, and one of both has a wildcard address.
    #[doc(alias = "EADDRNOTAVAIL")]
    #[error("port {} is in use at {other}, which conflicts with {}", address.port(), address.ip())]
    Conflict {
        /// Requested address.
        address: SocketAddr,
        /// Address of the other bind.
        other: IpAddr,
    },
    /// Every ephemeral port is in use.
    #[doc(alias = "EADDRNOTAVAIL")]
    #[error("ports {first} to {last} are in use")]
    Exhausted {
        /// First ephemeral port.
        first: u16,
        /// Last ephemeral port.
        last: u16,
    },
}

/// The binds of a process.
#[derive(Debug, Default)]
pub struct PortTable {
    binds: HashMap<BindId, Owner>,
    ports: HashMap<(PortSpace, u16), Vec<BindId>>,
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Owner {
    bind: Bind,
    is_listening: bool,
}

impl Owner {
    fn conflicts_with(&self, other: &Self) -> Option<BindError> {
        let (ours, theirs) = (&self.bind, &other.bind);
        let may_share = ours.reuse_address && theirs.reuse_address;
        if may_share && !self.is_listening && !other.is_listening {
            return None;
        }
        if ours.device.zip(theirs.device).is_some_and(|(ours, theirs)| ours != theirs) {
            return None;
        }
        let (address, there) = (ours.address, theirs.address.ip());
        let other_family = address.is_ipv4() != there.is_ipv4();
        if ours.family_only && theirs.family_only && other_family {
            return None;
        }
        if address.ip().is_unspecified() || there.is_unspecified() {
            return Some(BindError::Conflict { address, other: there });
        }
        (address.ip() == there).then_some(BindError::InUse { address })
    }
}

impl PortTable {
    /// Binds an address and a port. `random` returns any number, from which a bind to port 0 gets its port.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    pub fn bind(
        &mut self,
        bind: Bind,
        rules: &PortRules,
        random: u32,
    ) -> Result<(BindId, u16), BindError> {
        let port = bind.address.port();
        if port == 0 {
            let port = self.free_port(&bind, rules, random)?;
            let address = SocketAddr::new(bind.address.ip(), port);
            return Ok((self.insert(Bind { address, ..bind }), port));
        }
        if port < rules.first_unprivileged {
            return Err(BindError::Privileged { port, first: rules.first_unprivileged });
        }
        self.check(None, &Owner { bind, is_listening: false })?;
        Ok((self.insert(bind), port))
    }

    /// Returns the number of binds.
    pub fn len(&self) -> usize {
        self.binds.len()
    }

    /// Returns whether there is no bind.
    pub fn is_empty(&self) -> bool {
        self.binds.is_empty()
    }

    /// Marks a bind as listening: no other may share its port by `REUSEADDR` any more.
    ///
    /// # Errors
    ///
    /// [`BindError::InUse`] or [`BindError::Conflict`] when another bind shares it now.
    pub fn listen(&mut self, id: BindId) -> Result<(), BindError> {
        let Some(owner) = self.binds.get(&id).copied() else { return Ok(()) };
        let owner = Owner { is_listening: true, ..owner };
        self.check(Some(id), &owner)?;
        self.binds.insert(id, owner);
        Ok(())
    }

    /// Sets the device and the address of a bind, once its route is known.
    pub fn set_device(&mut self, id: BindId, device: DeviceNumber, ip: IpAddr) {
        if let Some(Owner { bind, .. }) = self.binds.get_mut(&id) {
            bind.device = Some(device);
            bind.address.set_ip(ip);
        }
    }

    /// Sets whether other binds may share the port (`REUSEADDR`).
    pub fn set_reuse_address(&mut self, id: BindId, reuse_address: bool) {
        if let Some(owner) = self.binds.get_mut(&id) {
            owner.bind.reuse_address = reuse_address;
        }
    }

    /// Sets whether an unspecified address is of its family only (`AFONLY`).
    pub fn set_family_only(&mut self, id: BindId, family_only: bool) {
        if let Some(owner) = self.binds.get_mut(&id) {
            owner.bind.family_only = family_only;
        }
    }

    /// Removes a bind.
    pub fn release(&mut self, id: BindId) {
        let Some(Owner { bind, .. }) = self.binds.remove(&id) else { return };
        let key = (bind.space, bind.address.port());
        if let Some(owners) = self.ports.get_mut(&key) {
            owners.retain(|owner| *owner != id);
            if owners.is_empty() {
                self.ports.remove(&key);
            }
        }
    }

    fn insert(&mut self, bind: Bind) -> BindId {
        let id = BindId(self.next);
        self.next += 1;
        self.binds.insert(id, Owner { bind, is_listening: false });
        self.ports.entry((bind.space, bind.address.port())).or_default().push(id);
        id
    }

    /// Checks a bind against all others of its port but `except`.
    fn check(&self, except: Option<BindId>, owner: &Owner) -> Result<(), BindError> {
        let ids = self.ports.get(&(owner.bind.space, owner.bind.address.port()));
        let others = ids.into_iter().flatten().filter(|id| Some(**id) != except);
        let mut others = others.filter_map(|id| self.binds.get(id));
        others.find_map(|other| owner.conflicts_with(other)).map_or(Ok(()), Err)
    }

    /// Returns a port that no other bind has; without one, a port without conflict.
    fn free_port(&self, bind: &Bind, rules: &PortRules, random: u32) -> Result<u16, BindError> {
        let (first, last) = (*rules.ephemeral.start(), *rules.ephemeral.end());
        let count = u32::from(last.saturating_sub(first)) + 1;
        let start = random % count;
        let ports = || {
            let offsets = (start..count).chain(0..start);
            offsets.filter_map(|offset| u16::try_from(u32::from(first) + offset).ok())
        };
        let is_unused = |port: &u16| !self.ports.contains_key(&(bind.space, *port));
        let is_free = |port: &u16| {
            let address = SocketAddr::new(bind.address.ip(), *port);
            let owner = Owner { bind: Bind { address, ..*bind }, is_listening: false };
            self.check(None, &owner).is_ok()
        };
        let port = ports().find(is_unused).or_else(|| ports().find(is_free));
        port.ok_or(BindError::Exhausted { first, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: PortRules = PortRules { first_unprivileged: 1024, ephemeral: 40_000..=40_003 };

    fn at(address: &str) -> Bind {
        Bind {
            space: PortSpace::Tcp,
            device: None,
            address: address.parse().unwrap(),
            reuse_address: false,
            family_only: false,
        }
    }

    fn bind(table: &mut PortTable, bind: Bind) -> Result<BindId, BindError> {
        table.bind(bind, &RULES, 7).map(|(id, _)| id)
    }

    #[test]
    fn service_id_contains_port_space_and_port() {
        assert_eq!(PortSpace::Tcp.service_id(7174), ServiceId(0x0106_1c06));
        assert_eq!(PortSpace::Udp.service_id(7174).ip_port(), Some((17, 7174)));
        assert_eq!(PortSpace::new(0x013f), Some(PortSpace::Ib));
        assert_eq!(PortSpace::new(0x0002), None);
    }

    #[test]
    fn equal_addresses_conflict_and_others_do_not() {
        let mut table = PortTable::default();
        let first = bind(&mut table, at("10.0.0.1:7174")).unwrap();
        let address = "10.0.0.1:7174".parse().unwrap();
        assert_eq!(bind(&mut table, at("10.0.0.1:7174")), Err(BindError::InUse { address }));
        assert!(bind(&mut table, at("10.0.0.2:7174")).is_ok());
        assert!(bind(&mut table, at("10.0.0.1:7175")).is_ok());
        assert!(bind(&mut table, Bind { space: PortSpace::Udp, ..at("10.0.0.1:7174") }).is_ok());
        table.release(first);
        assert!(bind(&mut table, at("10.0.0.1:7174")).is_ok());
        assert_eq!(table.len(), 4);
    }

    #[test]
    fn wildcard_address_conflicts_with_every_address_of_the_port() {
        let mut table = PortTable::default();
        bind(&mut table, at("10.0.0.1:7174")).unwrap();
        let address = "0.0.0.0:7174".parse().unwrap();
        let other = "10.0.0.1".parse().unwrap();
        let conflict = Err(BindError::Conflict { address, other });
        assert_eq!(bind(&mut table, at("0.0.0.0:7174")), conflict);
        bind(&mut table, at("[::]:7175")).unwrap();
        assert!(bind(&mut table, at("10.0.0.1:7175")).is_err());
    }

    #[test]
    fn families_share_a_port_when_both_binds_are_family_only() {
        let mut table = PortTable::default();
        let only = |address| Bind { family_only: true, ..at(address) };
        let id = bind(&mut table, only("[::]:7174")).unwrap();
        assert!(bind(&mut table, at("0.0.0.0:7174")).is_err());
        bind(&mut table, only("0.0.0.0:7174")).unwrap();
        assert_eq!(table.listen(id), Ok(()));
    }

    #[test]
    fn reused_port_has_one_listener() {
        let mut table = PortTable::default();
        let reuse = Bind { reuse_address: true, ..at("10.0.0.1:7174") };
        let ids = [(); 2].map(|()| bind(&mut table, reuse).unwrap());
        let address = reuse.address;
        assert_eq!(table.listen(ids[0]), Err(BindError::InUse { address }));
        table.release(ids[1]);
        assert_eq!(table.listen(ids[0]), Ok(()));
        assert_eq!(bind(&mut table, reuse), Err(BindError::InUse { address }));
    }

    #[test]
    fn devices_have_separate_ports() {
        let mut table = PortTable::default();
        let of = |number| Bind { device: Some(DeviceNumber(number)), ..at("0.0.0.0:7174") };
        let first = bind(&mut table, of(1)).unwrap();
        let second = bind(&mut table, of(2)).unwrap();
        assert!(bind(&mut table, of(1)).is_err());
        // It may become one of the first device.
        assert!(bind(&mut table, at("0.0.0.0:7174")).is_err());
        assert_eq!([first, second].map(|id| table.listen(id)), [Ok(()); 2]);
    }

    #[test]
    fn resolved_bind_leaves_the_wildcard() {
        let mut table = PortTable::default();
        let id = bind(&mut table, at("0.0.0.0:7174")).unwrap();
        assert!(bind(&mut table, at("10.0.0.2:7174")).is_err());
        table.set_device(id, DeviceNumber(1), "10.0.0.1".parse().unwrap());
        assert!(bind(&mut table, at("10.0.0.2:7174")).is_ok());
    }

    #[test]
    fn privileged_port_requires_the_capability() {
        let mut table = PortTable::default();
        let refused = Err(BindError::Privileged { port: 80, first: 1024 });
        assert_eq!(bind(&mut table, at("10.0.0.1:80")), refused);
        let rules = PortRules { first_unprivileged: 0, ..RULES };
        assert!(table.bind(at("10.0.0.1:80"), &rules, 0).is_ok());
    }

    #[test]
    fn ephemeral_ports_are_unused_first_and_shared_last() {
        let mut table = PortTable::default();
        let mut any = |ip: &str| table.bind(at(ip), &RULES, 2).map(|(_, port)| port);
        let ports = [(); 4].map(|()| any("10.0.0.1:0").unwrap());
        assert_eq!(ports, [40_002, 40_003, 40_000, 40_001]);
        let exhausted = Err(BindError::Exhausted { first: 40_000, last: 40_003 });
        assert_eq!(any("10.0.0.1:0"), exhausted);
        assert_eq!(any("10.0.0.2:0"), Ok(40_002));
    }
}
