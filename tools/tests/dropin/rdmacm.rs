//! Programs of librdmacm: rdma-core's examples, rsockets, perftest, qperf and fio.

use std::fs;
use std::path::Path;

use super::namespace::{End, Pair, Ready};
use super::{compiled, output};
use crate::roce::scratch;

/// Returns a pair at loopback addresses with a server that ends after its client.
fn pair<'a>(server: &'a str, client: &'a str) -> Pair<'a> {
    Pair { server, client, ..Pair::default() }
}

/// Returns a pair with a server that ends by a signal.
fn pair_with_daemon<'a>(server: &'a str, client: &'a str) -> Pair<'a> {
    Pair { end: End::Signal("TERM"), ..pair(server, client) }
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
    for (server, client) in EXAMPLES {
        let [udp, shm, _checked] = pair(server, client).run_each_way();
        for said in [udp, shm] {
            assert!(!said.contains("rror"), "{client}: {said}");
        }
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn rping_verifies_its_data() {
    let said = pair(EXAMPLES[0].0, EXAMPLES[0].1).run("");
    assert_eq!(said.lines().filter(|line| line.starts_with("ping data: rdma-ping-")).count(), 10);
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn a_thousand_connections_are_made_and_ended() {
    let (server, client) = ("cmtime -b 127.0.0.1 -c 1000", "cmtime -s 127.0.0.1 -c 1000");
    let said = pair_with_daemon(server, client).run("");
    for step in ["resolve addr", "connect", "disconnect", "destroy"] {
        assert!(said.lines().any(|line| line.starts_with(step)), "{said}");
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn rcopy_copies_a_file() {
    let (from, to) = (scratch("rcopy-from"), scratch("rcopy-to"));
    let content: Vec<_> = (0..3_000_000_u32).flat_map(|word| word.to_le_bytes()).collect();
    fs::write(&from, &content).unwrap();
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let client = format!("rcopy {} 127.0.0.1:{}", path(&from), path(&to));
    pair_with_daemon("rcopy", &client).run("");
    assert_eq!(fs::read(&to).unwrap(), content);
    for file in [from, to] {
        fs::remove_file(file).unwrap();
    }
}

/// Lines of perftest's client after a rejection for lack of a listener: of its two connections, and of UD. It connects
/// twice, and the second time possibly before the server listens again. Both sides then end with an error, also on an
/// adapter.
const PERFTEST_RACE: &[&str] = &[
    "Unexpected CM event bl blka 8\n",
    "Event: RDMA_CM_EVENT_REJECTED; error: 8.\n",
    "Event: RDMA_CM_EVENT_UNREACHABLE; error: 1.\n",
];

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn perftest_connects_by_the_connection_manager() {
    for server in
        ["ib_write_bw -R -F -n 200", "ib_read_lat -R -F -n 200", "ib_send_bw -R -F -n 200 -c UD"]
    {
        let client = format!("{server} 127.0.0.1");
        let said = Pair { race: PERFTEST_RACE, ..pair(server, &client) }.run("");
        assert!(said.contains("rdma_cm QPs\t : ON"), "{server}: {said}");
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn qperf_connects_by_the_connection_manager() {
    // It listens by TCP, and opens its device for a client.
    let ready = Ready::Tcp(19765);
    let client = "qperf -t 1 -cm1 127.0.0.1 rc_lat rc_bw rc_rdma_read_bw";
    let said = Pair { ready, ..pair_with_daemon("qperf", client) }.run("");
    assert_eq!(said.lines().filter(|line| line.contains(" = ")).count(), 3, "{said}");
}

/// Options of both sides of fio: 256 blocks. Options of an engine come after its name.
const FIO: &str = "--ioengine=rdma --port=7000 --bs=64k --size=16m";

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn fio_writes_over_rdma() {
    let server = format!("fio --name=s --rw=read {FIO} --iodepth=16");
    let client =
        format!("fio --name=c --rw=write {FIO} --iodepth=16 --verb=write --hostname=127.0.0.1");
    for said in pair(&server, &client).run_each_way() {
        assert!(said.contains("issued rwts: total=0,256,0,0"), "{said}");
    }
}

/// The receiver of SENDs verifies each block. It posts a receive request for each before the first arrives, because fio's
/// connections do not retry after an RNR NAK.
#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn fio_verifies_the_blocks_that_it_receives() {
    let verify = "--verify=crc32c --verify_fatal=1 --verify_state_save=0";
    let server = format!("fio --name=s --rw=read {FIO} --iodepth=256 {verify}");
    let client =
        format!("fio --name=c --rw=write {FIO} --iodepth=16 --verb=send --hostname=127.0.0.1");
    let verified = format!("{client} {verify}");
    for said in pair(&server, &verified).run_each_way() {
        for issued in ["issued rwts: total=256,0,0,0", "issued rwts: total=0,256,0,0"] {
            assert!(said.contains(issued), "{said}");
        }
    }
    // Blocks without a checksum are noticed.
    let (succeeds, said) = pair(&server, &client).run_once("");
    assert!(!succeeds && said.contains("verify: bad magic header"), "{said}");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn senseless_commands_have_the_errors_of_linux() {
    assert_eq!(output(&[&compiled("hostile/commands")]), "all is refused\n");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn ids_of_a_failed_device_get_its_removal_once() {
    assert_eq!(output(&[&compiled("hostile/removal")]), "every id has learned of it\n");
}
