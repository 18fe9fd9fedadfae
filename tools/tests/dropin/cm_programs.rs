//! Programs of other projects that connect by librdmacm: libfabric, UCX, and a TCP program over rsockets. And `mckey`,
//! which needs a network with two addresses.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::namespace::in_namespace;
use super::{compiled, text};
use crate::roce::{alone, scratch};

/// Runs a server at 10.9.8.1 and a client at 10.9.8.2 in a namespace of their own: libfabric uses no loopback interface.
/// The server is ready when a line of the kernel's tables has the pattern. The script prints the output of both.
const PAIR: &str = r#"
ip link set lo up
ip link add near type veth peer name far
ip addr add 10.9.8.1/24 dev near
ip addr add 10.9.8.2/24 dev near
ip link set near up
ip link set far up
export LD_PRELOAD=$7
trap 'kill $server 2> /dev/null || :' EXIT
# A server that is interrupted has no check.
way=$1; [ "$6" = ends ] || way=${1#--check}
"$0" run --ip 10.9.8.1 $way -- timeout 60 $2 > "$4" 2>&1 & server=$!
until cat /proc/net/{udp,tcp,tcp6,igmp} | grep -q "$5"; do kill -0 $server; done
"$0" run --ip 10.9.8.2 $1 -- timeout 60 $3
[ "$6" = ends ] || kill -INT $server
wait $server || [ "$6" != ends ]
cat "$4"
"#;

/// Patterns of the kernel's tables when a server is ready: the UDP port of its device, a TCP port, a group.
const DEVICE: &str = ":12B7 ";
const FI_PINGPONG: &str = ":B9E8 ";
const GROUP: &str = "070707EF";

/// How the packets of a program travel, and whether `roce run` checks them.
const WAYS: [&str; 3] = ["", "--via=shm", "--check"];

/// A pair of programs.
#[derive(Clone, Copy, Default)]
struct Pair<'a> {
    server: &'a str,
    client: &'a str,
    /// Pattern of a line in the kernel's tables.
    ready: &'a str,
    /// Whether the server is interrupted after the client.
    is_interrupted: bool,
    /// A library to preload.
    preload: &'a str,
}

/// Attempts of a pair with a server that has its device before it listens.
const MAX_ATTEMPTS: u32 = 20;

impl Pair<'_> {
    /// Runs the pair each way. Both must succeed without a violation, and one of them prints `expected`.
    fn run(self, expected: &str) {
        let _alone = alone();
        for way in WAYS {
            let (mut succeeds, mut said) = self.run_once(way);
            for _ in 1..MAX_ATTEMPTS {
                if succeeds || self.ready != DEVICE {
                    break;
                }
                (succeeds, said) = self.run_once(way);
            }
            assert!(succeeds, "{way} {}: {said}", self.client);
            assert!(said.contains(expected), "{way} {}: {said}", self.client);
            let checked = said.lines().filter(|line| line.contains(" violations, "));
            let good = checked.clone().filter(|line| line.contains(" 0 violations, "));
            let least = if way == "--check" { 2 - usize::from(self.is_interrupted) } else { 0 };
            assert!(good.count() >= least, "{way} {}: {said}", self.client);
            assert!(checked.clone().all(|line| line.contains(" 0 violations, ")), "{way}: {said}");
        }
    }

    /// Returns whether both sides succeed, and what they print.
    fn run_once(self, way: &str) -> (bool, String) {
        let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
        let mut namespace = Command::new("unshare");
        namespace.arg(if is_root { "-n" } else { "-rn" });
        namespace.args(["bash", "-e", "-c", PAIR, env!("CARGO_BIN_EXE_roce"), way]);
        for variable in softroce::runtime::VARIABLES {
            namespace.env_remove(variable.name);
        }
        let ends = if self.is_interrupted { "stays" } else { "ends" };
        namespace.args([self.server, self.client]).arg(scratch("cm-server.txt"));
        let ended = namespace.args([self.ready, ends, self.preload]).output().unwrap();
        (ended.status.success(), text(&ended.stdout) + &text(&ended.stderr))
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn fi_pingpong_connects_endpoints_of_libfabric() {
    for program in [
        "fi_pingpong -p verbs -e msg -c -I 100 -S 4096",
        "fi_pingpong -p verbs;ofi_rxm -e rdm -c -I 100 -S 4096",
    ] {
        let client = format!("{program} 10.9.8.1");
        let pair = Pair { server: program, client: &client, ready: FI_PINGPONG, ..Pair::default() };
        // A table of sizes, iterations and times.
        pair.run("4k      100");
    }
}

/// `io_demo` checks every byte.
#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn ucx_connects_by_librdmacm() {
    let demo = "env UCX_TLS=rc_verbs,ud_verbs:aux,self UCX_SOCKADDR_TLS_PRIORITY=rdmacm io_demo -q -d 1:100000";
    let client = format!("{demo} -i 50 -o read,write -c 10 -y 1 10.9.8.1");
    let pair =
        Pair { server: demo, client: &client, ready: DEVICE, is_interrupted: true, preload: "" };
    pair.run("Client exit with status 'OK'");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn mckey_sends_to_a_group() {
    let (server, client) = (
        "mckey -m 239.7.7.7 -b 10.9.8.1 -C 4 -S 200",
        "mckey -m 239.7.7.7 -b 10.9.8.2 -s -C 4 -S 200",
    );
    let pair = Pair { server, client, ready: GROUP, ..Pair::default() };
    pair.run("receiving data transfers\ndata transfers complete\n");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn tcp_program_runs_over_rsockets() {
    let (program, file) = (compiled("tcp"), scratch("tcp-file"));
    let content: Vec<_> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(&file, &content).unwrap();
    let server = format!("{program} 10.9.8.1 7777");
    let client = format!("{server} {}", file.to_str().unwrap());
    let preload = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";
    let pair =
        Pair { server: &server, client: &client, ready: DEVICE, preload, is_interrupted: false };
    pair.run("4000000 bytes are the same\n");
    fs::remove_file(&file).unwrap();
}

/// Ranks with an address each: without one, a device has a loopback address, which libfabric does not use.
const RANKS: &str = r#"
ip link set lo up
ip link add near type veth peer name far
ip addr add 10.9.8.1/24 dev near
ip addr add 10.9.8.2/24 dev near
ip link set near up
ip link set far up
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mca="--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm"
rank() { echo "-n 1 $0 run --ip $1 -- /usr/bin/python3 $2"; }
timeout 60 mpirun --oversubscribe $mca $(rank 10.9.8.1 "$1") : $(rank 10.9.8.2 "$1")
"#;

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn open_mpi_sends_over_libfabric() {
    let _alone = alone();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dropin/mpi.py");
    let ended = in_namespace(RANKS, &script);
    let said = text(&ended.stdout);
    assert!(ended.status.success(), "{said}\n{}", text(&ended.stderr));
    let mut ranks: Vec<_> = said.lines().filter(|line| line.starts_with("rank ")).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, ["rank 0 has what was sent", "rank 1 has what was sent"]);
}
