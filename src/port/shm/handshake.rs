//! Handshake of two ports of one machine.
//!
//! A receiver listens at an abstract Unix socket, whose name belongs to the network namespace, as the address does. A
//! sender creates a ring, connects, and sends a hello with the ring's descriptor:
//!
//! ```text
//!  0                     16         32
//!  | softroce shm 3, 0 … | address  |      the sender's, an IPv4 address mapped to IPv6
//! ```
//!
//! The sender waits for no response: the ring has bursts before the receiver reads the hello. The connection stays
//! open. A byte on it wakes a sleeping receiver, and its end tells each process that the other has ended.
//!
//! Both check the user of the other process, and accept only their own: the sender of a ring could forge source
//! addresses. Users that the kernel does not distinguish ([`user`]) are rejected.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsFd;

use socket2::{Domain, SockAddr, Socket, Type};

use super::ring::SEGMENT_BYTES;
use super::user;
use crate::mem::Segment;
use crate::port::shared::name_lease::socket_name;
use crate::sys;

/// First bytes of a hello: the version of the shared format.
const MAGIC: [u8; 16] = *b"softroce shm 3\0\0";

/// Last part of the name at an address.
pub(super) const NAME: &str = "shm";

/// Maximum number of connections that wait to be accepted.
const LISTEN_BACKLOG: i32 = 128;

/// Opens an unnamed socket.
fn socket() -> io::Result<Socket> {
    Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)
}

/// Returns the name at an address; an abstract name begins with a zero.
fn name(ip: IpAddr) -> io::Result<SockAddr> {
    SockAddr::unix(format!("\0{}", socket_name(ip, NAME)))
}

/// Connects to the listener at an address, without a hello.
pub(super) fn connect(at: IpAddr) -> io::Result<Socket> {
    let connection = socket()?;
    connection.connect(&name(at)?)?;
    Ok(connection)
}

/// Rejects a connection from a peer of another user.
fn check_user(user: u32, connection: &Socket) -> io::Result<()> {
    match user::is_same(user, sys::user_of_peer(connection.as_fd())?) {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Listens for senders to an address.
pub(super) fn listen(at: IpAddr) -> io::Result<Socket> {
    let listener = socket()?;
    listener.bind(&name(at)?)?;
    listener.listen(LISTEN_BACKLOG)?;
    Ok(listener)
}

/// Returns whether a socket of this user listens at an address.
pub(super) fn is_listened_at(at: IpAddr) -> bool {
    connect(at).is_ok_and(|connection| check_user(sys::user(), &connection).is_ok())
}

/// Binds the name at an address without listening, as another program may.
#[cfg(test)]
pub(super) fn squat(at: IpAddr) -> Socket {
    let socket = socket().unwrap();
    socket.bind(&name(at).unwrap()).unwrap();
    socket
}

/// Accepts a connection; `None` if its peer belongs to another user.
pub(super) fn accept(listener: &Socket) -> io::Result<Option<Socket>> {
    let (connection, _) = listener.accept()?;
    connection.set_nonblocking(true)?;
    Ok(check_user(sys::user(), &connection).is_ok().then_some(connection))
}

/// Connects to the receiver at an address, with a new ring.
///
/// # Errors
///
/// No port of this user listens there.
pub(super) fn connect_with_ring(from: IpAddr, to: IpAddr) -> io::Result<(Socket, Segment)> {
    let connection = connect(to)?;
    check_user(sys::user(), &connection)?;
    let (segment, descriptor) = Segment::create(SEGMENT_BYTES)?;
    let hello = [MAGIC, mapped(from).octets()].concat();
    let sent = sys::send_descriptor(connection.as_fd(), &hello, descriptor.as_fd())?;
    if sent < hello.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok((connection, segment))
}

/// Reads the hello of a sender. Returns its address and the ring.
///
/// # Errors
///
/// `WouldBlock` if there is no hello yet; any other if it is invalid.
pub(super) fn read_hello(connection: &Socket) -> io::Result<(IpAddr, Segment)> {
    let mut hello = [0; 32];
    let (len, descriptor) = sys::receive_descriptor(connection.as_fd(), &mut hello)?;
    let from = hello.strip_prefix(&MAGIC).filter(|_| len == hello.len());
    let from = from.and_then(|from| <[u8; 16]>::try_from(from).ok());
    let (Some(from), Some(descriptor)) = (from, descriptor) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let segment = Segment::open(descriptor, SEGMENT_BYTES)?;
    Ok((Ipv6Addr::from(from).to_canonical(), segment))
}

fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use super::super::super::udp::tests::config;
    use super::*;
    use crate::port::wait_readable;

    #[test]
    fn hello_has_the_source_address_and_a_ring() {
        let (here, there) = (config().ip, config().ip);
        let listener = listen(there).unwrap();
        let (_calling, ours) = connect_with_ring(here, there).unwrap();
        let called = accept(&listener).unwrap().unwrap();
        let (from, theirs) = read_hello(&called).unwrap();
        assert_eq!(from, here);
        ours.write(5000, b"shared").unwrap();
        let mut seen = [0; 6];
        theirs.read(5000, &mut seen).unwrap();
        assert_eq!(&seen, b"shared");
        assert_eq!(
            read_hello(&called).unwrap_err().kind(),
            io::ErrorKind::WouldBlock,
            "there is one"
        );
    }

    #[test]
    fn connection_without_listener_fails() {
        let (here, there) = (config().ip, config().ip);
        assert_eq!(
            connect_with_ring(here, there).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        let listener = listen(there).unwrap();
        assert_eq!(listen(there).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert_eq!(
            connect_with_ring(here, there).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
    }

    #[test]
    fn connection_does_not_wait_for_accept() {
        let (here, there) = (config().ip, config().ip);
        let _listener = listen(there).unwrap();
        let mut calls = Vec::new();
        let error = loop {
            match connect_with_ring(here, there) {
                Ok(called) => calls.push(called),
                Err(error) => break error,
            }
            assert!(calls.len() <= 1000, "for ever more");
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn connection_of_another_user_is_rejected() {
        let (ours, theirs) = Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
        check_user(sys::user(), &ours).unwrap();
        let refused = check_user(sys::user() + 1, &theirs).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }

    /// Set for [`one_of_two_users`], to its role and the address.
    const PART: &str = "SOFTROCE_TEST_PART";

    /// Longest time that a process may take.
    const MAX_PROCESS_TIME: Duration = Duration::from_secs(20);

    /// Listens or connects, in a user namespace in which neither of the users has a number.
    #[test]
    #[ignore = "played by unmapped_users_do_not_connect"]
    fn one_of_two_users() {
        let part = env::var(PART).unwrap_or_else(|_| "none".into());
        match part.split_once(' ') {
            Some(("listens", ip)) => {
                let listener = listen(ip.parse().unwrap()).unwrap();
                println!("\nuser {}", sys::user());
                assert!(wait_readable(&[listener.as_fd()], Some(MAX_PROCESS_TIME)).unwrap());
                println!("\nlets in {}", accept(&listener).unwrap().is_some());
                // The peer checks this end until it is closed.
                io::stdin().read_to_end(&mut Vec::new()).unwrap();
            }
            Some(("calls", ip)) => {
                println!("\nuser {}", sys::user());
                let ip = ip.parse().unwrap();
                // A connection from a program that does not check the listener.
                drop(connect(ip).unwrap());
                let called = connect_with_ring(ip, ip).map(drop).map_err(|error| error.kind());
                println!("\ncalled {called:?}");
            }
            // Runs of all ignored tests come here too.
            _ => assert_eq!(part, "none"),
        }
    }

    /// Starts a process with a role, in the user namespace of another process, as the user that `setpriv` selects.
    fn start(part: &str, setpriv: &[&str], namespace_of: u32) -> Child {
        let mut command = Command::new("setpriv");
        command.args(setpriv).args(["nsenter", "--preserve-credentials", "-U", "-t"]);
        command.arg(namespace_of.to_string()).arg(env::current_exe().unwrap());
        command.args(["--exact", "--ignored", "--nocapture"]);
        command.arg("port::shm::handshake::tests::one_of_two_users").env(PART, part);
        spawn(&mut command)
    }

    fn spawn(command: &mut Command) -> Child {
        let _alone = sys::PROCESS_START.write().unwrap();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    fn line(lines: &mut impl BufRead, key: &str) -> String {
        lines.lines().find_map(|line| Some(line.unwrap().strip_prefix(key)?.to_owned())).unwrap()
    }

    /// Root and another user, both with the overflow uid.
    #[test]
    #[ignore = "needs root, and makes a user namespace"]
    fn unmapped_users_do_not_connect() {
        const OTHER: [&str; 3] = ["--reuid=1234", "--regid=1234", "--clear-groups"];
        let mut namespace = Command::new("setpriv");
        namespace.args(OTHER).args(["unshare", "-U", "bash", "-c", "echo here; read"]);
        let mut namespace = spawn(&mut namespace);
        let mut said = BufReader::new(namespace.stdout.take().unwrap());
        line(&mut said, "here");
        let ip = config().ip;
        let mut listens = start(&format!("listens {ip}"), &OTHER, namespace.id());
        let mut listener = BufReader::new(listens.stdout.take().unwrap());
        assert_eq!(line(&mut listener, "user "), "65534");
        let mut calls = start(&format!("calls {ip}"), &["--reuid=0"], namespace.id());
        let mut caller = BufReader::new(calls.stdout.take().unwrap());
        assert_eq!(line(&mut caller, "user "), "65534");
        assert_eq!(line(&mut caller, "called "), "Err(PermissionDenied)");
        assert!(calls.wait().unwrap().success());
        assert_eq!(line(&mut listener, "lets in "), "false");
        drop(listens.stdin.take());
        assert!(listens.wait().unwrap().success());
        namespace.stdin.take().unwrap().write_all(b"\n").unwrap();
        namespace.wait().unwrap();
    }
}
