//! Connections of other processes: their end, and the device that a process gets.

use std::io::{BufReader, Write};
use std::net::SocketAddr;
use std::time::Duration;

use softroce::verbs::cm::{
    Accept, Connect, ConnectionEvent, Error, EventChannel, EventKind, Id, Listener, PortSpace,
};
use softroce::verbs::*;

use crate::node::{Node, WAIT_LIMIT, open};
use crate::process::{
    SUCCESS_LINE, VETH_PAIR, in_namespaces, line, role, start, started_by_another_test,
};

/// Test that runs the client.
const CLIENT: &str = "connections_process::client";

#[test]
fn client() {
    let Some(role) = role() else { return started_by_another_test() };
    let Some((ending, server)) = role.split_once(' ') else { return started_by_another_test() };
    let node = Node::on(open());
    let server: SocketAddr = server.parse().unwrap();
    let options = Connect { timeout: Some(WAIT_LIMIT), ..Connect::default() };
    let _connection = cm::connect(&node.ctx, server, &node.qp, &options).unwrap();
    println!("connected");
    // Until the server has seen the connection.
    std::io::stdin().read_line(&mut String::new()).unwrap();
    match ending {
        "exit" => std::process::exit(0),
        "_exit" => {
            // What the preloaded library does in `_exit`; no destructor runs.
            softroce::runtime::flush();
            std::process::abort();
        }
        other => panic!("{other}: expected exit or _exit"),
    }
}

#[test]
fn process_that_ends_disconnects() {
    for ending in ["exit", "_exit"] {
        let node = Node::on(open());
        let listener = Listener::bind(&node.ctx, "0.0.0.0:0".parse().unwrap()).unwrap();
        let address = SocketAddr::new(node.ctx.ip(), listener.local_addr().port());
        let mut child = start(CLIENT, &format!("{ending} {address}"));
        let incoming = listener.accept(WAIT_LIMIT).unwrap();
        let end = incoming.accept(&node.qp, &Accept::default()).unwrap();
        assert_eq!(end.wait(WAIT_LIMIT).unwrap(), ConnectionEvent::Established);
        line(&mut BufReader::new(child.stdout.take().unwrap()), "connected");
        writeln!(child.stdin.take().unwrap()).unwrap();
        let event = end.wait(WAIT_LIMIT).unwrap();
        assert_eq!(event, ConnectionEvent::Disconnected { answered: true }, "{ending}");
        child.wait().unwrap();
    }
}

/// Test that uses ids without a device.
const IDS: &str = "connections_process::ids_without_a_device";

const TIMEOUT: Duration = Duration::from_secs(1);

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Returns an id without a device.
fn id(channel: &EventChannel) -> Id {
    Id::create(channel, PortSpace::Tcp, QpType::Rc).unwrap()
}

/// Resolves an address, and returns the id.
fn resolve(channel: &EventChannel, destination: &str) -> Id {
    let id = id(channel);
    id.resolve_addr(None, address(destination), TIMEOUT).unwrap();
    let event = channel.poll().unwrap();
    assert!(event.id == id && event.kind == EventKind::AddrResolved, "{event:?}");
    id
}

fn errno(result: Result<(), Error>) -> i32 {
    result.unwrap_err().errno()
}

#[test]
fn ids_without_a_device() {
    let channel = EventChannel::new().unwrap();
    match role().as_deref() {
        Some("client") => {
            let first = resolve(&channel, "127.0.0.1:7174");
            assert_eq!(first.local_addr().unwrap().ip().to_string(), "127.0.0.2");
            assert_eq!(first.peer_addr(), Some(address("127.0.0.1:7174")));
            // The device that a program without the connection manager opens.
            let same = Context::open(OpenOptions::default()).unwrap();
            assert_eq!(same.ip(), first.context().unwrap().ip());
            // The address of another device: a client may bind to it, and a listener may not.
            let foreign = id(&channel);
            foreign.bind(address("127.0.0.1:7175")).unwrap();
            assert_eq!(errno(foreign.listen(0)), 98); // EADDRINUSE
            foreign.resolve_addr(None, address("127.0.0.1:7174"), TIMEOUT).unwrap();
            assert_eq!(foreign.local_addr(), Some(address("127.0.0.2:7175")));
            assert_eq!(errno(id(&channel).bind(address("192.0.2.1:7174"))), 99); // EADDRNOTAVAIL
            assert_eq!(errno(id(&channel).bind(address("10.8.0.1:7174"))), 19); // ENODEV
        }
        Some("early client") => {
            // The server, which has not started, needs this address.
            let first = id(&channel);
            let source = Some(address("127.0.0.1:7175"));
            first.resolve_addr(source, address("127.0.0.1:7174"), TIMEOUT).unwrap();
            assert_eq!(first.local_addr(), Some(address("127.0.0.2:7175")));
        }
        Some("other source") => {
            let first = id(&channel);
            let source = Some(address("127.0.0.9:7175"));
            first.resolve_addr(source, address("127.0.0.1:7174"), TIMEOUT).unwrap();
            assert_eq!(first.local_addr(), source);
        }
        Some("server") => {
            let server = id(&channel);
            server.bind(address("127.0.0.1:7174")).unwrap();
            server.listen(0).unwrap();
            assert_eq!(server.context().unwrap().ip().to_string(), "127.0.0.1");
            assert_eq!(errno(id(&channel).bind(address("0.0.0.0:7174"))), 99); // EADDRNOTAVAIL
            assert_eq!(errno(id(&channel).bind(address("127.0.0.1:7174"))), 98); // EADDRINUSE
            // A client in the same process connects to the device itself.
            let client = resolve(&channel, "127.0.0.1:7174");
            assert_eq!(client.local_addr().unwrap().ip().to_string(), "127.0.0.1");
        }
        Some("route") => {
            let first = resolve(&channel, "10.8.0.9:7174");
            assert_eq!(first.local_addr().unwrap().ip().to_string(), "10.8.0.1");
            // A device without a loopback address is its own peer there.
            let second = resolve(&channel, "127.0.0.1:7174");
            assert_eq!(second.peer_addr(), Some(address("10.8.0.1:7174")));
            // Loopback stands for all of its addresses.
            let server = id(&channel);
            server.bind(address("127.0.0.1:7175")).unwrap();
            assert!(server.context().is_none());
            server.listen(0).unwrap();
            let error = id(&channel).resolve_addr(None, address("[fd08::9]:7174"), TIMEOUT);
            assert_eq!(errno(error), 101); // ENETUNREACH
        }
        Some("wild") => {
            // The address of a network does not decide on the device.
            assert_eq!(errno(id(&channel).bind(address("10.8.0.1:7174"))), 19); // ENODEV
            let server = id(&channel);
            server.bind(address("0.0.0.0:7174")).unwrap();
            assert!(server.context().is_none());
            server.listen(0).unwrap();
            assert_eq!(server.context().unwrap().ip().to_string(), "127.0.0.1");
            assert_eq!(server.local_addr(), Some(address("0.0.0.0:7174")));
        }
        _ => return started_by_another_test(),
    }
    println!("{SUCCESS_LINE}");
}

#[test]
#[ignore = "makes network namespaces"]
fn process_without_an_address_gets_the_device_that_its_first_call_needs() {
    for role in ["client", "early client", "other source", "server", "route", "wild"] {
        in_namespaces(VETH_PAIR, IDS, role);
    }
}
