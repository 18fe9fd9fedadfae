//! Reasons for which the dynamic loader does not load softroce's library into a program.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access, getegid, geteuid};

/// Length in bytes of the header of a 64-bit ELF file, and of an entry of its program header table.
const ELF_HEADER_LEN: usize = 64;
const PROGRAM_HEADER_LEN: usize = 56;

/// Type of the entry that names the dynamic loader (`PT_INTERP` of `elf.h`).
const LOADER_ENTRY: u32 = 3;

/// Maximum length in bytes of the loader's path.
const MAX_LOADER_BYTES: usize = 4096;

/// Mode bits of programs with the rights of their owner or group.
const SET_ID: u32 = 0o6000;

/// Returns why a command will not load the library; `None` if nothing speaks against it. A script is run by its
/// interpreter, which is not examined.
pub(super) fn obstacle(command: &OsStr) -> Option<String> {
    let path = find(command)?;
    let metadata = fs::metadata(&path).ok()?;
    let shown = path.display();
    // The loader keeps the environment if the program belongs to the user that starts it.
    let is_own = metadata.uid() == geteuid().as_raw() && metadata.gid() == getegid().as_raw();
    if metadata.mode() & SET_ID != 0 && !is_own {
        return Some(format!(
            "{shown} is a set-user-ID or set-group-ID program: the loader ignores LD_PRELOAD; run a copy"
        ));
    }
    if has_capabilities(&path) && !geteuid().is_root() {
        return Some(format!(
            "{shown} has file capabilities: the loader ignores LD_PRELOAD; run a copy"
        ));
    }
    match Loader::of(&File::open(&path).ok()?)? {
        Loader::Glibc => None,
        Loader::Musl => Some(format!(
            "{shown} is linked with musl, which cannot load a library that is linked with glibc"
        )),
        Loader::None => Some(format!("{shown} is linked statically, and loads no library")),
        Loader::OtherClass => {
            Some(format!("{shown} is a 32-bit program, and the library is 64-bit"))
        }
    }
}

/// Returns the file of a command, as `execvp` finds it.
fn find(command: &OsStr) -> Option<PathBuf> {
    if command.as_encoded_bytes().contains(&b'/') {
        return Some(command.into());
    }
    let is_executable = |path: &PathBuf| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(command)).find(is_executable)
}

fn has_capabilities(path: &Path) -> bool {
    // A buffer without room asks for the length of the attribute.
    let mut no_room: [u8; 0] = [];
    rustix::fs::getxattr(path, "security.capability", &mut no_room).is_ok()
}

/// Dynamic loader of an ELF file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Loader {
    Glibc,
    Musl,
    /// The program is linked statically.
    None,
    /// The file is a 32-bit program.
    OtherClass,
}

impl Loader {
    /// Reads the loader of a file; `None` if it is no ELF file of this byte order, or is damaged.
    fn of(file: &File) -> Option<Self> {
        let mut header = [0; ELF_HEADER_LEN];
        let mut reader = file;
        reader.read_exact(&mut header).ok()?;
        let [0x7f, b'E', b'L', b'F', class, order, ..] = header else { return None };
        if order != 1 {
            return None;
        }
        if class != 2 {
            return Some(Self::OtherClass);
        }
        let at = u64::from_le_bytes(*header.get(32..)?.first_chunk()?);
        let [size, count] = [54, 56].map(|at| u16::from_le_bytes([header[at], header[at + 1]]));
        if usize::from(size) != PROGRAM_HEADER_LEN {
            return None;
        }
        for index in 0..u64::from(count) {
            let mut entry = [0; PROGRAM_HEADER_LEN];
            file.read_exact_at(&mut entry, at.checked_add(index * u64::from(size))?).ok()?;
            if u32::from_le_bytes(*entry.first_chunk()?) == LOADER_ENTRY {
                return Self::named(file, &entry);
            }
        }
        Some(Self::None)
    }

    /// Reads the path of the loader that an entry of the program header table names.
    fn named(file: &File, entry: &[u8; PROGRAM_HEADER_LEN]) -> Option<Self> {
        let [at, len] = [8, 32].map(|at| entry.get(at..).and_then(<[u8]>::first_chunk));
        let len = usize::try_from(u64::from_le_bytes(*len?)).ok()?;
        let mut path = vec![0; len.min(MAX_LOADER_BYTES)];
        file.read_exact_at(&mut path, u64::from_le_bytes(*at?)).ok()?;
        let name = path.split(|byte| *byte == b'/').next_back()?;
        Some(if name.starts_with(b"ld-musl") { Self::Musl } else { Self::Glibc })
    }
}

/// Returns whether programs can load libraries from a directory; a mount option may forbid it.
pub(super) fn is_executable_place(directory: &Path) -> bool {
    statvfs(directory).map_or(true, |found| !found.flags().contains(FsFlags::ST_NOEXEC))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Returns an ELF file with an entry that names a loader, or without one.
    fn elf(loader: Option<&[u8]>) -> Vec<u8> {
        let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
        bytes.resize(ELF_HEADER_LEN, 0);
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        let mut entry = [0; PROGRAM_HEADER_LEN];
        if let Some(loader) = loader {
            entry[0] = 3;
            entry[8] = 120;
            entry[32] = loader.len().try_into().unwrap();
        }
        bytes.extend(entry);
        bytes.extend(loader.unwrap_or_default());
        bytes
    }

    fn loader(bytes: &[u8]) -> Option<Loader> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        Loader::of(&file.reopen().unwrap())
    }

    #[test]
    fn loader_is_that_of_the_program_header() {
        assert_eq!(loader(&elf(Some(b"/lib64/ld-linux-x86-64.so.2\0"))), Some(Loader::Glibc));
        assert_eq!(loader(&elf(Some(b"/lib/ld-musl-x86_64.so.1\0"))), Some(Loader::Musl));
        assert_eq!(loader(&elf(None)), Some(Loader::None));
        let mut small = elf(None);
        small[4] = 1;
        assert_eq!(loader(&small), Some(Loader::OtherClass));
    }

    #[test]
    fn scripts_and_damaged_files_are_no_obstacle() {
        assert_eq!(loader(b"#!/bin/sh\n"), None);
        let whole = elf(Some(b"/lib/ld-musl-x86_64.so.1\0"));
        for len in 0..whole.len() {
            assert_eq!(loader(&whole[..len]), None, "{len} bytes");
        }
        for at in [32, 39, 54, 120 - 56 + 15] {
            let mut damaged = whole.clone();
            damaged[at] = 0xff;
            assert_eq!(loader(&damaged), None, "byte {at}");
        }
    }

    #[test]
    fn own_test_program_loads_the_library() {
        let own = env::current_exe().unwrap();
        assert_eq!(obstacle(own.as_os_str()), None);
        assert_eq!(obstacle("sh".as_ref()), None);
        assert_eq!(obstacle("/no/such/program".as_ref()), None);
        assert_eq!(obstacle("no-such-program".as_ref()), None);
    }

    #[test]
    fn static_and_musl_programs_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        for (loader, expected) in [
            (None, "is linked statically, and loads no library"),
            (Some(&b"/lib/ld-musl-x86_64.so.1\0"[..]), "is linked with musl"),
        ] {
            fs::write(&path, elf(loader)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            let found = obstacle(path.as_os_str()).unwrap();
            assert!(found.contains(expected), "{found}");
        }
    }
}
