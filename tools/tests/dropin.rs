//! Unchanged programs of Debian's packages, built for libibverbs, on softroce: `roce run`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "dropin/cm_programs.rs"]
mod cm_programs;
#[path = "dropin/ends.rs"]
mod ends;
#[path = "dropin/habits.rs"]
mod habits;
#[path = "dropin/hostile.rs"]
mod hostile;
#[path = "dropin/links.rs"]
mod links;
#[path = "dropin/loaders.rs"]
mod loaders;
#[path = "dropin/namespace.rs"]
mod namespace;
#[path = "dropin/perftest.rs"]
mod perftest;
#[path = "dropin/places.rs"]
mod places;
#[path = "dropin/rdma_core.rs"]
mod rdma_core;
#[path = "dropin/rdmacm.rs"]
mod rdmacm;
mod roce;
#[path = "dropin/supervised.rs"]
mod supervised;
#[path = "dropin/ucx.rs"]
mod ucx;
#[path = "dropin/users.rs"]
mod users;

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use roce::{alone, command, golden, listens};

/// Time limit of a program in seconds; it is then ended with exit status 124.
const SECONDS: &str = "90";

/// Returns the command that runs a program on softroce.
fn run(program: &[&str]) -> Command {
    command(&[&["run", "--", "timeout", SECONDS], program].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a program, which must succeed; returns its output.
fn output(program: &[&str]) -> String {
    let Output { status, stdout, stderr } = run(program).output().unwrap();
    let (out, err) = (text(&stdout), text(&stderr));
    assert!(status.success(), "{program:?}: {status}\n{out}\n{err}");
    out
}

/// Compiles a C program of this folder with Debian's header and library. Each call makes a file of its own, since
/// another test may be running the program.
fn compiled(name: &str) -> String {
    static COMPILED: AtomicU32 = AtomicU32::new(0);
    let number = COMPILED.fetch_add(1, Ordering::Relaxed);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dropin").join(name);
    let program = roce::scratch(&format!("{}-{number}", name.replace('/', "-")));
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-rdynamic", "-o"])
        .arg(&program);
    let told = cc.arg(source.with_extension("c")).arg("-libverbs").output().unwrap();
    assert!(told.status.success(), "{}", text(&told.stderr));
    program.into_os_string().into_string().unwrap()
}

/// The server of a pair, and its output.
struct Server {
    child: Child,
    program: String,
}

impl Server {
    /// Starts the server, and waits until it listens at `port`.
    fn start(program: &[&str], port: u16) -> Self {
        let mut command = run(program);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until_it_listens(&mut child, port);
        Self { child, program: program.join(" ") }
    }

    /// Waits for the server, which must succeed; returns its output.
    fn finish(mut self) -> String {
        let said = said(&mut self.child);
        let status = self.child.wait().unwrap();
        assert!(status.success(), "server {}: {status}\n{said}", self.program);
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After `finish` the process is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(child: &mut Child) -> String {
    let mut said = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut said).unwrap();
    child.stderr.take().unwrap().read_to_end(&mut said).unwrap();
    text(&said)
}

/// Waits up to a minute until a process listens at a port; it must not have ended.
fn until_it_listens(child: &mut Child, port: u16) {
    let (start, limit) = (softroce::runtime::now(), Duration::from_secs(60));
    // There is no event for another process that begins to listen.
    while !listens(port) {
        assert!(child.try_wait().unwrap().is_none(), "it has ended: {}", said(child));
        assert!(softroce::runtime::now() - start < limit, "port {port} is silent after {limit:?}");
        thread::yield_now();
    }
}

fn free_port() -> u16 {
    TcpListener::bind(("0.0.0.0", 0)).unwrap().local_addr().unwrap().port()
}

/// Runs a program as server and as client; both must succeed. Returns both outputs.
fn pair(server: &[&str], client: &[&str]) -> [String; 2] {
    // Two polling sides have the processors to themselves.
    let _alone = alone();
    let port = free_port();
    let at = ["-p", &port.to_string()].map(str::to_owned);
    let at = at.each_ref().map(String::as_str);
    let listening = Server::start(&[server, &at].concat(), port);
    let said = output(&[client, &at, &["127.0.0.1"]].concat());
    [listening.finish(), said]
}

/// Runs a pair with the same arguments on both sides.
fn both(program: &[&str]) -> [String; 2] {
    pair(program, program)
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn library_has_every_symbol_of_the_system_library_with_its_version() {
    let ours = Path::new(env!("CARGO_BIN_EXE_roce")).with_file_name("libibverbs.so");
    let theirs = ["/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];
    let theirs = theirs.map(|place| Path::new(place).join("libibverbs.so.1"));
    let theirs = theirs.iter().find(|path| path.exists()).expect("Debian's libibverbs1");
    let (ours, theirs) = (symbols(&ours), symbols(theirs));
    assert!(theirs.len() > 100, "{theirs:?}");
    let missing: Vec<_> = theirs.difference(&ours).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Returns exported functions as `name@VERSION`. Functions of before 2007 with version 1.0 beside a later one are
/// left out, because no program uses them.
fn symbols(library: &Path) -> BTreeSet<String> {
    let dump = Command::new("objdump").arg("-T").arg(library).output().unwrap();
    let functions = text(&dump.stdout);
    let functions =
        functions.lines().filter(|line| line.contains(" DF ") && !line.contains("*UND*"));
    let named = functions.filter_map(|line| {
        let mut words = line.split_whitespace().rev();
        let (name, version) = (words.next()?, words.next()?);
        (version != "(IBVERBS_1.0)").then(|| format!("{name}@{}", version.trim_matches(['(', ')'])))
    });
    named.collect()
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn the_device_is_listed_and_described() {
    let listed = output(&["ibv_devices"]);
    let device = listed.lines().last().unwrap();
    assert_eq!(device.split_whitespace().collect::<Vec<_>>(), ["softroce0", "00007ffffe000001"]);

    let told = output(&["ibv_devinfo", "-v"]);
    let told: Vec<_> =
        told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        "hca_id: softroce0",
        "transport: InfiniBand (0)",
        "phys_port_cnt: 1",
        "atomic_cap: ATOMIC_HCA (1)",
        "state: PORT_ACTIVE (4)",
        "active_mtu: 4096 (5)",
        "link_layer: Ethernet",
    ] {
        assert!(told.iter().any(|told| told == line), "no {line:?} in {told:#?}");
    }
    let gid = told.iter().find(|line| line.starts_with("GID[ 0]:")).unwrap();
    assert!(gid.contains("127.0.0.") && gid.ends_with("RoCE v2"), "{gid}");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn options_name_the_device_and_show_its_packets() {
    let file = roce::scratch("dropin-%p.pcapng");
    let directory = file.parent().unwrap();
    let captures = || -> BTreeSet<_> {
        let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.to_str().unwrap().contains("dropin-")).collect()
    };
    captures().iter().for_each(|old| fs::remove_file(old).unwrap());
    let options = ["run", "--name=mine", "--ip=127.9.8.7", "--pcap", file.to_str().unwrap(), "--"];
    let told = command(&[&options[..], &["ibv_devinfo", "-v"]].concat()).output().unwrap();
    let told = text(&told.stdout);
    assert!(told.contains("mine") && told.contains("127.9.8.7"), "{told}");
    let [capture] = &captures().into_iter().collect::<Vec<_>>()[..] else { panic!("one capture") };
    assert!(!capture.to_str().unwrap().contains('%'));
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn captured_packets_of_a_program_break_no_rule() {
    let file = roce::scratch("dropin.pcapng");
    let port = free_port();
    let program = ["ibv_rc_pingpong", "-g", "0", "-n", "10", "-p", &port.to_string()];
    let server = Server::start(&program, port);
    let mut client = command(&["run", "--pcap", file.to_str().unwrap(), "--"]);
    let ended = client.args(program).arg("127.0.0.1").output().unwrap();
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    server.finish();
    let checked = roce::roce(&["check", file.to_str().unwrap()]);
    assert!(checked.status.success(), "{}", text(&checked.stdout));
    let dumped = roce::lines(&["dump", file.to_str().unwrap()]);
    let sent = dumped.iter().filter(|line| line.contains("RC SEND_FIRST ")).count();
    assert_eq!(sent, 20, "{dumped:#?}");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn check_runs_after_the_program_has_ended() {
    let _alone = alone();
    let port = free_port();
    let listening = port.to_string();
    let pingpong = ["ibv_rc_pingpong", "-g", "0", "-n", "10", "-p", &listening];
    let server = Server::start(&pingpong, port);
    let client = [&["run", "--check", "--"], &pingpong[..], &["localhost"]].concat();
    let client = command(&client).output().unwrap();
    server.finish();
    let told = text(&client.stderr);
    assert!(client.status.success() && text(&client.stdout).contains("10 iters"), "{told}");
    assert!(told.contains(" good, 0 bad, 0 unknown; 0 violations"), "{told}");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn program_connected_to_itself_retransmits_nothing() {
    let _alone = alone();
    let program = compiled("itself");
    let ended = command(&["run", "--check", "--", &program]).output().unwrap();
    let told = text(&ended.stderr);
    assert_eq!(text(&ended.stdout), "all is done\n", "{told}");
    let packets = told.lines().last().unwrap();
    assert!(packets.ends_with("0 bad, 0 unknown; 0 violations, 0 quirks, 0 notes"), "{told}");
    assert!(!packets.contains(": 0 packets"), "{told}");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn violation_changes_success_and_no_other_status() {
    let bad = golden("rxe/host_handmade_rc.pcap");
    let leaves = format!("cp {} \"${{SOFTROCE_PCAP%/*}}/1.pcapng\"", bad.display());
    let judged = |script: &str| {
        let told = command(&["run", "--check", "--", "sh", "-c", script]).output().unwrap();
        (told.status.code(), text(&told.stderr))
    };
    let (status, told) = judged(&leaves);
    assert!(status == Some(1) && told.contains("  violation  icrc.bad  "), "{told}");
    let kept = told.lines().last().and_then(|line| line.strip_prefix("roce: the captures are in "));
    fs::remove_dir_all(kept.unwrap()).unwrap();
    let nothing = "roce: nothing to check: the program opened no device\n".to_owned();
    assert_eq!(judged("exit 7"), (Some(7), nothing.clone()));
    assert_eq!(judged("kill -KILL $$"), (Some(137), nothing));
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn device_files_that_programs_read_exist() {
    let look = "cd /sys/class/infiniband && cat */ports/1/gid_attrs/types/0 */ports/1/gids/1 \
                /sys/class/infiniband_verbs/*/ibdev && test -c /dev/infiniband/uverbs0 && ls -l /sys/class/infiniband";
    let options = ["run", "--name=mine", "--ip=127.9.8.6,::1", "--", "bash", "-c", look];
    let told = command(&options).output().unwrap();
    assert_eq!(text(&told.stderr), "");
    let told = text(&told.stdout);
    let lines: Vec<_> = told.lines().collect();
    let [gid_type, gid, device, .., listed] = &lines[..] else { panic!("{told}") };
    let one = "0000:0000:0000:0000:0000:0000:0000:0001";
    assert_eq!([*gid_type, gid, device], ["RoCE v2", one, "mine"]);
    assert!(listed.starts_with('d') && listed.ends_with(" mine"), "{told}");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn relative_paths_globs_and_walks_find_the_device_files() {
    let program = compiled("paths");
    let options = ["run", "--name=mine", "--ip=127.9.8.4,::1", "--", &program];
    let told = command(&options).output().unwrap();
    assert_eq!((&*text(&told.stdout), &*text(&told.stderr)), ("every path leads there\n", ""));
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn address_in_use_is_reported() {
    let _taken = std::net::UdpSocket::bind(("127.9.8.8", 4791)).unwrap();
    let told = command(&["run", "--ip=127.9.8.8", "--", "ibv_devinfo"]).output().unwrap();
    assert_ne!(told.status.code(), Some(0));
    let said = text(&told.stderr);
    assert!(said.contains("softroce: ") && said.contains("127.9.8.8"), "{said}");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn pingpongs_of_every_service_check_what_they_receive() {
    for service in ["rc", "uc", "ud", "srq"] {
        let program = format!("ibv_{service}_pingpong");
        for how in [&["-c"][..], &["-e"]] {
            let said = both(&[&[&*program, "-g", "0", "-n", "200"], how].concat());
            for said in said {
                assert!(said.contains("200 iters in"), "{program} {how:?}: {said}");
                assert!(!said.contains("invalid data"), "{program} {how:?}: {said}");
            }
        }
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn datagram_completion_reports_its_headers() {
    let program = compiled("headers");
    let told = command(&["run", "--ip=127.9.8.5,::1", "--", &program]).output().unwrap();
    let (said, wrong) = (text(&told.stdout), text(&told.stderr));
    assert_eq!((&*said, &*wrong), ("service level 10\nservice level 9\n", ""));
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn pingpong_over_xrc() {
    for how in [&[][..], &["-e"]] {
        let client = [&["ibv_xsrq_pingpong", "-g", "0", "-n", "200"], how].concat();
        let server = [&client[..], &["-c", "1"]].concat();
        for said in pair(&server, &client) {
            assert!(said.contains("success"), "{how:?}: {said}");
        }
    }
}
