//! Lifetimes of handles: any order of drops is valid, and the last drop closes the device.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::IpAddr;

use softroce::verbs::*;

use crate::node::{Node, PROCESS_START_LOCK, WAIT_LIMIT, fresh_ip, open, single_attempt};
use crate::process::{line, role, start, started_by_another_test};
use crate::within::found;

#[test]
fn queue_pair_keeps_its_objects_alive() {
    let (a, b) = Node::pair();
    let Node { qp, cq, mr, pd, ctx } = a;
    drop((ctx, pd));
    qp.post_send(SendRequest::write(1, mr.sge(..8), b.mr.remote(0)).signaled()).unwrap();
    assert_eq!(cq.wait_one(WAIT_LIMIT).unwrap().status, WcStatus::Success);
    drop(cq);
    qp.post_send(SendRequest::write(2, mr.sge(..8), b.mr.remote(0)).signaled()).unwrap();
    assert_eq!(qp.send_cq().wait_one(WAIT_LIMIT).unwrap().wr_id, 2);
}

#[test]
fn handles_are_dropped_in_any_order() {
    // All orders of five handles.
    for order in 0..120 {
        let _no_new_process = PROCESS_START_LOCK.read().unwrap();
        let (a, _b) = Node::pair();
        let ip = a.ctx.ip();
        a.qp.post_recv(RecvRequest::new(1, a.mr.sge(..8))).unwrap();
        let Node { qp, cq, mr, pd, ctx } = a;
        let mut handles: Vec<Box<dyn Send>> =
            vec![Box::new(qp), Box::new(cq), Box::new(mr), Box::new(pd), Box::new(ctx)];
        let mut rest = order;
        for count in (1..=handles.len()).rev() {
            drop(handles.remove(rest % count));
            rest /= count;
        }
        // The device is closed, so the address can be opened with other options.
        Context::open(OpenOptions::default().ip(ip).receive_buffer(1 << 16)).unwrap();
    }
}

#[test]
fn clone_refers_to_the_same_object() {
    let (a, b) = Node::pair();
    let qp = a.qp.clone();
    drop(a.qp);
    qp.post_send(SendRequest::write(1, a.mr.sge(..8), b.mr.remote(0)).signaled()).unwrap();
    assert_eq!(a.cq.wait_one(WAIT_LIMIT).unwrap().status, WcStatus::Success);
}

#[test]
fn contexts_of_an_address_share_the_device() {
    let first = open();
    let second = Context::open(OpenOptions::default().ip(first.ip())).unwrap();
    let cq = second.create_cq(4, None).unwrap();
    first.alloc_pd().create_qp(&QpConfig::rc(&cq)).unwrap();
    drop(first);
    assert!(second.device_info().unwrap().counters.rx_packets == 0);
}

#[test]
fn address_reopens_immediately() {
    let ip = fresh_ip();
    let _no_new_process = PROCESS_START_LOCK.read().unwrap();
    for _ in 0..20 {
        let node =
            Node::on(Context::open(OpenOptions::default().ip(ip).receive_buffer(4096)).unwrap());
        let me = node.qp.endpoint();
        node.qp.connect(&me, &ConnectOptions::default()).unwrap();
        node.run(SendRequest::write(1, node.mr.sge(..8), node.mr.remote(64)));
    }
}

#[test]
fn destroyed_queue_pair_has_sent_its_acknowledgements() {
    for _ in 0..50 {
        let (a, b) = (Node::on(open()), Node::on(open()));
        // A single attempt: a missing acknowledgement fails the request.
        a.connect(&b, &single_attempt());
        b.recv(7, 0..64);
        a.send(SendRequest::send(1, a.mr.sge(..8)));
        found("the message", || b.cq.poll_one());
        drop(b);
        assert_eq!(a.end(), (1, WcStatus::Success));
    }
}

/// Test that runs the other process.
const OTHER_HALF: &str = "lifetime::other_half";

/// Runs the role of the subprocess; does nothing without a role.
#[test]
fn other_half() {
    let Some(role) = role() else { return started_by_another_test() };
    let (role, ip) = role.split_once(' ').unwrap();
    let ip: IpAddr = ip.parse().unwrap();
    let ctx = Context::open(OpenOptions::default().ip(ip)).unwrap();
    let mut input = std::io::stdin().lock();
    match role {
        "hold" => {
            println!("\nready");
            input.read_line(&mut String::new()).unwrap();
        }
        "exit" => {
            let node = Node::on(ctx);
            println!("\nendpoint {}", node.qp.endpoint());
            let peer: Endpoint = line(&mut input, "peer ").parse().unwrap();
            node.qp.connect(&peer, &ConnectOptions::default()).unwrap();
            node.recv(7, 0..64);
            println!("connected");
            found("the message", || node.cq.poll_one());
            // Without destructors.
            std::process::exit(0);
        }
        _ => panic!("there is no role {role}"),
    }
}

#[test]
fn open_error_names_the_process_that_holds_the_address() {
    let ip = fresh_ip();
    let mut child = start(OTHER_HALF, &format!("hold {ip}"));
    let mut output = BufReader::new(child.stdout.take().unwrap());
    line(&mut output, "ready");
    let error = Context::open(OpenOptions::default().ip(ip)).unwrap_err().to_string();
    let expected = format!("UDP port 4791 of {ip} is held by process {} (verbs", child.id());
    assert!(error.starts_with(&expected), "{error}");
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
}

#[test]
fn process_exit_sends_pending_acknowledgements() {
    let mut child = start(OTHER_HALF, &format!("exit {}", fresh_ip()));
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let node = Node::on(open());
    let peer = line(&mut output, "endpoint ").parse().unwrap();
    // A single attempt: a missing acknowledgement fails the request.
    node.qp.connect(&peer, &single_attempt()).unwrap();
    writeln!(child.stdin.take().unwrap(), "peer {}", node.qp.endpoint()).unwrap();
    line(&mut output, "connected");
    node.run(SendRequest::send(1, node.mr.sge(..8)));
    assert!(child.wait().unwrap().success());
}
