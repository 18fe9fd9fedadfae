//! `roce doctor` and `roce pingpong` between network namespaces, with impaired paths. `unshare` creates the
//! namespaces, also for an ordinary user where the system allows that; `tools/ci.sh namespaces` runs this.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use std::process::{Command, Stdio};

use roce::{assert_found, finding};
use serde_json::Value;

/// Hosts a and b, and the routers r and s between them:
///
/// ```text
///   a 10.1.0.1 ──1500── 10.1.0.2 r 10.2.0.1 ──600── 10.2.0.2 s 10.3.0.1 ──1500── 10.3.0.2 b
/// ```
const ROUTED: &str = r#"
    mount -t tmpfs tmpfs /run
    for ns in a r s b; do ip netns add $ns; ip -n $ns link set lo up; done
    wire() {
        ip link add "$2" netns "$1" mtu "$5" type veth peer name "$4" netns "$3" mtu "$5"
        ip -n "$1" link set "$2" up; ip -n "$3" link set "$4" up
    }
    wire a a0 r ra 1500; wire r rs s sr 600; wire s sb b b0 1500
    ip -n a addr add 10.1.0.1/24 dev a0; ip -n r addr add 10.1.0.2/24 dev ra
    ip -n r addr add 10.2.0.1/24 dev rs; ip -n s addr add 10.2.0.2/24 dev sr
    ip -n s addr add 10.3.0.1/24 dev sb; ip -n b addr add 10.3.0.2/24 dev b0
    ip -n a route add default via 10.1.0.2; ip -n b route add default via 10.3.0.1
    ip -n r route add 10.3.0.0/24 via 10.2.0.2; ip -n s route add 10.1.0.0/24 via 10.2.0.1
    for ns in r s; do
        ip netns exec $ns sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
    done
    wide() { ip -n r link set rs mtu 1500; ip -n s link set sr mtu 1500; }
    drop() { ip -n "$1" rule add pref 10 ipproto udp dport 4791 type blackhole; }

    # The two doctors, each a line of JSON: the visitor's, then the listener's.
    doctors() {
        exec 3< <(exec ip netns exec b "$ROCE" doctor --listen -p 0 --announce --json)
        read -r port <&3
        visitor "$port" "$@"
        cat <&3
    }
    visitor() {
        local port=$1; shift
        ip netns exec a "$ROCE" doctor 10.3.0.2 -p "$port" --json "$@" || [ $? -eq 1 ]
    }
"#;

/// Runs a script in namespaces of its own; returns its output, which must be lines of JSON.
fn run(parts: &[&str]) -> Vec<Value> {
    let script = format!("set -eu\n{}", parts.join("\n"));
    let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    let mut command = Command::new("unshare");
    // In a PID namespace, the servers of a script that fails end with it, and so does its output.
    command.args(["--mount", "--net", "--pid", "--fork", "--mount-proc"]);
    command.args((!is_root).then_some("--map-root-user")).args(["bash", "-c", &script]);
    command.env("ROCE", env!("CARGO_BIN_EXE_roce")).stdin(Stdio::null());
    for variable in softroce::runtime::VARIABLES {
        command.env_remove(variable.name);
    }
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), roce::stderr(&output));
    assert!(output.status.success(), "{out}{err}");
    out.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect()
}

#[test]
#[ignore = "makes network namespaces"]
fn good_path_is_healthy_at_both_ends() {
    let [visitor, listener] = &run(&[ROUTED, "wide; doctors"])[..] else { panic!() };
    assert_eq!((&visitor["healthy"], &listener["healthy"]), (&true.into(), &true.into()));
    assert_found(visitor, "route", "ok", "packets to 10.3.0.2 leave from 10.1.0.1");
    assert_found(
        visitor,
        "interface",
        "note",
        "a0 (10.1.0.1) has an MTU of 1500: RoCE packets of 1024",
    );
    assert_found(visitor, "reach", "ok", "all of 16 probes went to 10.3.0.2 and back");
    assert_found(visitor, "ttl", "note", "2 routers are between");
    assert_found(visitor, "path-mtu", "ok", "RoCE packets of 1024 bytes");
    assert_found(visitor, "burst", "ok", "a burst of 8 packets");
    assert_found(visitor, "marks", "ok", "unchanged");
    assert_found(visitor, "icrc", "ok", "is good");
    assert_found(listener, "session", "ok", "each with a good ICRC");
}

#[test]
#[ignore = "makes network namespaces"]
fn small_path_mtu_is_found_and_named() {
    let [visitor, _] = &run(&[ROUTED, "doctors"])[..] else { panic!() };
    assert_eq!(visitor["healthy"], false);
    assert_found(visitor, "path-mtu", "problem", "packets of 256 bytes; those of 512");
    assert_found(
        visitor,
        "path-mtu",
        "problem",
        "the kernel knows that the path carries IP packets of 600",
    );
    let facts = &finding(visitor, "path-mtu")["facts"];
    assert_eq!((&facts["roce_mtu"], &facts["path_mtu"]), (&256.into(), &600.into()));
    let advice = finding(visitor, "path-mtu")["advice"].as_str().unwrap();
    assert!(advice.starts_with("give -m 256 to"), "{advice}");
    assert_found(visitor, "icrc", "ok", "is good");
}

#[test]
#[ignore = "makes network namespaces"]
fn small_path_mtu_back_is_reported_by_the_remote_kernel() {
    let reports =
        run(&[ROUTED, "ip -n b route change default via 10.3.0.1 mtu 700; wide; doctors"]);
    assert_found(&reports[0], "path-mtu", "problem", "512 bytes; those of 1024");
    let part = "get to it, but not back; its kernel knows that the path carries IP packets of 700";
    assert_found(&reports[0], "path-mtu", "problem", part);
}

#[test]
#[ignore = "makes network namespaces"]
fn dropped_port_is_reported_by_direction() {
    let [visitor, listener] = &run(&[ROUTED, "drop r; doctors"])[..] else { panic!() };
    assert_found(visitor, "reach", "problem", "none of 3 packets to its UDP port 4791");
    assert_found(listener, "session", "problem", "has arrived here");
    let only_back =
        "ip -n s rule add pref 10 ipproto udp dport 4791 to 10.1.0.0/24 type blackhole; doctors";
    let [visitor, _] = &run(&[ROUTED, only_back])[..] else { panic!() };
    assert_found(visitor, "reach", "problem", "but no echo comes back");
}

#[test]
#[ignore = "makes network namespaces"]
fn closed_dropped_and_unreachable_ports_differ_without_a_doctor() {
    let [refused] = &run(&[ROUTED, "visitor 1"])[..] else { panic!() };
    assert_found(refused, "listener", "note", "the connection is refused");
    assert_found(refused, "reach", "problem", "its UDP port 4791 is closed");
    assert_found(
        refused,
        "path-mtu",
        "problem",
        "the kernel knows that the path carries IP packets of 600",
    );
    let [dropped] = &run(&[ROUTED, "wide; drop r; visitor 1"])[..] else { panic!() };
    assert_found(dropped, "reach", "note", "does not respond, while a closed port");
    assert_found(dropped, "path-mtu", "ok", "no router says");
    let down = "ip -n s rule add pref 10 to 10.3.0.2 type blackhole; visitor 1";
    let [down] = &run(&[ROUTED, down])[..] else { panic!() };
    assert_found(down, "listener", "note", "no response");
    assert_found(down, "reach", "problem", "no response from 10.3.0.2");
    let [nowhere] = &run(&[ROUTED, "ip -n a route del default; visitor 1"])[..] else { panic!() };
    assert_found(nowhere, "route", "problem", "there is no route to 10.3.0.2");
    let forbidden = "ip -n a rule add pref 10 ipproto udp dport 4791 type prohibit; visitor 1";
    let [forbidden] = &run(&[ROUTED, forbidden])[..] else { panic!() };
    assert_found(forbidden, "reach", "problem", "a firewall of this machine");
}

#[test]
#[ignore = "makes network namespaces"]
fn an_ipv6_host_is_examined_alike() {
    let script = r#"
        ip link set lo up
        ip addr add fd77::1/128 dev lo nodad; ip addr add fd77::2/128 dev lo nodad
        # The kernel adds the routes a moment later.
        timeout 20 sh -c 'until ip route get fd77::1 && ip route get fd77::2; do :; done' >/dev/null 2>&1
        exec 3< <(exec "$ROCE" doctor --listen --ip fd77::1 -p 0 --announce --json)
        read -r port <&3
        "$ROCE" doctor fd77::1 --ip fd77::2 -p "$port" --json
        cat <&3
    "#;
    let [visitor, listener] = &run(&[script])[..] else { panic!() };
    assert_eq!((&visitor["healthy"], &listener["healthy"]), (&true.into(), &true.into()));
    assert_found(visitor, "path-mtu", "ok", "RoCE packets of 4096 bytes");
    assert_found(visitor, "icrc", "ok", "is good");
}

#[test]
#[ignore = "makes network namespaces"]
fn every_transport_plays_over_ipv6_and_over_routers() {
    let over_ipv6 = r#"
        ip link set lo up
        ip addr add fd77::1/128 dev lo nodad; ip addr add fd77::2/128 dev lo nodad
        # The kernel adds the routes a moment later.
        timeout 20 sh -c 'until ip route get fd77::1 && ip route get fd77::2; do :; done' >/dev/null 2>&1
        for transport in rc uc ud; do
            game="--transport $transport -n 20 --chk --json"
            exec 3< <(exec "$ROCE" pingpong $game --ip fd77::1 -p 0 --announce)
            read -r port <&3
            "$ROCE" pingpong $game --ip fd77::2 fd77::1 -p "$port"
            cat <&3
        done
    "#;
    let over_routers = r#"
        wide
        for transport in rc uc ud; do
            game="--transport $transport -s 1000 -n 20 --chk --json"
            exec 3< <(exec ip netns exec b "$ROCE" pingpong $game -p 0 --announce)
            read -r port <&3
            ip netns exec a "$ROCE" pingpong $game 10.3.0.2 -p "$port"
            cat <&3
        done
    "#;
    for (script, first) in [(&[over_ipv6][..], "fd77::"), (&[ROUTED, over_routers], "::ffff:10.")] {
        let games = run(script);
        let transports: Vec<_> = games.iter().map(|game| game["transport"].clone()).collect();
        assert_eq!(transports, ["rc", "rc", "uc", "uc", "ud", "ud"]);
        for game in games {
            assert_eq!((&game["received"], &game["damaged"]), (&20.into(), &0.into()), "{game}");
            assert!(game["remote"]["gid"].as_str().unwrap().starts_with(first), "{game}");
        }
    }
}

/// Two hosts, a and b, on one link.
const LINKED: &str = r#"
    mount -t tmpfs tmpfs /run
    for ns in a b; do ip netns add $ns; ip -n $ns link set lo up; done
    ip link add a0 netns a mtu $MTU type veth peer name b0 netns b mtu $MTU
    ip -n a link set a0 up; ip -n b link set b0 up
    ip -n a addr add 10.1.0.1/24 dev a0; ip -n b addr add 10.1.0.2/24 dev b0
"#;

/// Two hosts on one link, each with or without a packet port. Both captures have frames, because UDP sockets cannot
/// send from the address of a packet port.
#[test]
#[ignore = "makes network namespaces"]
fn packet_ports_exchange_messages_with_all_ports() {
    let script = r#"
        ip -n a addr add fd01::1/64 dev a0 nodad; ip -n b addr add fd01::2/64 dev b0 nodad
        for of in "a a0" "b b0"; do
            set -- $of
            ip netns exec $1 ethtool -K $2 tx-udp-segmentation $WHOLE gro $WHOLE >&2
        done
        frames_only() {
            ip -n $1 rule add pref 10 ipproto udp dport 4791 type blackhole
            ip -n $1 -6 rule add pref 10 ipproto udp dport 4791 type blackhole
        }
        [ $A = udp ] || frames_only a
        [ $B = udp ] || frames_only b
        for to in 10.1.0.2 fd01::2; do
            for game in "rc -m 1024 -s 100000" "uc -m 1024 -s 40000" "ud -s 1000"; do
                game="--transport $game -n 20 --chk --json"
                exec 3< <(exec ip netns exec b "$ROCE" pingpong --via $B $game -p 0 --announce)
                read -r port <&3
                ip netns exec a "$ROCE" pingpong --via $A $game $to -p "$port"
                cat <&3
            done
        done
    "#;
    for (mtu, whole) in [(1500, "off"), (9000, "on")] {
        for (a, b) in [("packet", "udp"), ("udp", "packet"), ("packet", "packet")] {
            let setting = format!("MTU={mtu}; WHOLE={whole}; A={a}; B={b}");
            let games = run(&[&setting, LINKED, script]);
            assert_eq!(games.len(), 12, "{setting}");
            for game in games {
                let heard = (&game["received"], &game["damaged"]);
                assert_eq!(heard, (&20.into(), &0.into()), "{setting}: {game}");
            }
        }
    }
}

/// Two hosts on one link, each with or without a TAP port beside its own address, on a bridge with that. All packets
/// are checked.
#[test]
#[ignore = "makes network namespaces"]
fn tap_ports_exchange_messages_with_all_ports() {
    let script = r#"
        for of in "a a0 1" "b b0 2"; do
            set -- $of
            # A bridge without an address of its own takes another with each port that joins it.
            ip -n $1 link add br0 address 02:00:00:00:00:b$3 type bridge mcast_snooping 0
            ip -n $1 link set br0 up mtu $MTU
            ip -n $1 addr flush dev $2; ip -n $1 link set $2 master br0
            ip -n $1 addr add 10.1.0.$3/24 dev br0; ip -n $1 addr add fd01::$3/64 dev br0 nodad
            ip netns exec $1 ethtool -K $2 tx-udp-segmentation $WHOLE gro $WHOLE >&2
        done
        # What a side is told: a TAP port has another address than its host.
        via() {
            case $1/$3 in
            tap/*.*) echo "tap:tap0,ip=10.1.0.1$2/24,bridge=br0" ;;
            tap/*) echo "tap:tap0,ip=fd01::1$2/64,bridge=br0" ;;
            *) echo $1 ;;
            esac
        }
        for to in 10.1.0.2 fd01::2; do
            for game in "rc -m 1024 -s 100000" "uc -m 1024 -s 40000" "ud -s 1000"; do
                game="--transport $game -n 20 --chk --json --check"
                exec 3< <(exec ip netns exec b "$ROCE" pingpong --via "$(via $B 2 $to)" $game -p 0 --announce)
                read -r port <&3
                ip netns exec a "$ROCE" pingpong --via "$(via $A 1 $to)" $game $to -p "$port"
                cat <&3
            done
        done
    "#;
    for (mtu, whole) in [(1500, "off"), (9000, "on")] {
        for (a, b) in [("tap", "udp"), ("packet", "tap"), ("tap", "tap")] {
            let setting = format!("MTU={mtu}; WHOLE={whole}; A={a}; B={b}");
            let games = run(&[&setting, LINKED, script]);
            assert_eq!(games.len(), 12, "{setting}");
            for game in games {
                let heard = (&game["received"], &game["damaged"]);
                assert_eq!(heard, (&20.into(), &0.into()), "{setting}: {game}");
                let ends = ["local", "remote"].map(|end| game[end]["gid"].as_str().unwrap());
                let taps = ends.iter().filter(|gid| gid.ends_with("11") || gid.ends_with("12"));
                assert_eq!(taps.count(), [a, b].iter().filter(|via| **via == "tap").count());
            }
        }
    }
}

/// Two pingpongs at once between two addresses, while an idle server has registered first at one of them.
#[test]
#[ignore = "makes network namespaces"]
fn servers_with_packet_ports_share_an_address() {
    let script = r#"
        game="--via packet -m 1024 -s 10000 -n 500 --chk --json"
        serve() { exec ip netns exec b "$ROCE" pingpong $game -p 0 --announce; }
        play() { ip netns exec a "$ROCE" pingpong $game 10.1.0.2 -p "$1"; }
        exec 3< <(serve 2>/dev/null); exec 4< <(serve); exec 5< <(serve)
        read -r idle <&3; read -r one <&4; read -r two <&5
        ip netns exec a bash -c "exec 7<>/dev/tcp/10.1.0.2/$idle; read -r -u 7" & asks=$!
        until ip netns exec b grep -q softroce/10.1.0.2/0 /proc/net/unix; do
            kill -0 "$asks"
        done
        play "$one" >"$FILE" & first=$!
        play "$two"
        wait "$first"
        cat "$FILE" - <&4
        cat <&5
        kill "$asks"
    "#;
    let file = roce::scratch("share.json");
    let setting = format!("MTU=1500; FILE='{}'", file.display());
    let games = run(&[&setting, LINKED, script]);
    assert_eq!(games.len(), 4);
    for game in games {
        assert_eq!((&game["received"], &game["damaged"]), (&500.into(), &0.into()), "{game}");
        let ends = ["local", "remote"].map(|end| &game[end]);
        let server = ends.into_iter().find(|end| end["gid"] == "::ffff:10.1.0.2").unwrap();
        assert_ne!(server["qpn"].as_u64().unwrap() % 64, 0, "the first place was taken: {game}");
    }
}

/// Packets as the interface of the neighbour receives them: segmented by the kernel, with headers of the kernel.
///
/// PKT-01, PKT-03, CRC-11, CRC-12
#[test]
#[ignore = "makes network namespaces"]
fn the_kernel_writes_the_headers_that_the_icrc_covers() {
    let script = r#"
        ip netns exec a ethtool -K a0 tx-udp-segmentation off tso off >&2
        # A datagram to another port that is found in the file says that all before it is there, too.
        seen() {
            until grep -qs "$1" "$FILE"; do
                kill -0 "$capture" || exit
                ip netns exec a bash -c "printf $1 >/dev/udp/10.1.0.2/9"
            done
        }
        rm -f "$FILE"
        ip netns exec b dumpcap -q -i b0 -w "$FILE" -f "udp port 4791 or udp port 9" >&2 &
        capture=$!
        seen begin
        game="-s 40000 -n 20 --chk --json"
        exec 3< <(exec ip netns exec b "$ROCE" pingpong $game -p 0 --announce)
        read -r port <&3
        ip netns exec a "$ROCE" pingpong $game 10.1.0.2 -p "$port"
        cat <&3
        seen end
        kill -TERM "$capture"; wait "$capture"
    "#;
    let file = roce::scratch("kernel.pcapng");
    let games = run(&[&format!("MTU=9000; FILE='{}'", file.display()), LINKED, script]);
    assert_eq!(games.len(), 2);
    let file = file.to_str().unwrap();
    let verdict = &roce::json(&["check", "--json", file])[0];
    let packets = verdict["roce_packets"].as_u64().unwrap();
    assert_eq!(verdict["icrc"]["good"], packets, "{verdict}");
    assert_eq!(verdict["findings"], Value::Array(Vec::new()));

    // The bursts of the first host were segmented, so its packets count from 0 to the end of each burst.
    let fields = ["ip.src", "ip.id", "ip.flags.df", "ip.hdr_len", "udp.srcport", "udp.dstport"];
    let fields = fields.iter().flat_map(|field| ["-e", field]);
    let args = ["-r", file, "-Y", "infiniband", "-T", "fields"].into_iter().chain(fields);
    let output = Command::new("tshark").args(args).output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let mut ids = Vec::new();
    for line in lines.lines() {
        let [source, id, df, header, from, to] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        assert!(["1", "True"].contains(&df), "{line}");
        assert_eq!((header, to), ("20", "4791"), "{line}");
        assert!(from.parse::<u16>().unwrap() >= 0xc000, "{line}");
        if source == "10.1.0.1" {
            ids.push(u16::from_str_radix(id.trim_start_matches("0x"), 16).unwrap());
        }
    }
    assert!(ids.windows(2).all(|pair| pair[1] == 0 || pair[1] == pair[0] + 1), "{ids:?}");
    assert!(ids.iter().any(|id| *id > 1), "bursts were sent: {ids:?}");
}
