//! Channels by descriptor; ids and groups by the numbers that programs have for them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ffi::c_int;
use std::sync::{Arc, Mutex};

use nix::errno::Errno as System;
use softroce::runtime::PerProcess;
use softroce::verbs::cm::{EventChannel, Id, MulticastId};

use crate::border::Errno;

/// Maximum number of ids, and of groups, of a process.
const MAX_ENTRIES: usize = 1 << 20;

/// A channel.
pub(super) struct Channel {
    pub(super) events: EventChannel,
}

impl Channel {
    pub(super) fn new(events: EventChannel) -> Arc<Self> {
        Arc::new(Self { events })
    }
}

/// An id of a program.
pub(super) struct Entry {
    pub(super) id: Id,
    pub(super) channel: Arc<Channel>,
    /// Number that events of the id have.
    pub(super) uid: u64,
    /// Number of its events that the program has got.
    pub(super) reported: u32,
    /// Whether it is bound to the unspecified address of InfiniBand.
    pub(super) is_ib: bool,
    /// Its groups, with their numbers in [`Tables::groups`].
    pub(super) groups: Vec<(MulticastId, u32)>,
}

/// A multicast group of an id.
pub(super) struct Group {
    /// Number of the id.
    pub(super) id: u32,
    pub(super) uid: u64,
    pub(super) group: MulticastId,
    /// Number of its events that the program has got.
    pub(super) reported: u32,
}

/// Values by the lowest free number.
pub(super) struct Slots<T> {
    values: Vec<Option<T>>,
    free: BinaryHeap<Reverse<usize>>,
}

impl<T> Slots<T> {
    fn new() -> Self {
        Self { values: Vec::new(), free: BinaryHeap::new() }
    }

    /// Adds a value, and returns its number. `None` when there are too many.
    fn insert(&mut self, value: T) -> Option<u32> {
        let at = match self.free.pop() {
            Some(Reverse(at)) => at,
            None if self.values.len() < MAX_ENTRIES => {
                self.values.push(None);
                self.values.len() - 1
            }
            None => return None,
        };
        *self.values.get_mut(at)? = Some(value);
        u32::try_from(at).ok()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.values.get_mut(usize::try_from(number).ok()?)?.as_mut()
    }

    fn remove(&mut self, number: u32) -> Option<T> {
        let at = usize::try_from(number).ok()?;
        let value = self.values.get_mut(at)?.take()?;
        self.free.push(Reverse(at));
        Some(value)
    }
}

/// What programs have opened and created. Under the lock of the tables an event is taken from its channel, counted and
/// stored for the program, so the count of a destroyed or migrated id includes every event that a program gets.
pub(super) struct Tables {
    channels: HashMap<c_int, Arc<Channel>>,
    pub(super) ids: Slots<Entry>,
    pub(super) groups: Slots<Group>,
}

/// Returns the error for the number of no id.
pub(super) fn unknown_id(number: u32) -> Errno {
    Errno::new(System::ENOENT, format!("id {number} does not exist"))
}

fn too_many(what: &str) -> Errno {
    Errno::new(System::ENOMEM, format!("a process has up to {MAX_ENTRIES} {what}"))
}

/// Returns the tables of this process. A child of `fork` has empty ones.
pub(super) fn tables() -> &'static Mutex<Tables> {
    static TABLES: PerProcess<Mutex<Tables>> = PerProcess::new(|_| {
        Mutex::new(Tables { channels: HashMap::new(), ids: Slots::new(), groups: Slots::new() })
    });
    TABLES.get()
}

/// A channel that has been closed, and its ids. Dropping them tells their peers, for which no table may be locked.
pub(super) struct Closed {
    _channel: Option<Arc<Channel>>,
    _ids: Vec<Entry>,
}

impl Tables {
    /// Enters a channel, and returns the one that had its descriptor before.
    pub(super) fn enter_channel(&mut self, fd: c_int, channel: Arc<Channel>) -> Closed {
        let closed = self.leave_channel(fd);
        self.channels.insert(fd, channel);
        closed
    }

    pub(super) fn channel(&self, fd: c_int) -> Option<Arc<Channel>> {
        self.channels.get(&fd).map(Arc::clone)
    }

    /// Removes a channel and its ids.
    pub(super) fn leave_channel(&mut self, fd: c_int) -> Closed {
        let channel = self.channels.remove(&fd);
        let mut ids = Vec::new();
        if let Some(channel) = &channel {
            let numbers = 0..u32::try_from(self.ids.values.len()).unwrap_or(u32::MAX);
            for number in numbers {
                let is_of = |entry: &mut Entry| Arc::ptr_eq(&entry.channel, channel);
                if self.ids.get_mut(number).is_some_and(is_of) {
                    ids.extend(self.remove(number));
                }
            }
        }
        Closed { _channel: channel, _ids: ids }
    }

    /// Adds an id, and returns its number.
    ///
    /// # Errors
    ///
    /// `ENOMEM` when there are too many.
    pub(super) fn insert(
        &mut self,
        id: Id,
        channel: &Arc<Channel>,
        uid: u64,
    ) -> Result<u32, Errno> {
        let channel = Arc::clone(channel);
        let entry =
            Entry { id: id.clone(), channel, uid, reported: 0, is_ib: false, groups: Vec::new() };
        let number = self.ids.insert(entry).ok_or_else(|| too_many("ids"))?;
        id.set_tag(u64::from(number) + 1);
        Ok(number)
    }

    /// Returns an id of a channel.
    ///
    /// # Errors
    ///
    /// `ENOENT` for an unknown number, `EINVAL` for an id of another channel.
    pub(super) fn entry(
        &mut self,
        number: u32,
        channel: &Arc<Channel>,
    ) -> Result<&mut Entry, Errno> {
        let entry = self.ids.get_mut(number).ok_or_else(|| unknown_id(number))?;
        match Arc::ptr_eq(&entry.channel, channel) {
            true => Ok(entry),
            false => Err(Errno::invalid(format!("id {number} belongs to another channel"))),
        }
    }

    /// Returns the number of an id that the program has; `None` after it is destroyed.
    pub(super) fn number_of(&mut self, id: &Id) -> Option<u32> {
        let number = u32::try_from(id.tag().checked_sub(1)?).ok()?;
        self.ids.get_mut(number).filter(|entry| entry.id == *id).map(|_| number)
    }

    /// Removes an id and its groups.
    pub(super) fn remove(&mut self, number: u32) -> Option<Entry> {
        let entry = self.ids.remove(number)?;
        for (_, group) in &entry.groups {
            self.groups.remove(*group);
        }
        Some(entry)
    }

    /// Adds a group of an id, and returns its number.
    ///
    /// # Errors
    ///
    /// `ENOENT` for an unknown id, `ENOMEM` when there are too many.
    pub(super) fn insert_group(&mut self, group: Group) -> Result<u32, Errno> {
        let (id, name) = (group.id, group.group);
        let entry = self.ids.get_mut(id).ok_or_else(|| unknown_id(id))?;
        let number = self.groups.insert(group).ok_or_else(|| too_many("multicast groups"))?;
        entry.groups.push((name, number));
        Ok(number)
    }

    /// Removes a group of an id of a channel. Returns it with its id.
    ///
    /// # Errors
    ///
    /// `ENOENT` for an unknown number, `EINVAL` for a group of another channel.
    pub(super) fn remove_group(
        &mut self,
        number: u32,
        channel: &Arc<Channel>,
    ) -> Result<(Group, Id), Errno> {
        let unknown =
            || Errno::new(System::ENOENT, format!("multicast group {number} does not exist"));
        let id = self.groups.get_mut(number).ok_or_else(unknown)?.id;
        let entry = self.entry(id, channel)?;
        entry.groups.retain(|(_, group)| *group != number);
        let id = entry.id.clone();
        let group = self.groups.remove(number).ok_or_else(unknown)?;
        Ok((group, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_free_number_is_used_again() {
        let mut slots = Slots::new();
        let numbers: Vec<_> = "abcd".chars().map(|value| slots.insert(value)).collect();
        assert_eq!(numbers, [Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!(
            (slots.remove(2), slots.remove(0), slots.remove(0)),
            (Some('c'), Some('a'), None)
        );
        assert_eq!(
            (slots.insert('e'), slots.insert('f'), slots.insert('g')),
            (Some(0), Some(2), Some(4))
        );
        assert_eq!((slots.get_mut(2).copied(), slots.get_mut(5).copied()), (Some('f'), None));
    }
}
