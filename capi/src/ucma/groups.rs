//! Multicast groups.

use crate::abi::{DestroyId, JoinIpMcast, JoinMcast};
use crate::border::{Errno, user};
use crate::convert::cm::address::CmAddress;
use crate::gate::lock;

use super::command::Command;
use super::ids::id;
use super::tables::{Group, tables};

/// `RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER`, the largest flag. `librdmacm` attaches no queue pair then.
const SEND_ONLY: u16 = 1;

pub(super) fn join_ip(command: &Command) -> Result<(), Errno> {
    command.check_room(size_of::<u32>())?;
    let JoinIpMcast { response, uid, address, id } = command.body()?;
    join_group(command, response, uid, id, CmAddress::any(&address.0)?)
}

pub(super) fn join(command: &Command) -> Result<(), Errno> {
    command.check_room(size_of::<u32>())?;
    let JoinMcast { response, uid, id, address_size, flags, address } = command.body()?;
    let address = CmAddress::sized(&address.0, address_size)?;
    if flags > SEND_ONLY {
        return Err(Errno::invalid(format!("join flags {flags} are unknown")));
    }
    join_group(command, response, uid, id, address)
}

fn join_group(
    command: &Command,
    response: u64,
    uid: u64,
    number: u32,
    address: CmAddress,
) -> Result<(), Errno> {
    let id = id(command, number)?;
    let CmAddress::Ip(address) = address else {
        return Err(Errno::invalid("RoCE has no multicast groups of AF_IB"));
    };
    // The event of the group is in the channel when `join_multicast` returns, and needs its number.
    let mut locked = lock(tables());
    let group = id.join_multicast(address)?;
    let entered = locked.insert_group(Group { id: number, uid, group, reported: 0 });
    let answered = entered.and_then(|group| {
        user::write(response, &group).inspect_err(|_| {
            // It was entered just now.
            let _ = locked.remove_group(group, &command.channel);
        })
    });
    drop(locked);
    if answered.is_err() {
        id.leave_multicast(group);
    }
    answered
}

pub(super) fn leave(command: &Command) -> Result<(), Errno> {
    command.check_room(size_of::<u32>())?;
    let DestroyId { response, id: number, .. } = command.body()?;
    let (group, id) = lock(tables()).remove_group(number, &command.channel)?;
    id.leave_multicast(group.group);
    user::write(response, &group.reported)
}
