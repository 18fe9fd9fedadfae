//! Programs in a network namespace, which has any addresses, and links that the test takes down.

use std::path::Path;
use std::process::{Command, Output};

use super::text;
use crate::roce::{alone, scratch};

/// The file gets the output of the server. The sides connect over IPv4, where the server listens.
const PINGPONGS: &str = r#"
ip link set lo up
ip addr add fd00::1/128 dev lo nodad
ip addr add fd00::2/128 dev lo nodad
for service in rc uc ud srq xsrq; do
    for how in -c -e; do
        [ $service$how != xsrq-c ] || how=  # there it is something else
        pingpong="timeout 60 ibv_${service}_pingpong -g 0 -n 200 $how"
        "$0" run --ip fd00::1 -- $pingpong > "$1" & server=$!
        # It does not listen at once.
        until "$0" run --ip fd00::2 -- $pingpong 127.0.0.1 2> /dev/null; do kill -0 $server; done
        wait $server
        cat "$1"
    done
done
"#;

/// Runs a script, which gets the command and a file.
pub(super) fn in_namespace(script: &str, file: &Path) -> Output {
    let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    let mut namespace = Command::new("unshare");
    namespace.arg(if is_root { "-n" } else { "-rn" });
    namespace.args(["bash", "-e", "-c", script, env!("CARGO_BIN_EXE_roce")]);
    for variable in softroce::runtime::VARIABLES {
        namespace.env_remove(variable.name);
    }
    namespace.arg(file).output().unwrap()
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn pingpongs_over_ipv6() {
    let _alone = alone();
    let ended = in_namespace(PINGPONGS, &scratch("pingpong-ipv6.txt"));
    let said = text(&ended.stdout);
    assert!(ended.status.success(), "{said}\n{}", text(&ended.stderr));
    for (line, least) in [("remote address:", 16), ("200 iters in", 16), ("success", 4)] {
        let found = said.lines().filter(|said| said.contains(line)).count();
        assert!(found >= least, "{line} {found}: {said}");
    }
    assert!(!said.contains("invalid data") && !said.contains("::ffff:"), "{said}");
}

/// The far end of a link goes down and up, then the address is removed and added again.
const WATCH: &str = r#"
ip link set lo up
ip link add near type veth peer name far
ip addr add 10.9.8.7/24 dev near
ip link set near up
ip link set far up
coproc watch { exec "$0" run --ip 10.9.8.7 -- timeout 60 stdbuf -oL ibv_asyncwatch; }
pid=$watch_PID
told() { for _ in $(seq $1); do read -r line <&${watch[0]}; echo "$line"; done; }
told 1
ip link set far down; told 1
ip link set far up; told 1
ip addr del 10.9.8.7/24 dev near; told 2
ip addr add 10.9.8.7/24 dev near; told 2
kill $pid
"#;

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn asyncwatch_sees_the_link_and_the_address_go_and_come() {
    let ended = in_namespace(WATCH, &scratch("unused"));
    let said = text(&ended.stdout);
    assert!(ended.status.success(), "{said}\n{}", text(&ended.stderr));
    let mut lines = said.lines();
    assert!(lines.next().unwrap().starts_with("softroce0: async event FD "), "{said}");
    let events: Vec<_> = lines.map(|line| line.split_whitespace().nth(1).unwrap()).collect();
    let (cable, address) = events.split_at(2);
    assert_eq!(cable, ["IBV_EVENT_PORT_ERR", "IBV_EVENT_PORT_ACTIVE"]);
    let (mut gone, mut back) = (address[..2].to_vec(), address[2..].to_vec());
    gone.sort_unstable();
    back.sort_unstable();
    assert_eq!(gone, ["IBV_EVENT_GID_CHANGE", "IBV_EVENT_PORT_ERR"]);
    assert_eq!(back, ["IBV_EVENT_GID_CHANGE", "IBV_EVENT_PORT_ACTIVE"]);
}
