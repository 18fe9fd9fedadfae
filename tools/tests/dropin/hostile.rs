//! Programs that violate the rules of verbs or push their limits, in C, against Debian's `verbs.h`, without knowledge
//! of softroce.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{output, run, text};
use crate::roce::{alone, command};

const SIGSEGV: i32 = 11;

/// Each program prints what is wrong, and then fails.
fn compiled(name: &str) -> String {
    super::compiled(&format!("hostile/{name}"))
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn senseless_arguments_are_refused() {
    assert_eq!(output(&[&compiled("refusals")]), "all is refused\n");
}

/// Lines of the library on the error output of a program, up to each refused call that the program marks.
fn reasons(program: &str) -> Vec<(String, Vec<String>)> {
    let mut command = run(&[program]);
    let ended = command.env("SOFTROCE_LOG", "info").env("MARK_REFUSALS", "1").output().unwrap();
    let said = text(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    let mut found = Vec::new();
    let mut reasons = Vec::new();
    for line in said.lines() {
        match line.strip_prefix("softroce: ") {
            Some(reason) => reasons.push(reason.to_owned()),
            None if line.starts_with("refused in line ") => {
                found.push((line.to_owned(), std::mem::take(&mut reasons)));
            }
            None => {}
        }
    }
    found
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn every_refused_call_has_a_reason() {
    for (name, min_calls) in [("refusals", 80), ("order", 20)] {
        let calls = reasons(&compiled(name));
        assert!(calls.len() >= min_calls, "{name}: {} calls", calls.len());
        for (call, reasons) in calls {
            let is_reason = |line: &String| {
                line.split_once(" failed with E").is_some_and(|(name, rest)| {
                    name.starts_with("ibv_")
                        && rest.split_once(": ").is_some_and(|(_, why)| why.len() > 9)
                })
            };
            assert!(reasons.iter().any(is_reason), "{name}: {call} has no reason: {reasons:?}");
        }
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn first_mistake_of_a_process_is_printed_once() {
    let program = compiled("refusals");
    let hints = |level: Option<&str>| {
        let mut command = run(&[&program]);
        command.env_remove("SOFTROCE_LOG").envs(level.map(|level| ("SOFTROCE_LOG", level)));
        let said = text(&command.output().unwrap().stderr);
        let lines = said.lines().filter(|line| line.contains("SOFTROCE_LOG=info reports every"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        hints(None),
        [
            "softroce: ibv_open_device failed with EINVAL: a handle is NULL (SOFTROCE_LOG=info reports every \
          refused call, and SOFTROCE_LOG=warn none)"
        ]
    );
    assert!(hints(Some("warn")).is_empty());
    // The answers that UCX, libfabric and ibv_devinfo ask for are no mistakes.
    for program in ["ibv_devinfo -v", "ucx_info -d", "fi_info -p verbs"] {
        let program: Vec<_> = program.split(' ').collect();
        let said = text(&run(&program).env_remove("SOFTROCE_LOG").output().unwrap().stderr);
        assert!(!said.contains("softroce: "), "{program:?}: {said}");
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn explanation_names_the_cause_and_the_remedy() {
    let options = ["run", "--explain", "--", "timeout", "20", "ibv_rc_pingpong", "-p"];
    let port = super::free_port();
    let at = port.to_string();
    let mut server = command(&[&options[..], &[at.as_str()]].concat());
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    super::until_it_listens(&mut server, port);
    let client = run(&["ibv_rc_pingpong", "-p", &at, "localhost"]).output().unwrap();
    assert!(!client.status.success(), "{}", text(&client.stdout));
    let ended = server.wait_with_output().unwrap();
    let said = text(&ended.stderr);
    let words = "exit status 1: the program has failed, and the first refused call is ibv_modify_qp EINVAL: \
                 the address has no GID (is_global is 0)";
    assert!(said.contains(words) && said.contains("`-g 0`"), "{said}");
    assert_eq!(ended.status.code(), Some(1));
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn the_wrong_order_is_refused() {
    assert_eq!(output(&[&compiled("order")]), "all is refused\n");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn objects_in_use_are_refused_before_their_events_are_acknowledged() {
    assert_eq!(output(&[&compiled("unacknowledged")]), "all is refused\n");
}

/// The first thread of the process is that of the program.
#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn threads_stay_on_the_processors_of_their_process() {
    let told = output(&["taskset", "-c", "0", &compiled("affinity")]);
    assert!(told.lines().count() > 1, "{told}");
    assert!(told.lines().all(|line| line == "Cpus_allowed_list:\t0"), "{told}");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn a_channel_that_the_program_reads_itself_blocks_no_call() {
    assert_eq!(output(&[&compiled("drained")]), "every event has come\n");
}

/// A thousand contexts, one after the other and at once, and ten thousand queue pairs.
#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn there_may_be_many_of_everything() {
    let _alone = alone();
    let many = compiled("many");
    for what in ["contexts", "queue-pairs"] {
        assert_eq!(output(&[&many, what]), "all were there\n");
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn memory_goes_away_under_its_requests() {
    let _alone = alone();
    let vanishing = compiled("vanishing");
    for signals in ["default", "handler"] {
        assert_eq!(output(&[&vanishing, signals]), "every request has ended\n");
    }
    // A fault of the program itself ends it as without softroce.
    let ended = run(&[&vanishing, "fault"]).output().unwrap();
    assert_eq!(text(&ended.stdout), "every request has ended\n");
    assert_eq!(ended.status.signal(), Some(SIGSEGV), "{}", ended.status);
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn handlers_of_the_program_get_its_own_faults() {
    let _alone = alone();
    let handlers = compiled("handlers");
    for how in ["by-name", "by-libc"] {
        assert_eq!(output(&[&handlers, how]), "every handler was entered as it should be\n");
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn bad_copy_of_the_program_ends_it() {
    let _alone = alone();
    let copies = compiled("copies");
    for how in ["memcpy", "movsb"] {
        let ended = run(&[&copies, how]).output().unwrap();
        assert_eq!(text(&ended.stdout), "", "{how}");
        assert_eq!(ended.status.signal(), Some(SIGSEGV), "{how}: {}", ended.status);
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn threads_use_everything_at_once() {
    let _alone = alone();
    assert_eq!(output(&[&compiled("threads")]), "every message has come once\n");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn children_have_devices_of_their_own() {
    let _alone = alone();
    let forks = compiled("forks");
    for when in ["before", "after"] {
        assert_eq!(output(&[&forks, when]), "all have ended well\n");
    }
}

/// While the library registers its hooks, and in a signal handler that has interrupted it anywhere.
#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn forks_while_a_device_is_opened_leave_no_lock_behind() {
    let _alone = alone();
    let forks = compiled("forks_within");
    for when in ["registration", "handler"] {
        assert_eq!(output(&[&forks, when]), "all have ended well\n");
    }
}

/// In a signal handler, in a child without a device, and right after posts that may wait for others.
#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn processes_end_at_once_wherever_they_call_exit() {
    let _alone = alone();
    let exits = compiled("exits");
    for place in ["handler", "child", "posted"] {
        assert_eq!(output(&[&exits, place]), "all have ended at once\n");
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn signals_interrupt_the_waits_for_events() {
    let _alone = alone();
    assert_eq!(output(&[&compiled("interrupted")]), "every signal has done what it should\n");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn regions_of_no_bytes_open_no_byte() {
    assert_eq!(output(&[&compiled("empty")]), "all is as it should be\n");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn queue_keys_of_bit_31_need_a_capability() {
    let root = Command::new("id").arg("-u").output().unwrap();
    assert_eq!(text(&root.stdout), "0\n", "as root only: others have no CAP_NET_RAW");
    assert_eq!(output(&[&compiled("qkeys")]), "only the privileged have such keys\n");
}

/// The connection continues after each PSN has been used once.
#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn connection_survives_a_lap_of_psns() {
    let _alone = alone();
    assert_eq!(output(&[&compiled("lap")]), "the lap is complete\n");
}

/// Creates, as another user, the names of this user's directories among the temporary files.
const PLANT: &str = r#"
cd "$1"
setpriv --reuid=65533 --regid=65533 --clear-groups bash -e -c '
    mkdir theirs softroce-0-000000
    ln -s "$1/theirs" softroce-0
    ln -s "$1/theirs" softroce-0-000001
' - "$1"
"#;

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn names_that_another_user_planted_are_left_alone() {
    let temporary = tempfile::tempdir().unwrap();
    let everybody = fs::Permissions::from_mode(0o1777);
    fs::set_permissions(temporary.path(), everybody).unwrap();
    let planted =
        Command::new("bash").args(["-e", "-c", PLANT, "-"]).arg(temporary.path()).output();
    let planted = planted.unwrap();
    assert!(planted.status.success(), "as root only: {}", text(&planted.stderr));
    for _ in 0..2 {
        let mut run = run(&["ibv_devinfo"]);
        run.env("TMPDIR", temporary.path()).env_remove("XDG_RUNTIME_DIR");
        let ended = run.output().unwrap();
        assert!(ended.status.success(), "{}", text(&ended.stderr));
    }
    for theirs in ["theirs", "softroce-0-000000"] {
        assert_eq!(fs::read_dir(temporary.path().join(theirs)).unwrap().count(), 0, "{theirs}");
    }
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 5, "four planted, one of ours");
}

/// Returns a program that finds our libraries by itself, because a set-uid program ignores the environment.
fn linked_with_ours(name: &str, directory: &Path) -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_roce")).parent().unwrap();
    for (built_as, found_as) in
        [("libibverbs.so", "libibverbs.so.1"), ("libsoftroce_paths.so", "libsoftroce_paths.so")]
    {
        fs::copy(built.join(built_as), directory.join(found_as)).unwrap();
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dropin/hostile").join(name);
    let (paths, program) = (directory.join("libsoftroce_paths.so"), directory.join(name));
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-Wl,--no-as-needed", "-o"]).arg(&program);
    cc.arg(source.with_extension("c")).arg(paths).arg("-libverbs");
    let told = cc.arg(format!("-Wl,-rpath,{}", directory.display())).output().unwrap();
    assert!(told.status.success(), "{}", text(&told.stderr));
    program
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn set_uid_programs_do_not_trust_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    fs::create_dir_all(tree.join("sys/class/infiniband/probe")).unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = linked_with_ours("privileged", directory.path());
    let said = || {
        let mut nobody = Command::new("setpriv");
        nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        nobody.env("SOFTROCE_NAME", "theirs").env("SOFTROCE_PATHS", &tree);
        let ended = nobody.output().unwrap();
        assert!(ended.status.success(), "as root only: {}", text(&ended.stderr));
        text(&ended.stdout)
    };
    assert_eq!(said(), "theirs\nled\n", "as any program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(said(), "softroce0\nnot led\n", "set-uid; is {} mounted nosuid?", program.display());
}
