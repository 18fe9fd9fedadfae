//! Pingpongs over IPv6, which needs two addresses: in a network namespace, which has any.

use std::process::Command;

use super::text;
use crate::roce::{alone, scratch};

/// Takes the command and a file for what the server says. The sides find each other over IPv4, where the
/// server listens.
const PINGPONGS: &str = r#"
ip link set lo up
ip addr add fd00::1/128 dev lo nodad
ip addr add fd00::2/128 dev lo nodad
for service in rc uc ud srq; do
    for how in -c -e; do
        pingpong="timeout 60 ibv_${service}_pingpong -g 0 -n 200 $how"
        "$0" run --ip fd00::1 -- $pingpong > "$1" & server=$!
        # It does not listen at once.
        until "$0" run --ip fd00::2 -- $pingpong 127.0.0.1 2> /dev/null; do kill -0 $server; done
        wait $server
        cat "$1"
    done
done
"#;

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn pingpongs_over_ipv6() {
    let _alone = alone();
    let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    let mut namespace = Command::new("unshare");
    namespace.arg(if is_root { "-n" } else { "-rn" });
    namespace.args(["bash", "-e", "-c", PINGPONGS, env!("CARGO_BIN_EXE_roce")]);
    for variable in softroce::runtime::VARIABLES {
        namespace.env_remove(variable.name);
    }
    let ended = namespace.arg(scratch("pingpong-ipv6.txt")).output().unwrap();
    let said = text(&ended.stdout);
    assert!(ended.status.success(), "{said}\n{}", text(&ended.stderr));
    for line in ["remote address:", "200 iters in"] {
        let found = said.lines().filter(|said| said.contains(line)).count();
        assert!(found >= 16, "{line} {found}: {said}");
    }
    assert!(!said.contains("invalid data") && !said.contains("::ffff:"), "{said}");
}
