//! Connections: requests, replies, their end, and the attributes of their queue pairs.

use softroce::verbs::QpState;
use softroce::verbs::cm::RejectReason;

use crate::abi::{CmAccept, CmConnect, CmEce, CmNotify, CmQuery, CmReject, KernelQpAttr};
use crate::border::Errno;
use crate::convert::cm::param::{connect_param, private_data};
use crate::convert::cm::qp_attr::kernel_attr;
use crate::gate::lock;

use super::command::Command;
use super::ids::id;
use super::tables::tables;

/// Sizes of the oldest structures, which end before ECE.
const OLDEST_CONNECT: usize = size_of::<CmConnect>() - size_of::<CmEce>();
const OLDEST_ACCEPT: usize = size_of::<CmAccept>() - size_of::<CmEce>();

/// Reasons that a program may give.
const CONSUMER: u8 = 28;
const VENDOR_OPTION: u8 = 35;

/// `IBV_EVENT_COMM_EST`.
const COMM_EST: u32 = 4;

pub(super) fn connect(command: &Command) -> Result<(), Errno> {
    let connect: CmConnect = command.body_of_at_least(OLDEST_CONNECT)?;
    if connect.param.valid == 0 {
        return Err(Errno::invalid("the command has no parameters"));
    }
    let id = id(command, connect.id)?;
    Ok(id.connect(&connect_param(&connect.param, connect.ece)?)?)
}

/// Accepts a request with parameters, or without them the reply of the peer.
pub(super) fn accept(command: &Command) -> Result<(), Errno> {
    let accept: CmAccept = command.body_of_at_least(OLDEST_ACCEPT)?;
    let id = id(command, accept.id)?;
    if accept.param.valid == 0 {
        return Ok(id.establish()?);
    }
    let param = connect_param(&accept.param, accept.ece)?;
    // The next event may come before this call returns.
    let before = set_uid(command, accept.id, accept.uid)?;
    let accepted = id.accept(&param);
    if accepted.is_err() {
        // The id may be gone by now.
        let _ = set_uid(command, accept.id, before);
    }
    Ok(accepted?)
}

/// Sets the number that events of an id have, and returns the one from before.
fn set_uid(command: &Command, number: u32, uid: u64) -> Result<u64, Errno> {
    let mut locked = lock(tables());
    let entry = locked.entry(number, &command.channel)?;
    Ok(std::mem::replace(&mut entry.uid, uid))
}

pub(super) fn reject(command: &Command) -> Result<(), Errno> {
    let reject: CmReject = command.body()?;
    let reason = match reject.reason {
        0 => CONSUMER,
        reason @ (CONSUMER | VENDOR_OPTION) => reason,
        reason => {
            return Err(Errno::invalid(format!("a program cannot reject for reason {reason}")));
        }
    };
    let data = private_data(&reject.private_data, reject.private_data_len)?;
    Ok(id(command, reject.id)?.reject(RejectReason(reason.into()), data)?)
}

pub(super) fn disconnect(command: &Command) -> Result<(), Errno> {
    let number = command.body::<u32>()?;
    Ok(id(command, number)?.disconnect()?)
}

pub(super) fn init_qp_attr(command: &Command) -> Result<(), Errno> {
    command.check_room(size_of::<KernelQpAttr>())?;
    let CmQuery { response, id: number, option } = command.body()?;
    let unknown = || Errno::invalid(format!("queue pair state {option} is unknown"));
    let mut states = QpState::ALL.into_iter();
    let state = states.find(|state| *state as u32 == option).ok_or_else(unknown)?;
    let attr = id(command, number)?.qp_attr(state)?;
    command.answer(response, &kernel_attr(&attr))
}

pub(super) fn notify(command: &Command) -> Result<(), Errno> {
    let CmNotify { id: number, event } = command.body()?;
    let id = id(command, number)?;
    if event != COMM_EST {
        return Err(Errno::invalid(format!("a program cannot report event {event}")));
    }
    Ok(id.notify()?)
}
