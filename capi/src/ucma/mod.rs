//! The character device of the connection manager, `/dev/infiniband/rdma_cm`, as Linux' `ucma.c` has it.
//!
//! `librdmacm` opens the device, and writes commands to it: a header, a structure, and in most structures the address for
//! an answer. The library `softroce_paths` passes these calls to [`open`], [`write`] and [`close`]. A channel is a
//! descriptor of an `epoll` with the events of the channel, so it is readable while an event waits, and nothing can be
//! written to it by accident.
//!
//! * [`tables`]: channels, ids and groups by number;
//! * [`command`]: a command, and its answer;
//! * [`ids`], [`connections`], [`queries`], [`options`], [`groups`], [`events`]: the commands.

mod command;
mod connections;
mod events;
mod groups;
mod ids;
mod options;
mod queries;
mod tables;

use std::ffi::c_int;
use std::os::fd::{AsFd, IntoRawFd};

use nix::errno::Errno as System;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use softroce::runtime::handle_faults;
use softroce::verbs::cm::EventChannel;

use crate::abi::CmHeader;
use crate::border::{Errno, command_or, int_or_minus_one, user, without_result};
use crate::{gate, open};

use command::Command;
use tables::{Channel, tables};

/// Opens the device. The flags are those of `open`. Returns a descriptor, or -1 with the error number in `errno`.
pub(crate) extern "C" fn open(flags: c_int) -> c_int {
    int_or_minus_one(|| {
        let flags = OFlag::from_bits_retain(flags);
        // Commands are copied without system calls from now on.
        handle_faults();
        let events = EventChannel::with_opener(open::open_with)?;
        let cloexec = match flags.contains(OFlag::O_CLOEXEC) {
            true => EpollCreateFlags::EPOLL_CLOEXEC,
            false => EpollCreateFlags::empty(),
        };
        let epoll = Epoll::new(cloexec)?;
        epoll.add(events.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        if flags.contains(OFlag::O_NONBLOCK) {
            fcntl(&epoll.0, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        let fd = epoll.0.into_raw_fd();
        // A system call that is not interposed has closed an earlier channel with this number.
        let closed = gate::lock(tables()).enter_channel(fd, Channel::new(events));
        drop(closed);
        Ok(fd)
    })
}

/// Runs the command in `len` bytes at `from`. Returns `len`, or -1 with the error number in `errno`.
pub(crate) extern "C" fn write(fd: c_int, from: u64, len: usize) -> isize {
    command_or(-1, |call| {
        let channel = gate::lock(tables()).channel(fd).ok_or_else(|| {
            let text = format!("descriptor {fd} is no channel of the connection manager");
            Errno::new(System::ENODEV, text)
        })?;
        let short =
            |needed| Errno::invalid(format!("a command of {len} bytes, fewer than {needed}"));
        if len < size_of::<CmHeader>() {
            return Err(short(size_of::<CmHeader>()));
        }
        let header: CmHeader = user::read(from)?;
        let command = Command::new(fd, channel, &header, from);
        let (name, run) = handler(header.cmd)?;
        *call = name;
        let needed = size_of::<CmHeader>() + usize::from(header.len);
        if needed > len {
            return Err(short(needed));
        }
        run.ok_or_else(|| Errno::new(System::ENOSYS, "Linux does not have the command"))?(
            &command,
        )?;
        isize::try_from(len).map_err(|_| Errno::invalid("the command is too long"))
    })
}

/// Ends a channel: destroys its ids, and so tells their peers. Does nothing for other descriptors, and in a child of the
/// process that has opened it.
pub(crate) extern "C" fn close(fd: c_int) {
    without_result(|| {
        let closed = gate::lock(tables()).leave_channel(fd);
        drop(closed);
        Ok(())
    });
}

/// A function that runs a command.
type Handler = fn(&Command) -> Result<(), Errno>;

/// Returns the function of a command by its number, or `None` for a number without one, and the call of `librdmacm` that
/// writes it.
///
/// # Errors
///
/// `EINVAL` for a number that no command has.
fn handler(number: u32) -> Result<(&'static str, Option<Handler>), Errno> {
    let (call, handler): (_, Handler) = match number {
        0 => ("rdma_create_id", ids::create),
        1 => ("rdma_destroy_id", ids::destroy),
        2 => ("rdma_bind_addr", ids::bind_ip),
        3 => ("rdma_resolve_addr", ids::resolve_ip),
        4 => ("rdma_resolve_route", ids::resolve_route),
        5 => ("rdma_query_route", queries::route),
        6 => ("rdma_connect", connections::connect),
        7 => ("rdma_listen", ids::listen),
        8 => ("rdma_accept", connections::accept),
        9 => ("rdma_reject", connections::reject),
        10 => ("rdma_disconnect", connections::disconnect),
        11 => ("rdma_init_qp_attr", connections::init_qp_attr),
        12 => ("rdma_get_cm_event", events::get),
        // Linux does not have it either.
        13 => return Ok(("rdma_get_option", None)),
        14 => ("rdma_set_option", options::set),
        15 => ("rdma_notify", connections::notify),
        16 => ("rdma_join_multicast", groups::join_ip),
        17 => ("rdma_leave_multicast", groups::leave),
        18 => ("rdma_migrate_id", ids::migrate),
        19 => ("rdma_query_route", queries::query),
        20 => ("rdma_bind_addr", ids::bind),
        21 => ("rdma_resolve_addr", ids::resolve_addr),
        22 => ("rdma_join_multicast", groups::join),
        23 => ("rdma_resolve_addrinfo", queries::ib_service),
        24 => ("rdma_write_cm_event", events::write),
        _ => return Err(Errno::invalid(format!("command {number} is unknown"))),
    };
    Ok((call, Some(handler)))
}
