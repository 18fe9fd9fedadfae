//! Failures around a device: process limits, a stopped peer, an interface that goes down, a socket closed by other
//! code, a panic.

use std::env;
use std::fs::{self, File};
use std::io::{BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{self, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use softroce::engine::QpAttr;
use softroce::port::{Direction, Sink};
use softroce::time::Instant;
use softroce::verbs::*;

use crate::node::{
    Node, PROCESS_START_LOCK, WAIT_LIMIT, all_access, fresh_ip, open, open_with, single_attempt,
};
use crate::process::{
    SUCCESS_LINE, in_namespaces, ip, line, role, start, start_by, started_by_another_test,
};
use crate::within::until;

/// Test that runs in its own process.
const SUBPROCESS: &str = "faults::subprocess";

/// Runs the role of the subprocess; does nothing without a role.
#[test]
fn subprocess() {
    match role().as_deref() {
        Some("descriptors") => without_descriptors(),
        Some("memory") => without_memory(),
        Some("sockets") => without_sockets(),
        Some("interface") => without_an_interface(),
        Some("peer") => stopping_peer(),
        _ => return started_by_another_test(),
    }
    println!("\n{SUCCESS_LINE}");
}

/// Runs a role in another process, under a limit of the shell (`ulimit`).
fn under(limit: &str, role: &str) {
    let mut bash = Command::new("bash");
    bash.args(["-c", &format!("{limit}; exec \"$0\" \"$@\"")]).arg(env::current_exe().unwrap());
    let output = start_by(&mut bash, SUBPROCESS, role).wait_with_output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && out.contains(SUCCESS_LINE), "{out}");
}

/// Options under which a request without response fails after 32 ms at least and half a second at most.
fn short_timeout() -> ConnectOptions {
    let timeout = AckTimeout::new(12).unwrap();
    ConnectOptions { timeout, retry_cnt: 1, ..ConnectOptions::default() }
}

// ---- limits ----

#[test]
fn device_without_free_descriptors_works_and_refuses_channels() {
    under("ulimit -n 64", "descriptors");
}

fn without_descriptors() {
    let contexts = [open(), open()];
    let mut held = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        held.push(file);
    }
    // The queue pair cannot open a socket of its own.
    let [a, b] = contexts.map(Node::on);
    a.connect(&b, &ConnectOptions::default());
    a.run(SendRequest::write(1, a.mr.sge(..64 << 10), b.mr.remote(0)));
    b.run(SendRequest::read(2, b.mr.sge(..64 << 10), a.mr.remote(0)));

    let ip = fresh_ip();
    let opened = Context::open(OpenOptions::default().ip(ip));
    let expected = format!("socket on a UDP socket of {ip}: Too many open files (os error 24)");
    assert_eq!(opened.unwrap_err().to_string(), expected);
    let refused = a.ctx.create_channel().unwrap_err();
    assert_eq!(refused.to_string(), "eventfd: Too many open files (os error 24)");
    drop(held);
    Context::open(OpenOptions::default().ip(ip)).unwrap();
}

#[test]
fn process_without_memory_gets_an_alloc_error_and_an_overrun() {
    under("ulimit -v 2000000", "memory");
}

fn without_memory() {
    const PIECE: usize = 64 << 20;
    let node = Node::on(open());
    let mut held = Vec::new();
    let refused = loop {
        match node.pd.alloc_mr(PIECE, all_access()) {
            Ok(region) => held.push(region),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.to_string(), "cannot allocate 67108864 bytes of memory");
    // Memory for all other allocations.
    held.pop();
    let cq = node.ctx.create_cq(CompletionQueue::MAX_DEPTH, None).unwrap();
    let qp = node.pd.create_qp(&QpConfig::rc(&cq)).unwrap();
    qp.connect(&qp.endpoint(), &ConnectOptions::default()).unwrap();
    qp.modify(QpAttr::to(QpState::Err)).unwrap();
    let (mut flushed, limit) = (0_usize, CompletionQueue::MAX_DEPTH);
    // Polling the event takes longer than a flush.
    while !flushed.is_multiple_of(1024) || node.ctx.poll_event().is_none() {
        qp.post_send(SendRequest::send(0, SendData::inline(b""))).unwrap();
        flushed += 1;
        assert!(flushed < limit, "there was room for all");
    }
    drop(held);
    node.qp.connect(&node.qp.endpoint(), &ConnectOptions::default()).unwrap();
    node.run(SendRequest::write(1, node.mr.sge(..8), node.mr.remote(8)));
}

// ---- sockets ----

#[test]
fn closed_socket_fails_the_device() {
    under(":", "sockets");
}

fn without_sockets() {
    let expected = "the device has failed: something else in this process has closed its socket";
    for is_receiver in [true, false] {
        let (a, b) = (Node::on(open()), Node::on(open()));
        a.connect(&b, &short_timeout());
        a.run(SendRequest::write(1, a.mr.sge(..8), b.mr.remote(0)));
        a.recv(7, 0..64);
        close(socket_of(a.ctx.ip(), is_receiver));
        // Using the socket reports the error.
        let _ = a.qp.post_send(SendRequest::write(2, a.mr.sge(..8), b.mr.remote(0)));
        assert_eq!(a.event(), AsyncEvent::DeviceFatal);
        let mut ends = [a.end(), a.end()];
        ends.sort_unstable_by_key(|(wr_id, _)| *wr_id);
        assert_eq!(ends, [2, 7].map(|wr_id| (wr_id, WcStatus::WrFlushErr)));
        assert_eq!(a.cq.wait_one(WAIT_LIMIT).unwrap_err().to_string(), expected);
        assert_eq!(a.ctx.device_info().unwrap_err().to_string(), expected);
    }
}

/// Returns the receiving or the sending socket of an address.
fn socket_of(ip: IpAddr, is_receiver: bool) -> RawFd {
    let IpAddr::V4(ip) = ip else { panic!("{ip} is not IPv4") };
    let inode = fs::read_to_string("/proc/net/udp").unwrap().lines().find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let (at, port) = words.get(1)?.split_once(':')?;
        let at = Ipv4Addr::from(u32::from_str_radix(at, 16).ok()?.to_ne_bytes());
        (at == ip && (port == "12B7") == is_receiver).then(|| words[9].to_owned())
    });
    let name = format!("socket:[{}]", inode.unwrap());
    let found = fs::read_dir("/proc/self/fd").unwrap().find_map(|entry| {
        let entry = entry.unwrap();
        let is_it = fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == &*name);
        is_it.then(|| entry.file_name().to_str().unwrap().parse().unwrap())
    });
    found.unwrap()
}

/// Closes a descriptor of the device, as a faulty program does.
fn close(descriptor: RawFd) {
    // SAFETY: none. The device owns the descriptor, as the test requires; no other code of this process opens
    // descriptors meanwhile.
    drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
}

// ---- the interface ----

#[test]
#[ignore = "makes network namespaces"]
fn connections_survive_a_short_interface_outage() {
    in_namespaces("ip link set lo up; exec \"$@\"", SUBPROCESS, "interface");
}

fn without_an_interface() {
    let refused = |node: &Node| node.ctx.device_info().unwrap().counters.transmit_errors;
    let (a, b) = (Node::on(open()), Node::on(open()));
    // Eight attempts of one second are sufficient to bring the interface up on a busy machine.
    let timeout = AckTimeout::new(17).unwrap();
    a.connect(&b, &ConnectOptions { timeout, ..ConnectOptions::default() });
    let written = a.fill(0, 300_000, 1);
    let write = |wr_id| a.send(SendRequest::write(wr_id, a.mr.sge(..300_000), b.mr.remote(0)));
    ip("link set lo down");
    assert_eq!(a.event(), AsyncEvent::PortErr);
    write(1);
    assert_eq!(a.cq.poll_one(), None);
    ip("link set lo up");
    assert_eq!(a.end(), (1, WcStatus::Success));
    assert_eq!(b.bytes(0, 300_000), written);
    assert_eq!(a.event(), AsyncEvent::PortActive);

    // The kernel reports "no route" for each packet to the peer for a while.
    let route = format!("unreachable {}/32 table local", b.ctx.ip());
    let (before, written) = (refused(&a), a.fill(0, 300_000, 2));
    ip(&format!("route add {route}"));
    write(2);
    assert!(refused(&a) > before, "EHOSTUNREACH");
    assert_eq!(a.cq.poll_one(), None);
    ip(&format!("route del {route}"));
    assert_eq!(a.end(), (2, WcStatus::Success));
    assert_eq!(b.bytes(0, 300_000), written);

    // Packets that exceed the new MTU permanently.
    let (c, d) = (Node::on(open()), Node::on(open()));
    c.connect(&d, &short_timeout());
    c.run(SendRequest::write(1, c.mr.sge(..4096), d.mr.remote(0)));
    let before = refused(&c);
    ip("link set lo mtu 1500");
    c.recv(7, 0..64);
    c.send(SendRequest::write(2, c.mr.sge(..100_000), d.mr.remote(0)));
    assert_eq!(c.end(), (2, WcStatus::RetryExcErr));
    assert_eq!(c.end(), (7, WcStatus::WrFlushErr));
    assert!(refused(&c) > before, "EMSGSIZE");
    for node in [&c, &d] {
        node.qp.modify(QpAttr::to(QpState::Reset)).unwrap();
    }
    // The port now uses the MTU of the interface.
    c.connect(&d, &ConnectOptions::default());
    c.run(SendRequest::write(3, c.mr.sge(..100_000), d.mr.remote(0)));
}

/// The kernel answers each packet to a closed port with an ICMP error, and reports it to the sending socket if the
/// socket requests such errors.
#[test]
fn icmp_errors_of_one_peer_do_not_affect_another() {
    // Both connections send from one socket.
    let ctx = open_with(OpenOptions::default().source_port(0xc123));
    let (a, b) = (Node::on(ctx.clone()), Node::on(ctx));
    let (gone, there) = (Node::on(open()), Node::on(open()));
    a.connect(&gone, &short_timeout());
    b.connect(&there, &ConnectOptions::default());
    let to = gone.mr.remote(0);
    drop(gone);
    a.send(SendRequest::write(1, a.mr.sge(..8), to));
    for wr_id in 0..100 {
        b.run(SendRequest::write(wr_id, b.mr.sge(..8), there.mr.remote(0)));
    }
    assert_eq!(a.end(), (1, WcStatus::RetryExcErr));
    b.run(SendRequest::read(100, b.mr.sge(..8), there.mr.remote(0)));
    assert_eq!(b.ctx.device_info().unwrap().counters.transmit_errors, 0);
}

// ---- a stopped peer ----

/// Sends a signal.
fn signal(name: &str, process: u32) {
    let _alone = PROCESS_START_LOCK.write().unwrap();
    let kill = Command::new("kill").args([name, &process.to_string()]).status().unwrap();
    assert!(kill.success());
}

#[test]
fn stopped_peer_resumes_after_its_timeouts() {
    let mut child = start(SUBPROCESS, "peer");
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut input = child.stdin.take().unwrap();
    // The responses to its requests arrive while it is stopped, so it finds them when it resumes.
    let late = OpenOptions::default().impair("delay=20ms".parse().unwrap());
    let node = Node::on(open_with(late));
    let connect = |peer: &str, options: &ConnectOptions| {
        node.qp.connect(&peer.parse().unwrap(), options).unwrap();
    };
    // This side fails after one second, when all retries of the stopped side are overdue.
    let timeout = AckTimeout::new(15).unwrap();
    let options = ConnectOptions { timeout, retry_cnt: 3, ..ConnectOptions::default() };
    connect(&line(&mut output, "endpoint "), &options);
    writeln!(input, "peer {}", node.qp.endpoint()).unwrap();
    writeln!(input, "at {} {}", node.mr.remote(0).addr, node.mr.remote(0).rkey.0).unwrap();
    line(&mut output, "connected");
    let status = format!("/proc/{}/stat", child.id());
    until("the process to stop", || fs::read_to_string(&status).unwrap().contains(") T "));
    node.send(SendRequest::send(1, node.mr.sge(..8)));
    assert_eq!(node.end(), (1, WcStatus::RetryExcErr));

    signal("-CONT", child.id());
    // Responses to its earlier requests arrived while it was stopped.
    assert_eq!(line(&mut output, "write "), "Success");
    node.qp.modify(QpAttr::to(QpState::Reset)).unwrap();
    connect(&line(&mut output, "endpoint "), &ConnectOptions::default());
    writeln!(input, "peer {}", node.qp.endpoint()).unwrap();
    line(&mut output, "connected");
    node.run(SendRequest::send(2, node.mr.sge(..8)));
    line(&mut output, SUCCESS_LINE);
    assert!(child.wait().unwrap().success());
}

fn stopping_peer() {
    let mut input = std::io::stdin().lock();
    let mut next = |key| line(&mut input, key);
    let node = Node::on(open());
    println!("\nendpoint {}", node.qp.endpoint());
    // All retries together take half a second.
    let timeout = AckTimeout::new(13).unwrap();
    let options = ConnectOptions { timeout, ..ConnectOptions::default() };
    node.qp.connect(&next("peer ").parse().unwrap(), &options).unwrap();
    let at = next("at ");
    let (addr, rkey) = at.split_once(' ').unwrap();
    let to = RemoteAddr { addr: addr.parse().unwrap(), rkey: Rkey(rkey.parse().unwrap()) };
    println!("connected");
    node.send(SendRequest::write(1, node.mr.sge(..8), to));
    signal("-STOP", process::id());
    println!("write {:?}", node.next().status);
    node.qp.modify(QpAttr::to(QpState::Reset)).unwrap();
    println!("endpoint {}", node.qp.endpoint());
    node.qp.connect(&next("peer ").parse().unwrap(), &options).unwrap();
    node.recv(7, 0..64);
    println!("connected");
    assert_eq!(node.end(), (7, WcStatus::Success));
}

// ---- a panic ----

/// A capture that panics on request.
struct PanickingSink(Arc<AtomicBool>);

impl Sink for PanickingSink {
    fn packet(&mut self, _: Instant, _: Direction, _: &[u8]) {
        assert!(!self.0.load(Ordering::SeqCst), "a panic for a test");
    }
}

/// Returns a node with such a capture, its peer, and the trigger.
fn trapped() -> (Node, Node, Arc<AtomicBool>) {
    let trap = Arc::new(AtomicBool::new(false));
    let ctx = open_with(OpenOptions::default().capture(Box::new(PanickingSink(Arc::clone(&trap)))));
    let (a, b) = (Node::on(ctx), Node::on(open()));
    // A retransmission would cause another response, and trigger the panic again.
    a.qp.connect(&b.qp.endpoint(), &single_attempt()).unwrap();
    b.qp.connect(&a.qp.endpoint(), &short_timeout()).unwrap();
    a.run(SendRequest::write(1, a.mr.sge(..8), b.mr.remote(0)));
    a.recv(7, 0..64);
    trap.store(true, Ordering::SeqCst);
    (a, b, trap)
}

/// Checks the state of a device after a panic.
fn has_failed(node: Node, flushed: &[u64]) {
    let expected = "the device has failed after a panic in the library";
    assert_eq!(node.event(), AsyncEvent::DeviceFatal);
    for wr_id in flushed {
        assert_eq!(node.end(), (*wr_id, WcStatus::WrFlushErr));
    }
    let said = |error: Error| assert_eq!(error.to_string(), expected);
    said(node.cq.wait_one(WAIT_LIMIT).unwrap_err());
    said(node.ctx.wait_event(WAIT_LIMIT).unwrap_err());
    said(node.ctx.create_cq(1, None).unwrap_err());
    said(node.pd.create_qp(&QpConfig::rc(&node.cq)).unwrap_err());
    said(node.qp.post_send(SendRequest::send(1, node.mr.sge(..8))).unwrap_err());
    said(node.qp.state().unwrap_err());
    assert_eq!((node.cq.poll_one(), node.ctx.poll_event()), (None, None));
    // Another device can use the address.
    let ip = node.ctx.ip();
    let _no_new_process = PROCESS_START_LOCK.read().unwrap();
    drop(node);
    Context::open(OpenOptions::default().ip(ip)).unwrap();
}

#[test]
fn panic_of_the_device_thread_fails_the_device_and_flushes() {
    let (a, b, _trap) = trapped();
    b.send(SendRequest::write(1, b.mr.sge(..8), a.mr.remote(0)));
    assert_eq!(b.end(), (1, WcStatus::RetryExcErr));
    has_failed(a, &[7]);
}

#[test]
fn each_id_of_a_failed_device_gets_its_removal_once() {
    let (a, b, trap) = trapped();
    trap.store(false, Ordering::SeqCst);
    let channel = cm::EventChannel::new().unwrap();
    let id = || cm::Id::create_on(&a.ctx, &channel, cm::PortSpace::Tcp, QpType::Rc).unwrap();
    let next = |expected: fn(&cm::EventKind) -> bool| {
        let event = channel.wait(WAIT_LIMIT).unwrap();
        assert!(expected(&event.kind), "{event:?}");
        event.id
    };
    // Neither of these has a device.
    let (idle, unbound) = (id(), id());
    unbound.bind("0.0.0.0:0".parse().unwrap()).unwrap();
    let (bound, listener) = (id(), id());
    for bound in [&bound, &listener] {
        bound.bind((a.ctx.ip(), 0).into()).unwrap();
    }
    listener.listen(1).unwrap();
    // No listener has port 1.
    let (resolved, refused) = (id(), id());
    for id in [&resolved, &refused] {
        id.resolve_addr(None, (b.ctx.ip(), 1).into(), WAIT_LIMIT).unwrap();
        next(|kind| *kind == cm::EventKind::AddrResolved);
    }
    refused.resolve_route(WAIT_LIMIT).unwrap();
    next(|kind| *kind == cm::EventKind::RouteResolved);
    refused.connect(&cm::ConnectParam::default()).unwrap();
    next(|kind| matches!(kind, cm::EventKind::Rejected { .. }));
    // The program has not accepted this request, so its id has no events.
    let qp = b.pd.create_qp(&QpConfig::rc(&b.cq)).unwrap();
    let peer = listener.local_addr().unwrap();
    let connecting = cm::Connecting::start(&b.ctx, peer, &qp, &cm::Connect::default()).unwrap();
    let requested = next(|kind| matches!(kind, cm::EventKind::ConnectRequest(_)));

    trap.store(true, Ordering::SeqCst);
    b.send(SendRequest::write(1, b.mr.sge(..8), a.mr.remote(0)));
    let expected = [&bound, &listener, &resolved, &refused].map(cm::Id::number);
    let mut removed = expected.map(|_| next(|kind| *kind == cm::EventKind::DeviceRemoval).number());
    removed.sort_unstable();
    assert_eq!(removed, expected);
    assert_eq!(b.end(), (1, WcStatus::RetryExcErr));
    assert_eq!(channel.poll().map(|event| event.kind), None);

    const ENODEV: i32 = 19;
    let errors = [
        idle.bind((a.ctx.ip(), 0).into()),
        unbound.resolve_addr(None, (b.ctx.ip(), 1).into(), WAIT_LIMIT),
        bound.listen(1),
        resolved.resolve_route(WAIT_LIMIT),
    ];
    assert_eq!(errors.map(|error| error.unwrap_err().errno()), [ENODEV; 4]);
    drop((idle, unbound, bound, listener, resolved, refused, requested, connecting));
    has_failed(a, &[7]);
}

#[test]
fn panic_in_a_verb_fails_the_device_and_flushes() {
    let (a, b, _trap) = trapped();
    let post = || a.qp.post_send(SendRequest::write(2, a.mr.sge(..8), b.mr.remote(0)));
    assert!(catch_unwind(AssertUnwindSafe(post)).is_err());
    has_failed(a, &[2, 7]);
}
