//! The command line of `roce` from the outside: pipes, colors, unreadable captures, exit statuses, other names.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use roce::{
    Listener, alone, command, copy_command, error, golden, json, lines, roce, scratch, stderr,
};

/// Runs a command, closes the pipe of its output after the first byte, and returns exit status and standard error.
fn read_one_byte(args: &[&str]) -> (Option<i32>, String) {
    let mut command = command(args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    (output.status.code(), stderr(&output))
}

#[test]
fn closed_pipe_is_no_failure() {
    // Longer than the buffer of a pipe, as text and as JSON.
    let file = golden("rxe/loss_netem5_pipe.pcap");
    let file = file.to_str().unwrap();
    let many = [file; 20];
    for command in ["dump", "check", "analyze"] {
        for json in [&[][..], &["--json"]] {
            let args = [&[command], json, &many].concat();
            assert_eq!(read_one_byte(&args), (Some(0), String::new()), "{command} {json:?}");
        }
    }
    for args in [
        &["man"][..],
        &["completions", "bash"],
        &["devinfo", "-v"],
        &["devinfo", "--counters"],
        &["--help"],
    ] {
        assert_eq!(read_one_byte(args), (Some(0), String::new()), "{args:?}");
    }
}

#[test]
fn closed_standard_error_changes_no_status() {
    let missing = scratch("cli_missing.pcap");
    let mut command = command(&["analyze", missing.to_str().unwrap()]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(2));
}

#[test]
fn full_disk_names_standard_output() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command(&["man"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("roce: standard output: No space left on device"));
}

#[test]
fn unreadable_captures_have_a_line_that_says_what_to_do() {
    let whole = fs::read(golden("rxe/rc_read.pcap")).unwrap();
    let compressed = fs::read(golden("rxe/rc_read.pcap")).map(|bytes| gzip(&bytes)).unwrap();
    let cases: [(&str, &[u8], &str); 6] = [
        (
            "empty",
            b"",
            "the file is empty: expected a pcap or pcapng capture; did the capturing program",
        ),
        ("text", b"hello world", "not a capture file (magic 0x68656c6c): expected pcap or pcapng"),
        ("header", &whole[..10], "cut short in the file header: "),
        ("block", &[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0], "cut short in the file header: "),
        (
            "record",
            &whole[..whole.len() - 1],
            "cut short in the record after packet 20: packets up to",
        ),
        ("gzip", &compressed[..compressed.len() / 2], "cut short in the record after packet "),
    ];
    for (name, bytes, expected) in cases {
        let path = scratch(&format!("cli_{name}"));
        fs::write(&path, bytes).unwrap();
        for command in ["dump", "check", "analyze"] {
            let text = error(&[command, path.to_str().unwrap()]);
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(
                text.starts_with(&format!("roce: {}: {expected}", path.display())),
                "{command}: {text}"
            );
        }
    }
}

/// Returns bytes as `gzip` compresses them.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let path = scratch("cli_whole");
    fs::write(&path, bytes).unwrap();
    Command::new("gzip").arg("-c").arg(&path).output().unwrap().stdout
}

#[test]
fn reading_commands_take_several_files() {
    let files = ["rxe/rc_read.pcap", "rxe/rc_atomic.pcap"].map(golden);
    let [first, second] = files.each_ref().map(|path| path.to_str().unwrap());
    let dumped = lines(&["dump", first, second]);
    assert_eq!((&*dumped[0], &*dumped[22]), (first, second));
    let packets = json(&["dump", "--json", first, second]);
    assert_eq!((&packets[0]["file"], &packets[21]["file"]), (&first.into(), &second.into()));
    let flows = json(&["analyze", "--json", first, second]);
    assert_eq!((&flows[0]["file"], &flows[1]["file"]), (&first.into(), &second.into()));
    let text = error(&["analyze", "--html", "page.html", first, second]);
    assert_eq!(text, "roce: --html: 2 captures are given, expected one, which the page shows\n");
    // One that cannot be read does not keep the next from being read.
    let output = roce(&["dump", "/nonexistent", second]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stdout).unwrap().contains("COMPARE_SWAP"));
}

#[test]
fn filters_that_match_nothing_say_so() {
    let file = golden("rxe/rc_read.pcap");
    let name = file.to_str().unwrap();
    let said = |args: &[&str]| {
        let output = roce(&[args, &[name]].concat());
        assert_eq!(output.status.code(), Some(0));
        stderr(&output)
    };
    let expected = format!(
        "roce: {name}: none of 21 RoCEv2 packets matches --opcode SEND --qpn 0x000007; its queue pairs are 0x00001d\n"
    );
    assert_eq!(said(&["dump", "--opcode", "SEND", "--qpn", "7"]), expected);
    let expected = format!("roce: {name}: no flow of 21 RoCEv2 packets matches --addr 192.0.2.1\n");
    assert_eq!(said(&["analyze", "--addr", "192.0.2.1"]), expected);
    assert_eq!(said(&["dump"]), "");
}

#[test]
fn every_object_of_json_has_the_version_of_its_schema() {
    let _alone = alone();
    let file = golden("rxe/rc_read.pcap");
    let file = file.to_str().unwrap();
    for args in [
        &["dump", "--json", file][..],
        &["check", "--json", file],
        &["check", "--json", "--explain", "all"],
        &["analyze", "--json", file],
        &["devinfo", "--json"],
        &["devinfo", "--json", "--counters"],
        &["perf", "send-bw", "-n", "10", "--no-ceiling", "--json", "--counters"],
    ] {
        let objects = json(args);
        assert!(
            !objects.is_empty() && objects.iter().all(|object| object["version"] == 1),
            "{args:?}"
        );
    }
    // Its exit status depends on the machine.
    let output = roce(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["version"], 1);
    let listener = Listener::start(&["pingpong", "-n", "5", "--json"]);
    let ours = json(&["pingpong", "--json", "127.0.0.1", "-p", &listener.port, "-n", "5"]);
    assert_eq!(ours[0]["version"], 1);
    assert_eq!(listener.finish().0, Some(0));
}

#[test]
fn both_sides_of_cm_verify_their_data() {
    let server = ["cm", "listen", "--ip", "127.99.1.1", "--json"];
    let client = ["cm", "connect", "--ip", "127.99.1.2", "127.99.1.1"];
    let listener = Listener::start(&server);
    let port = listener.port.clone();
    let refused = error(&[&client[..], &["-p", "1"]].concat());
    let expected = "roce: 127.99.1.1:1 rejects the connection: invalid service id (8)\n";
    assert_eq!(refused, expected);
    let ours = json(&[&client[..], &["-p", &port, "--json", "-n", "20", "-s", "1000"]].concat());
    assert_eq!((&ours[0]["pings"], &ours[0]["damaged"]), (&20.into(), &0.into()));
    let (status, theirs, _) = listener.finish();
    let theirs: serde_json::Value = serde_json::from_str(&theirs).unwrap();
    assert_eq!((status, &theirs["bytes"]), (Some(0), &20_000.into()));
}

#[test]
fn colors_follow_the_option_and_the_environment() {
    let file = golden("rxe/rc_read.pcap");
    let check = |option: &[&str], variable: Option<&str>| {
        let mut command = command(&[&["check", file.to_str().unwrap()], option].concat());
        for name in ["NO_COLOR", "CLICOLOR_FORCE"] {
            command.env_remove(name);
        }
        if let Some(variable) = variable {
            command.env(variable, "1");
        }
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap().contains('\u{1b}')
    };
    assert!(!check(&[], None), "standard output is no terminal");
    assert!(check(&["--color", "always"], None));
    assert!(check(&["--color=always"], Some("NO_COLOR")), "the option comes first");
    assert!(!check(&["--color", "never"], Some("CLICOLOR_FORCE")));
    assert!(check(&[], Some("CLICOLOR_FORCE")));
    assert!(!check(&[], Some("NO_COLOR")));
}

#[test]
fn run_has_the_exit_statuses_of_env() {
    // A directory as `roce run` wants it: the command, and files with the names of its libraries.
    let dir = scratch("cli_run");
    // An earlier run may have left it.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir(&dir).unwrap();
    let command = dir.join("roce");
    copy_command(&command);
    for library in ["libibverbs.so", "libsoftroce_paths.so"] {
        fs::write(dir.join(library), "").unwrap();
    }
    let plain = dir.join("plain");
    fs::write(&plain, "no program").unwrap();
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    for check in [&[][..], &["--check"]] {
        for (program, status, reason) in [
            (Path::new("nonexistent-program"), 127, "No such file"),
            (&plain, 126, "Permission denied"),
        ] {
            let mut run = Command::new(&command);
            run.arg("run")
                .args(check)
                .arg("--")
                .arg(program)
                .env("SOFTROCE_PATHS", dir.join("paths"));
            let output = run.output().unwrap();
            let expected = format!("roce: {}: {reason}", program.display());
            // The dynamic linker may complain of the empty libraries before.
            let text = stderr(&output);
            assert!(text.lines().any(|line| line.starts_with(&expected)), "{text}");
            assert_eq!(output.status.code(), Some(status), "{check:?}");
        }
    }
}

#[test]
fn gid_index_out_of_range_fails_at_once() {
    let expected =
        "roce: GID index 9 is out of range: the GID table of the device has indices 0 to 3 only\n";
    for args in [
        &["pingpong", "-g", "9"][..],
        &["pingpong", "-x", "9", "127.0.0.1"],
        &["perf", "write-bw", "-x", "9"],
        &["perf", "write-bw", "-x", "9", "--listen"],
    ] {
        let text = error(args);
        assert!(text.starts_with(expected), "{args:?}: {text}");
    }
    let text = error(&["pingpong", "-g", "4", "--ip", "127.0.0.1,::1"]);
    assert!(text.contains("has 0 (127.0.0.1), 1 (::1), 2 (127.0.0.1), 3 (::1)\n"), "{text}");
}

#[test]
fn names_of_other_programs_are_subcommands() {
    let _alone = alone();
    // As a first argument, and as the name of the command.
    let link = scratch("ib_send_bw");
    // An earlier run may have left it.
    let _ = fs::remove_file(&link);
    symlink(env!("CARGO_BIN_EXE_roce"), &link).unwrap();
    let listener = Listener::start(&["ib_send_bw", "-d", "softroce0", "-i", "1", "-x", "0", "-F"]);
    let mut client = Command::new(&link);
    let client =
        client.args(["-n", "20", "--no-ceiling", "--json", "-p", &listener.port, "127.0.0.1"]);
    let output = client.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let row: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&row["test"], &row["iterations"]), (&"send-bw".into(), &20.into()));
    assert_eq!(listener.finish().0, Some(0));

    let listener = Listener::start(&["ibv_uc_pingpong", "-c", "-n", "20", "-g", "0"]);
    let played =
        json(&["ibv_uc_pingpong", "-c", "-n", "20", "--json", "-p", &listener.port, "127.0.0.1"]);
    assert_eq!((&played[0]["transport"], &played[0]["damaged"]), (&"uc".into(), &0.into()));
    assert_eq!(listener.finish().0, Some(0));

    assert_eq!(lines(&["ibv_devinfo", "-l"]), ["softroce0"]);
}
