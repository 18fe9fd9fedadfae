//! A device with shared memory, when another program has bound the name of its socket.

use std::process::{Command, Stdio};

use socket2::{Domain, SockAddr, Socket, Type};
use softroce::verbs::*;

use crate::node::{Node, fresh_ip, open};
use crate::process::{SUCCESS_LINE, role, start_by, started_by_another_test};

/// Test that runs the program with the device.
const SUBPROCESS: &str = "name_conflict::subprocess";

#[test]
fn subprocess() {
    let Some(role) = role() else { return started_by_another_test() };
    let ip = role.strip_prefix("squatted ").unwrap().parse().unwrap();
    let options = OpenOptions::default().ip(ip).via("shm".parse().unwrap());
    let (a, b) = Node::pair_on(Context::open(options).unwrap(), open());
    a.run(SendRequest::write(1, a.mr.sge(..100_000), b.mr.remote(0)));
    b.run(SendRequest::write(2, b.mr.sge(..100_000), a.mr.remote(0)));
    println!("\n{SUCCESS_LINE}");
}

#[test]
fn device_with_a_taken_socket_name_reports_it_and_uses_udp() {
    let ip = fresh_ip();
    let name = format!("softroce/{ip}/shm");
    // Connections to this socket are refused, as those to a socket of another user.
    let other_socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    other_socket.bind(&SockAddr::unix(format!("\0{name}")).unwrap()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env_remove("SOFTROCE_LOG").stderr(Stdio::piped());
    let output =
        start_by(&mut command, SUBPROCESS, &format!("squatted {ip}")).wait_with_output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success() && out.contains(SUCCESS_LINE), "{out}{err}");
    let said = format!("softroce: another program has the Unix socket @{name}: ");
    assert!(err.lines().any(|line| line.starts_with(&said)), "{err}");
}
