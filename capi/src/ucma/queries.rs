//! Addresses and paths of ids.

use std::net::SocketAddr;

use nix::errno::Errno as System;
use softroce::verbs::Gid;
use softroce::verbs::cm::Id;

use crate::abi::{AddressAnswer, CmQuery, PATH_FLAGS, PathData, RouteAnswer};
use crate::border::Errno;
use crate::convert::cm::address::{ib, long, short};
use crate::convert::cm::path::{path_answer, unknown_path, user_path};
use crate::objects::device::Device;

use super::command::Command;
use super::ids::id;

/// Sizes of the oldest answers, which end before the index of the device.
const OLDEST_ROUTE: usize = 200;
const OLDEST_ADDRESS: usize = 272;

/// The only port.
const PORT: u8 = 1;

/// Index of the only device.
const DEVICE_INDEX: u32 = 0;

/// `RDMA_USER_CM_QUERY_…`.
const QUERY_ADDR: u32 = 0;
const QUERY_PATH: u32 = 1;
const QUERY_GID: u32 = 2;

/// The device of an id: its GUID, its port and its default P_Key, or zeros.
fn device(id: &Id) -> ([u8; 8], u8, u16) {
    match id.context() {
        Some(_) => (Device::known_guid(), PORT, softroce::verbs::PKey::DEFAULT.0),
        None => ([0; 8], 0, 0),
    }
}

pub(super) fn route(command: &Command) -> Result<(), Errno> {
    command.check_room(OLDEST_ROUTE)?;
    let CmQuery { response, id: number, .. } = command.body()?;
    let id = id(command, number)?;
    let (node_guid, port, _) = device(&id);
    let (local, peer) = (id.local_addr(), id.peer_addr());
    let gid = |address: Option<SocketAddr>| address.map(|address| Gid::from(address.ip()));
    let unknown = unknown_path(None, None);
    let (paths, path_count) = match id.path() {
        Some(path) => ([user_path(&path), unknown], 1),
        None if port == 0 => ([unknown; 2], 0),
        None => ([unknown_path(gid(local), gid(peer)), unknown], 0),
    };
    command.answer(
        response,
        &RouteAnswer {
            node_guid,
            paths,
            source: short(local),
            destination: short(peer),
            path_count,
            port,
            reserved: [0; 3],
            device_index: DEVICE_INDEX,
            padding: 0,
        },
    )
}

pub(super) fn query(command: &Command) -> Result<(), Errno> {
    let CmQuery { response, id: number, option } = command.body()?;
    let id = id(command, number)?;
    match option {
        QUERY_ADDR => address(command, response, &id, false),
        QUERY_PATH => path(command, response, &id),
        QUERY_GID => address(command, response, &id, true),
        // Records of InfiniBand services, which RoCE has not.
        _ => Err(Errno::new(System::ENOSYS, format!("query {option} of an id is unknown"))),
    }
}

/// Answers with the addresses of an id, as IP addresses or as GIDs.
fn address(command: &Command, response: u64, id: &Id, as_gid: bool) -> Result<(), Errno> {
    command.check_room(OLDEST_ADDRESS)?;
    let (node_guid, port, pkey) = device(id);
    let (local, peer) = (id.local_addr(), id.peer_addr());
    let service =
        |of: Option<SocketAddr>| of.map(|address| id.port_space().service_id(address.port()).0);
    let ((source, source_size), (destination, destination_size)) = match as_gid {
        true => (ib(local, service(local), pkey), ib(peer, service(peer), pkey)),
        false => (long(local), long(peer)),
    };
    command.answer(
        response,
        &AddressAnswer {
            node_guid,
            port,
            reserved: 0,
            pkey_be: pkey.to_be(),
            source_size,
            destination_size,
            source,
            destination,
            device_index: DEVICE_INDEX,
            padding: 0,
        },
    )
}

fn path(command: &Command, response: u64, id: &Id) -> Result<(), Errno> {
    let head = size_of::<u64>();
    command.check_room(head)?;
    let mut answer = path_answer(id.path().as_ref());
    answer.path.flags = PATH_FLAGS;
    if answer.path_count == 0 || command.room() <= head + size_of::<PathData>() {
        return command.answer_prefix(response, &answer, head);
    }
    command.answer(response, &answer)
}

/// Resolves a record of an InfiniBand service, which RoCE has not.
pub(super) fn ib_service(_: &Command) -> Result<(), Errno> {
    Err(Errno::unsupported("RoCE has no records of InfiniBand services"))
}
