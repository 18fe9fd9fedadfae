//! Multicast: groups, and the queue pairs that are attached to them.
//!
//! A group is an IP address. The driver of the engine makes the port join it with its first member
//! and leave it with its last one. A packet to a group is checked once, and each member that admits
//! it gets a copy (IBTA vol 1, §10.5).

use std::net::IpAddr;

use thiserror::Error;

use crate::engine::{Config, Engine, QpType};
use crate::ids::{Gid, Qpn};

/// Error for a queue pair that was not attached to a group or detached from one. Nothing has
/// changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum McastError {
    /// There is no such queue pair.
    #[doc(alias = "EINVAL")]
    #[error("queue pair {0} does not exist")]
    NoSuchQp(Qpn),
    /// Only UD queue pairs can be attached to groups.
    #[doc(alias = "EINVAL")]
    #[error("a queue pair of {found} cannot belong to a multicast group, only one of UD")]
    Service {
        /// Its type.
        found: QpType,
    },
    /// The GID is a unicast address.
    #[doc(alias = "EINVAL")]
    #[error("{gid} is no multicast group: those are ::ffff:224.0.0.0/100 and ff00::/8")]
    NotAGroup {
        /// The given GID.
        gid: Gid,
    },
    /// No address of the device has the group's IP version.
    #[doc(alias = "EINVAL")]
    #[error("group {gid} is of another IP version than the device's addresses")]
    IpVersion {
        /// The group.
        gid: Gid,
    },
    /// The device is a member of the maximum number of groups.
    #[doc(alias = "ENOMEM")]
    #[error("the device belongs to {max} multicast groups and can join no more")]
    TooManyGroups {
        /// Maximum number of groups.
        max: usize,
    },
    /// The group has the maximum number of members here.
    #[doc(alias = "ENOMEM")]
    #[error("{max} queue pairs are attached to group {gid}, and it takes no more")]
    TooManyMembers {
        /// The group.
        gid: Gid,
        /// Maximum number of members.
        max: usize,
    },
    /// The queue pair is not attached to the group.
    #[doc(alias = "EINVAL")]
    #[error("the queue pair is not attached to group {gid}")]
    NotAttached {
        /// The group.
        gid: Gid,
    },
}

impl Engine {
    /// Attaches a UD queue pair to a multicast group: it receives all messages to the group except
    /// its own. A second attachment has no effect. Returns whether it is the first member here, so
    /// that the port has to join the group.
    ///
    /// It stays a member in every state, until it is detached or destroyed.
    ///
    /// # Errors
    ///
    /// [`McastError`]; nothing has changed.
    pub fn attach_mcast(&mut self, qpn: Qpn, gid: Gid) -> Result<bool, McastError> {
        let (slot, group) = self.member(qpn, gid)?;
        if !self.config.gids.iter().any(|own| own.ip().is_ipv4() == group.is_ipv4()) {
            return Err(McastError::IpVersion { gid });
        }
        let Config { max_mcast_grp, max_mcast_qp_attach, .. } = self.config;
        match self.groups.members(group) {
            Some(members) if members.contains(&slot) => {}
            Some(members) if members.len() >= max_mcast_qp_attach => {
                return Err(McastError::TooManyMembers { gid, max: max_mcast_qp_attach });
            }
            None if self.groups.len() >= max_mcast_grp => {
                return Err(McastError::TooManyGroups { max: max_mcast_grp });
            }
            _ => {}
        }
        Ok(self.groups.attach(group, slot))
    }

    /// Detaches a queue pair from a group.
    ///
    /// # Errors
    ///
    /// [`McastError`]; nothing has changed.
    pub fn detach_mcast(&mut self, qpn: Qpn, gid: Gid) -> Result<(), McastError> {
        let (slot, group) = self.member(qpn, gid)?;
        let was_member = self.groups.detach(group, slot);
        if was_member { Ok(()) } else { Err(McastError::NotAttached { gid }) }
    }

    /// Returns the groups to which a queue pair is attached.
    pub fn mcast_groups(&self, qpn: Qpn) -> Vec<Gid> {
        let groups = self.qps.slot(qpn).map(|slot| self.groups.of(slot)).unwrap_or_default();
        groups.into_iter().map(Gid::from).collect()
    }

    /// Returns the next group that has lost its last member here, so that the port has to leave it.
    pub fn poll_left_group(&mut self) -> Option<IpAddr> {
        self.groups.poll_left()
    }

    fn member(&self, qpn: Qpn, gid: Gid) -> Result<(usize, IpAddr), McastError> {
        let no_such = McastError::NoSuchQp(qpn);
        let slot = self.qps.slot(qpn).ok_or(no_such)?;
        let found = self.qps.get(slot).ok_or(no_such)?.qp_type;
        if found != QpType::Ud {
            return Err(McastError::Service { found });
        }
        let group = gid.ip();
        if group.is_multicast() { Ok((slot, group)) } else { Err(McastError::NotAGroup { gid }) }
    }
}
