//! Control sockets: states and captures for other programs of the user.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown};
use std::os::unix::net::UnixStream;
use std::process;

use serde_json::Value;
use softroce::port::Direction;
use softroce::runtime::control::{
    CaptureFilter, Client, RecordHeader, Request, SocketName, sockets,
};
use softroce::verbs::*;

use crate::node::{Node, WAIT_LIMIT, open, open_with};

/// Returns the name of the control socket of a device of this process.
fn name_of(ip: IpAddr) -> Option<SocketName> {
    sockets().unwrap().into_iter().find(|name| name.ip == ip && name.pid == process::id())
}

/// A connection to a device.
pub(crate) struct Peer(UnixStream);

impl Peer {
    pub(crate) fn connect(ctx: &Context) -> Self {
        let client = Client::connect(name_of(ctx.ip()).unwrap()).unwrap();
        assert_eq!(client.pid, process::id());
        client.connection.set_nonblocking(false).unwrap();
        client.connection.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        Self(client.connection)
    }

    /// Sends a line, and returns the line of the reply.
    fn ask(&mut self, line: &str) -> Value {
        self.0.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut reply = Vec::new();
        while reply.last() != Some(&b'\n') {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            reply.extend(byte);
        }
        serde_json::from_slice(&reply).unwrap()
    }

    pub(crate) fn request(&mut self, request: &Request) -> Value {
        self.ask(&request.to_string())
    }

    /// Returns the next record of a capture.
    fn record(&mut self) -> (RecordHeader, Vec<u8>) {
        let mut header = [0; RecordHeader::LEN];
        self.0.read_exact(&mut header).unwrap();
        let header = RecordHeader::parse(&header).unwrap();
        let mut packet = vec![0; header.len as usize];
        self.0.read_exact(&mut packet).unwrap();
        (header, packet)
    }

    /// Returns the records up to the end of the capture.
    pub(crate) fn records(&mut self) -> Vec<(RecordHeader, Vec<u8>)> {
        let records = std::iter::from_fn(|| Some(self.record()));
        records.take_while(|(header, _)| !header.is_end()).collect()
    }
}

#[test]
fn device_reports_its_queue_pairs_and_counters() {
    let (a, b) = Node::pair();
    let mut client = Peer::connect(&a.ctx);
    let before = client.request(&Request::Status);
    assert_eq!((&before["version"], &before["device"]), (&1.into(), &"softroce0".into()));
    assert_eq!(before["ip"], a.ctx.ip().to_string());
    assert_eq!((&before["pid"], &before["captures"]), (&process::id().into(), &0.into()));
    a.run(SendRequest::write(1, a.mr.sge(..9000), b.mr.remote(0)));
    a.recv(7, 0..64);
    let after = client.request(&Request::Status);
    assert!(after["time_ns"].as_u64() > before["time_ns"].as_u64());
    assert_eq!(after["counters"]["writes_completed"], 1);
    let [qp] = &after["qps"].as_array().unwrap()[..] else { panic!("{after}") };
    assert_eq!((&qp["qp"], &qp["type"]), (&a.qp.qpn().value().into(), &"RC".into()));
    assert_eq!((&qp["state"], &qp["peer"]), (&"RTS".into(), &b.ctx.ip().to_string().into()));
    assert_eq!(qp["peer_qp"], b.qp.qpn().value());
    assert_eq!((&qp["posted_sends"], &qp["outstanding_packets"]), (&0.into(), &0.into()));
    assert_eq!(qp["counters"]["tx_packets"], 3);
}

#[test]
fn capture_has_the_packets_of_both_directions_up_to_the_close() {
    let (a, b) = Node::pair();
    a.run(SendRequest::write(1, a.mr.sge(..64), b.mr.remote(0)));
    let mut client = Peer::connect(&a.ctx);
    let about = client.request(&Request::Capture(CaptureFilter::default()));
    assert_eq!(about["ip"], a.ctx.ip().to_string());
    assert_eq!(Peer::connect(&a.ctx).request(&Request::Status)["captures"], 1);
    for wr_id in 0..100 {
        a.run(SendRequest::write(wr_id, a.mr.sge(..64), b.mr.remote(0)));
    }
    drop(a);
    let records = client.records();
    let count = |direction| {
        records.iter().filter(|(header, _)| header.direction == Some(direction)).count()
    };
    // A port may send the first acknowledgements of a flow twice.
    let counts = (count(Direction::Sent), count(Direction::Received));
    assert!(counts.0 >= 100 && counts.1 >= 100, "{counts:?}");
    for (header, packet) in &records {
        let (computed, found) = softroce::wire::icrc::of_ip_packet(packet).unwrap();
        assert_eq!((computed, header.original_len, header.dropped), (found, header.len, 0));
    }
    assert!(records.is_sorted_by_key(|(header, _)| header.time));
}

#[test]
fn filter_and_snap_length_limit_a_capture() {
    let (a, b) = Node::pair();
    let mut client = Peer::connect(&a.ctx);
    let filter = CaptureFilter { snap_len: Some(60), qps: vec![b.qp.qpn()], ips: vec![b.ctx.ip()] };
    client.request(&Request::Capture(filter));
    a.run(SendRequest::write(1, a.mr.sge(..64), b.mr.remote(0)));
    drop(a);
    let [(header, packet)] = &client.records()[..] else { panic!("expected the request alone") };
    assert_eq!((header.direction, packet.len()), (Some(Direction::Sent), 60));
    assert_eq!(header.original_len, 20 + 8 + 12 + 16 + 64 + 4);
}

#[test]
fn invalid_request_is_refused_and_ends_the_connection() {
    let ctx = open();
    let refused = |line: &str| {
        let mut client = Peer::connect(&ctx);
        let reply = client.ask(line);
        // A reset if the device has not read the whole line.
        let end = client.0.read(&mut [0]).map_err(|error| error.kind());
        assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)), "{end:?}");
        reply["error"].as_str().unwrap().to_owned()
    };
    assert!(refused("GET / HTTP/1.1").starts_with("`GET / HTTP/1.1` is no request"));
    assert!(refused("softroce 2 status").starts_with("`softroce 2 status` is no request"));
    assert!(refused("softroce 1 capture qp=x").starts_with("`qp=x` is no argument"));
    assert!(refused(&"\u{fffd}".repeat(2000)).ends_with("begins with `softroce 1 `"));
    let mut client = Peer::connect(&ctx);
    assert_eq!(client.request(&Request::Status)["qps"], Value::Array(Vec::new()));
}

#[test]
fn client_that_does_not_read_does_not_delay_the_device() {
    let (a, b) = Node::pair();
    let mut client = Peer::connect(&a.ctx);
    client.request(&Request::Capture(CaptureFilter::default()));
    // More than the buffer of the capture and that of the socket.
    for wr_id in 0..12 {
        a.run(SendRequest::write(wr_id, a.mr.sge(..1 << 20), b.mr.remote(0)));
    }
    client.0.shutdown(Shutdown::Read).unwrap();
    drop(a);
    drop(b);
}

#[test]
fn device_of_clients_that_have_gone_is_not_captured() {
    let (a, b) = Node::pair();
    for _ in 0..8 {
        let mut client = Peer::connect(&a.ctx);
        client.request(&Request::Capture(CaptureFilter::default()));
    }
    let captures = || Peer::connect(&a.ctx).request(&Request::Status)["captures"].as_u64();
    // Each thread notices the end of its connection within milliseconds.
    let gone = (0..10_000).any(|_| {
        a.run(SendRequest::write(1, a.mr.sge(..64), b.mr.remote(0)));
        captures() == Some(0)
    });
    assert!(gone, "captures without a client: {:?}", captures());
}

#[test]
fn device_without_control_socket_is_not_listed() {
    let ctx = open_with(OpenOptions::default().control(false));
    assert_eq!(name_of(ctx.ip()), None);
    let listed = open();
    let name = name_of(listed.ip());
    assert!(name.is_some());
    drop(listed);
    assert!(
        !sockets().unwrap().iter().any(|other| Some(*other) == name),
        "it ends with the device"
    );
}
