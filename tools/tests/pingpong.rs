//! `roce pingpong` and `roce devinfo` as a user runs them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};

use roce::{Listener, alone, error, fresh_ip, json, lines, scratch};
use serde_json::Value;

/// Runs a pingpong between two processes; returns both reports.
fn play(there: &[&str], here: &[&str]) -> [Value; 2] {
    let listener = Listener::start(&[&["pingpong", "--json"], there].concat());
    let to = ["pingpong", "--json", "127.0.0.1", "-p", &listener.port];
    let ours = json(&[&to[..], here].concat());
    let (status, theirs, text) = listener.finish();
    assert_eq!(status, Some(0), "{text}");
    [serde_json::from_str(&theirs).unwrap(), ours[0].clone()]
}

#[test]
fn two_processes_exchange_and_compare_every_byte() {
    let _alone = alone();
    let options = ["-n", "50", "-s", "5000", "--chk"];
    let [theirs, ours] = play(&options, &options);
    assert_eq!((&ours["iterations"], &ours["size"]), (&50.into(), &5000.into()));
    assert_eq!((&theirs["damaged"], &ours["damaged"]), (&0.into(), &0.into()));
    assert_eq!((&theirs["local"], &theirs["remote"]), (&ours["remote"], &ours["local"]));
}

#[test]
fn messages_arrive_unchanged_over_an_impaired_path() {
    let _alone = alone();
    let options = ["-n", "100", "-s", "3000", "--chk"];
    let impair = ["--impair", "loss=0.02,reorder=0.02,dup=0.01,corrupt=0.01,seed=1"];
    let [theirs, ours] = play(&options, &[&options[..], &impair].concat());
    assert_eq!((&theirs["damaged"], &ours["damaged"]), (&0.into(), &0.into()));
}

#[test]
fn pingpong_prints_the_counters_of_its_device() {
    let _alone = alone();
    let listener = Listener::start(&["pingpong", "-n", "20"]);
    let ours =
        json(&["pingpong", "--json", "127.0.0.1", "-p", &listener.port, "-n", "20", "--counters"]);
    listener.finish();
    let here = &ours[1]["counters"]["here"];
    assert_eq!((&here["sends_completed"], &here["receives_completed"]), (&20.into(), &20.into()));
}

#[test]
fn events_on_one_side_and_empty_messages_work() {
    let _alone = alone();
    play(&["-n", "20", "-e"], &["-n", "20"]);
    play(&["-n", "20", "-s", "0", "-r", "1"], &["-n", "20", "-s", "0", "-r", "2", "-e"]);
}

#[test]
fn capture_has_all_packets_with_good_icrcs() {
    let _alone = alone();
    let path = scratch("pingpong.pcapng");
    let file = path.to_str().unwrap();
    play(&["-n", "25"], &["-n", "25", "--pcap", file]);
    let packets = json(&["dump", "--json", file]);
    let of = |operation: &str| packets.iter().filter(|p| p["operation"] == operation).count();
    // 4096 bytes at an MTU of 1024, in both directions.
    assert_eq!((of("SEND_FIRST"), of("SEND_MIDDLE"), of("SEND_LAST")), (50, 100, 50));
    assert_eq!(packets.len(), 200 + of("ACK"));
    assert!(packets.iter().all(|packet| packet["icrc"] == "good"));
}

/// Runs a pingpong with a check of this side's packets; returns the exit status and the findings.
fn checked(options: &[&str]) -> (Option<i32>, String) {
    let listener = Listener::start(&["pingpong", "-n", "50"]);
    let to = ["pingpong", "127.0.0.1", "-p", &listener.port, "-n", "50", "--check"];
    let output = roce::roce(&[&to[..], options].concat());
    listener.finish();
    (output.status.code(), roce::stderr(&output))
}

#[test]
fn check_finds_no_violation_in_own_packets() {
    let _alone = alone();
    let (status, text) = checked(&[]);
    assert_eq!(status, Some(0), "{text}");
    assert!(
        text.starts_with("roce: checked ") && text.contains("0 violations, 0 quirks"),
        "{text}"
    );
}

#[test]
fn check_finds_corrupted_packets() {
    let _alone = alone();
    let (status, text) = checked(&["--impair", "corrupt=0.1,seed=1"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(
        text.lines().any(|line| line.contains("  violation  icrc.bad                    127.0.0.")),
        "{text}"
    );
}

/// Each side has several addresses; the other side gets the chosen one.
#[test]
fn chosen_gid_is_used() {
    let _alone = alone();
    let [first, second, third, fourth] = [1, 2, 3, 4].map(fresh_ip);
    let together = format!("--ip={first},{second}");
    for transport in ["rc", "ud", "xrc"] {
        let game = ["-n", "20", "-g", "1", "--transport", transport];
        let there = [&game[..], &[&together]].concat();
        let one_by_one = [&game[..], &["--ip", &third, "--ip", &fourth]].concat();
        let [theirs, ours] = play(&there, &one_by_one);
        let gids = |side: &Value| ["local", "remote"].map(|whose| side[whose]["gid"].clone());
        let [there, here] = [&second, &fourth].map(|ip| Value::from(format!("::ffff:{ip}")));
        assert_eq!(gids(&ours), [here.clone(), there.clone()], "{transport}");
        assert_eq!(gids(&theirs), [there, here], "{transport}");
    }
}

#[test]
fn pingpong_uses_its_partition() {
    let _alone = alone();
    let path = scratch("partition.pcapng");
    let file = path.to_str().unwrap();
    // A full member and a limited one, each also in another partition.
    let there = ["-n", "20", "--pkey", "0x8123,0x8002"];
    play(&there, &["-n", "20", "--pkey", "0x0123", "--pkey", "0xffff", "--pcap", file]);
    let packets = json(&["dump", "--json", file]);
    let keys: BTreeSet<_> = packets.iter().filter_map(|packet| packet["pkey"].as_u64()).collect();
    assert_eq!(keys, [0x0123, 0x8123].into());
}

#[test]
fn pingpong_uses_shared_receive_queues() {
    let _alone = alone();
    let small = ["--use-srq", "-q", "5", "-n", "100", "-s", "3000", "-r", "20"];
    let [theirs, ours] = play(&small, &small);
    assert_eq!((&ours["transport"], &ours["iterations"]), (&"rc".into(), &100.into()));
    assert_eq!((&theirs["local"], &theirs["remote"]), (&ours["remote"], &ours["local"]));
    let xrc = ["--transport", "xrc", "-n", "50", "-s", "3000", "-e"];
    let [theirs, ours] = play(&xrc, &xrc[..6]);
    let said = [&theirs["transport"], &theirs["iterations"], &ours["received"]];
    assert_eq!(said, [&Value::from("xrc"), &50.into(), &50.into()]);

    let error = |args: &[&str]| error(&[&["pingpong", "127.0.0.1"], args].concat());
    assert_eq!(
        error(&["--use-srq", "--transport", "uc"]),
        "roce: --use-srq: expected rc, as in ibv_srq_pingpong; xrc always has a shared receive queue\n"
    );
    let expected = "roce: --chk: messages to a shared receive queue have no defined content\n";
    assert_eq!(error(&["--transport", "xrc", "--chk"]), expected);
}

#[test]
fn text_is_that_of_rdma_core() {
    let _alone = alone();
    let listener = Listener::start(&["pingpong", "-n", "10"]);
    let lines = lines(&["pingpong", "-n", "10", "127.0.0.1", "-p", &listener.port]);
    let expected = [
        "  local address:  LID 0x0000, QPN 0x",
        "  remote address: LID 0x0000, QPN 0x",
        "81920 bytes in 0.",
        "10 iters in 0.",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    assert!(lines.iter().zip(expected).all(|(line, start)| line.starts_with(start)), "{lines:#?}");
    assert!(lines[0].contains(", GID ::ffff:127.0.0."), "{lines:#?}");
}

#[test]
fn default_sizes_are_those_of_rdma_core() {
    let _alone = alone();
    for (transport, size, mtu) in [("rc", 4096, 1024), ("uc", 4096, 1024), ("ud", 1024, 4096)] {
        let options = ["--transport", transport, "-n", "50", "--chk"];
        let [theirs, ours] = play(&options, &options);
        for (mine, yours) in [(&ours, &theirs), (&theirs, &ours)] {
            assert_eq!(mine["transport"], transport);
            assert_eq!((&mine["size"], &mine["mtu"]), (&size.into(), &mtu.into()));
            assert_eq!((&mine["sent"], &mine["received"]), (&50.into(), &50.into()));
            assert_eq!((&mine["damaged"], &mine["local"]), (&0.into(), &yours["remote"]));
        }
    }
}

#[test]
fn events_and_empty_messages_work_over_every_transport() {
    let _alone = alone();
    for transport in ["uc", "ud"] {
        let options = ["--transport", transport, "-n", "10", "-s", "0", "-r", "2"];
        play(&[&options[..], &["-e"]].concat(), &[&options[..], &["--chk"]].concat());
    }
}

#[test]
fn loss_ends_the_test_with_the_counts_of_both_sides() {
    let _alone = alone();
    for (transport, sent) in [("uc", 1), ("ud", 1)] {
        let options = ["pingpong", "--transport", transport, "-n", "9", "-e", "--timeout=0.3"];
        let listener = Listener::start(&[&options[..], &["--json"]].concat());
        let to = ["127.0.0.1", "-p", &listener.port, "--impair", "loss=1,dir=tx"];
        let output = roce::roce(&[&options[..], &to].concat());
        assert_eq!(output.status.code(), Some(1), "{}", roce::stderr(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        let said = format!(
            "\n{sent} of 9 messages sent, 0 received\nthen no message arrived for 0.3 s: {transport} does \
             not retransmit lost messages\n"
        );
        assert!(text.contains(&said), "{text}");
        let (status, theirs, _) = listener.finish();
        let theirs: Value = serde_json::from_str(&theirs).unwrap();
        assert_eq!(status, Some(1));
        assert_eq!((&theirs["sent"], &theirs["received"]), (&0.into(), &0.into()));
        assert_eq!(theirs.get("seconds"), None);
    }
}

#[test]
fn ud_messages_fit_one_packet() {
    let listener = Listener::start(&["pingpong", "--transport", "ud", "-s", "4097"]);
    let to = ["-s", "4097", "127.0.0.1", "-p", &listener.port];
    let text = error(&[&["pingpong", "--transport", "ud"], &to[..]].concat());
    assert!(
        text.starts_with(
            "roce: a message of 4097 bytes is more than a packet of UD: the MTU of 127.0.0."
        ),
        "{text}"
    );
    assert!(text.ends_with(" is 4096 (give -s 4096 on both sides)\n"), "{text}");
    let text = error(&["pingpong", "--transport", "ud", "-m", "1024"]);
    assert_eq!(text, "roce: --mtu: ud has the MTU of the port; expected rc, uc or xrc\n");
}

#[test]
fn rdma_core_client_gets_an_endpoint() {
    let listener = Listener::start(&["pingpong", "-n", "1"]);
    let mut client = TcpStream::connect(format!("127.0.0.1:{}", listener.port)).unwrap();
    client.write_all(b"0000:00001c:5c3f1a:00000000000000000000ffff7f000063\0").unwrap();
    let mut answer = [0; 52];
    client.read_exact(&mut answer).unwrap();
    let text = std::str::from_utf8(&answer).unwrap();
    let gid = ":00000000000000000000ffff7f0000";
    assert!(text.starts_with("0000:") && text[18..].starts_with(gid), "{text}");
    assert!(text.ends_with('\0'), "{text:?}");
}

#[test]
fn error_names_a_message_longer_than_the_receive_buffer() {
    let _alone = alone();
    let listener = Listener::start(&["pingpong", "-n", "5", "-s", "100"]);
    let text = error(&["pingpong", "-n", "5", "-s", "200", "127.0.0.1", "-p", &listener.port]);
    let expected =
        "REM_INV_REQ_ERR: the message is longer than the receive buffer of the other side\n";
    assert!(text.ends_with(expected), "{text}");
    let (status, _, text) = listener.finish();
    assert_eq!(status, Some(2));
    assert!(
        text.ends_with("LOC_LEN_ERR: the message is longer than the receive buffer of this side\n"),
        "{text}"
    );
}

#[test]
fn devinfo_shows_the_device() {
    let text = lines(&["devinfo", "-v"]).join("\n");
    for part in ["hca_id: softroce0", "PORT_ACTIVE", "4096 (5)", "GID[  0]:", "retransmitted:"] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    let info = &json(&["devinfo", "--json"])[0];
    assert_eq!((&info["name"], &info["active_mtu"]), (&"softroce0".into(), &4096.into()));
    assert_eq!(info["counters"]["retransmitted"], 0);
    let has = |name: &str| info["capabilities"].as_array().unwrap().contains(&name.into());
    assert!(has("FLUSH_PERSISTENT") && has("ATOMIC_WRITE") && has("MEM_WINDOW_TYPE_2B"));
    assert_eq!((&info["null_mr"], &info["limits"]["max_dm_size"]), (&true.into(), &1048576.into()));
    assert_eq!(info["odp"]["operations"]["ud"].as_array().unwrap().len(), 3);
}

#[test]
fn devinfo_shows_every_gid_and_partition() {
    let [first, second] = [5, 6].map(fresh_ip);
    let ips = format!("{second},{first}");
    let text = lines(&["devinfo", "-v", "--ip", &ips, "--pkey", "0xffff,0x8001"]);
    let of = |key: &str| {
        let of_key = text.iter().filter_map(|line| line.trim().strip_prefix(key));
        of_key.map(|rest| rest.trim().to_owned()).collect::<Vec<_>>()
    };
    let gid = |index: usize, ip: &str| format!("{index}]:               ::ffff:{ip}, RoCE v2");
    assert_eq!(of("GID["), [gid(0, &second), gid(1, &first), gid(2, &second), gid(3, &first)]);
    assert_eq!(of("PKEY["), ["0]:              0xffff", "1]:              0x8001"]);
    assert_eq!(of("address:"), [format!("{second}, {first} UDP port 4791")]);
    let refused = error(&["devinfo", "--ip", &format!("{first},{first}")]);
    assert!(refused.starts_with(&format!("roce: {first} is given twice: ")), "{refused}");
}

#[test]
fn error_of_an_address_in_use_names_its_owner() {
    // Not one of the addresses that devices choose.
    let holder = UdpSocket::bind(("127.99.0.1", 4791)).unwrap();
    let text = error(&["devinfo", "--ip", "127.99.0.1"]);
    let expected = format!("held by process {}", std::process::id());
    assert!(text.starts_with("roce: UDP port 4791 of 127.99.0.1 is "), "{text}");
    assert!(text.contains(&expected), "{text}");
    drop(holder);
}

#[test]
fn error_of_a_missing_device_names_the_device() {
    assert_eq!(error(&["devinfo", "-d", "mlx5_0"]), "roce: no device mlx5_0: there is softroce0\n");
    let text = error(&["devinfo", "--ip", "192.0.2.1"]);
    assert_eq!(text, "roce: 192.0.2.1 is not an address of this machine\n");
    let text = error(&["pingpong", "--impair", "los=1"]);
    assert!(text.contains("unknown impairment `los`: expected loss, burst"), "{text}");
}
