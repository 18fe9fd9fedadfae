//! A device in another process, controlled by commands over a pipe.

use std::io::{BufReader, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::process::{Child, ChildStdin, ChildStdout, Command};
use std::{env, fs};

use socket2::{Domain, Protocol, Socket, Type};
use softroce::verbs::*;

use crate::node::{Node, WAIT_LIMIT, datagrams, pattern};
use crate::process::{line, role, start_by, started_by_another_test};

/// Test that runs the other process.
const SUBPROCESS: &str = "peer_process::subprocess";

/// Number of receive requests of its UD queue pair.
const RECEIVES: u64 = 64;

#[test]
fn subprocess() {
    if role().as_deref() != Some("far") {
        return started_by_another_test();
    }
    run_peer();
}

/// Returns options with eight attempts of two seconds, in which the kernel can resolve a neighbour again.
pub(crate) fn many_attempts() -> ConnectOptions {
    ConnectOptions { timeout: AckTimeout::new(18).unwrap(), ..ConnectOptions::default() }
}

/// Control of a device in another process, usually in another network namespace.
pub(crate) struct PeerProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Address of its memory.
    pub(crate) at: RemoteAddr,
    /// Endpoint of an unconnected queue pair.
    pub(crate) endpoint: Endpoint,
    /// Number of its UD queue pair.
    pub(crate) datagrams: Qpn,
}

impl PeerProcess {
    /// Starts the process by a command that runs its last arguments, with the address and the port of the device.
    pub(crate) fn start(command: &mut Command, ip: &str, via: &str) -> Self {
        command.arg(env::current_exe().unwrap());
        command.env("SOFTROCE_IP", ip).env("SOFTROCE_VIA", via);
        let mut child = start_by(command, SUBPROCESS, "far");
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let input = child.stdin.take().unwrap();
        let at = line(&mut output, "at ");
        let (addr, rkey) = at.split_once(' ').unwrap();
        let at = RemoteAddr { addr: addr.parse().unwrap(), rkey: Rkey(rkey.parse().unwrap()) };
        let datagrams = Qpn::new(line(&mut output, "datagrams ").parse().unwrap());
        let endpoint = line(&mut output, "endpoint ").parse().unwrap();
        Self { child, input, output, at, endpoint, datagrams }
    }

    /// Makes its UD queue pair join a group.
    pub(crate) fn joins(&mut self, group: Gid) {
        writeln!(self.input, "join {group}").unwrap();
        line(&mut self.output, "joined");
    }

    /// Waits until that queue pair has received this many messages.
    pub(crate) fn hears(&mut self, count: usize) {
        writeln!(self.input, "hear {count}").unwrap();
        line(&mut self.output, "heard");
    }

    /// Returns the number of received packets with the mark "congestion experienced".
    pub(crate) fn marked(&mut self) -> u64 {
        writeln!(self.input, "marked?").unwrap();
        line(&mut self.output, "marked ").parse().unwrap()
    }

    /// Makes its host send an echo request with this many bytes, and waits for the reply.
    #[cfg(feature = "tap")]
    pub(crate) fn echoes(&mut self, from: &str, bytes: usize) {
        writeln!(self.input, "echo {from} {bytes}").unwrap();
        line(&mut self.output, "echoed");
    }

    /// Kills the process.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Connects a queue pair with a new one of the process.
    pub(crate) fn connect(&mut self, qp: &QueuePair) {
        self.connect_with(qp, &many_attempts());
    }

    pub(crate) fn connect_with(&mut self, qp: &QueuePair, options: &ConnectOptions) {
        qp.connect(&self.endpoint, options).unwrap();
        writeln!(self.input, "{}", qp.endpoint()).unwrap();
        self.endpoint = line(&mut self.output, "endpoint ").parse().unwrap();
    }

    /// Writes several packets to the process's memory, and reads them back.
    pub(crate) fn takes(&self, node: &Node) {
        let written = node.fill(0, 50_000, 1);
        node.run(SendRequest::write(1, node.mr.sge(..50_000), self.at));
        node.run(SendRequest::read(2, node.mr.sge(100_000..150_000), self.at));
        assert_eq!(node.bytes(100_000, 50_000), written);
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        let _ = writeln!(self.input, "end");
        let _ = self.child.wait();
    }
}

/// Executes the commands: connects queue pairs and grants access to its memory.
fn run_peer() {
    let node = Node::on(Context::open(OpenOptions::default()).unwrap());
    let crowd = datagrams(node.ctx.clone(), RECEIVES);
    println!("\nat {} {}", node.mr.remote(0).addr, node.mr.remote(0).rkey.0);
    println!("datagrams {}", crowd.qp.qpn().value());
    let mut connected = Vec::new();
    let next = || {
        let qp = node.pd.create_qp(&QpConfig::rc(&node.cq)).unwrap();
        println!("endpoint {}", qp.endpoint());
        qp
    };
    let mut qp = next();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        match line.split_once(' ') {
            Some(("join", group)) => {
                crowd.qp.attach_mcast(Gid::from(group.parse::<Ipv6Addr>().unwrap())).unwrap();
                println!("joined");
            }
            Some(("hear", count)) => {
                for _ in 0..count.parse().unwrap() {
                    assert_eq!(crowd.next().status, WcStatus::Success);
                }
                assert_eq!(crowd.cq.poll_one(), None);
                println!("heard");
            }
            Some(("echo", what)) => {
                let (from, bytes) = what.split_once(' ').unwrap();
                echo(from.parse().unwrap(), bytes.parse().unwrap());
                println!("echoed");
            }
            None if line == "marked?" => {
                println!("marked {}", node.ctx.counters().unwrap().protocol.ecn_marked);
            }
            _ => {
                let Ok(peer) = line.parse() else { return };
                qp.connect(&peer, &many_attempts()).unwrap();
                connected.push(std::mem::replace(&mut qp, next()));
            }
        }
    }
}

/// Sends an ICMP echo request, and waits for the reply.
fn echo(to: IpAddr, bytes: usize) {
    // In a namespace of its own, the process may permit ping sockets.
    fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0").unwrap();
    let (domain, protocol, request, reply) = match to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, 8, 0),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, 128, 129),
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(protocol)).unwrap();
    socket.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    socket.connect(&SocketAddr::new(to, 0).into()).unwrap();
    let mut message = [&[request, 0, 0, 0, 0, 0, 0, 1], &*pattern(bytes, 3)].concat();
    socket.send(&message).unwrap();
    let mut answer = vec![0; message.len() + 1];
    let len = (&socket).read(&mut answer).unwrap();
    answer.truncate(len);
    // The kernel has filled in checksum and identifier.
    answer[2..6].fill(0);
    message[0] = reply;
    assert_eq!(answer, message);
}
