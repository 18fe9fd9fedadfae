//! Programs of librdmacm: rdma-core's examples, rsockets, perftest, qperf and fio.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{compiled, output, text};
use crate::roce::{alone, scratch};

/// Runs a server and a client in a namespace of their own. The server writes to a file, and the script prints it. The
/// client waits for the device of the server: one that opens its own device before it connects would take 127.0.0.1.
const PAIR: &str = r#"
ip link set lo up
"$0" run $1 -- timeout 60 $2 > "$4" 2>&1 & server=$!
# qperf listens by TCP, and opens its device for a client.
until cat /proc/net/{udp,tcp,tcp6} | grep -qE ' 0100007F:12B7 |:4D35 '; do kill -0 $server; done
# The server does not listen at once.
until "$0" run $1 -- timeout 60 $3; do kill -0 $server; done
[ "$5" = ends ] || kill $server
wait $server || [ "$5" != ends ]
cat "$4"
"#;

/// Runs perftest once. Its client connects twice, and the second time possibly before the server listens again. Both then end
/// with an error, also on an adapter.
const PERFTEST: &str = r#"
ip link set lo up
"$0" run -- timeout 60 $2 > "$4" 2>&1 & server=$!
until grep -q ' 0100007F:12B7 ' /proc/net/udp; do kill -0 $server; done
"$0" run -- timeout 60 $3 || { kill $server; exit 1; }
wait $server
cat "$4"
"#;

const MAX_PERFTEST_ATTEMPTS: u32 = 20;

/// Whether a server ends after its first client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Server {
    Ends,
    Stays,
}

/// Runs a pair with options of `roce run`. Returns what both print.
fn pair_with(options: &str, server: &str, client: &str, ends: Server) -> String {
    let ends = if ends == Server::Ends { "ends" } else { "stays" };
    let (ended, said) = in_namespace(PAIR, [options, server, client], ends);
    assert!(ended, "{options} {server}, {client}: {said}");
    said
}

/// Runs a script with options of `roce run`, a server and a client. Returns whether it ended well, and what it prints.
fn in_namespace(script: &str, programs: [&str; 3], ends: &str) -> (bool, String) {
    let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    let mut namespace = Command::new("unshare");
    namespace.arg(if is_root { "-n" } else { "-rn" });
    namespace.args(["bash", "-e", "-c", script, env!("CARGO_BIN_EXE_roce")]).args(programs);
    for variable in softroce::runtime::VARIABLES {
        namespace.env_remove(variable.name);
    }
    let ended = namespace.arg(scratch("rdmacm-server.txt")).arg(ends).output().unwrap();
    (ended.status.success(), text(&ended.stdout) + &text(&ended.stderr))
}

fn pair(server: &str, client: &str) -> String {
    pair_with("", server, client, Server::Ends)
}

/// Examples with a server that ends, and those of rsockets.
const EXAMPLES: [(&str, &str); 9] = [
    ("rping -s -a 127.0.0.1 -v -C 10 -V", "rping -c -a 127.0.0.1 -v -C 10 -V"),
    ("ucmatose -c 20 -C 20 -S 9000", "ucmatose -s 127.0.0.1 -c 20 -C 20 -S 9000"),
    ("ucmatose -m", "ucmatose -s 127.0.0.1 -m"),
    ("udaddy -C 10 -S 1000", "udaddy -s 127.0.0.1 -C 10 -S 1000"),
    ("rdma_server", "rdma_client -s 127.0.0.1"),
    ("rdma_xserver", "rdma_xclient -s 127.0.0.1"),
    ("rdma_xserver -c x", "rdma_xclient -s 127.0.0.1 -c x"),
    ("rstream -C 100 -S 1000", "rstream -s 127.0.0.1 -C 100 -S 1000"),
    ("riostream -C 100 -S 1000", "riostream -s 127.0.0.1 -C 100 -S 1000"),
];

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn examples_of_librdmacm_end_well_over_udp_and_shared_memory() {
    let _alone = alone();
    for options in ["", "--via=shm"] {
        for (server, client) in EXAMPLES {
            let said = pair_with(options, server, client, Server::Ends);
            assert!(!said.contains("rror"), "{options} {client}: {said}");
        }
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn connections_of_librdmacm_break_no_rule() {
    let _alone = alone();
    for (server, client) in EXAMPLES {
        let said = pair_with("--check", server, client, Server::Ends);
        // A client that starts before its server fails, and runs again.
        let checked: Vec<_> = said.lines().filter(|line| line.contains(" violations, ")).collect();
        let is_good = |line: &&str| line.contains(" 0 bad, 0 unknown; 0 violations, ");
        assert!(checked.len() >= 2 && checked.iter().all(is_good), "{client}: {said}");
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn rping_verifies_its_data() {
    let _alone = alone();
    let said = pair(EXAMPLES[0].0, EXAMPLES[0].1);
    assert_eq!(said.lines().filter(|line| line.starts_with("ping data: rdma-ping-")).count(), 10);
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn a_thousand_connections_are_made_and_ended() {
    let _alone = alone();
    let (server, client) = ("cmtime -b 127.0.0.1 -c 1000", "cmtime -s 127.0.0.1 -c 1000");
    let said = pair_with("", server, client, Server::Stays);
    for step in ["resolve addr", "connect", "disconnect", "destroy"] {
        assert!(said.lines().any(|line| line.starts_with(step)), "{said}");
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn rcopy_copies_a_file() {
    let _alone = alone();
    let (from, to) = (scratch("rcopy-from"), scratch("rcopy-to"));
    let content: Vec<_> = (0..3_000_000_u32).flat_map(|word| word.to_le_bytes()).collect();
    fs::write(&from, &content).unwrap();
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let client = format!("rcopy {} 127.0.0.1:{}", path(&from), path(&to));
    pair_with("", "rcopy", &client, Server::Stays);
    assert_eq!(fs::read(&to).unwrap(), content);
    for file in [from, to] {
        fs::remove_file(file).unwrap();
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn perftest_connects_by_the_connection_manager() {
    let _alone = alone();
    for program in
        ["ib_write_bw -R -F -n 200", "ib_read_lat -R -F -n 200", "ib_send_bw -R -F -n 200 -c UD"]
    {
        let attempt =
            || in_namespace(PERFTEST, ["", program, &format!("{program} 127.0.0.1")], "ends");
        let (mut ended, mut said) = attempt();
        for _ in 1..MAX_PERFTEST_ATTEMPTS {
            if ended {
                break;
            }
            (ended, said) = attempt();
        }
        assert!(ended, "{program}: {said}");
        assert!(said.contains("rdma_cm QPs\t : ON"), "{program}: {said}");
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn qperf_connects_by_the_connection_manager() {
    let _alone = alone();
    let client = "qperf -t 1 -cm1 127.0.0.1 rc_lat rc_bw rc_rdma_read_bw";
    let said = pair_with("", "qperf", client, Server::Stays);
    assert_eq!(said.lines().filter(|line| line.contains(" = ")).count(), 3, "{said}");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn fio_writes_over_rdma() {
    let _alone = alone();
    // Options of an engine come after its name.
    let shared = "--ioengine=rdma --port=7000 --bs=64k --size=16m --iodepth=16";
    let server = format!("fio --name=s --rw=read {shared}");
    let client = format!("fio --name=c --rw=write {shared} --verb=write --hostname=127.0.0.1");
    let said = pair(&server, &client);
    assert!(said.contains("issued rwts: total=0,256,0,0"), "{said}");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn senseless_commands_have_the_errors_of_linux() {
    assert_eq!(output(&[&compiled("hostile/commands")]), "all is refused\n");
}
