//! Habits of programs that a library must bear: how they start, how they treat descriptors, threads and limits.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::{output, run, text};
use crate::roce::{alone, command};

const ARRIVED: &str = "the message has arrived\n";

fn habits() -> String {
    super::compiled("hostile/habits")
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn habits_of_programs_stop_no_message() {
    let _alone = alone();
    let program = habits();
    let habits = [
        "plain",
        "close",
        "close device",
        "close watch",
        "start",
        "daemon",
        "descriptors",
        "locked",
        "address space",
    ];
    for habit in habits {
        // A program that starts others has their output too.
        let said = output(&[&program, habit]);
        let others = if habit == "start" { 2 } else { 0 };
        assert_eq!(said, ARRIVED.repeat(1 + others), "{habit}");
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn closed_descriptors_of_shared_memory_fail_the_device() {
    let _alone = alone();
    let mut run = run(&[&habits(), "close device"]);
    let ended = run.env("SOFTROCE_VIA", "shm").output().unwrap();
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    assert_eq!(text(&ended.stdout), ARRIVED);
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn five_hundred_threads_use_one_device() {
    let _alone = alone();
    assert_eq!(output(&[&habits(), "threads"]), ARRIVED);
}

/// With `RTLD_DEEPBIND` a library prefers its own symbols and those of its dependencies.
const DEEPBIND: &str = r"
import ctypes, os
library = ctypes.CDLL('libibverbs.so.1', mode=os.RTLD_NOW | os.RTLD_DEEPBIND)
library.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
library.ibv_get_device_name.restype = ctypes.c_char_p
library.ibv_get_device_name.argtypes = library.ibv_open_device.argtypes = [ctypes.c_void_p]
library.ibv_open_device.restype = ctypes.c_void_p
device = library.ibv_get_device_list(None)[0]
print(library.ibv_get_device_name(device).decode(), library.ibv_open_device(device) is not None)
";

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn library_opened_with_deepbind_is_ours() {
    assert_eq!(output(&["/usr/bin/python3", "-c", DEEPBIND]), "softroce0 True\n");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn static_program_gets_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let [source, program] = ["static.c", "static"].map(|name| folder.path().join(name));
    fs::write(&source, "int main(void) { return 3; }\n").unwrap();
    let built = Command::new("cc").arg("-static").arg(&source).arg("-o").arg(&program).output();
    let built = built.unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    let ended = command(&["run", "--explain", "--", program.to_str().unwrap()]).output().unwrap();
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(said.contains("static is linked statically, and loads no library"), "{said}");
    assert!(said.contains("the program has failed without opening the device"), "{said}");
    // The loader runs for this one.
    let ended = command(&["run", "--explain", "--", "/bin/false"]).output().unwrap();
    assert!(!text(&ended.stderr).contains("linked statically"), "{}", text(&ended.stderr));
}

/// Value of `security.capability` for CAP_NET_RAW, permitted and effective, in revision 2.
const CAPABILITY: &str = r"
import os, sys
os.setxattr(sys.argv[1], 'security.capability', bytes([1, 0, 0, 2, 0, 32, 0, 0]) + bytes(12))
";

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn program_with_file_capabilities_gets_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_roce")).parent().unwrap();
    for file in ["roce", "libibverbs.so", "libsoftroce_paths.so"] {
        fs::copy(built.join(file), folder.path().join(file)).unwrap();
    }
    let program = folder.path().join("capable");
    fs::copy("/bin/true", &program).unwrap();
    let set =
        Command::new("/usr/bin/python3").args(["-c", CAPABILITY]).arg(&program).output().unwrap();
    assert!(set.status.success(), "as root only: {}", text(&set.stderr));
    let mut nobody = Command::new("setpriv");
    nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
    let ended =
        nobody.arg(folder.path().join("roce")).args(["run", "--"]).arg(&program).output().unwrap();
    let said = text(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    assert!(said.contains("capable has file capabilities: the loader ignores"), "{said}");
}

/// Makes a root directory with the program, softroce's libraries, and the libraries of all three, at their paths.
const MAKE_ROOT: &str = r#"
    for file in "${@:2}" $(ldd "${@:2}" | grep -o '/[^ :]*' | sort -u); do
        mkdir -p "$1$(dirname "$file")"
        cp -L "$file" "$1$file"
    done
    mkdir -p "$1/tmp"
"#;

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn program_in_another_root_directory_has_the_device() {
    let root = tempfile::tempdir().unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_roce")).parent().unwrap();
    let program = habits();
    let mut make = Command::new("bash");
    make.args(["-e", "-c", MAKE_ROOT, "-"]).arg(root.path()).arg(&program);
    let made = make.args(["libibverbs.so", "libsoftroce_paths.so"].map(|name| built.join(name)));
    let made = made.output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    let root = root.path().to_str().unwrap();
    let mut run = run(&["unshare", "--map-root-user", "chroot", root, &program]);
    let ended = run.output().unwrap();
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    assert_eq!(text(&ended.stdout), ARRIVED);
}
