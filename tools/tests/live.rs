//! Captures and states of running programs: `roce capture`, `roce dump -i`, `roce extcap` and `roce top`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../tests/support/prerequisite.rs"]
mod prerequisite;
mod roce;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, geteuid, mkfifo};
use roce::{Listener, alone, command, copy_command, error, json, lines, roce, scratch, stderr};
use serde_json::Value;
use softroce::runtime::control::{Client, Request, sockets};
use softroce::verbs::*;

/// Number of attempts until a condition holds that takes milliseconds. Each does a little work.
const MAX_ATTEMPTS: usize = 100_000;

/// Number of messages until a command that takes seconds has ended, on a busy machine.
const MAX_MESSAGES: usize = 50_000_000;

/// Two connected queue pairs of two devices of this process.
struct Pair {
    a: Context,
    qp: QueuePair,
    cq: CompletionQueue,
    near: MemoryRegion,
    far: MemoryRegion,
    _peer: (Context, QueuePair),
}

impl Pair {
    fn open() -> Self {
        let open = || Context::open(OpenOptions::loopback()).unwrap();
        let (a, b) = (open(), open());
        let (cq, far_cq) = (a.create_cq(64, None).unwrap(), b.create_cq(64, None).unwrap());
        let (pd, far_pd) = (a.alloc_pd(), b.alloc_pd());
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let near = pd.alloc_mr(1 << 16, access).unwrap();
        let far = far_pd.alloc_mr(1 << 16, access).unwrap();
        let qp = pd.create_qp(&QpConfig::rc(&cq)).unwrap();
        let far_qp = far_pd.create_qp(&QpConfig::rc(&far_cq)).unwrap();
        qp.connect(&far_qp.endpoint(), &ConnectOptions::default()).unwrap();
        far_qp.connect(&qp.endpoint(), &ConnectOptions::default()).unwrap();
        Self { a, qp, cq, near, far, _peer: (b, far_qp) }
    }

    fn ip(&self) -> String {
        self.a.ip().to_string()
    }

    fn write(&self, bytes: usize) {
        let write = SendRequest::write(1, self.near.sge(..bytes), self.far.remote(0));
        self.qp.post_send(write.signaled()).unwrap();
        assert_eq!(self.cq.wait_one(None).unwrap().status, WcStatus::Success);
    }

    /// Writes until `child` ends.
    fn write_until_end_of(&self, running: &mut Running) {
        let ended = (0..MAX_MESSAGES).any(|_| {
            self.write(64);
            running.has_ended()
        });
        assert!(ended, "the command does not end");
    }
}

/// Returns the state of the device at an address; null if there is none.
fn device(ip: &str) -> Value {
    let mut names = sockets().unwrap().into_iter();
    let name = names.find(|name| name.ip.to_string() == ip);
    let Some(client) = name.and_then(|name| Client::connect(name).ok()) else {
        return Value::Null;
    };
    let mut connection = client.connection;
    connection.set_nonblocking(false).unwrap();
    connection.write_all(format!("{}\n", Request::Status).as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(connection).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or(Value::Null)
}

/// Returns an empty folder of a test.
fn folder(name: &str) -> PathBuf {
    let folder = scratch(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A command that runs; it ends with the test at the latest.
struct Running(Option<Child>);

impl Running {
    fn of(command: &mut Command) -> Self {
        Self(Some(command.spawn().unwrap()))
    }

    fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    fn has_ended(&mut self) -> bool {
        self.child().try_wait().unwrap().is_some()
    }

    fn signal(&mut self, signal: Signal) {
        kill(Pid::from_raw(self.child().id().try_into().unwrap()), signal).unwrap();
    }

    /// Waits for the end.
    fn finish(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts the command, without its standard output.
fn start(args: &[&str]) -> Running {
    Running::of(command(args).stdout(Stdio::null()).stderr(Stdio::piped()))
}

/// Returns the packets of a capture file.
fn packets(file: &Path) -> Vec<Value> {
    json(&["dump", "--json", file.to_str().unwrap()])
}

#[test]
fn capture_of_a_device_ends_after_the_wanted_packets() {
    let (pair, file) = (Pair::open(), folder("live-count").join("x.pcapng"));
    let path = file.to_str().unwrap();
    let mut child = start(&["capture", "-i", &pair.ip(), "-w", path, "-c", "20"]);
    pair.write_until_end_of(&mut child);
    let output = child.finish();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output).trim(), "roce: 20 packets captured, 0 dropped");
    let packets = packets(&file);
    assert_eq!(packets.len(), 20);
    assert!(packets.iter().all(|packet| packet["icrc"] == "good"));
    let operations: Vec<_> = packets.iter().map(|packet| packet["operation"].to_string()).collect();
    assert!(operations.iter().any(|name| name.contains("WRITE")), "{operations:?}");
    assert!(operations.iter().any(|name| name.contains("ACK")), "{operations:?}");
}

#[test]
fn filter_and_snap_length_apply_in_the_device() {
    let (pair, file) = (Pair::open(), folder("live-filter").join("x.pcapng"));
    let filter = format!("host {} and qp {}", pair.ip(), pair.qp.qpn().value());
    let args = ["capture", "-i", &pair.ip(), "-f", &filter, "-s", "60", "-c", "5"];
    let mut child = start(&[&args[..], &["-w", file.to_str().unwrap()]].concat());
    pair.write_until_end_of(&mut child);
    assert!(child.finish().status.success());
    let qpn = pair.qp.qpn().value();
    assert!(packets(&file).iter().all(|packet| packet["qp"] == qpn));
    for wrong in ["port 4791", "qp x"] {
        let text = error(&["capture", "-f", wrong, "-w", "-"]);
        assert!(text.contains("expected `host ADDRESS` or `qp NUMBER`"), "{text}");
    }
}

#[test]
fn ring_keeps_the_last_files_each_readable() {
    let (pair, folder) = (Pair::open(), folder("live-ring"));
    let file = folder.join("x.pcapng");
    let args = ["-c", "300", "-b", "filesize:10", "-b", "files:2", "-w", file.to_str().unwrap()];
    let mut child = start(&[&["capture", "-i", &pair.ip()], &args[..]].concat());
    pair.write_until_end_of(&mut child);
    let output = child.finish();
    assert!(output.status.success(), "{}", stderr(&output));
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 2);
    for file in files {
        let len = fs::metadata(&file).unwrap().len();
        assert!(len < 11_000 && !packets(&file).is_empty(), "{}: {len} bytes", file.display());
    }
    let text = error(&["capture", "-w", "x", "-b", "files:2"]);
    assert!(text.contains("expected filesize:KB or duration:SECONDS"), "{text}");
}

#[test]
fn full_disk_leaves_a_readable_file() {
    let (pair, file) = (Pair::open(), folder("live-full").join("x.pcapng"));
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$@\"";
    let path = file.to_str().unwrap();
    let args = ["-c", script, "sh", env!("CARGO_BIN_EXE_roce"), "capture", "-i", &pair.ip()];
    let mut command = Command::new("sh");
    let command = command.args(args).args(["-w", path]).stderr(Stdio::piped());
    let mut child = Running::of(command);
    pair.write_until_end_of(&mut child);
    let output = child.finish();
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains(path) && text.contains("File too large"), "{text}");
    assert!(packets(&file).len() > 20, "the file has whole packets");
}

#[test]
fn reader_that_closes_the_fifo_ends_the_capture_quietly() {
    let (pair, fifo) = (Pair::open(), folder("live-fifo").join("fifo"));
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    let child = start(&["capture", "-q", "-i", &pair.ip(), "-w", fifo.to_str().unwrap()]);
    let mut reader = File::open(&fifo).unwrap();
    let mut header = [0; 28];
    reader.read_exact(&mut header).unwrap();
    // There is no packet to write.
    drop(reader);
    let output = child.finish();
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
}

#[test]
fn capture_ends_with_its_device_and_with_a_killed_process() {
    let _alone = alone();
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let file = folder("live-killed").join("x.pcapng");
        let (path, ip) = (file.to_str().unwrap(), roce::fresh_ip(9));
        let listener = Listener::start(&["cm", "listen", "--ip", &ip, "--timeout", "600"]);
        let mut child = start(&["capture", "-i", &ip, "-w", path]);
        let captured = (0..MAX_ATTEMPTS).any(|_| {
            if child.has_ended() {
                // The device was not open yet.
                child = start(&["capture", "-i", &ip, "-w", path]);
            }
            device(&ip)["captures"] == 1
        });
        assert!(captured, "the device has no capture");
        let pid = device(&ip)["pid"].as_i64().unwrap();
        kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
        let output = child.finish();
        assert!(output.status.success(), "{signal}: {}", stderr(&output));
        assert_eq!(stderr(&output).trim(), "roce: 0 packets captured, 0 dropped");
        drop(listener);
    }
}

#[test]
fn interrupted_capture_of_all_devices_has_the_packets_of_both_programs_in_order() {
    let _alone = alone();
    let file = folder("live-all").join("x.pcapng");
    let path = file.to_str().unwrap();
    let mut child = start(&["capture", "-i", "softroce", "-w", path]);
    let listens = || fs::read_to_string("/proc/net/unix").unwrap().contains("@softroce/capture/");
    assert!((0..MAX_ATTEMPTS).any(|_| listens()), "the capture does not listen");
    let ips = [roce::fresh_ip(10), roce::fresh_ip(11)];
    let options = ["--via", "shm", "-n", "50"];
    let listener = Listener::start(&[&["pingpong", "--ip", &ips[0]][..], &options].concat());
    let here = ["pingpong", "--ip", &ips[1], "127.0.0.1", "-p", &listener.port];
    lines(&[&here[..], &options].concat());
    listener.finish();
    child.signal(Signal::SIGINT);
    let output = child.finish();
    assert!(output.status.success(), "{}", stderr(&output));
    let of_pair = |packet: &Value| {
        let ends = [&packet["source"], &packet["destination"]].map(|end| end.to_string());
        ips.iter().all(|ip| ends.iter().any(|end| end.contains(ip.as_str())))
    };
    let packets: Vec<_> = packets(&file).into_iter().filter(of_pair).collect();
    let requests = packets.iter().filter(|packet| packet["operation"] == "SEND_FIRST").count();
    // 50 round trips, each message at both devices; on a busy machine some are sent again.
    assert!(requests >= 200, "{requests} of 200 messages");
    let times: Vec<_> = packets.iter().map(|packet| packet["time_ns"].as_u64().unwrap()).collect();
    assert!(times.is_sorted());
}

#[test]
fn dump_prints_packets_while_the_program_runs() {
    let pair = Pair::open();
    let mut dump = Running::of(command(&["dump", "-i", &pair.ip()]).stdout(Stdio::piped()));
    let mut stdout = BufReader::new(dump.child().stdout.take().unwrap());
    let line = thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut line = String::new();
            stdout.read_line(&mut line).map(|_| line)
        });
        let printed = (0..MAX_MESSAGES).any(|_| {
            pair.write(64);
            reader.is_finished()
        });
        assert!(printed, "no line is printed");
        reader.join().unwrap().unwrap()
    });
    assert!(line.contains("RC ") && line.contains("icrc good"), "{line}");
    assert!(error(&["dump", "-i", "192.0.2.1"]).contains("192.0.2.1: no such device"));
}

#[test]
fn devices_are_listed_and_found_by_name_process_and_address() {
    let name = format!("live-{}", std::process::id());
    let ctx = Context::open(OpenOptions::loopback().name(&name)).unwrap();
    let listed = json(&["capture", "-D", "--json"]);
    let found = listed.iter().find(|found| found["device"] == name.as_str()).unwrap();
    assert_eq!((&found["name"], &found["via"]), (&name.clone().into(), &"udp".into()));
    assert_eq!(found["pid"], std::process::id());
    let text = lines(&["capture", "-D"]).join("\n");
    assert!(text.contains(&format!("{name} (PID {}, live-", std::process::id())), "{text}");
    assert!(text.contains(&format!(", {}, udp)", ctx.ip())), "{text}");
    let hidden = Context::open(OpenOptions::loopback().control(false)).unwrap();
    assert!(
        error(&["capture", "-w", "-", "-i", &hidden.ip().to_string()]).contains("no such device")
    );
}

#[test]
fn two_hundred_sockets_without_a_reply_delay_a_list_by_seconds_at_most() {
    let ctx = Context::open(OpenOptions::loopback()).unwrap();
    let pid = std::process::id();
    let silent: Vec<_> = (0..200)
        .map(|number| {
            let name = format!("softroce/192.0.2.7/control/{pid}.{}", 1_000_000 + number);
            let name = SocketAddr::from_abstract_name(name).unwrap();
            UnixListener::bind_addr(&name).unwrap()
        })
        .collect();
    let listed = json(&["capture", "-D", "--json"]);
    let ips: Vec<_> = listed.iter().map(|found| found["ip"].clone()).collect();
    assert!(ips.contains(&ctx.ip().to_string().into()) && !ips.contains(&"192.0.2.7".into()));
    drop(silent);
}

#[test]
fn device_of_another_user_is_neither_listed_nor_captured() {
    if !geteuid().is_root() {
        return prerequisite::missing("root");
    }
    let pair = Pair::open();
    // The command may be in a folder of root.
    let copy = tempfile::Builder::new().prefix("roce").tempdir_in("/tmp").unwrap();
    let bin = copy.path().join("roce");
    copy_command(&bin);
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(copy.path(), everyone).unwrap();
    let other = |args: &[&str]| {
        Command::new(&bin).args(args).uid(54_321).gid(54_321).current_dir("/").output().unwrap()
    };
    let listed = other(&["capture", "-D", "--json"]);
    assert!(listed.status.success() && listed.stdout.is_empty(), "{}", stderr(&listed));
    let refused = other(&["capture", "-w", "-", "-i", &pair.ip()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("no such device"), "{}", stderr(&refused));

    // Nor does root take a socket of that user for one of its devices.
    let ip = roce::fresh_ip(12);
    let args = ["cm", "listen", "--ip", &ip, "--timeout", "600", "--port=0", "--announce"];
    let mut listening = Command::new(&bin);
    listening.args(args).uid(54_321).gid(54_321).current_dir("/").stdout(Stdio::piped());
    let mut listening = Running::of(&mut listening);
    let mut line = String::new();
    BufReader::new(listening.child().stdout.take().unwrap()).read_line(&mut line).unwrap();
    let named = || sockets().unwrap().iter().any(|name| name.ip.to_string() == ip);
    assert!(named(), "the device of the other user has a control socket");
    let listed = json(&["capture", "-D", "--json"]);
    assert!(listed.iter().all(|found| found["ip"] != ip.as_str()), "{listed:?}");
    let refused = error(&["capture", "-w", "-", "-i", &ip]);
    assert!(refused.contains("no such device"), "{refused}");
}

#[test]
fn extcap_answers_wireshark() {
    let pair = Pair::open();
    let folder = folder("live-extcap");
    let installed = lines(&["extcap", "--install", "--dir", folder.to_str().unwrap()]);
    let link = folder.join("roce-extcap");
    assert_eq!(installed, [format!("{} -> {}", link.display(), env!("CARGO_BIN_EXE_roce"))]);
    let ask = |args: &[&str]| {
        let output = Command::new(&link).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let listed = ask(&["--extcap-interfaces", "--extcap-version=4.0"]);
    assert!(listed.starts_with("extcap {version="), "{listed}");
    assert!(
        listed.contains("interface {value=softroce}{display=all softroce devices of this user}\n")
    );
    assert!(listed.contains(&format!(", {}}}\n", pair.ip())), "{listed}");
    let dlts = ask(&["--extcap-interface", "softroce", "--extcap-dlts"]);
    assert!(dlts.starts_with("dlt {number=101}{name=RAW}"), "{dlts}");
    let config = ask(&["--extcap-interface", "softroce", "--extcap-config"]);
    assert!(config.starts_with("arg {number=0}{call=--snaplen}"), "{config}");
    let device = ["--capture", "--extcap-interface", "softroce", "--extcap-capture-filter"];
    ask(&[&device[..], &["host 10.0.0.1"]].concat());
    let wrong = Command::new(&link).args(device).arg("tcp").output().unwrap();
    assert!(!wrong.status.success() && stderr(&wrong).contains("expected `host ADDRESS`"));
}

#[test]
fn top_prints_rates_and_counters_of_devices_and_queue_pairs() {
    let pair = Pair::open();
    let args = ["top", "--once", "--json", "--filter", &pair.ip()];
    let mut child = Running::of(command(&args).stdout(Stdio::piped()));
    pair.write_until_end_of(&mut child);
    let printed: Value = serde_json::from_slice(&child.finish().stdout).unwrap();
    let devices = printed["devices"].as_array().unwrap();
    let device = devices.iter().find(|device| device["ip"] == pair.ip()).unwrap();
    assert_eq!((&printed["version"], &device["pid"]), (&1.into(), &std::process::id().into()));
    let qp = &device["qps"][0];
    assert_eq!((&qp["qp"], &qp["state"]), (&pair.qp.qpn().value().into(), &"RTS".into()));
    for rates in [&device["rates"], &qp["rates"]] {
        let rate = |name: &str| rates[name].as_f64().unwrap();
        assert!(rate("tx_bits_per_second") > 0.0 && rate("messages_per_second") > 0.0, "{rates}");
    }
    assert!(qp["counters"]["writes_completed"].as_u64().unwrap() > 0);
    let table = lines(&["top", "--once", "--filter", &pair.ip()]);
    assert!(table[0].ends_with("RETR  RNR  CNP"), "{table:?}");
    assert!(error(&["top"]).contains("expected a terminal"));
}

#[test]
fn status_lists_the_listeners_of_the_connection_manager() {
    let pair = Pair::open();
    let any = "0.0.0.0:0".parse().unwrap();
    let service = cm::ServiceListener::bind(&pair.a, any).unwrap();
    let listener = cm::Listener::bind(&pair.a, any).unwrap();
    let [tcp, udp] = [listener.local_addr(), service.local_addr()].map(|at| at.port());
    let listed = |found: &Value| {
        let all = found["listeners"].as_array().unwrap().clone();
        all.iter().map(|listener| listener.to_string()).collect::<Vec<_>>()
    };
    let line = |space: &str, port: u16| format!(r#"{{"port":{port},"port_space":"{space}"}}"#);
    let expected = [line("TCP", tcp), line("UDP", udp)];
    assert_eq!(listed(&device(&pair.ip())), expected);
    drop(service);
    assert_eq!(listed(&device(&pair.ip())), expected[..1]);
    let printed = json(&["top", "--once", "--json", "--filter", &pair.ip()]);
    assert_eq!(listed(&printed[0]["devices"][0]), expected[..1]);
}

#[test]
fn top_draws_a_terminal_and_restores_it() {
    let pair = Pair::open();
    // The keys are read once `top` runs: the terminal keeps them.
    let script = format!("stty rows 24 cols 80; '{}' top; stty -a", env!("CARGO_BIN_EXE_roce"));
    let mut command = Command::new("script");
    let command = command.args(["-qec", &script, "/dev/null"]).env("TERM", "xterm");
    let mut child = Running::of(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut keys = child.child().stdin.take().unwrap();
    keys.write_all(b"?xq").unwrap();
    let output = String::from_utf8(child.finish().stdout).unwrap();
    drop(keys);
    assert!(output.contains("\u{1b}[?1049h") && output.contains("\u{1b}[?1049l"), "{output:?}");
    assert!(output.contains("roce top: "), "{output:?}");
    let after = output.rsplit_once("\u{1b}[?1049l").unwrap().1;
    assert!(after.contains(" icanon") && after.contains(" echo "), "{after}");
    drop(pair);
}

#[test]
fn capture_without_a_device_is_an_error() {
    let missing = error(&["capture", "-i", "no-such-device", "-w", "-"]);
    assert!(missing.contains("no-such-device: no such device"), "{missing}");
    assert!(!roce(&["capture"]).status.success());
}
