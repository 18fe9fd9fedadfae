//! `roce doctor` as a user runs it, on loopback; `namespaces.rs` has the tests that need a network.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};

use roce::{Listener, alone, assert_found, command, error, finding, json, roce, scratch, stderr};
use serde_json::Value;

/// Runs the command; returns its exit status and report.
fn doctor(args: &[&str]) -> (Option<i32>, Value) {
    let output = roce(&[&["doctor", "--json"], args].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let report = serde_json::from_str(&text);
    (output.status.code(), report.unwrap_or_else(|e| panic!("{e}: {text}{}", stderr(&output))))
}

/// Runs two doctors; returns both reports.
fn doctors(args: &[&str]) -> [(Option<i32>, Value); 2] {
    let listener = Listener::start(&["doctor", "--listen", "--json"]);
    let visitor = doctor(&[&["127.0.0.1", "-p", &listener.port], args].concat());
    let (status, text, err) = listener.finish();
    let report = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}{err}"));
    [visitor, (status, report)]
}

#[test]
fn two_doctors_find_loopback_healthy() {
    let _alone = alone();
    let file = scratch("doctor.pcapng");
    let [(status, visitor), (theirs, listener)] = doctors(&["--pcap", file.to_str().unwrap()]);
    assert_eq!((status, theirs), (Some(0), Some(0)), "{visitor:#}{listener:#}");
    assert_found(&visitor, "reach", "ok", "all of 16 probes went to 127.0.0.1 and back");
    assert_found(&visitor, "ttl", "ok", "no router");
    assert_found(&visitor, "path-mtu", "ok", "RoCE packets of 4096 bytes");
    assert_found(&visitor, "marks", "ok", "unchanged");
    assert_found(&visitor, "icrc", "ok", "is good");
    assert_found(&listener, "session", "ok", "each with a good ICRC");
    // Probes are RoCE packets, byte by byte.
    let packets = json(&["dump", "--json", file.to_str().unwrap()]);
    let sent = finding(&listener, "session")["facts"]["probes"].as_u64().unwrap();
    assert_eq!(packets.len() as u64, 2 * sent);
    assert!(packets.iter().all(|p| p["icrc"] == "good" && p["operation"] == "SEND_ONLY"));
}

#[test]
fn loss_and_damage_are_reported_by_direction() {
    let _alone = alone();
    let [(status, visitor), (theirs, listener)] = doctors(&["--impair", "loss=1,dir=tx"]);
    assert_eq!((status, theirs), (Some(1), Some(1)));
    assert_found(&visitor, "reach", "problem", "none of 3 packets to its UDP port 4791");
    assert_found(&listener, "session", "problem", "has arrived here");
    let [(status, visitor), (theirs, _)] = doctors(&["--impair", "loss=1,dir=rx"]);
    assert_eq!((status, theirs), (Some(1), Some(0)));
    assert_found(&visitor, "reach", "problem", "but no echo comes back");
    for dir in ["tx", "rx"] {
        // With this seed the fields that identify a probe stay intact.
        let [(status, visitor), _] = doctors(&["--impair", &format!("corrupt=1,seed=3,dir={dir}")]);
        assert_eq!(status, Some(1));
        assert_found(&visitor, "icrc", "problem", "is bad: they are changed on the path");
    }
}

#[test]
fn owner_of_the_port_is_named() {
    let holder = UdpSocket::bind(("127.99.0.2", 4791)).unwrap();
    let (status, report) = doctor(&["--ip", "127.99.0.2"]);
    assert_eq!(status, Some(1));
    let expected = format!("UDP port 4791 of 127.99.0.2 is held by process {}", std::process::id());
    assert_found(&report, "port", "problem", &expected);
    assert_eq!(finding(&report, "port")["facts"]["pid"], std::process::id());
    drop(holder);
    let (status, report) = doctor(&["--ip", "127.99.0.2"]);
    assert_found(&report, "port", "ok", "UDP port 4791 of 127.99.0.2 is free");
    assert_found(&report, "interface", "ok", "lo (127.99.0.2) has an MTU of 65536");
    assert_eq!(status, Some(0));
}

#[test]
fn receive_buffer_option_sets_the_window() {
    let (status, report) = doctor(&["--ip", "127.99.0.3", "--rcvbuf", "64K"]);
    assert_eq!(status, Some(0));
    let facts = &finding(&report, "receive-buffer")["facts"];
    assert_eq!((&facts["receive_buffer"], &facts["window"]), (&65_536.into(), &49_152.into()));
}

#[test]
fn missing_listener_and_closed_port_are_reported() {
    let (status, report) = doctor(&["127.99.0.4", "-p", "1"]);
    assert_eq!(status, Some(1));
    assert_found(&report, "listener", "note", "no doctor listens on 127.99.0.4");
    assert_found(&report, "reach", "problem", "its UDP port 4791 is closed");
    // A socket that ignores unknown peers.
    let _somebody = UdpSocket::bind(("127.99.0.5", 4791)).unwrap();
    let (status, report) = doctor(&["127.99.0.5", "-p", "1"]);
    assert_eq!(status, Some(0));
    assert_found(&report, "reach", "note", "does not respond, while a closed port is refused");
}

#[test]
fn connection_manager_of_a_device_answers_the_doctor() {
    let _device = Listener::start(&["cm", "listen", "--ip", "127.99.0.7"]);
    let (status, report) = doctor(&["127.99.0.7", "-p", "1"]);
    assert_eq!(status, Some(0), "{report:#}");
    assert_found(&report, "reach", "ok", "127.99.0.7 answers on UDP port 4791");
    assert_found(&report, "connection-manager", "ok", "can connect by address and port (rdma_cm)");
}

#[test]
fn listener_that_is_no_doctor_is_reported_and_other_checks_run() {
    let server = TcpListener::bind("127.99.0.6:0").unwrap();
    let port = server.local_addr().unwrap().port().to_string();
    let visit =
        std::thread::Builder::new().spawn(move || doctor(&["127.99.0.6", "-p", &port])).unwrap();
    let mut stream = server.accept().unwrap().0;
    // Unread data would reset the connection.
    BufReader::new(&stream).read_line(&mut String::new()).unwrap();
    stream.write_all(b"220 mail.example.org\r\n").unwrap();
    drop(stream);
    let (status, report) = visit.join().unwrap();
    assert_eq!(status, Some(1));
    assert_found(&report, "listener", "note", "the other side sent \"220 mail.example.org\"");
    assert_found(&report, "reach", "problem", "its UDP port 4791 is closed");
}

#[test]
fn impossible_checks_are_errors() {
    let text = error(&["doctor", "--ip", "192.0.2.1"]);
    assert_eq!(text, "roce: 192.0.2.1 is not an address of this machine\n");
    let text = error(&["doctor", "--ip", "127.0.0.1,127.0.0.2"]);
    let expected = "roce: --ip: 2 addresses are given, expected one\n";
    assert_eq!(text, expected);
    let text = error(&["doctor", "--pkey", "0x8001"]);
    assert_eq!(text, "roce: --pkey: the doctor uses the default partition\n");
    let text = error(&["doctor", "-d", "mlx5_0"]);
    assert_eq!(text, "roce: no device mlx5_0: there is softroce0\n");
    let listener = Listener::start(&["doctor", "--listen", "--json"]);
    let mut stream = TcpStream::connect(format!("127.0.0.1:{}", listener.port)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let (status, _, text) = listener.finish();
    assert_eq!(status, Some(2));
    assert!(text.starts_with("roce: the other side sent \"GET / HTTP/1.1\""), "{text}");
}

#[test]
fn needs_of_programs_are_checked() {
    let output = command(&["doctor", "--json", "--ip", "127.99.0.8"])
        .env("XDG_RUNTIME_DIR", "/no/such/directory")
        .env("LD_PRELOAD", "libm.so.6")
        .output()
        .unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap();
    assert_found(&report, "device-files", "ok", "roce run describes its device below /");
    assert_found(&report, "preload", "note", "programs also preload libm.so.6");
    assert_found(&report, "memory-calls", "ok", "copies by the kernel and shared memory");
    assert_ne!(finding(&report, "libraries"), &Value::Null);
    assert_eq!(output.status.code(), Some(0));
}
