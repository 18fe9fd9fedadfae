//! How programs end, and what their peers see of it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{free_port, output, until_it_listens};
use crate::roce::{alone, command};

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn a_message_is_acknowledged_by_a_process_that_ends_at_once() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dropin/ends.py");
    for _ in 0..5 {
        let said = output(&["/usr/bin/python3", script.to_str().unwrap()]);
        assert_eq!(said, "received 0 sent 0\n");
    }
}

/// A side of `ib_write_bw` that runs until it is killed, by itself and not through a child. It always has requests in
/// flight or posts the next, unlike a pingpong, which may have none when it is killed.
struct Endless(Child);

impl Endless {
    fn start(options: &[&str]) -> Self {
        let program = ["run", "--", "stdbuf", "-oL", "ib_write_bw", "--run_infinitely", "-D", "1"];
        let mut command: Command = command(&[&program[..], options].concat());
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn who_is_killed_does_not_answer() {
    let _alone = alone();
    let port = free_port();
    let at = port.to_string();
    let mut server = Endless::start(&["-p", &at]);
    until_it_listens(&mut server.0, port);
    let mut client = Endless::start(&["-p", &at, "127.0.0.1"]);
    let mut told = BufReader::new(client.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(told.any(|line| line.starts_with(" 65536 ")));
    drop(server);
    // Of all requests in flight it reports one, by its number: IBV_WC_RETRY_EXC_ERR.
    let mut said: Vec<_> = told.collect();
    let errors = BufReader::new(client.0.stderr.take().unwrap()).lines();
    said.extend(errors.map(Result::unwrap));
    let expected = " Failed status 12: wr_id 0 syndrom 0x0";
    assert!(said.iter().any(|line| line == expected), "{said:?}");
    assert_eq!(client.0.wait().unwrap().code(), Some(1));
}
