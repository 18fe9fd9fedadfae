//! Uses of an object that keep it from being destroyed, where the library does not count them itself.

use std::sync::Arc;

use nix::errno::Errno as System;

use crate::border::Errno;

/// The number of users of an object.
#[derive(Default)]
pub(crate) struct Users(Arc<()>);

/// A user of an object, until it is dropped.
pub(crate) struct User {
    _counted: Arc<()>,
}

impl Users {
    /// Adds a user.
    pub(crate) fn join(&self) -> User {
        User { _counted: Arc::clone(&self.0) }
    }

    /// Fails while there are users.
    ///
    /// # Errors
    ///
    /// `EBUSY`.
    pub(crate) fn check(&self) -> Result<(), Errno> {
        match Arc::strong_count(&self.0) {
            1 => Ok(()),
            count => Err(Errno::new(
                System::EBUSY,
                format!("the object is in use by {} others: destroy them first", count - 1),
            )),
        }
    }
}
