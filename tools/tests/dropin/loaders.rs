//! Programs that are not linked to libibverbs, and load it at run time.

use super::{Server, free_port, output};
use crate::roce::alone;

/// Loads like NCCL: the name without a version first, and every function in its own version.
const NCCL: &str = r#"
import ctypes
load, find = ctypes.CDLL(None).dlopen, ctypes.CDLL(None).dlvsym
load.restype = find.restype = ctypes.c_void_p
find.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
library = load(b"libibverbs.so", 2)
assert library, "libibverbs.so"
versions = {"reg_mr_iova2": "1.8", "reg_dmabuf_mr": "1.12", "query_ece": "1.10", "set_ece": "1.10",
            "query_port_speed": "1.16"}
names = """get_device_list free_device_list get_device_name open_device close_device get_async_event
    ack_async_event query_device query_port query_gid query_qp alloc_pd dealloc_pd reg_mr reg_mr_iova2
    reg_dmabuf_mr dereg_mr create_cq destroy_cq create_qp modify_qp destroy_qp fork_init event_type_str
    query_ece set_ece query_port_speed""".split()
found = {name: find(library, f"ibv_{name}".encode(), f"IBVERBS_{versions.get(name, '1.1')}".encode())
         for name in names}
devices = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(found["get_device_list"])(None)
name = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(found["get_device_name"])(devices[0])
print(len(names), [name for name in names if not found[name]], name.decode())
"#;

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn nccl_finds_its_functions() {
    assert_eq!(output(&["/usr/bin/python3", "-c", NCCL]), "27 [] softroce0\n");
}

/// Programs of infiniband-diags: `ibstat` reads files by libibumad, `ibstatus` is a shell script.
#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn ibstat_and_ibstatus_print_the_device() {
    let page = output(&["ibstat"]);
    for line in
        ["CA 'softroce0'", "Node GUID: 0x00007ffffe000001", "State: Active", "Link layer: Ethernet"]
    {
        assert!(page.lines().any(|found| found.trim() == line), "no {line:?} in {page}");
    }
    assert_eq!(output(&["ibstat", "-l"]), "softroce0\n");
    assert!(output(&["ibstat", "softroce0", "1"]).contains("\nPhysical state: LinkUp\n"));
    let page = output(&["ibstatus"]);
    for words in ["'softroce0' port 1 status", "4: ACTIVE", "5: LinkUp", "100 Gb/sec"] {
        assert!(page.contains(words), "no {words:?} in {page}");
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn libfabric_finds_endpoints_of_datagrams() {
    let told = output(&["fi_info", "-p", "verbs"]);
    for line in ["provider: verbs", "    domain: softroce0-dgram", "    type: FI_EP_DGRAM"] {
        assert!(told.lines().any(|told| told == line), "no {line:?} in {told}");
    }
}

/// libfabric builds reliability on datagrams there, and checks the data.
#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn libfabric_plays_pingpong_over_datagrams() {
    let _alone = alone();
    let port = free_port();
    let at = port.to_string();
    let program = ["fi_pingpong", "-p", "verbs;ofi_rxd", "-e", "rdm", "-c", "-I", "50"];
    let listening = Server::start(&[&program[..], &["-B", &at]].concat(), port);
    let said = output(&[&program[..], &["-P", &at, "127.0.0.1"]].concat());
    listening.finish();
    let rows = said.lines().filter(|line| line.split_whitespace().nth(2) == Some("=50")).count();
    assert_eq!(rows, 6, "{said}");
}
