//! Directories of this user that no other user can change, and the files in them.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, Flock, FlockArg, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{Mode, fchmod, fstat, mkdirat};
use nix::unistd::{AccessFlags, UnlinkatFlags, access, geteuid, mkdtemp, symlinkat, unlinkat};

/// Permission bits that let another user write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Permission bits that let another user do anything.
const OPEN_TO_OTHERS: u32 = 0o077;

/// An open directory that belongs to this user.
pub(super) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens the directory that the user has named, and creates it if it is missing.
    pub(super) fn named(path: &Path) -> anyhow::Result<Self> {
        let path = std::path::absolute(path)?;
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&path);
        made.with_context(|| path.display().to_string())?;
        Self::open(path, OFlag::empty(), WRITABLE_BY_OTHERS)
    }

    /// Opens a directory below `runtime` (`XDG_RUNTIME_DIR`) if that is private, else one below `temporary`, where
    /// another user may have created any name.
    pub(super) fn own(runtime: Option<&Path>, temporary: &Path) -> anyhow::Result<Self> {
        let private = runtime.filter(|path| path.is_absolute()).map(|path| {
            Self::open(path.to_owned(), OFlag::empty(), OPEN_TO_OTHERS)?.below("softroce".as_ref())
        });
        match private {
            Some(Ok(folder)) => Ok(folder),
            _ => Self::temporary(temporary),
        }
    }

    /// Opens the directory that an earlier call has created here, or creates one with an unpredictable name; so at
    /// most one is left.
    fn temporary(parent: &Path) -> anyhow::Result<Self> {
        let prefix = format!("softroce-{}-", geteuid());
        let left = fs::read_dir(parent).into_iter().flatten().flatten();
        let left = left
            .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()));
        let mut left: Vec<_> = left.map(|entry| entry.path()).collect();
        left.sort_unstable();
        let open = |path| Self::open(path, OFlag::O_NOFOLLOW, WRITABLE_BY_OTHERS);
        if let Some(folder) = left.into_iter().find_map(|path| open(path).ok()) {
            return Ok(folder);
        }
        let made = mkdtemp(&parent.join(prefix + "XXXXXX"));
        let folder = open(made.with_context(|| {
            format!("{}: SOFTROCE_PATHS can name another directory", parent.display())
        })?)?;
        // A program that drops its user's rights still looks up its device.
        fchmod(&folder.fd, Mode::from_bits_truncate(0o755))?;
        Ok(folder)
    }

    fn open(path: PathBuf, flags: OFlag, refused: u32) -> anyhow::Result<Self> {
        let fd = open_directory(AT_FDCWD, path.as_os_str(), flags);
        Self { fd: fd.with_context(|| path.display().to_string())?, path }.checked(refused)
    }

    /// Refuses a directory of another user, and one with any of the permission bits `refused`.
    fn checked(self, refused: u32) -> anyhow::Result<Self> {
        let found = fstat(&self.fd)?;
        ensure!(
            found.st_uid == geteuid().as_raw() && found.st_mode & refused == 0,
            "{}: expected a directory that belongs to this user and that no other may write to; SOFTROCE_PATHS can name \
             another",
            self.path.display()
        );
        Ok(self)
    }

    /// Returns the absolute path of the directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether files can be created in the directory.
    pub(super) fn is_writable(&self) -> bool {
        access(&self.path, AccessFlags::W_OK).is_ok()
    }

    /// Opens a directory in this one, and creates it if it is missing. Follows no link.
    pub(super) fn below(&self, name: &OsStr) -> anyhow::Result<Self> {
        let path = self.path.join(name);
        match mkdirat(&self.fd, name, Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
        let fd = open_directory(&self.fd, name, OFlag::O_NOFOLLOW);
        let fd = fd.with_context(|| path.display().to_string())?;
        Self { fd, path }.checked(WRITABLE_BY_OTHERS)
    }

    /// Writes `text` to a file, atomically for its readers. A process that is killed meanwhile leaves at most one
    /// file, which the next writer removes.
    pub(super) fn put(&self, name: &OsStr, text: &str) -> anyhow::Result<()> {
        let text = format!("{text}\n");
        let existing = openat(
            &self.fd,
            name,
            OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC,
            Mode::empty(),
        );
        let mut found = Vec::new();
        if let Ok(existing) = existing
            && File::from(existing).read_to_end(&mut found).is_ok()
            && found == text.as_bytes()
        {
            return Ok(());
        }
        let mut new = name.to_owned();
        new.push(".new");
        // One process writes at a time, so a file with that name was left by a process that was killed.
        let directory = self.fd.try_clone()?;
        let _alone = Flock::lock(directory, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
        match unlinkat(&self.fd, new.as_os_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(&self.fd, new.as_os_str(), flags, Mode::from_bits_truncate(0o644))?;
        File::from(fd).write_all(text.as_bytes())?;
        Ok(renameat(&self.fd, new.as_os_str(), &self.fd, name)?)
    }

    /// Creates a symbolic link to `target`.
    pub(super) fn link(&self, name: &OsStr, target: &str) -> anyhow::Result<()> {
        match symlinkat(target, &self.fd, name) {
            Err(Errno::EEXIST) => {
                ensure!(readlinkat(&self.fd, name)? == target, "not a link to {target}");
                Ok(())
            }
            made => Ok(made?),
        }
    }
}

fn open_directory(at: impl std::os::fd::AsFd, name: &OsStr, flags: OFlag) -> nix::Result<OwnedFd> {
    let flags = flags | OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn directory(mode: u32) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
        directory
    }

    #[test]
    fn private_runtime_directory_comes_first() {
        let (runtime, temporary) = (directory(0o700), directory(0o700));
        let folder = Folder::own(Some(runtime.path()), temporary.path()).unwrap();
        assert_eq!(folder.path(), runtime.path().join("softroce"));
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
    }

    #[test]
    fn runtime_directory_that_others_may_enter_is_not_used() {
        let (runtime, temporary) = (directory(0o711), directory(0o700));
        let folder = Folder::own(Some(runtime.path()), temporary.path()).unwrap();
        assert_eq!(folder.path().parent(), Some(temporary.path()));
        assert_eq!(fs::read_dir(runtime.path()).unwrap().count(), 0);
    }

    #[test]
    fn one_temporary_directory_serves_every_run() {
        let temporary = directory(0o700);
        let first = Folder::own(None, temporary.path()).unwrap();
        let second = Folder::own(None, temporary.path()).unwrap();
        assert_eq!(first.path(), second.path());
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1);
    }

    #[test]
    fn named_directory_that_others_may_write_to_is_refused() {
        let named = directory(0o777);
        let said = Folder::named(named.path()).err().unwrap().to_string();
        assert!(said.contains("that no other may write to"), "{said}");
    }

    #[test]
    fn links_below_a_directory_are_not_followed() {
        let (named, elsewhere) = (directory(0o755), directory(0o755));
        symlink(elsewhere.path(), named.path().join("softroce0")).unwrap();
        symlink(elsewhere.path().join("file"), named.path().join("file")).unwrap();
        let folder = Folder::named(named.path()).unwrap();
        assert!(folder.below("softroce0".as_ref()).is_err());
        folder.put("file".as_ref(), "text").unwrap();
        assert_eq!(fs::read_to_string(named.path().join("file")).unwrap(), "text\n");
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}
