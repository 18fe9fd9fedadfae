//! The device's side of control sockets: a listener for the device's thread, and a thread for each connection.

use std::env;
use std::io::{self, Read};
use std::mem;
use std::net::{IpAddr, Shutdown};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, RawFd};
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::announce::announce;
use super::buffer::{BufferSink, CaptureBuffer};
use super::json::Object;
use super::name::SocketName;
use super::record::RecordHeader;
use super::request::{CaptureFilter, MAX_REQUEST_BYTES, Request};
use super::status::{refusal, status, versioned};
use crate::port::shm::is_same_user;
use crate::runtime::clock;
use crate::runtime::core::CapturedPort;
use crate::runtime::listener::Listener;
use crate::runtime::shards::Shards;
use crate::sync::Mutex;
use crate::sys::{self, FileIdentity, sleep_on};

/// Maximum number of connections that wait to be accepted.
const LISTEN_BACKLOG: i32 = 16;

/// Maximum number of clients of a device at a time.
const MAX_SESSIONS: usize = 16;

/// Stack of the thread of a connection.
const STACK_BYTES: usize = 256 << 10;

/// Interval at which a capture sends what has arrived.
const SEND_INTERVAL: Duration = Duration::from_millis(10);

/// Interval at which a blocked write looks for the end of the device.
const WRITE_TIMEOUT: Duration = Duration::from_millis(50);

/// Longest wait for a client that does not read, and for the threads of connections, when the device is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(300);

/// Properties of a device that its clients get.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// The device's name.
    pub(crate) name: String,
    /// Its first address.
    pub(crate) ip: IpAddr,
    /// Name of its kind of port.
    pub(crate) via: &'static str,
}

/// The control socket of a device.
#[derive(Debug)]
pub(crate) struct ControlServer {
    about: About,
    name: SocketName,
    shards: Weak<Shards>,
    /// The listener; `None` only while it is dropped.
    listener: Option<Socket>,
    identity: FileIdentity,
    /// Other code has closed the listener's descriptor.
    is_lost: AtomicBool,
    is_closing: AtomicBool,
    sessions: Mutex<Vec<Session>>,
    next_capture: AtomicU64,
}

/// A connection.
#[derive(Debug)]
struct Session {
    connection: Arc<Socket>,
    thread: JoinHandle<()>,
}

impl ControlServer {
    /// Opens the control socket of a device; `None` for a program with privileges of its own.
    ///
    /// # Errors
    ///
    /// The process has no more descriptors, or a sandbox forbids the calls.
    pub(crate) fn open(about: About, shards: &Arc<Shards>) -> io::Result<Option<Arc<Self>>> {
        static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
        if sys::is_privileged() {
            return Ok(None);
        }
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = SocketName { pid: process::id(), ip: about.ip, number };
        let listener = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
        listener.bind(&name.address()?)?;
        listener.listen(LISTEN_BACKLOG)?;
        Ok(Some(Arc::new(Self {
            about,
            name,
            shards: Arc::downgrade(shards),
            identity: FileIdentity::of(listener.as_fd())?,
            listener: Some(listener),
            is_lost: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            sessions: Mutex::new(Vec::new()),
            next_capture: AtomicU64::new(0),
        })))
    }

    /// Waits until the programs that capture all devices capture this one, for a limited time.
    pub(crate) fn announce(&self) {
        announce(self.name);
    }

    /// Ends all captures with their last packets, and waits for the threads of all connections.
    pub(crate) fn close(&self) {
        for Session { thread, .. } in self.end_sessions() {
            // A session does not panic; its client would see the end of the connection.
            let _ = thread.join();
        }
    }

    /// Ends all captures with their last packets when the process ends. The wait for that is limited, because the
    /// calling thread may hold a lock.
    pub(crate) fn flush_at_exit(&self) {
        let sessions = self.end_sessions();
        let until = clock::now() + CLOSE_TIMEOUT;
        while sessions.iter().any(|session| !session.thread.is_finished()) && clock::now() < until {
            thread::yield_now();
        }
    }

    fn end_sessions(&self) -> Vec<Session> {
        self.is_closing.store(true, Ordering::Release);
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let sessions = mem::take(&mut *sessions);
        for session in &sessions {
            // Ends the wait for a request. A client that has gone has ended it already.
            let _ = session.connection.shutdown(Shutdown::Read);
        }
        sessions
    }

    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// Begins the session of a client. One that may not have it loses its connection.
    fn begin(self: &Arc<Self>, connection: Socket) -> io::Result<()> {
        let peer = sys::user_of_peer(connection.as_fd())?;
        if !is_same_user(sys::user(), peer) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        connection.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|session| !session.thread.is_finished());
        if self.is_closing() || sessions.len() >= MAX_SESSIONS {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let connection = Arc::new(connection);
        let (server, client) = (Arc::clone(self), Arc::clone(&connection));
        let builder = thread::Builder::new().name(format!("{}-control", self.about.name));
        let thread = builder.stack_size(STACK_BYTES).spawn(move || {
            // The client has gone, or sees the end of the connection.
            let _ = server.serve(&client);
            let _ = client.shutdown(Shutdown::Both);
        })?;
        sessions.push(Session { connection, thread });
        Ok(())
    }

    /// Answers requests until the client ends the connection.
    fn serve(&self, client: &Socket) -> io::Result<()> {
        while let Some(line) = read_line(client)? {
            let request = match line.parse() {
                Ok(request) => request,
                Err(error) => return self.reply(client, refusal(&format!("{error}"))),
            };
            if !sys::is_dumpable() {
                let reason = "the process does not permit that others trace it (PR_SET_DUMPABLE)";
                return self.reply(client, refusal(reason));
            }
            match request {
                Request::Status => {
                    let Some(shards) = self.shards.upgrade() else { return Ok(()) };
                    let status = status(self.about(), &shards);
                    self.reply(client, status.unwrap_or_else(|down| refusal(&down.to_string())))?;
                }
                Request::Capture(filter) => return self.capture(client, &filter),
            }
        }
        Ok(())
    }

    /// Returns an object with the properties of the device.
    fn about(&self) -> Object {
        let About { name, ip, via } = &self.about;
        versioned()
            .text("device", name)
            .text("ip", ip)
            .text("via", via)
            .raw("pid", process::id())
            .text("program", program())
    }

    fn reply(&self, client: &Socket, mut line: String) -> io::Result<()> {
        line.push('\n');
        self.send(client, line.as_bytes())
    }

    /// Sends packets until the client ends the connection or the device is closed.
    fn capture(&self, client: &Socket, filter: &CaptureFilter) -> io::Result<()> {
        let buffer = CaptureBuffer::new();
        let key = self.next_capture.fetch_add(1, Ordering::Relaxed);
        let each_port = |act: &dyn Fn(&mut CapturedPort)| {
            let shards = self.shards.upgrade();
            for shard in shards.iter().flat_map(|shards| shards.iter()) {
                // A failed device has no more packets.
                let _ = shard.with(|core, _| act(&mut core.port));
            }
        };
        each_port(&|port| {
            port.attach(key, Box::new(BufferSink::new(Arc::clone(&buffer), filter.clone())));
        });
        let result = self
            .reply(client, self.about().end())
            .and_then(|()| self.send_captured(client, &buffer));
        each_port(&|port| port.detach(key));
        result
    }

    fn send_captured(&self, client: &Socket, buffer: &CaptureBuffer) -> io::Result<()> {
        let mut records = CaptureBuffer::room();
        loop {
            // Before the records are taken: those of a closing device are the last.
            let is_closing = self.is_closing();
            buffer.take(&mut records);
            self.send(client, &records)?;
            if is_closing {
                return self.send(client, &end(buffer.take_dropped()).to_bytes());
            }
            sleep_on(&[client.as_raw_fd()], Some(SEND_INTERVAL))?;
            if !self.is_closing() && has_gone(client) {
                return Ok(());
            }
        }
    }

    /// Sends bytes. A client that does not read delays the close of the device for a limited time.
    fn send(&self, client: &Socket, mut bytes: &[u8]) -> io::Result<()> {
        let mut until = None;
        while !bytes.is_empty() {
            // Without a signal for a connection that has ended.
            match client.send_with_flags(bytes, libc::MSG_NOSIGNAL) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.is_closing() {
                        let now = clock::now();
                        if *until.get_or_insert(now + CLOSE_TIMEOUT) <= now {
                            return Err(error);
                        }
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether the listener's descriptor is still that of the listener.
    fn has_listener(&self) -> bool {
        let listener = self.listener.as_ref();
        listener.is_some_and(|found| FileIdentity::of(found.as_fd()).ok() == Some(self.identity))
    }
}

impl Listener for Arc<ControlServer> {
    fn descriptor(&self) -> Option<RawFd> {
        let listener = self.listener.as_ref().filter(|_| !self.is_lost.load(Ordering::Relaxed));
        listener.map(AsRawFd::as_raw_fd)
    }

    fn handle_ready(&self) {
        if !self.has_listener() {
            self.is_lost.store(true, Ordering::Relaxed);
            return;
        }
        for _ in 0..LISTEN_BACKLOG {
            let Some(Ok((connection, _))) = self.listener.as_ref().map(Socket::accept) else {
                return;
            };
            // A client that is refused sees the end of its connection.
            let _ = self.begin(connection);
        }
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        if !self.has_listener() {
            // The descriptor belongs to other code.
            let _ = self.listener.take().map(IntoRawFd::into_raw_fd);
        }
    }
}

/// Returns the record that ends a capture.
fn end(dropped: u32) -> RecordHeader {
    RecordHeader { time: Duration::ZERO, len: 0, original_len: 0, dropped, direction: None }
}

/// Whether a client has ended its connection. A capture expects no more requests.
fn has_gone(client: &Socket) -> bool {
    let mut byte = [mem::MaybeUninit::uninit()];
    match client.recv_with_flags(&mut byte, libc::MSG_DONTWAIT) {
        Ok(count) => count == 0,
        Err(error) => {
            !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        }
    }
}

/// Reads a line; `None` at the end of the connection. A longer line than a request is one that is invalid.
fn read_line(mut client: &Socket) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        match client.read(&mut byte) {
            Ok(0) => return Ok(None),
            Ok(_) if byte == *b"\n" => break,
            Ok(_) => line.extend(byte),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if line.len() > MAX_REQUEST_BYTES {
            break;
        }
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

/// Returns the name of the program that this process runs.
fn program() -> String {
    let words = env::args_os().next().unwrap_or_default();
    let name = Path::new(&words).file_name().unwrap_or(&words);
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::EventFd;

    #[test]
    fn descriptor_of_another_file_is_neither_accepted_from_nor_closed() {
        let foreign = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        let number = foreign.as_raw_fd();
        let own = EventFd::open().unwrap();
        let about = About { name: "softroce0".into(), ip: [127, 0, 0, 1].into(), via: "udp" };
        let server = Arc::new(ControlServer {
            about,
            name: SocketName { pid: 1, ip: [127, 0, 0, 1].into(), number: 0 },
            shards: Weak::new(),
            listener: Some(foreign),
            identity: FileIdentity::of(own.as_fd()).unwrap(),
            is_lost: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            sessions: Mutex::new(Vec::new()),
            next_capture: AtomicU64::new(0),
        });
        assert_eq!(server.descriptor(), Some(number));
        server.handle_ready();
        assert_eq!(server.descriptor(), None);
        drop(server);
        assert!(Path::new("/proc/self/fd").join(number.to_string()).exists());
    }
}
