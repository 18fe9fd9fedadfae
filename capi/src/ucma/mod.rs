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

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use softroce::verbs::cm::EventChannel;

use crate::abi::CmHeader;
use crate::border::{Errno, int_or_minus_one, user, value_or, without_result};
use crate::{gate, open};

use command::Command;
use tables::{Channel, tables};

/// Opens the device. The flags are those of `open`. Returns a descriptor, or -1 with the error number in `errno`.
pub(crate) extern "C" fn open(flags: c_int) -> c_int {
    int_or_minus_one(|| {
        let flags = OFlag::from_bits_retain(flags);
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
    value_or(-1, || {
        let channel = gate::lock(tables()).channel(fd).ok_or(Errno::NO_DEVICE)?;
        if len < size_of::<CmHeader>() {
            return Err(Errno::INVALID);
        }
        let header: CmHeader = user::read(from)?;
        let command = Command::new(fd, channel, &header, from);
        let run = handler(header.cmd)?;
        if size_of::<CmHeader>() + usize::from(header.len) > len {
            return Err(Errno::INVALID);
        }
        run.ok_or(Errno::NO_SYSTEM_CALL)?(&command)?;
        isize::try_from(len).map_err(|_| Errno::INVALID)
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

/// Returns the function of a command by its number, or `None` for a number without one.
///
/// # Errors
///
/// `EINVAL` for a number that no command has.
fn handler(number: u32) -> Result<Option<Handler>, Errno> {
    let handler: Handler = match number {
        0 => ids::create,
        1 => ids::destroy,
        2 => ids::bind_ip,
        3 => ids::resolve_ip,
        4 => ids::resolve_route,
        5 => queries::route,
        6 => connections::connect,
        7 => ids::listen,
        8 => connections::accept,
        9 => connections::reject,
        10 => connections::disconnect,
        11 => connections::init_qp_attr,
        12 => events::get,
        // GET_OPTION, which Linux has not either.
        13 => return Ok(None),
        14 => options::set,
        15 => connections::notify,
        16 => groups::join_ip,
        17 => groups::leave,
        18 => ids::migrate,
        19 => queries::query,
        20 => ids::bind,
        21 => ids::resolve_addr,
        22 => groups::join,
        23 => queries::ib_service,
        24 => events::write,
        _ => return Err(Errno::INVALID),
    };
    Ok(Some(handler))
}
