//! A command, and its answer.

use std::ffi::c_int;
use std::sync::Arc;

use nix::errno::Errno as System;

use crate::abi::CmHeader;
use crate::border::{Errno, Plain, user};

use super::tables::Channel;

/// Smallest page of any machine, in bytes.
const MIN_PAGE: usize = 4096;

/// A command that a program has written to a channel.
pub(super) struct Command {
    pub(super) fd: c_int,
    pub(super) channel: Arc<Channel>,
    /// Address of the structure.
    body: u64,
    /// Length of the structure, in bytes.
    len: usize,
    /// Room for the answer, in bytes.
    room: usize,
}

impl Command {
    /// Returns the command with a header at `from`.
    pub(super) fn new(fd: c_int, channel: Arc<Channel>, header: &CmHeader, from: u64) -> Self {
        let body = from.wrapping_add(size_of::<CmHeader>() as u64);
        Self { fd, channel, body, len: header.len.into(), room: header.room.into() }
    }

    /// Reads the whole structure, as Linux does for structures that have not grown.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    pub(super) fn body<T: Plain>(&self) -> Result<T, Errno> {
        user::read(self.body)
    }

    /// Reads a structure that has grown: bytes that an older program does not have are zero.
    ///
    /// # Errors
    ///
    /// `EINVAL` for fewer bytes than the oldest structure has, `EFAULT`.
    pub(super) fn body_of_at_least<T: Plain>(&self, oldest: usize) -> Result<T, Errno> {
        if self.len < oldest {
            let found = self.len;
            return Err(Errno::invalid(format!(
                "a structure of {found} bytes, fewer than {oldest}"
            )));
        }
        user::read_prefix(self.body, self.len)
    }

    /// Checks the room for an answer.
    ///
    /// # Errors
    ///
    /// `ENOSPC` for fewer bytes than the oldest answer has.
    pub(super) fn check_room(&self, oldest: usize) -> Result<(), Errno> {
        if self.room >= oldest {
            return Ok(());
        }
        let found = self.room;
        let text = format!("room for {found} bytes of the answer, fewer than {oldest}");
        Err(Errno::new(System::ENOSPC, text))
    }

    /// Returns the room for an answer, in bytes.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Checks that an answer can be stored, before it is taken from where it waits: stores its first and its last byte as
    /// they are.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    pub(super) fn check_writable<T: Plain>(&self, response: u64) -> Result<(), Errno> {
        // It is on two pages at most.
        const { assert!(size_of::<T>() <= MIN_PAGE) };
        let last = self.room.min(size_of::<T>()).saturating_sub(1);
        for at in [0, last as u64] {
            let address = response.wrapping_add(at);
            let before: u8 = user::read(address)?;
            user::write(address, &before)?;
        }
        Ok(())
    }

    /// Stores the first `len` bytes of an answer.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    pub(super) fn answer_prefix<T: Plain>(
        &self,
        response: u64,
        answer: &T,
        len: usize,
    ) -> Result<(), Errno> {
        user::write_prefix(response, answer, len.min(self.room))
    }

    /// Stores an answer, as far as there is room for it.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    pub(super) fn answer<T: Plain>(&self, response: u64, answer: &T) -> Result<(), Errno> {
        user::write_prefix(response, answer, self.room)
    }
}
