//! Checks of what programs under `roce run` need: the libraries, a directory, and calls that containers may forbid.

use std::env;
use std::io::IoSliceMut;
use std::path::Path;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::getpid;

use super::finding::{Finding, Findings};
use crate::run;

/// Checks what programs need. `paths` is the directory that the environment names for the files of the device.
pub(super) fn examine(paths: Option<&Path>, findings: &mut Findings) -> anyhow::Result<()> {
    findings.add(libraries())?;
    findings.add(device_files(paths))?;
    if let Some(finding) = preload() {
        findings.add(finding)?;
    }
    findings.add(memory_calls())?;
    Ok(())
}

/// Checks the libraries that `roce run` makes programs load.
fn libraries() -> Finding {
    const CHECK: &str = "libraries";
    match env::current_exe().map_err(Into::into).and_then(|command| run::library(&command)) {
        Ok(library) => {
            let library = library.display().to_string();
            Finding::ok(CHECK, format!("roce run loads {library}")).fact("library", library)
        }
        Err(e) => Finding::note(CHECK, format!("roce run has no library to load: {e:#}")),
    }
}

/// Checks the directory for the files that describe the device.
fn device_files(paths: Option<&Path>) -> Finding {
    const CHECK: &str = "device-files";
    match run::device_folder(paths) {
        Ok(folder) => {
            let folder = folder.display().to_string();
            Finding::ok(CHECK, format!("roce run describes its device below {folder}"))
                .fact("directory", folder)
        }
        Err(e) => Finding::note(
            CHECK,
            format!("programs that look below /sys/class/infiniband find no device: {e:#}"),
        )
        .advice("name a directory that this user may write to: SOFTROCE_PATHS=DIRECTORY"),
    }
}

/// Reports libraries that other tools preload into programs.
fn preload() -> Option<Finding> {
    const CHECK: &str = "preload";
    let listed = env::var("LD_PRELOAD").ok().filter(|listed| !listed.is_empty())?;
    let is_own = |name: &str| name.ends_with("libibverbs.so") || name.ends_with(run::PATHS);
    let names = listed.split([':', ' ']).filter(|name| !name.is_empty());
    let others: Vec<_> = names.filter(|name| !is_own(name)).collect();
    let finding = match others[..] {
        [] => Finding::ok(CHECK, "this environment already loads softroce's library"),
        _ => Finding::note(
            CHECK,
            format!("programs also preload {}: roce run puts its own first", others.join(", ")),
        ),
    };
    Some(finding.fact("LD_PRELOAD", listed))
}

/// Checks calls on memory that the seccomp profile of a container may forbid.
fn memory_calls() -> Finding {
    const CHECK: &str = "memory-calls";
    let (from, mut to) = ([0x5a_u8], [0]);
    let remote = RemoteIoVec { base: from.as_ptr().addr(), len: from.len() };
    let copied = process_vm_readv(getpid(), &mut [IoSliceMut::new(&mut to)], &[remote]);
    let shared = memfd_create(c"roce doctor", MFdFlags::MFD_CLOEXEC);
    let forbidden: Vec<_> = [
        copied
            .err()
            .map(|e| format!("process_vm_readv fails ({e}), so programs must not block SIGSEGV")),
        shared.err().map(|e| format!("memfd_create fails ({e}), so --via shm uses UDP")),
    ]
    .into_iter()
    .flatten()
    .collect();
    match forbidden[..] {
        [] => Finding::ok(CHECK, "copies by the kernel and shared memory are allowed"),
        _ => Finding::note(CHECK, forbidden.join("; "))
            .advice("the seccomp profile of the container decides, or the kernel"),
    }
}
