//! Temporary directories for captures, which the next run removes after a run that was killed.

use std::env;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, open};
use nix::sys::stat::{Mode, fstat, stat};
use nix::unistd::geteuid;
use tempfile::TempDir;

/// Beginning of the names of directories that go with their run.
const TEMPORARY_PREFIX: &str = "roce-check-";

/// Beginning of the names of directories that stay.
const KEPT_PREFIX: &str = "roce-captures-";

/// A directory for captures that is removed with this value, or by a later run if this process is killed.
pub(super) struct Captures {
    folder: TempDir,
    /// While a process holds this lock, no other removes the directory.
    _lock: Flock<OwnedFd>,
}

impl Captures {
    /// Creates a directory, and removes those that killed runs of this user have left.
    pub(super) fn new() -> anyhow::Result<Self> {
        Self::below(&env::temp_dir()).context("a directory for captures")
    }

    fn below(parent: &Path) -> anyhow::Result<Self> {
        remove_abandoned(parent);
        loop {
            let folder = tempfile::Builder::new().prefix(TEMPORARY_PREFIX).tempdir_in(parent)?;
            // Another run may have found and removed the directory before it was locked.
            let opened = match directory(folder.path()) {
                Err(Errno::ENOENT) => continue,
                opened => opened?,
            };
            let lock = Flock::lock(opened, FlockArg::LockExclusive);
            let lock = lock.map_err(|(_, error)| error)?;
            if is_at(&lock, folder.path()) {
                return Ok(Self { folder, _lock: lock });
            }
        }
    }

    /// Returns the path of the directory.
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the files that the processes of the program have left, sorted by name.
    pub(super) fn files(&self) -> anyhow::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(self.path()).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.with_context(|| self.path().display().to_string())?;
        let mut files: Vec<_> = entries.iter().map(fs::DirEntry::path).collect();
        files.sort_unstable();
        Ok(files)
    }

    /// Keeps the directory, under a name that no later run removes, and returns its path.
    pub(super) fn keep(self) -> io::Result<PathBuf> {
        let kept = self.path().file_name().and_then(|name| name.to_str());
        let kept = kept.and_then(|name| name.strip_prefix(TEMPORARY_PREFIX)).unwrap_or_default();
        let kept = self.path().with_file_name(format!("{KEPT_PREFIX}{kept}"));
        fs::rename(self.path(), &kept)?;
        let _ = self.folder.keep();
        Ok(kept)
    }
}

/// Removes the directories of this user that no process holds. Whatever cannot be removed stays.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(TEMPORARY_PREFIX.as_bytes()) {
            continue;
        }
        let path = entry.path();
        let Ok(directory) = directory(&path) else { continue };
        let is_ours = fstat(&directory).is_ok_and(|found| found.st_uid == geteuid().as_raw());
        if is_ours && let Ok(_lock) = Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Opens a directory. Follows no link.
fn directory(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty())
}

fn is_at(directory: &OwnedFd, path: &Path) -> bool {
    let (opened, found) = (fstat(directory), stat(path));
    opened.ok().zip(found.ok()).is_some_and(|(opened, found)| {
        (opened.st_dev, opened.st_ino) == (found.st_dev, found.st_ino)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_ended_runs_go_and_others_stay() {
        let parent = tempfile::tempdir().unwrap();
        let below = |name: &str| parent.path().join(name);
        let (abandoned, other) = (below("roce-check-abc"), below("other"));
        fs::create_dir(&abandoned).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(abandoned.join("1.pcapng"), "").unwrap();
        let running = Captures::below(parent.path()).unwrap();
        assert_eq!((abandoned.exists(), other.exists()), (false, true));
        let kept = Captures::below(parent.path()).unwrap().keep().unwrap();
        drop(Captures::below(parent.path()).unwrap());
        assert!(running.path().exists() && kept.exists());
        let ended = running.path().to_owned();
        drop(running);
        assert!(!ended.exists());
    }
}
