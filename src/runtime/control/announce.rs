//! Announcement of new devices to programs that capture all devices of the user, so that a capture has the first packet.
//!
//! Such a program listens at `softroce/capture/USER/SLOT`, an abstract Unix socket. A device that opens connects to each
//! slot, sends the name of its control socket, and waits until the program has begun to capture it and ends the
//! connection, for a limited time. Without such a program, that is a failing system call for each slot.

use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use super::name::SocketName;
use crate::port::shm::is_same_user;
use crate::runtime::clock;
use crate::sys::{self, sleep_on};

/// Number of programs of a user that may listen at a time.
const SLOTS: u32 = 4;

/// Maximum number of devices that wait for a program.
const LISTEN_BACKLOG: i32 = 64;

/// Longest wait of a device for all programs together.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_millis(100);

/// Longest wait of a program for the name of a device, which follows at once.
const NAME_TIMEOUT: Duration = Duration::from_millis(50);

/// Maximum length of a name with its line feed.
const MAX_NAME_BYTES: u64 = 128;

fn socket() -> io::Result<Socket> {
    Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)
}

fn address(slot: u32) -> io::Result<SockAddr> {
    SockAddr::unix(format!("\0softroce/capture/{}/{slot}", sys::user()))
}

/// Checks that the other end of a connection belongs to the user of this process.
fn check_user(connection: &Socket) -> io::Result<()> {
    match is_same_user(sys::user(), sys::user_of_peer(connection.as_fd())?) {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Announces a device, and waits until each program that listens captures it.
pub(super) fn announce(name: SocketName) {
    let until = clock::now() + ANNOUNCE_TIMEOUT;
    let told: Vec<_> = (0..SLOTS).filter_map(|slot| tell(slot, name).ok()).collect();
    for connection in told {
        // The end of the connection makes it readable. A program that does not reply loses the first packets.
        let _ = sleep_on(&[connection.as_raw_fd()], Some(until - clock::now()));
    }
}

fn tell(slot: u32, name: SocketName) -> io::Result<Socket> {
    let connection = socket()?;
    connection.connect(&address(slot)?)?;
    check_user(&connection)?;
    connection.send_with_flags(format!("{name}\n").as_bytes(), libc::MSG_NOSIGNAL)?;
    Ok(connection)
}

/// Receives announcements of the devices that programs of this user open.
#[derive(Debug)]
pub struct NewDevices(Socket);

/// A device that waits until this is dropped, for a limited time.
#[derive(Debug)]
pub struct NewDevice {
    /// The name of its control socket.
    pub name: SocketName,
    _connection: UnixStream,
}

impl NewDevices {
    /// Listens for devices.
    ///
    /// # Errors
    ///
    /// Four programs of this user listen already, or the process has no more descriptors.
    pub fn listen() -> io::Result<Self> {
        let mut taken = io::Error::from(io::ErrorKind::AddrInUse);
        for slot in 0..SLOTS {
            let listener = socket()?;
            match listener.bind(&address(slot)?) {
                Ok(()) => {
                    listener.listen(LISTEN_BACKLOG)?;
                    return Ok(Self(listener));
                }
                Err(error) => taken = error,
            }
        }
        Err(taken)
    }

    /// Returns the next device that waits.
    pub fn accept(&self) -> Option<NewDevice> {
        // A connection without a valid name is dropped.
        (0..LISTEN_BACKLOG).find_map(|_| match self.0.accept() {
            Ok((connection, _)) => receive(connection).ok().flatten().map(Some),
            Err(_) => Some(None),
        })?
    }
}

fn receive(connection: Socket) -> io::Result<Option<NewDevice>> {
    check_user(&connection)?;
    connection.set_read_timeout(Some(NAME_TIMEOUT))?;
    let connection = UnixStream::from(connection);
    let mut name = String::new();
    BufReader::new((&connection).take(MAX_NAME_BYTES)).read_line(&mut name)?;
    let name = name.trim_end().parse().ok();
    Ok(name.map(|name| NewDevice { name, _connection: connection }))
}

impl AsFd for NewDevices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
