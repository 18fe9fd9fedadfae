//! Programs with IPv6 addresses, and links that a test takes down.

use super::namespace::{Network, Pair, Ready, namespace};
use super::text;

/// Port of the TCP connection of a pingpong.
const PINGPONG: Ready = Ready::Tcp(18515);

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn pingpongs_over_ipv6() {
    for service in ["rc", "uc", "ud", "srq", "xsrq"] {
        for how in ["-c", "-e"] {
            // There it is the number of clients.
            let how = if (service, how) == ("xsrq", "-c") { "" } else { how };
            let server = format!("ibv_{service}_pingpong -g 0 -n 200 {how}");
            // The sides exchange their addresses over IPv4.
            let client = format!("{server} 127.0.0.1");
            let (network, ready) = (Network::Ipv6, PINGPONG);
            let pair = Pair { server: &server, client: &client, network, ready, ..Pair::default() };
            let said = pair.run("");
            let line = if service == "xsrq" { "success" } else { "200 iters in" };
            assert!(said.matches(line).count() >= 2, "{server}: {said}");
            let addresses = said.matches("remote address:").count();
            assert!(addresses >= 2 || service == "xsrq", "{server}: {said}");
            assert!(!said.contains("invalid data") && !said.contains("::ffff:"), "{said}");
        }
    }
}

/// When the kernel has noticed that the link is up, its far end goes down and up, then the address is removed and added again.
const WATCH: &str = r#"
ip link set lo up
ip link add near type veth peer name far
ip addr add 10.9.8.7/24 dev near
ip link set near up
ip link set far up
for _ in $(seq 1000); do ip link show near | grep -q "state UP" && break; done
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
    let ended = namespace(WATCH).output().unwrap();
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
