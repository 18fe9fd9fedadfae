//! Places that programs are started in: mounts, environments and networks that a container or a launcher leaves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use super::{roce, text};

/// Runs a script in namespaces of its own, with the loopback interface up. `$ROCE` is the command.
fn isolated(script: &str) -> Output {
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "--net", "bash", "-euc"]);
    unshare.arg(format!("ip link set lo up\n{script}"));
    unshare.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    unshare.env("ROCE", env!("CARGO_BIN_EXE_roce")).output().unwrap()
}

/// Runs a script as [`isolated`], which must succeed; returns standard output and standard error.
#[track_caller]
fn succeeds(script: &str) -> (String, String) {
    let Output { status, stdout, stderr } = isolated(script);
    let (out, err) = (text(&stdout), text(&stderr));
    assert!(status.success(), "{status}\n{out}\n{err}");
    (out, err)
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn device_is_found_without_a_home_and_with_a_read_only_directory_for_temporary_files() {
    let (out, err) = succeeds(
        "mount -t tmpfs -o ro tmpfs /run\nexport TMPDIR=/run\n\"$ROCE\" run -- ibv_devinfo",
    );
    assert!(out.contains("hca_id:\tsoftroce0"), "{out}");
    assert_eq!(err, "");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn programs_run_and_are_warned_where_no_directory_can_be_written() {
    let (out, err) = succeeds(
        "for place in /run /dev/shm; do mount -t tmpfs -o ro tmpfs $place; done\nexport TMPDIR=/run\n\
         \"$ROCE\" run -- ibv_devinfo\n\"$ROCE\" doctor --json >&2",
    );
    assert!(out.contains("hca_id:\tsoftroce0"), "{out}");
    let (warning, report) = err.split_once('\n').unwrap();
    let expected = "roce: programs that look below /sys/class/infiniband find no device: /run";
    assert!(warning.starts_with(expected), "{warning}");
    let report = serde_json::from_str(report).unwrap();
    roce::assert_found(&report, "device-files", "note", "find no device: /run");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn libraries_on_a_file_system_without_execution_are_refused() {
    let directory = Path::new(env!("CARGO_BIN_EXE_roce")).parent().unwrap().display();
    let output = isolated(&format!(
        "mount -t tmpfs tmpfs /run\n\
         mkdir -p /run/place/bin /run/place/lib/softroce\n\
         cp \"$ROCE\" /run/place/bin\n\
         mount -t tmpfs -o noexec tmpfs /run/place/lib/softroce\n\
         cp {directory}/libibverbs.so {directory}/libsoftroce_paths.so /run/place/lib/softroce\n\
         /run/place/bin/roce doctor || true\n\
         /run/place/bin/roce run -- true"
    ));
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{out}{err}");
    assert!(err.contains("the file system is mounted with noexec"), "{err}");
    assert!(out.contains("roce run has no library to load: "), "{out}");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn launcher_that_clears_the_library_path_and_preloads_others_changes_nothing() {
    let (out, _) = succeeds(
        "export LD_PRELOAD=libm.so.6\n\
         \"$ROCE\" run -- env -u LD_LIBRARY_PATH -u SOFTROCE_PATHS ibv_devices\n\"$ROCE\" doctor || true",
    );
    assert!(out.contains("softroce0"), "{out}");
    assert!(out.contains("programs also preload libm.so.6"), "{out}");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn loopback_without_ipv6_is_enough() {
    let (out, err) = succeeds(
        "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6\n\
         \"$ROCE\" run -- ibv_devinfo -v\n\"$ROCE\" doctor || true",
    );
    assert!(out.contains("GID[  0]:\t\t::ffff:127.0.0.1"), "{out}{err}");
    assert!(out.contains("no interface has an IPv6 address"), "{out}");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn programs_that_load_no_library_are_named() {
    let source = roce::scratch("static.c");
    let program = roce::scratch("static");
    fs::write(&source, "int main(void) { return 7; }\n").unwrap();
    let mut cc = Command::new("cc");
    let built = cc.args(["-static", "-o"]).arg(&program).arg(&source).output().unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let output = roce::command(&["run", "--", program.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    let expected =
        format!("roce: {} is linked statically, and loads no library\n", program.display());
    assert_eq!(text(&output.stderr), expected);
}
