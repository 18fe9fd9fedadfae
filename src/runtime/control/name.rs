//! Names of control sockets, and the client's side of a connection.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::str::FromStr;

use socket2::{Domain, SockAddr, Socket, Type};
use thiserror::Error;

use crate::port::shm::is_same_user;
use crate::sys;

/// The name of a control socket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SocketName {
    /// The number of the process, in its own namespace.
    pub pid: u32,
    /// The device's first address.
    pub ip: IpAddr,
    /// Number of control sockets that the process has opened before.
    pub number: u32,
}

impl fmt::Display for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "softroce/{}/control/{}.{}", self.ip, self.pid, self.number)
    }
}

impl FromStr for SocketName {
    type Err = ();

    /// Parses the name. There is no error to report: other programs choose names too.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (ip, process) = text
            .strip_prefix("softroce/")
            .and_then(|rest| rest.split_once("/control/"))
            .ok_or(())?;
        let (pid, number) = process.split_once('.').ok_or(())?;
        let number_of = |text: &str| text.parse().map_err(|_| ());
        Ok(Self {
            pid: number_of(pid)?,
            ip: ip.parse().map_err(|_| ())?,
            number: number_of(number)?,
        })
    }
}

impl SocketName {
    /// Returns the address of the socket; an abstract name begins with a zero.
    pub(super) fn address(&self) -> io::Result<SockAddr> {
        SockAddr::unix(format!("\0{self}"))
    }
}

/// Returns the names of all control sockets of this network namespace, those of other users included, in order.
///
/// # Errors
///
/// `/proc/net/unix` cannot be read.
pub fn sockets() -> io::Result<Vec<SocketName>> {
    let text = String::from_utf8_lossy(&fs::read("/proc/net/unix")?).into_owned();
    Ok(text.lines().filter_map(listening_name).collect::<BTreeSet<_>>().into_iter().collect())
}

/// Returns the name in a row of `/proc/net/unix` if it is that of a control socket that listens.
fn listening_name(row: &str) -> Option<SocketName> {
    /// The flags of a socket that listens (`__SO_ACCEPTCON`).
    const LISTENS: &str = "00010000";
    let mut columns = row.split_ascii_whitespace();
    let flags = columns.nth(3)?;
    let name = columns.nth(3)?.strip_prefix('@')?;
    name.parse().ok().filter(|_| flags == LISTENS)
}

/// A connection to the control socket of a device.
#[derive(Debug)]
pub struct Client {
    /// The connection. It does not wait (`O_NONBLOCK`) until the program changes that.
    pub connection: UnixStream,
    /// The number of the process in this namespace; 0 if it has none here.
    pub pid: u32,
}

/// Error for a control socket that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The system refuses: the process has ended, or too many clients wait for it.
    #[error("the device at {0} cannot be reached: {1}", name.ip, source)]
    Os {
        /// The socket.
        name: SocketName,
        /// Reason.
        source: io::Error,
    },
    /// The socket belongs to another user.
    #[error("the device at {0} belongs to user {found}, expected user {own}", name.ip)]
    OtherUser {
        /// The socket.
        name: SocketName,
        /// User that opened it.
        found: u32,
        /// User of this process.
        own: u32,
    },
}

impl Client {
    /// Connects to a control socket.
    ///
    /// # Errors
    ///
    /// [`ConnectError`].
    pub fn connect(name: SocketName) -> Result<Self, ConnectError> {
        let os = |source| ConnectError::Os { name, source };
        let kind = Type::STREAM.nonblocking().cloexec();
        let connection = Socket::new(Domain::UNIX, kind, None).map_err(os)?;
        connection.connect(&name.address().map_err(os)?).map_err(os)?;
        let found = sys::user_of_peer(connection.as_fd()).map_err(os)?;
        let own = sys::user();
        if !is_same_user(own, found) {
            return Err(ConnectError::OtherUser { name, found, own });
        }
        let pid = sys::process_of_peer(connection.as_fd()).map_err(os)?;
        Ok(Self { connection: connection.into(), pid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Option<SocketName> {
        text.parse().ok()
    }

    #[test]
    fn name_is_parsed_as_it_was_written() {
        for ip in ["127.0.0.1", "fd00::1"] {
            let name = SocketName { pid: 1234, ip: ip.parse().unwrap(), number: 2 };
            assert_eq!(name.to_string(), format!("softroce/{ip}/control/1234.2"));
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        for other in ["softroce/127.0.0.1/shm", "softroce/x/control/1.2", "softroce/::1/control/1"]
        {
            assert_eq!(name(other), None, "{other}");
        }
    }

    #[test]
    fn only_listening_sockets_are_listed() {
        let row = |flags: &str, name: &str| {
            format!("0000000000000000: 00000002 00000000 {flags} 0001 01 12345 {name}")
        };
        let named = "@softroce/127.0.0.1/control/7.0";
        assert_eq!(listening_name(&row("00010000", named)).map(|name| name.pid), Some(7));
        for other in [
            row("00000000", named),
            row("00010000", "/tmp/socket"),
            row("00010000", ""),
            "Num       RefCount Protocol Flags    Type St Inode Path".into(),
            String::new(),
        ] {
            assert_eq!(listening_name(&other), None, "{other}");
        }
    }

    #[test]
    fn socket_of_a_process_that_has_ended_is_an_error() {
        let gone = SocketName { pid: u32::MAX, ip: [192, 0, 2, 1].into(), number: 0 };
        let error = Client::connect(gone).unwrap_err().to_string();
        assert!(error.starts_with("the device at 192.0.2.1 cannot be reached: "), "{error}");
    }
}
