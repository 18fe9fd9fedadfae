//! Multicast groups of a device, and delivery to their members.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use crate::engine::remote::Arrival;
use crate::engine::table::{QpTable, drop_reason, identification};
use crate::ids::{Gid, Qpn};
use crate::net::RxMeta;
use crate::transport::context::Context;
use crate::transport::outputs::DropReason;
use crate::wire::Datagram;
use crate::wire::icrc::{Flow, Verdict};

/// The groups of a device, with the slots of their members in the order of attachment.
#[derive(Debug, Default)]
pub(super) struct Groups {
    members: HashMap<IpAddr, Vec<usize>>,
    /// Groups without a member, which the port must leave.
    left: VecDeque<IpAddr>,
}

impl Groups {
    /// Adds a member, unless it is one already. Returns whether the port must join the group.
    pub(super) fn attach(&mut self, group: IpAddr, slot: usize) -> bool {
        let members = self.members.entry(group).or_default();
        if members.contains(&slot) {
            return false;
        }
        members.push(slot);
        let first = members.len() == 1;
        // The port has not left the group yet, so it remains a member.
        let unseen = self.left.iter().position(|left| *left == group);
        let still_joined = unseen.and_then(|at| self.left.remove(at)).is_some();
        first && !still_joined
    }

    /// Removes a member. Returns false if it was not a member.
    pub(super) fn detach(&mut self, group: IpAddr, slot: usize) -> bool {
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

    /// Returns the groups of a member, sorted.
    pub(super) fn of(&self, slot: usize) -> Vec<IpAddr> {
        let of_member = self.members.iter().filter(|(_, members)| members.contains(&slot));
        let mut groups: Vec<_> = of_member.map(|(group, _)| *group).collect();
        groups.sort_unstable();
        groups
    }

    /// Returns the number of groups.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns the members of a group.
    pub(super) fn members(&self, group: IpAddr) -> Option<&[usize]> {
        self.members.get(&group).map(Vec::as_slice)
    }

    /// Returns the next group that has lost its last member.
    pub(super) fn poll_left(&mut self) -> Option<IpAddr> {
        self.left.pop_front()
    }

    /// Delivers a packet to a group: each member that admits it gets a copy, except the queue pair
    /// that sent it. `ours` are the device's addresses.
    ///
    /// A member that does not accept its copy counts a drop. An error applies to all members.
    pub(super) fn deliver(
        &self,
        qps: &mut QpTable,
        ours: &[Gid],
        way: (&Flow, &RxMeta, u16),
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let (flow, meta, segment) = way;
        let packet = Datagram::parse(bytes).map_err(|error| drop_reason(&error))?;
        let members = self.members.get(&meta.destination).ok_or(DropReason::NoMember)?;
        if packet.bth.dest_qp != Qpn::MULTICAST {
            return Err(DropReason::WrongAddress);
        }
        // Each sender has its own sequence of identifications, so the check predicts none.
        let verdict = flow.check_received(meta, segment, bytes);
        if verdict == Verdict::Bad {
            return Err(DropReason::BadIcrc);
        }
        let id = identification(verdict, meta, segment, cx);
        let is_ours = ours.contains(&meta.source.ip().into());
        let sender = packet.deth().filter(|_| is_ours).map(|deth| deth.source_qp);
        let arrival =
            Arrival { packet: &packet, bytes, meta, id, is_predicted: false, addressed: Ok(()) };
        for slot in members {
            let Some(qp) = qps.get_mut(*slot).filter(|qp| Some(qp.id.qpn) != sender) else {
                continue;
            };
            cx.slot = Some(*slot);
            cx.counters().arrived(meta, bytes.len());
            let admitted = qp.admits(&packet, meta);
            if let Err(reason) = admitted.and_then(|()| qp.handle_packet(cx, &mut { arrival })) {
                cx.counters().drop(reason);
            }
        }
        Ok(())
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
