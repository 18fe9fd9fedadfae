//! XRC domains of a device.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};

use thiserror::Error;

use crate::ids::XrcdId;
use crate::sync::Mutex;

/// An XRC domain, open while it is referenced.
#[derive(Debug)]
pub(crate) struct Xrcd {
    pub(crate) id: XrcdId,
}

/// Identity of a file that contexts find the same domain by: device and inode.
pub(crate) type FileId = (u64, u64);

/// Open domains.
#[derive(Debug, Default)]
pub(crate) struct XrcdTable {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u32,
    by_file: HashMap<FileId, Weak<Xrcd>>,
}

/// Error for an XRC domain that cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum XrcdError {
    /// There is none, and `create` was not set.
    #[doc(alias = "EAGAIN")]
    #[error("no XRC domain is open for this file, and none is to be created")]
    NotOpen,
    /// There is one, and `existing` was not set.
    #[doc(alias = "EINVAL")]
    #[error("an XRC domain is open for this file already")]
    Exists,
}

impl XrcdTable {
    /// Opens a private domain.
    pub(crate) fn make(&self) -> Arc<Xrcd> {
        self.lock().make()
    }

    /// Opens the domain of a file: the one that is open, if `existing` allows it, or a new one, if `create` does.
    pub(crate) fn open(
        &self,
        file: FileId,
        create: bool,
        existing: bool,
    ) -> Result<Arc<Xrcd>, XrcdError> {
        let mut state = self.lock();
        match state.by_file.get(&file).and_then(Weak::upgrade) {
            Some(_) if !existing => Err(XrcdError::Exists),
            Some(domain) => Ok(domain),
            None if !create => Err(XrcdError::NotOpen),
            None => {
                state.by_file.retain(|_, domain| domain.strong_count() > 0);
                let domain = state.make();
                state.by_file.insert(file, Arc::downgrade(&domain));
                Ok(domain)
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn make(&mut self) -> Arc<Xrcd> {
        self.last = self.last.wrapping_add(1);
        Arc::new(Xrcd { id: XrcdId(self.last) })
    }
}
