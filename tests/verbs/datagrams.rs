//! UD over loopback sockets.

use std::io::{BufReader, Write};
use std::net::IpAddr;
use std::sync::mpsc::{self, TryRecvError};

use softroce::port::{Direction, Sink};
use softroce::verbs::*;

use crate::node::{Node, QKEY, RECV_BYTES, WAIT_LIMIT, datagrams, fresh_ip, open, open_with};
use crate::process::{line, role, start, started_by_another_test};

/// Sends `text` to a queue pair, and waits for the completion.
fn send(node: &Node, to: &Endpoint, text: &str) {
    let ah = node.pd.create_ah(AddressVector::to(to.gid)).unwrap();
    let message = SendRequest::send(99, SendData::inline(text.as_bytes()));
    node.send(message.to(ah.target(to.qpn, QKEY)));
}

/// Returns the text of the next message, and its sender according to the completion and to the header.
fn received(node: &Node) -> (String, Endpoint) {
    let completion = loop {
        let completion = node.next();
        assert_eq!(completion.status, WcStatus::Success);
        if completion.opcode == WcOpcode::Recv {
            break completion;
        }
    };
    let at = completion.wr_id as usize * RECV_BYTES;
    let bytes = node.bytes(at, completion.byte_len as usize);
    let (header, text) = bytes.split_first_chunk().unwrap();
    let gid = node.pd.create_ah_from_header(header).unwrap().gid();
    let sender = Endpoint { gid, qpn: completion.source_qp.unwrap(), psn: Psn::default() };
    (String::from_utf8(text.to_vec()).unwrap(), sender)
}

/// Returns the endpoint of a queue pair with PSN 0, because UD does not use it.
fn address_of(node: &Node) -> Endpoint {
    Endpoint { psn: Psn::default(), ..node.qp.endpoint() }
}

/// UD-06
#[test]
fn queue_pair_receives_its_own_datagram() {
    let node = datagrams(open(), 1);
    send(&node, &node.qp.endpoint(), "to myself");
    assert_eq!(received(&node), ("to myself".into(), address_of(&node)));
}

/// The header before the message contains the traffic class and the TTL of the packet.
#[test]
fn received_header_has_traffic_class_and_ttl() {
    let (a, b) = (datagrams(open(), 1), datagrams(open(), 1));
    let to = b.qp.endpoint();
    let av = AddressVector { traffic_class: 0x48, hop_limit: 7, ..AddressVector::to(to.gid) };
    let ah = a.pd.create_ah(av).unwrap();
    a.send(SendRequest::send(99, SendData::inline(b"hello")).to(ah.target(to.qpn, QKEY)));
    assert_eq!(received(&b).0, "hello");
    // The second half of the 40 bytes is the IPv4 header: TOS is its byte 1, TTL its byte 8.
    assert_eq!((b.bytes(21, 1), b.bytes(28, 1)), (vec![0x48], vec![7]));
}

/// Reports the UDP source ports of sent packets.
struct SourcePorts(mpsc::Sender<u16>);

impl Sink for SourcePorts {
    fn packet(&mut self, _: Instant, direction: Direction, ip_packet: &[u8]) {
        if direction == Direction::Sent {
            let port = u16::from_be_bytes(*ip_packet[20..].first_chunk().unwrap());
            self.0.send(port).unwrap();
        }
    }
}

/// PKT-02: messages with different flow labels leave from different ports, and all arrive.
#[test]
fn flow_label_determines_the_source_port() {
    let (sink, ports) = mpsc::channel();
    let capture = OpenOptions::default().capture(Box::new(SourcePorts(sink)));
    let (a, b) = (datagrams(open_with(capture), 0), datagrams(open(), 2));
    let to = b.qp.endpoint();
    // A message may arrive before its sender has captured it.
    let [without, with] = [0, 0x12345].map(|flow_label| {
        let av = AddressVector { flow_label, ..AddressVector::to(to.gid) };
        let ah = a.pd.create_ah(av).unwrap();
        a.send(SendRequest::send(99, SendData::inline(b"hello")).to(ah.target(to.qpn, QKEY)));
        assert_eq!(received(&b).0, "hello");
        ports.recv_timeout(WAIT_LIMIT).unwrap()
    });
    assert_ne!(without, with);
    assert_eq!(ports.try_recv(), Err(TryRecvError::Empty));
}

/// A datagram to a missing queue pair is lost, and later ones arrive.
#[test]
fn datagram_to_a_missing_queue_pair_completes() {
    let (a, b) = (datagrams(open(), 1), datagrams(open(), 1));
    let unused_ip: IpAddr = fresh_ip();
    let gone = b.qp.endpoint();
    for to in
        [Endpoint { gid: unused_ip.into(), ..gone }, Endpoint { qpn: a.qp.qpn(), ..gone }, gone]
    {
        send(&a, &to, "hello");
        let completion = a.next();
        assert_eq!((completion.wr_id, completion.status), (99, WcStatus::Success));
    }
    assert_eq!(received(&b), ("hello".into(), address_of(&a)));
    assert_eq!(a.qp.state().unwrap(), QpState::Rts);
}

/// Test that runs one of the three processes.
const ONE_OF_THREE: &str = "datagrams::one_of_three";

/// Prints its endpoint, reads those of all three processes, sends to the other two, and receives from them.
#[test]
fn one_of_three() {
    let Some(role) = role() else { return started_by_another_test() };
    let (me, ip) = role.split_once(' ').unwrap();
    let ip: IpAddr = ip.parse().unwrap();
    // More receive requests than messages.
    let node = datagrams(Context::open(OpenOptions::default().ip(ip)).unwrap(), 6);
    println!("\nendpoint {}", node.qp.endpoint());
    let mut input = std::io::stdin().lock();
    let peers = ["0", "1", "2"].map(|name| {
        let peer: Endpoint = line(&mut input, "peer ").parse().unwrap();
        (name, Endpoint { psn: Psn::default(), ..peer })
    });
    for (name, peer) in peers.iter().filter(|(name, _)| *name != me) {
        send(&node, peer, &format!("from {me} to {name}"));
    }
    let mut heard = [received(&node), received(&node)];
    heard.sort_by(|a, b| a.0.cmp(&b.0));
    let others = peers.into_iter().filter(|(name, _)| *name != me);
    let expected = others.map(|(name, peer)| (format!("from {name} to {me}"), peer));
    assert_eq!(heard.to_vec(), expected.collect::<Vec<_>>());
    println!("\nheard");
    // All messages have arrived at their destinations.
    line(&mut input, "end");
    while let Some(completion) = node.cq.poll_one() {
        assert_eq!(completion.opcode, WcOpcode::Send, "{completion:?}");
    }
}

/// UD-06: three processes, each of which sends to the two others.
#[test]
fn datagrams_among_three_processes_reach_their_destinations() {
    let mut children = [0, 1, 2].map(|n| start(ONE_OF_THREE, &format!("{n} {}", fresh_ip())));
    let mut outputs = children.each_mut().map(|child| BufReader::new(child.stdout.take().unwrap()));
    let mut inputs = children.each_mut().map(|child| child.stdin.take().unwrap());
    let endpoints = outputs.each_mut().map(|output| line(output, "endpoint "));
    for input in &mut inputs {
        for endpoint in &endpoints {
            writeln!(input, "peer {endpoint}").unwrap();
        }
    }
    for output in &mut outputs {
        line(output, "heard");
    }
    for input in &mut inputs {
        writeln!(input, "end").unwrap();
    }
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn post_all_posts_all_datagrams_or_none() {
    let (a, b) = (datagrams(open(), 1), datagrams(open(), 2));
    let to = b.qp.endpoint();
    let ah = a.pd.create_ah(AddressVector::to(to.gid)).unwrap();
    let message = |text: &[u8], target| SendRequest::send(99, SendData::inline(text)).to(target);
    let target = ah.target(to.qpn, QKEY);
    let av = AddressVector { sgid_index: 9, ..target.av };
    let nowhere = UdTarget { av, ..target };
    assert!(a.qp.post_all([message(b"lost", target), message(b"too", nowhere)]).is_err());
    a.qp.post_all([message(b"one", target), message(b"two", target)]).unwrap();
    assert_eq!([received(&b).0, received(&b).0], ["one", "two"]);
}
