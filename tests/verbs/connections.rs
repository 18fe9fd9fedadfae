//! Connections by address and port: the connection manager.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::Duration;

use softroce::port::impair::Impairments;
use softroce::port::{Conditions, wait_readable};
use softroce::verbs::cm::{
    Accept, BindError, Connect, Connecting, Connection, ConnectionEvent, Error, Listener, LookUp,
    PortSpace, RejectReason, ServiceListener, SidrStatus,
};
use softroce::verbs::*;

use crate::node::{Node, QKEY, WAIT_LIMIT, datagrams, open, open_with};
use crate::tasks::block_on;

/// Returns a listener at a free port of the device.
fn listen(node: &Node) -> (Listener, SocketAddr) {
    let listener = Listener::bind(&node.ctx, "0.0.0.0:0".parse().unwrap()).unwrap();
    let address = SocketAddr::new(node.ctx.ip(), listener.local_addr().port());
    (listener, address)
}

/// Requests a connection.
fn start(node: &Node, peer: SocketAddr) -> Connecting {
    Connecting::start(&node.ctx, peer, &node.qp, &Connect::default()).unwrap()
}

/// Accepts the next request.
fn accept(listener: &Listener, node: &Node) -> Connection {
    let incoming = listener.accept(WAIT_LIMIT).unwrap();
    incoming.accept(&node.qp, &Accept::default()).unwrap()
}

/// Connects two nodes, and returns the connection of each.
fn connect(near: &Node, far: &Node) -> (Connection, Connection) {
    let (listener, address) = listen(far);
    let connecting = start(near, address);
    let far_end = accept(&listener, far);
    let near_end = connecting.wait(WAIT_LIMIT).unwrap();
    assert_eq!(far_end.wait(WAIT_LIMIT).unwrap(), ConnectionEvent::Established);
    (near_end, far_end)
}

fn nodes() -> (Node, Node) {
    (Node::on(open()), Node::on(open()))
}

const DISCONNECTED: ConnectionEvent = ConnectionEvent::Disconnected { answered: true };

#[test]
fn connection_carries_private_data_and_messages_both_ways() {
    let (near, far) = nodes();
    let (listener, address) = listen(&far);
    let options = Connect { private_data: b"ping", ..Connect::default() };
    let connecting = Connecting::start(&near.ctx, address, &near.qp, &options).unwrap();
    let incoming = listener.accept(WAIT_LIMIT).unwrap();
    assert_eq!(
        (incoming.private_data().len(), &incoming.private_data()[..5]),
        (56, &b"ping\0"[..])
    );
    assert_eq!(incoming.peer().ip(), near.ctx.ip());
    let options = Accept { private_data: b"pong", ..Accept::default() };
    let far_end = incoming.accept(&far.qp, &options).unwrap();
    let near_end = connecting.wait(WAIT_LIMIT).unwrap();
    assert_eq!(
        (near_end.private_data().len(), &near_end.private_data()[..5]),
        (196, &b"pong\0"[..])
    );
    assert_eq!(far_end.wait(WAIT_LIMIT).unwrap(), ConnectionEvent::Established);
    assert_eq!((near_end.peer(), Some(far_end.peer())), (address, near_end.local_addr()));

    let sent = near.fill(0, 10_000, 1);
    near.run(SendRequest::write(1, near.mr.sge(..10_000), far.mr.remote(0)));
    far.run(SendRequest::read(2, far.mr.sge(20_000..30_000), near.mr.remote(0)));
    assert!([far.bytes(0, 10_000), far.bytes(20_000, 10_000)] == [&*sent; 2]);
}

#[test]
fn resources_are_those_that_both_sides_allow() {
    let (near, far) = nodes();
    let (listener, address) = listen(&far);
    let options = Connect { responder_resources: 4, initiator_depth: 9, ..Connect::default() };
    let connecting = Connecting::start(&near.ctx, address, &near.qp, &options).unwrap();
    let incoming = listener.accept(WAIT_LIMIT).unwrap();
    let options = Accept { responder_resources: 7, initiator_depth: 12, ..Accept::default() };
    let _far_end = incoming.accept(&far.qp, &options).unwrap();
    let _near_end = connecting.wait(WAIT_LIMIT).unwrap();
    let limits = |node: &Node| {
        let attr = node.qp.query().unwrap().attr;
        (attr.max_dest_rd_atomic, attr.max_rd_atomic)
    };
    assert_eq!((limits(&near), limits(&far)), ((Some(4), Some(7)), (Some(7), Some(4))));
}

#[test]
fn rejection_has_its_reason_and_private_data() {
    let (near, far) = nodes();
    let (listener, address) = listen(&far);
    let connecting = start(&near, address);
    listener.accept(WAIT_LIMIT).unwrap().reject(b"not today").unwrap();
    let error = connecting.wait(WAIT_LIMIT).unwrap_err();
    let Error::Rejected { peer, reason, private_data } = &error else { panic!("{error:?}") };
    assert_eq!((*peer, *reason), (address, RejectReason::CONSUMER));
    assert_eq!((private_data.len(), &private_data[..10]), (148, &b"not today\0"[..]));
    assert_eq!(error.errno(), 111); // ECONNREFUSED
    assert_eq!(
        error.to_string(),
        format!("{address} rejects the connection: the consumer's decision (28)")
    );
}

#[test]
fn dropped_request_is_rejected() {
    let (near, far) = nodes();
    let (listener, address) = listen(&far);
    let connecting = start(&near, address);
    drop(listener.accept(WAIT_LIMIT).unwrap());
    let error = connecting.wait(WAIT_LIMIT).unwrap_err();
    assert!(matches!(error, Error::Rejected { reason: RejectReason::CONSUMER, .. }), "{error}");
}

#[test]
fn dropped_listener_rejects_waiting_requests() {
    let (near, far) = nodes();
    let (listener, address) = listen(&far);
    let connecting = start(&near, address);
    assert!(wait_readable(&[listener.event_fd().unwrap()], Some(WAIT_LIMIT)).unwrap());
    drop(listener);
    let error = connecting.wait(WAIT_LIMIT).unwrap_err();
    assert!(matches!(error, Error::Rejected { reason: RejectReason::CONSUMER, .. }), "{error}");
}

/// The server of `qperf` sends its port to the client before it listens.
#[test]
fn request_that_precedes_its_listener_is_accepted() {
    let (near, far) = nodes();
    let (listener, address) = listen(&far);
    drop(listener);
    let connecting = start(&near, address);
    let again = SocketAddr::new([0, 0, 0, 0].into(), address.port());
    let listener = Listener::bind(&far.ctx, again).unwrap();
    let _far_end = accept(&listener, &far);
    connecting.wait(WAIT_LIMIT).unwrap();
}

#[test]
fn port_without_listener_rejects_the_service() {
    let (near, far) = nodes();
    // A port that no test listens on.
    let error = start(&near, SocketAddr::new(far.ctx.ip(), 1)).wait(WAIT_LIMIT).unwrap_err();
    let reason = RejectReason::INVALID_SERVICE_ID;
    assert!(matches!(&error, Error::Rejected { reason: found, .. } if *found == reason), "{error}");
    assert!(error.to_string().ends_with("rejects the connection: invalid service id (8)"));
}

#[test]
fn either_side_disconnects() {
    for is_active in [true, false] {
        let (near, far) = nodes();
        let (near_end, far_end) = connect(&near, &far);
        let (first, second) = if is_active { (near_end, far_end) } else { (far_end, near_end) };
        let flushed = if is_active { &far } else { &near };
        flushed.recv(7, 0..64);
        first.disconnect().unwrap();
        assert_eq!(second.wait(WAIT_LIMIT).unwrap(), DISCONNECTED);
        assert_eq!(flushed.end(), (7, WcStatus::WrFlushErr));
        assert_eq!(first.wait(WAIT_LIMIT).unwrap(), DISCONNECTED);
        let ended = [&first, &second].map(|end| end.wait(WAIT_LIMIT).unwrap());
        assert_eq!(ended, [ConnectionEvent::TimewaitExit, ConnectionEvent::TimewaitExit]);
        second.disconnect().unwrap();
    }
}

#[test]
fn both_sides_may_disconnect_at_once() {
    let (near, far) = nodes();
    let (near_end, far_end) = connect(&near, &far);
    near_end.disconnect().unwrap();
    far_end.disconnect().unwrap();
    let events = [near_end, far_end].map(|end| end.wait(WAIT_LIMIT).unwrap());
    assert_eq!(events, [DISCONNECTED, DISCONNECTED]);
}

#[test]
fn dropped_connection_disconnects() {
    let (near, far) = nodes();
    let (near_end, far_end) = connect(&near, &far);
    drop(near_end);
    assert_eq!(far_end.wait(WAIT_LIMIT).unwrap(), DISCONNECTED);
    assert_eq!(near.qp.state().unwrap(), QpState::Err);
}

#[test]
fn queue_pair_connects_again_after_reset() {
    let (near, far) = nodes();
    for _ in 0..3 {
        let (near_end, far_end) = connect(&near, &far);
        near.run(SendRequest::write(1, near.mr.sge(..64), far.mr.remote(0)));
        near_end.disconnect().unwrap();
        assert_eq!(far_end.wait(WAIT_LIMIT).unwrap(), DISCONNECTED);
        assert_eq!(near_end.wait(WAIT_LIMIT).unwrap(), DISCONNECTED);
        for node in [&near, &far] {
            node.qp.modify(QpAttr::to(QpState::Reset)).unwrap();
        }
    }
}

#[test]
fn client_and_server_of_one_device_connect() {
    let node = Node::on(open());
    let peer = node.pd.create_qp(&QpConfig::rc(&node.cq)).unwrap();
    let (listener, address) = listen(&node);
    let connecting = start(&node, address);
    let incoming = listener.accept(WAIT_LIMIT).unwrap();
    let far_end = incoming.accept(&peer, &Accept::default()).unwrap();
    let near_end = connecting.wait(WAIT_LIMIT).unwrap();
    node.run(SendRequest::write(1, node.mr.sge(..64), node.mr.remote(100)));
    near_end.disconnect().unwrap();
    let events = [(); 2].map(|()| far_end.wait(WAIT_LIMIT).unwrap());
    assert_eq!(events, [ConnectionEvent::Established, DISCONNECTED]);
}

#[test]
fn unreliable_connection_carries_messages() {
    let (mut near, mut far) = nodes();
    for node in [&mut near, &mut far] {
        node.qp = node.pd.create_qp(&QpConfig::uc(&node.cq)).unwrap();
    }
    let any = "0.0.0.0:0".parse().unwrap();
    let listener = Listener::bind_as(&far.ctx, any, PortSpace::Tcp, QpType::Uc).unwrap();
    let connecting = start(&near, SocketAddr::new(far.ctx.ip(), listener.local_addr().port()));
    let far_end = accept(&listener, &far);
    let _near_end = connecting.wait(WAIT_LIMIT).unwrap();
    assert_eq!(far_end.wait(WAIT_LIMIT).unwrap(), ConnectionEvent::Established);
    far.recv(1, 0..64);
    near.run(SendRequest::send(2, near.mr.sge(..8)));
    assert_eq!(far.end(), (1, WcStatus::Success));
}

/// Number of connections at once.
const CONNECTIONS: usize = 100;

#[test]
fn a_hundred_connections_are_established_at_once() {
    let (near, far) = nodes();
    let (listener, address) = listen(&far);
    let queue_pairs = |node: &Node| {
        let create = || node.pd.create_qp(&QpConfig::rc(&node.cq)).unwrap();
        (0..CONNECTIONS).map(|_| create()).collect::<Vec<_>>()
    };
    let (near_qps, far_qps) = (queue_pairs(&near), queue_pairs(&far));
    let options = Connect::default();
    let connecting: Vec<_> = near_qps
        .iter()
        .map(|qp| Connecting::start(&near.ctx, address, qp, &options).unwrap())
        .collect();
    let far_ends: Vec<_> = far_qps
        .iter()
        .map(|qp| listener.accept(WAIT_LIMIT).unwrap().accept(qp, &Accept::default()).unwrap())
        .collect();
    let near_ends: Vec<_> =
        connecting.into_iter().map(|connecting| connecting.wait(WAIT_LIMIT).unwrap()).collect();
    for end in &far_ends {
        assert_eq!(end.wait(WAIT_LIMIT).unwrap(), ConnectionEvent::Established);
    }
    near_ends.iter().for_each(|end| end.disconnect().unwrap());
    for end in far_ends.iter().chain(&near_ends) {
        assert_eq!(end.wait(WAIT_LIMIT).unwrap(), DISCONNECTED);
    }
}

#[test]
fn messages_of_the_connection_manager_survive_loss() {
    let conditions = Conditions { loss: 0.1, ..Conditions::default() };
    let impairments = Impairments { conditions, seed: 1, ..Impairments::default() };
    let near = Node::on(open_with(OpenOptions::default().impair(impairments)));
    let far = Node::on(open());
    let (listener, address) = listen(&far);
    let qps: Vec<_> = (0..10).map(|_| far.pd.create_qp(&QpConfig::rc(&far.cq)).unwrap()).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            let accept = |qp| {
                let incoming = listener.accept(WAIT_LIMIT).unwrap();
                incoming.accept(qp, &Accept::default()).unwrap()
            };
            let ends: Vec<_> = qps.iter().map(accept).collect();
            for expected in [ConnectionEvent::Established, DISCONNECTED] {
                assert!(ends.iter().all(|end| end.wait(WAIT_LIMIT).unwrap() == expected));
            }
        });
        let connect = |_| {
            let qp = near.pd.create_qp(&QpConfig::rc(&near.cq)).unwrap();
            (Connecting::start(&near.ctx, address, &qp, &Connect::default()).unwrap(), qp)
        };
        let connecting: Vec<_> = (0..10).map(connect).collect();
        let connected = connecting.into_iter().map(|(connecting, qp)| {
            let end = connecting.wait(WAIT_LIMIT).unwrap();
            let write = SendRequest::write(1, near.mr.sge(..64), far.mr.remote(0));
            qp.post_send(write.signaled()).unwrap();
            assert_eq!(near.end(), (1, WcStatus::Success));
            end
        });
        let ends: Vec<_> = connected.collect();
        ends.iter().for_each(|end| end.disconnect().unwrap());
        assert!(ends.iter().all(|end| end.wait(WAIT_LIMIT).unwrap() == DISCONNECTED));
    });
}

#[test]
fn wait_for_an_answer_ends_after_its_timeout() {
    let (near, far) = nodes();
    let (_listener, address) = listen(&far);
    let error = start(&near, address).wait(Duration::from_millis(1)).unwrap_err();
    assert_eq!(error.to_string(), "no event within 1ms");
    assert_eq!(error.errno(), 110); // ETIMEDOUT
}

#[test]
fn program_that_gives_up_withdraws_its_request() {
    let (near, far) = nodes();
    let (listener, address) = listen(&far);
    let connecting = start(&near, address);
    let incoming = listener.accept(WAIT_LIMIT).unwrap();
    drop(connecting);
    // The rejection arrives before the next request.
    let again = start(&Node::on(near.ctx.clone()), address);
    let second = listener.accept(WAIT_LIMIT).unwrap();
    let error = incoming.accept(&far.qp, &Accept::default()).unwrap_err();
    assert!(matches!(error, Error::Agent(_)), "{error}");
    drop((second, again));
}

#[test]
fn port_has_one_listener_on_each_device() {
    let (near, far) = nodes();
    let (_first, address) = listen(&far);
    let any = SocketAddr::from(([0, 0, 0, 0], address.port()));
    let error = Listener::bind(&far.ctx, any).unwrap_err();
    assert!(matches!(error, Error::Bind(BindError::Conflict { .. })), "{error}");
    let _second = Listener::bind(&near.ctx, any).unwrap();
}

#[test]
fn address_of_another_machine_cannot_be_bound() {
    let node = Node::on(open());
    let error = Listener::bind(&node.ctx, "192.0.2.1:7174".parse().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "192.0.2.1 is not an address of this machine");
    assert_eq!(error.errno(), 99); // EADDRNOTAVAIL
}

#[test]
fn private_data_of_a_request_has_a_limit() {
    let (near, far) = nodes();
    let (_listener, address) = listen(&far);
    let options = Connect { private_data: &[1; 57], ..Connect::default() };
    let error = Connecting::start(&near.ctx, address, &near.qp, &options).unwrap_err();
    assert_eq!(error.to_string(), "private data has 57 bytes; the message holds 56");
    assert_eq!(error.errno(), 22); // EINVAL
}

#[test]
fn tasks_connect_and_disconnect() {
    let (near, far) = nodes();
    let (listener, address) = listen(&far);
    thread::scope(|scope| {
        scope.spawn(|| {
            block_on(async {
                let incoming = listener.next().await.unwrap();
                let end = incoming.accept(&far.qp, &Accept::default()).unwrap();
                assert_eq!(end.next().await.unwrap(), ConnectionEvent::Established);
                assert_eq!(end.next().await.unwrap(), DISCONNECTED);
            });
        });
        block_on(async {
            let end = start(&near, address).finish().await.unwrap();
            end.disconnect().unwrap();
            assert_eq!(end.next().await.unwrap(), DISCONNECTED);
        });
    });
}

#[test]
fn loop_polls_the_descriptors_of_a_connection() {
    let (near, far) = nodes();
    let (listener, address) = listen(&far);
    let mut connecting = start(&near, address);
    fn is_readable(fd: BorrowedFd<'_>) -> bool {
        wait_readable(&[fd], Some(WAIT_LIMIT)).unwrap()
    }
    assert!(is_readable(listener.event_fd().unwrap()));
    let far_end = listener.poll().unwrap().accept(&far.qp, &Accept::default()).unwrap();
    let near_end = loop {
        match connecting.poll().unwrap() {
            Ok(end) => break end,
            Err(waiting) => connecting = waiting,
        }
        assert!(is_readable(connecting.event_fd().unwrap()));
    };
    near_end.disconnect().unwrap();
    let mut events = Vec::new();
    while events.len() < 2 {
        match far_end.poll() {
            Some(event) => events.push(event),
            None => assert!(is_readable(far_end.event_fd().unwrap())),
        }
    }
    assert_eq!(events, [ConnectionEvent::Established, DISCONNECTED]);
}

#[test]
fn look_up_finds_the_queue_pair_of_a_service() {
    let (near, far) = (datagrams(open(), 0), datagrams(open(), 1));
    let service = ServiceListener::bind(&far.ctx, "0.0.0.0:0".parse().unwrap()).unwrap();
    let address = SocketAddr::new(far.ctx.ip(), service.local_addr().port());
    let look_up = LookUp::start(&near.ctx, address, b"which?").unwrap();
    let query = service.accept(WAIT_LIMIT).unwrap();
    assert!(query.private_data().starts_with(b"which?\0") && query.private_data().len() == 180);
    assert_eq!(query.peer().ip(), near.ctx.ip());
    query.answer(&far.qp, QKEY, b"this").unwrap();
    let found = look_up.wait(WAIT_LIMIT).unwrap();
    assert_eq!(
        (found.qpn, found.qkey, &found.private_data[..5]),
        (far.qp.qpn(), QKEY, &b"this\0"[..])
    );
    near.run(SendRequest::send(1, SendData::inline(b"datagram")).to(found.target()));
    assert_eq!(far.end(), (0, WcStatus::Success));
}

#[test]
fn look_up_without_service_is_refused() {
    let (near, far) = nodes();
    let error = LookUp::start(&near.ctx, SocketAddr::new(far.ctx.ip(), 1), b"").unwrap();
    let error = error.wait(WAIT_LIMIT).unwrap_err();
    let is_refused = matches!(error, Error::NotResolved { status: SidrStatus::NO_SERVICE, .. });
    assert!(is_refused, "{error}");
    let service = ServiceListener::bind(&far.ctx, "0.0.0.0:0".parse().unwrap()).unwrap();
    let address = SocketAddr::new(far.ctx.ip(), service.local_addr().port());
    let look_up = LookUp::start(&near.ctx, address, b"").unwrap();
    service.accept(WAIT_LIMIT).unwrap().reject(b"no").unwrap();
    let error = look_up.wait(WAIT_LIMIT).unwrap_err();
    let is_refused = matches!(error, Error::NotResolved { status: SidrStatus::REJECTED, .. });
    assert!(is_refused, "{error}");
}
