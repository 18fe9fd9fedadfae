//! Multicast: groups, and the queue pairs that belong to them.
//!
//! A group is an IP address. The port joins it with its first member here and leaves it with its last;
//! whoever drives the engine sees to that. A packet to a group is looked at once, and a copy goes to each
//! member that takes it (IBTA vol 1, §10.5).

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use thiserror::Error;

use crate::engine::service::Arrival;
use crate::engine::table::{QpTable, identification, parse};
use crate::engine::{Config, Engine, QpType};
use crate::ids::{Gid, Qpn};
use crate::net::RxMeta;
use crate::transport::connection::Context;
use crate::transport::outputs::DropReason;
use crate::wire::icrc::{Flow, Verdict};

/// Why a queue pair was not attached to a group or detached from one. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum McastError {
    /// There is no such queue pair.
    #[doc(alias = "EINVAL")]
    #[error("queue pair {0} does not exist")]
    NoSuchQp(Qpn),
    /// Only datagrams go to groups.
    #[doc(alias = "EINVAL")]
    #[error("a queue pair of {found} cannot belong to a multicast group, only one of UD")]
    Service {
        /// What it is.
        found: QpType,
    },
    /// The GID is somebody's address.
    #[doc(alias = "EINVAL")]
    #[error("{gid} is no multicast group: those are ::ffff:224.0.0.0/100 and ff00::/8")]
    NotAGroup {
        /// What was given.
        gid: Gid,
    },
    /// No address of the device is of the group's IP version.
    #[doc(alias = "EINVAL")]
    #[error("group {gid} is of another IP version than the device's addresses")]
    IpVersion {
        /// The group.
        gid: Gid,
    },
    /// The device belongs to as many groups as it can.
    #[doc(alias = "ENOMEM")]
    #[error("the device belongs to {max} multicast groups and can join no more")]
    TooManyGroups {
        /// Groups allowed.
        max: usize,
    },
    /// The group has as many members here as it can.
    #[doc(alias = "ENOMEM")]
    #[error("{max} queue pairs are attached to group {gid}, and it takes no more")]
    TooManyMembers {
        /// The group.
        gid: Gid,
        /// Members allowed.
        max: usize,
    },
    /// It does not belong to the group.
    #[doc(alias = "EINVAL")]
    #[error("the queue pair is not attached to group {gid}")]
    NotAttached {
        /// The group.
        gid: Gid,
    },
}

/// The groups of a device, with the slots of their members in the order attached.
#[derive(Debug, Default)]
pub(super) struct Groups {
    members: HashMap<IpAddr, Vec<usize>>,
    /// Groups that have lost their last member.
    left: VecDeque<IpAddr>,
}

impl Groups {
    /// Adds a member, which may be one already. True when it is the first.
    fn attach(&mut self, group: IpAddr, slot: usize) -> bool {
        let members = self.members.entry(group).or_default();
        if members.contains(&slot) {
            return false;
        }
        members.push(slot);
        let first = members.len() == 1;
        // Left and joined again before anybody has looked: it was never left.
        let unseen = self.left.iter().position(|left| *left == group);
        let still_joined = unseen.and_then(|at| self.left.remove(at)).is_some();
        first && !still_joined
    }

    /// Removes a member. False when it was none.
    fn detach(&mut self, group: IpAddr, slot: usize) -> bool {
        let Some(members) = self.members.get_mut(&group) else { return false };
        let Some(at) = members.iter().position(|member| *member == slot) else { return false };
        members.remove(at);
        if members.is_empty() {
            self.members.remove(&group);
            self.left.push_back(group);
        }
        true
    }

    /// Removes a member from every group.
    pub(super) fn forget(&mut self, slot: usize) {
        for group in self.of(slot) {
            self.detach(group, slot);
        }
    }

    /// The groups of a member, in order.
    fn of(&self, slot: usize) -> Vec<IpAddr> {
        let of_member = self.members.iter().filter(|(_, members)| members.contains(&slot));
        let mut groups: Vec<_> = of_member.map(|(group, _)| *group).collect();
        groups.sort_unstable();
        groups
    }

    /// Takes a packet to a group: each member that admits it gets a copy, but for the queue pair that has
    /// sent it. `ours` are the device's addresses.
    ///
    /// A member that does not take its copy is a drop of its own. The error is one for all.
    pub(super) fn deliver(
        &self,
        qps: &mut QpTable,
        ours: &[Gid],
        way: (&Flow, &RxMeta, u16),
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let (flow, meta, segment) = way;
        let packet = parse(bytes)?;
        let members = self.members.get(&meta.destination).ok_or(DropReason::NoMember)?;
        if packet.bth.dest_qp != Qpn::MULTICAST {
            return Err(DropReason::WrongAddress);
        }
        // Every sender numbers its packets in its own way, so none of them is held to a habit.
        let verdict = flow.check(meta.ipv4, segment, bytes);
        if verdict == Verdict::Bad {
            return Err(DropReason::BadIcrc);
        }
        let id = identification(verdict, meta, segment, cx.counters());
        let is_ours = ours.contains(&meta.source.ip().into());
        let sender = packet.deth().filter(|_| is_ours).map(|deth| deth.source_qp);
        let arrival = Arrival { packet, bytes, meta, id, is_predicted: false, addressed: Ok(()) };
        for slot in members {
            let Some(qp) = qps.get_mut(*slot).filter(|qp| Some(qp.id.qpn) != sender) else {
                continue;
            };
            cx.slot = Some(*slot);
            cx.counters().arrived(meta, bytes.len());
            let admitted = qp.admits(&packet, meta);
            if let Err(reason) = admitted.and_then(|()| qp.handle_packet(cx, arrival)) {
                cx.counters().drop(reason);
            }
        }
        Ok(())
    }
}

impl Engine {
    /// Attaches a UD queue pair to a multicast group: it gets what anybody sends there, except itself.
    /// To attach it twice is to attach it once. True when it is the first member here, so that the port
    /// has to join the group.
    ///
    /// It stays a member until it is detached or destroyed, whatever its state.
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
        match self.groups.members.get(&group) {
            Some(members) if members.contains(&slot) => {}
            Some(members) if members.len() >= max_mcast_qp_attach => {
                return Err(McastError::TooManyMembers { gid, max: max_mcast_qp_attach });
            }
            None if self.groups.members.len() >= max_mcast_grp => {
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

    /// The groups that a queue pair belongs to.
    pub fn mcast_groups(&self, qpn: Qpn) -> Vec<Gid> {
        let groups = self.qps.slot(qpn).map(|slot| self.groups.of(slot)).unwrap_or_default();
        groups.into_iter().map(Gid::from).collect()
    }

    /// The next group that has lost its last member here, so that the port has to leave it.
    pub fn poll_left_group(&mut self) -> Option<IpAddr> {
        self.groups.left.pop_front()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_is_left_and_joined_again_at_once_was_never_left() {
        let group: IpAddr = [239, 1, 2, 3].into();
        let mut groups = Groups::default();
        assert!(groups.attach(group, 1), "the first");
        assert!(!groups.attach(group, 2));
        assert!(groups.detach(group, 1) && groups.detach(group, 2));
        assert!(!groups.attach(group, 3), "it is joined still");
        assert!(groups.left.is_empty());
        groups.forget(3);
        assert_eq!(groups.left.pop_front(), Some(group));
        assert!(groups.attach(group, 1));
    }
}
