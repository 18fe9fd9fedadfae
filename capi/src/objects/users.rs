//! Who uses an object that may not go before: where the library below has no need to know.

use std::sync::Arc;

use crate::border::Errno;

/// Counts those who use an object.
#[derive(Default)]
pub(crate) struct Users(Arc<()>);

/// One who uses an object, until it is dropped.
pub(crate) struct User {
    _counted: Arc<()>,
}

impl Users {
    pub(crate) fn join(&self) -> User {
        User { _counted: Arc::clone(&self.0) }
    }

    /// Refuses when there are any.
    pub(crate) fn check(&self) -> Result<(), Errno> {
        if Arc::strong_count(&self.0) == 1 { Ok(()) } else { Err(Errno::BUSY) }
    }
}
