//! Events.

use std::time::Duration;

use softroce::verbs::QpType;
use softroce::verbs::cm::{Event, EventKind};

use crate::abi::{CmEce, EventAnswer, UdParam, WriteEvent};
use crate::border::{Errno, descriptor};
use crate::convert::cm::event::{CmEvent, Param, WRITTEN, event};
use crate::gate::lock;
use crate::objects::descriptor::wait_limit;

use super::command::Command;
use super::ids::id;
use super::tables::{Tables, tables};

/// Size of the oldest answer, which ends before ECE.
const OLDEST_EVENT: usize =
    size_of::<EventAnswer<UdParam>>() - size_of::<CmEce>() - size_of::<u32>();

/// Answers with the next event of the channel. Waits for it, unless the program has set `O_NONBLOCK`.
pub(super) fn get(command: &Command) -> Result<(), Errno> {
    command.check_room(OLDEST_EVENT)?;
    let response = command.body::<u64>()?;
    command.check_writable::<EventAnswer<UdParam>>(response)?;
    loop {
        // Events of ids that are gone: they may own ids, and are dropped without the lock.
        let mut discarded = Vec::new();
        let delivered = deliver(&mut lock(tables()), command, response, &mut discarded);
        drop(discarded);
        if let Some(result) = delivered {
            return result;
        }
        let fd = descriptor(command.fd);
        let limit = wait_limit(fd.ok_or_else(|| Errno::invalid("the descriptor is negative"))?)?;
        if limit == Some(Duration::ZERO) {
            return Err(Errno::AGAIN);
        }
        command.channel.events.wait_ready_interruptible(limit)?;
    }
}

/// Stores the next event of an id that exists. `None` if there is none.
fn deliver(
    tables: &mut Tables,
    command: &Command,
    response: u64,
    discarded: &mut Vec<Event>,
) -> Option<Result<(), Errno>> {
    let channel = &command.channel;
    loop {
        let found = channel.events.poll()?;
        let counts = found.listener.as_ref().unwrap_or(&found.id);
        let Some(counting) = tables.number_of(counts) else {
            discarded.push(found);
            continue;
        };
        let mut number = counting;
        if found.listener.is_some() {
            let Ok(new) = tables.insert(found.id.clone(), channel, 0) else {
                discarded.push(found);
                continue;
            };
            number = new;
        }
        let mut uid = 0;
        let mut group = None;
        if let Some(entry) = tables.ids.get_mut(counting) {
            entry.reported += 1;
            uid = entry.uid;
            if let EventKind::MulticastJoined(joined) = &found.kind {
                let of = entry.groups.iter().find(|(id, _)| *id == joined.id);
                group = of.map(|(_, number)| *number);
            }
        }
        if let Some(at) = group
            && let Some(of) = tables.groups.get_mut(at)
        {
            of.reported += 1;
            (uid, number) = (of.uid, at);
        }
        let is_ud = found.id.qp_type() == QpType::Ud;
        return Some(answer(command, response, uid, number, event(&found.kind, is_ud)));
    }
}

fn answer(
    command: &Command,
    response: u64,
    uid: u64,
    id: u32,
    CmEvent { number: event, status, param, ece }: CmEvent,
) -> Result<(), Errno> {
    let reserved = 0;
    match param {
        Param::Conn(param) => command.answer(
            response,
            &EventAnswer { uid, id, event, status, param: *param, reserved, ece },
        ),
        Param::Ud(param) => command.answer(
            response,
            &EventAnswer { uid, id, event, status, param: *param, reserved, ece },
        ),
        Param::Argument(param) => command.answer(
            response,
            &EventAnswer { uid, id, event, status, param: *param, reserved, ece },
        ),
    }
}

/// Writes an event of the program into the channel.
pub(super) fn write(command: &Command) -> Result<(), Errno> {
    let WriteEvent { id: number, event, status, argument, .. } = command.body()?;
    if !WRITTEN.contains(&event) {
        return Err(Errno::invalid(format!("a program cannot write event {event}")));
    }
    id(command, number)?.write_event(event, status, argument);
    Ok(())
}
