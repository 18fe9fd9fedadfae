//! Ids: creation and destruction, addresses, listeners.

use std::net::SocketAddr;
use std::time::Duration;

use nix::errno::Errno as System;
use nix::fcntl::{FcntlArg, fcntl};
use softroce::verbs::QpType;
use softroce::verbs::cm::{Id, PortSpace};

use crate::abi::{
    BindAny, BindIp, CmListen, CreateId, DestroyId, MigrateId, ResolveAddr, ResolveIp, ResolveRoute,
};
use crate::border::{Errno, descriptor, user};
use crate::convert::cm::address::CmAddress;
use crate::gate::lock;

use super::command::Command;
use super::tables::{tables, unknown_id};

/// Returns the port space, and the type of queue pairs: that of the port space, or for InfiniBand the one of the command.
fn port_space(number: u16, qp_type: u8) -> Result<(PortSpace, QpType), Errno> {
    match number {
        0x0106 => Ok((PortSpace::Tcp, QpType::Rc)),
        0x0111 => Ok((PortSpace::Udp, QpType::Ud)),
        0x013f => {
            let known = [QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcIni, QpType::XrcTgt];
            let is_it = |known: &QpType| *known as u32 == u32::from(qp_type);
            let found = known.into_iter().find(is_it).map(|found| (PortSpace::Ib, found));
            found.ok_or_else(|| Errno::invalid(format!("queue pair type {qp_type} is unknown")))
        }
        // IP over InfiniBand, among others.
        _ => Err(Errno::invalid(format!("RoCE has no port space {number:#x}"))),
    }
}

pub(super) fn create(command: &Command) -> Result<(), Errno> {
    command.check_room(size_of::<u32>())?;
    let CreateId { uid, response, port_space: number, qp_type, .. } = command.body()?;
    let (port_space, qp_type) = port_space(number, qp_type)?;
    let id = Id::create(&command.channel.events, port_space, qp_type)?;
    let number = lock(tables()).insert(id, &command.channel, uid)?;
    let answered = user::write(response, &number);
    if answered.is_err() {
        let removed = lock(tables()).remove(number);
        drop(removed);
    }
    answered
}

pub(super) fn destroy(command: &Command) -> Result<(), Errno> {
    command.check_room(size_of::<u32>())?;
    let DestroyId { response, id: number, .. } = command.body()?;
    let mut locked = lock(tables());
    locked.entry(number, &command.channel)?;
    let removed = locked.remove(number).ok_or_else(|| unknown_id(number))?;
    drop(locked);
    removed.id.destroy();
    user::write(response, &removed.reported)
}

/// Returns an id of the channel, without the lock of the tables.
pub(super) fn id(command: &Command, number: u32) -> Result<Id, Errno> {
    let mut locked = lock(tables());
    Ok(locked.entry(number, &command.channel)?.id.clone())
}

pub(super) fn bind_ip(command: &Command) -> Result<(), Errno> {
    let BindIp { address, id, .. } = command.body()?;
    bind_to(command, id, CmAddress::any(&address.0)?)
}

pub(super) fn bind(command: &Command) -> Result<(), Errno> {
    let BindAny { id, address_size, reserved, address } = command.body()?;
    if reserved != 0 {
        return Err(Errno::invalid("a reserved field is not zero"));
    }
    bind_to(command, id, CmAddress::sized(&address.0, address_size)?)
}

/// Returns the error for an address of AF_IB.
fn no_infiniband() -> Errno {
    Errno::new(System::ENODEV, "an adapter of RoCE has no address of AF_IB")
}

fn bind_to(command: &Command, number: u32, address: CmAddress) -> Result<(), Errno> {
    match address {
        CmAddress::Ip(address) => Ok(id(command, number)?.bind(address)?),
        // `librdmacm` tries it to find out which commands there are.
        CmAddress::Ib { is_any: true } => {
            let mut locked = lock(tables());
            let entry = locked.entry(number, &command.channel)?;
            if entry.is_ib || entry.id.local_addr().is_some() {
                return Err(Errno::invalid("the id has an address already"));
            }
            entry.is_ib = true;
            Ok(())
        }
        // No port has such an address.
        CmAddress::Ib { is_any: false } => {
            id(command, number)?;
            Err(no_infiniband())
        }
    }
}

pub(super) fn resolve_ip(command: &Command) -> Result<(), Errno> {
    let ResolveIp { source, destination, id, timeout_ms } = command.body()?;
    let source = match source.0 {
        [0, 0, ..] => None,
        source => Some(CmAddress::any(&source)?),
    };
    resolve(command, id, source, CmAddress::any(&destination.0)?, timeout_ms)
}

pub(super) fn resolve_addr(command: &Command) -> Result<(), Errno> {
    let resolve_addr: ResolveAddr = command.body()?;
    if resolve_addr.reserved != 0 {
        return Err(Errno::invalid("a reserved field is not zero"));
    }
    let source = match resolve_addr.source_size {
        0 => None,
        size => Some(CmAddress::sized(&resolve_addr.source.0, size)?),
    };
    let destination = CmAddress::sized(&resolve_addr.destination.0, resolve_addr.destination_size)?;
    resolve(command, resolve_addr.id, source, destination, resolve_addr.timeout_ms)
}

fn resolve(
    command: &Command,
    number: u32,
    source: Option<CmAddress>,
    destination: CmAddress,
    timeout_ms: u32,
) -> Result<(), Errno> {
    let id = id(command, number)?;
    let ip = |address: CmAddress| -> Result<SocketAddr, Errno> {
        match address {
            CmAddress::Ip(address) => Ok(address),
            CmAddress::Ib { .. } => Err(no_infiniband()),
        }
    };
    let (source, destination) = (source.map(ip).transpose()?, ip(destination)?);
    Ok(id.resolve_addr(source, destination, Duration::from_millis(timeout_ms.into()))?)
}

pub(super) fn resolve_route(command: &Command) -> Result<(), Errno> {
    let ResolveRoute { id: number, timeout_ms } = command.body()?;
    Ok(id(command, number)?.resolve_route(Duration::from_millis(timeout_ms.into()))?)
}

pub(super) fn listen(command: &Command) -> Result<(), Errno> {
    let CmListen { id: number, backlog } = command.body()?;
    // A negative number is the maximum.
    let backlog = i32::try_from(backlog).ok().and_then(|backlog| usize::try_from(backlog).ok());
    Ok(id(command, number)?.listen(backlog.unwrap_or(0))?)
}

/// Moves an id from the channel of a descriptor to that of the command.
pub(super) fn migrate(command: &Command) -> Result<(), Errno> {
    let MigrateId { response, id: number, fd } = command.body()?;
    let mut locked = lock(tables());
    let Some(from) = locked.channel(fd) else {
        let is_open = descriptor(fd).is_some_and(|fd| fcntl(fd, FcntlArg::F_GETFD).is_ok());
        return Err(match is_open {
            true => {
                Errno::invalid(format!("descriptor {fd} is no channel of the connection manager"))
            }
            false => Errno::new(System::ENOENT, format!("descriptor {fd} is not open")),
        });
    };
    let entry = locked.entry(number, &from)?;
    entry.id.migrate(&command.channel.events);
    entry.channel = std::sync::Arc::clone(&command.channel);
    let reported = entry.reported;
    drop(locked);
    user::write(response, &reported)
}
