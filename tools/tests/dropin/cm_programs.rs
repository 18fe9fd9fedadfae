//! Programs of other projects that connect by librdmacm: libfabric, UCX, and a TCP program over rsockets. And `mckey`,
//! which needs a network with two addresses.

use std::fs;
use std::path::Path;

use super::namespace::{ETHERNET, End, Network, Pair, Ready, namespace};
use super::{compiled, text};
use crate::roce::{alone, scratch};

/// Returns a pair on a link between two addresses.
fn pair<'a>(server: &'a str, client: &'a str) -> Pair<'a> {
    Pair { server, client, network: Network::Ethernet, ..Pair::default() }
}

/// Runs a pair each way, in which one side prints `expected`.
fn run(pair: &Pair<'_>, expected: &str) {
    for said in pair.run_each_way() {
        assert!(said.contains(expected), "{pair:?}: {said}");
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
        // A table of sizes, iterations and times.
        run(&Pair { ready: Ready::Tcp(47592), ..pair(program, &client) }, "4k      100");
    }
}

/// `io_demo` checks every byte.
#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn ucx_connects_by_librdmacm() {
    let demo = "env UCX_TLS=rc_verbs,ud_verbs:aux,self UCX_SOCKADDR_TLS_PRIORITY=rdmacm io_demo -q -d 1:100000";
    let client = format!("{demo} -i 50 -o read,write -c 10 -y 1 10.9.8.1");
    let pair = Pair { end: End::Signal("INT"), ..pair(demo, &client) };
    run(&pair, "Client exit with status 'OK'");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn mckey_sends_to_a_group() {
    let (server, client) = (
        "mckey -m 239.7.7.7 -b 10.9.8.1 -C 4 -S 200",
        "mckey -m 239.7.7.7 -b 10.9.8.2 -s -C 4 -S 200",
    );
    let pair = Pair { ready: Ready::Group("239.7.7.7"), ..pair(server, client) };
    run(&pair, "receiving data transfers\ndata transfers complete\n");
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
    run(&Pair { preload, ..pair(&server, &client) }, "4000000 bytes are the same\n");
    fs::remove_file(&file).unwrap();
}

/// Ranks with an address each: without one, a device has a loopback address, which libfabric does not use.
const RANKS: &str = r#"
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
    let ended = namespace(&[ETHERNET, RANKS].concat()).arg(script).output().unwrap();
    let said = text(&ended.stdout);
    assert!(ended.status.success(), "{said}\n{}", text(&ended.stderr));
    let mut ranks: Vec<_> = said.lines().filter(|line| line.starts_with("rank ")).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, ["rank 0 has what was sent", "rank 1 has what was sent"]);
}
