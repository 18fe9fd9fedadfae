//! Senders with rings to this port.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Shutdown};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::Socket;

use super::handshake;
use super::ring::{Broken, BurstHeader, Reader};
use crate::net::{MAX_BURST_BYTES, RxBuffer, RxMeta};
use crate::port::PortCounters;
use crate::port::shared::recv_batch::{MAX_BYTES_PER_RECV, MAX_DATAGRAMS_PER_RECV};
use crate::sys::{DatagramMemory, OwnDescriptor, Readiness};

/// Maximum number of senders with a ring; others send by UDP.
pub(super) const MAX_SENDERS: usize = 64;

/// Maximum number of bursts taken from a ring in one call.
const MAX_BURSTS_PER_RECV: usize = 8;

/// Number of calls in which UDP datagrams go before the first burst of a new sender.
const MAX_CALLS_UDP_FIRST: u32 = 64;

/// The port checks its descriptors, and tries to listen if it has no listener, in one of this many polls.
const POLLS_PER_CHECK: u32 = 64;

/// Token of the listener.
const LISTENER_TOKEN: u64 = u64::MAX;

/// Senders with rings to one address.
#[derive(Debug)]
pub(super) struct Incoming {
    ip: IpAddr,
    /// Present while there is room for another sender. A sender that finds no listener sends by UDP.
    listener: Option<OwnDescriptor<Socket>>,
    /// Another program had the name when the port was opened.
    is_name_taken: bool,
    /// Epoll instance of the listener and the connections.
    readiness: Readiness,
    senders: Vec<Sender>,
    /// Number of calls of [`poll_senders`](Self::poll_senders), wrapping.
    polls: u32,
    /// Token of the next sender.
    next: u64,
    /// Index of the sender to receive from next.
    turn: usize,
    /// Number of calls in which UDP datagrams go first, because of a new sender.
    udp_first_calls: u32,
    /// Last burst taken.
    buffer: DatagramMemory,
}

/// A sender, from its connection on.
#[derive(Debug)]
struct Sender {
    token: u64,
    /// Until it ends; bursts in the ring are still received.
    connection: Option<OwnDescriptor<Socket>>,
    /// Present after the handshake.
    ring: Option<Ring>,
}

#[derive(Debug)]
struct Ring {
    from: IpAddr,
    reader: Reader,
}

impl Incoming {
    /// Listens for senders to `ip`. There is no listener if a program of another user has the name for it.
    pub(super) fn open(ip: IpAddr) -> io::Result<Self> {
        let readiness = Readiness::new()?;
        let listener = match listen(ip, &readiness) {
            Ok(listener) => Some(listener),
            // Senders reject the owner of the name and send by UDP.
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && !handshake::is_listened_at(ip) =>
            {
                None
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            ip,
            is_name_taken: listener.is_none(),
            listener,
            readiness,
            senders: Vec::new(),
            polls: 0,
            next: 0,
            turn: 0,
            udp_first_calls: 0,
            buffer: DatagramMemory::new(MAX_BURST_BYTES),
        })
    }

    /// Returns whether another program had the name when the port was opened.
    pub(super) fn is_name_taken(&self) -> bool {
        self.is_name_taken
    }

    /// Returns whether no sender is connected.
    pub(super) fn is_empty(&self) -> bool {
        self.senders.is_empty()
    }

    /// Returns the number of connected senders.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.senders.len()
    }

    /// Returns whether UDP datagrams go first, because a new sender may have sent some before its first burst. That is
    /// limited, as other senders may send by UDP without end.
    pub(super) fn is_udp_first(&mut self) -> bool {
        let left = self.udp_first_calls;
        self.udp_first_calls = left.saturating_sub(1);
        left > 0
    }

    /// Ends the precedence of UDP.
    pub(super) fn end_udp_first(&mut self) {
        self.udp_first_calls = 0;
    }

    /// Returns a descriptor that is readable when a sender connects, disconnects, or wakes this port.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }

    /// Accepts and removes senders, and consumes wake-ups.
    ///
    /// # Errors
    ///
    /// Other code of this process has closed the epoll instance.
    pub(super) fn poll_senders(&mut self, counters: &mut PortCounters) -> io::Result<()> {
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(POLLS_PER_CHECK) {
            self.remove_lost();
            self.listen_again();
        }
        for token in self.readiness.readable()? {
            if token == LISTENER_TOKEN {
                self.accept(counters);
            } else if let Some(at) = self.senders.iter().position(|sender| sender.token == token) {
                self.read_connection(at, counters);
            }
        }
        Ok(())
    }

    fn accept(&mut self, counters: &mut PortCounters) {
        let connection = match self.listener.as_deref().map(handshake::accept) {
            Some(Ok(Some(connection))) => OwnDescriptor::new(connection),
            Some(Err(error)) if is_out_of_resources(&error) => {
                counters.shm_refused += 1;
                return self.stop_listening();
            }
            // The peer has closed the connection, or belongs to another user.
            _ => return,
        };
        let token = self.next;
        // The peer notices that the connection has ended.
        if self.readiness.add(connection.as_fd(), token).is_err() {
            counters.shm_refused += 1;
            return;
        }
        self.next += 1;
        self.senders.push(Sender { token, connection: Some(connection), ring: None });
        if self.senders.len() == MAX_SENDERS {
            self.stop_listening();
        }
        self.read_connection(self.senders.len() - 1, counters);
    }

    fn stop_listening(&mut self) {
        if let Some(listener) = self.listener.take() {
            close(&self.readiness, &listener);
        }
    }

    /// Removes the listener and the connections that other code of this process has closed. The senders notice that.
    fn remove_lost(&mut self) {
        self.listener.take_if(|listener| !listener.is_own());
        for at in (0..self.senders.len()).rev() {
            self.senders[at].connection.take_if(|connection| !connection.is_own());
            self.remove_if_ended(at);
        }
    }

    /// Listens again if there is room for a sender but no listener: the name was taken, the process was out of
    /// descriptors, or other code has closed the listener.
    fn listen_again(&mut self) {
        if self.listener.is_none() && self.senders.len() < MAX_SENDERS {
            self.listener = listen(self.ip, &self.readiness).ok();
        }
    }

    /// Reads the connection of a sender.
    fn read_connection(&mut self, at: usize, counters: &mut PortCounters) {
        let Some(sender) = self.senders.get_mut(at) else { return };
        match sender.read_connection() {
            Ok(true) => self.udp_first_calls = MAX_CALLS_UDP_FIRST,
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                counters.shm_refused += u64::from(is_out_of_resources(&error));
                self.disconnect(at);
            }
        }
        self.remove_if_ended(at);
    }

    /// Closes the connection of a sender.
    fn disconnect(&mut self, at: usize) {
        let connection = self.senders.get_mut(at).and_then(|sender| sender.connection.take());
        if let Some(connection) = connection {
            close(&self.readiness, &connection);
        }
    }

    /// Receives a batch of bursts from the senders in round-robin order, and returns the number of buffers.
    #[inline]
    pub(super) fn receive(
        &mut self,
        counters: &mut PortCounters,
        sink: &mut dyn FnMut(RxBuffer<'_>),
    ) -> usize {
        for _ in 0..self.senders.len() {
            let at = self.turn % self.senders.len().max(1);
            self.turn = at + 1;
            let taken = self.take_batch(at, counters, sink);
            if taken > 0 {
                return taken;
            }
            self.remove_if_ended(at);
        }
        0
    }

    #[inline]
    fn take_batch(
        &mut self,
        at: usize,
        counters: &mut PortCounters,
        sink: &mut dyn FnMut(RxBuffer<'_>),
    ) -> usize {
        let Some(sender) = self.senders.get_mut(at) else { return 0 };
        let Some(Ring { from, reader }) = &mut sender.ring else { return 0 };
        let (mut taken, mut bytes, mut datagrams) = (0, 0, 0);
        while taken < MAX_BURSTS_PER_RECV
            && bytes < MAX_BYTES_PER_RECV
            && datagrams < MAX_DATAGRAMS_PER_RECV
        {
            let head = match reader.take(&mut self.buffer) {
                Ok(Some(head)) => head,
                Ok(None) => break,
                Err(Broken) => {
                    sender.ring = None;
                    self.disconnect(at);
                    break;
                }
            };
            let BurstHeader { len, segment_len, source_port, traffic_class, hop_limit } = head;
            let meta = RxMeta {
                source: (*from, source_port).into(),
                destination: self.ip,
                traffic_class,
                hop_limit,
                ipv4: None,
                may_omit_icrc: true,
            };
            let data = self.buffer.get(..len.into()).unwrap_or_default();
            let buffer = RxBuffer { data, segment_len: segment_len.into(), meta };
            counters.received(&buffer);
            counters.shm_rx_buffers += 1;
            taken += 1;
            bytes += data.len();
            datagrams += buffer.segments().len();
            sink(buffer);
        }
        taken
    }

    /// Removes a sender that has disconnected and left no bursts.
    fn remove_if_ended(&mut self, at: usize) {
        let ended = self.senders.get(at).is_some_and(|sender| {
            let is_done = |ring: &Ring| ring.reader.is_empty();
            sender.connection.is_none() && sender.ring.as_ref().is_none_or(is_done)
        });
        if ended {
            self.senders.swap_remove(at);
            if self.listener.is_none() {
                self.listener = listen(self.ip, &self.readiness).ok();
            }
        }
    }

    /// Requests a wake-up from all senders. Returns false if a burst is there already.
    pub(super) fn arm(&mut self) -> bool {
        let rings = self.senders.iter().filter_map(|sender| sender.ring.as_ref());
        // All of them, even if one has a burst. A broken ring is detected when bursts are taken.
        rings.filter(|ring| ring.reader.arm() != Ok(true)).count() == 0
    }
}

/// Returns whether a call failed for lack of descriptors or memory. A connection that cannot be accepted stays in the
/// queue and keeps the listener readable, so that a waiting thread would never sleep.
fn is_out_of_resources(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

fn listen(ip: IpAddr, readiness: &Readiness) -> io::Result<OwnDescriptor<Socket>> {
    let listener = OwnDescriptor::new(handshake::listen(ip)?);
    readiness.add(listener.as_fd(), LISTENER_TOKEN)?;
    Ok(listener)
}

/// Closes a socket for all processes. A forked process may have it too: it would stay readable for ever, and the peer
/// would not notice the end.
fn close(readiness: &Readiness, socket: &OwnDescriptor<Socket>) {
    if !socket.is_own() {
        return;
    }
    // Both calls fail only if their effect exists already.
    let _ = readiness.remove(socket.as_fd());
    let _ = socket.shutdown(Shutdown::Both);
}

impl Sender {
    /// Reads the connection. Returns true for a handshake.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no data; any other if the connection has ended, or must.
    fn read_connection(&mut self) -> io::Result<bool> {
        let Some(connection) = &self.connection else { return Ok(false) };
        if self.ring.is_none() {
            let (from, segment) = handshake::read_hello(connection)?;
            self.ring = Some(Ring { from, reader: Reader::new(segment) });
            return Ok(true);
        }
        // One byte for each wake-up.
        match connection.recv(&mut [MaybeUninit::uninit(); 64])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;
    use crate::port::udp::tests::config;
    use crate::port::wait_readable;
    use crate::sys::PROCESS_START;

    fn is_readable(incoming: &Incoming) -> bool {
        wait_readable(&[incoming.descriptor()], Some(Duration::ZERO)).unwrap()
    }

    /// Polls the senders, and returns the number of refused ones.
    fn poll(incoming: &mut Incoming) -> u64 {
        let mut counters = PortCounters::default();
        incoming.poll_senders(&mut counters).unwrap();
        counters.shm_refused
    }

    /// Polls often enough to listen again.
    fn look_often(incoming: &mut Incoming) {
        for _ in 0..POLLS_PER_CHECK {
            poll(incoming);
        }
    }

    #[test]
    fn name_that_was_taken_is_listened_at_when_it_is_free() {
        let _no_new_process = PROCESS_START.read().unwrap();
        let (here, there) = (config().ip, config().ip);
        let squatter = handshake::squat(there);
        let mut incoming = Incoming::open(there).unwrap();
        look_often(&mut incoming);
        assert!(incoming.is_name_taken() && incoming.listener.is_none());
        // A listener of this user is an error: senders would take it for the port.
        let other = config().ip;
        let _listener = handshake::listen(other).unwrap();
        let refused = Incoming::open(other).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(squatter);
        look_often(&mut incoming);
        let _called = handshake::connect_with_ring(here, there).unwrap();
        poll(&mut incoming);
        assert_eq!(incoming.len(), 1);
    }

    /// Set for [`without_descriptors`] by the test that runs it in a process of its own.
    const ALONE: &str = "SOFTROCE_TEST_WITHOUT_DESCRIPTORS";

    #[test]
    #[ignore = "played by listener_is_closed_while_there_is_no_descriptor_for_a_connection"]
    fn without_descriptors() {
        // Runs of all ignored tests come here too. Processes that other tests start would keep a connection open.
        if env::var_os(ALONE).is_some() {
            miss_a_descriptor();
        }
    }

    /// A connection arrives while the process has no descriptor for it.
    fn miss_a_descriptor() {
        let there = config().ip;
        let mut incoming = Incoming::open(there).unwrap();
        let called = handshake::connect(there).unwrap();
        let held: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        assert!(is_readable(&incoming), "somebody has come");
        assert_eq!(poll(&mut incoming), 1);
        assert_eq!((is_readable(&incoming), incoming.len()), (false, 0));
        drop((held, called));
        look_often(&mut incoming);
        let _called = handshake::connect(there).unwrap();
        assert_eq!(poll(&mut incoming), 0);
        assert_eq!(incoming.len(), 1);
        miss_a_descriptor_for_a_ring();
        println!("\nhas seen everything");
    }

    /// A ring arrives while the process has a descriptor for the connection only.
    fn miss_a_descriptor_for_a_ring() {
        let (here, there) = (config().ip, config().ip);
        let mut incoming = Incoming::open(there).unwrap();
        let (refused, _ring) = handshake::connect_with_ring(here, there).unwrap();
        let mut held: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        held.pop();
        assert_eq!(poll(&mut incoming), 1);
        assert_eq!((is_readable(&incoming), incoming.len()), (false, 0));
        assert_eq!(refused.recv(&mut [MaybeUninit::uninit()]).unwrap(), 0, "it has ended");
        held.clear();
        let _called = handshake::connect_with_ring(here, there).unwrap();
        assert_eq!(poll(&mut incoming), 0);
        assert!(incoming.senders[0].ring.is_some());
    }

    #[test]
    fn listener_is_closed_while_there_is_no_descriptor_for_a_connection() {
        let mut bash = Command::new("bash");
        bash.args(["-c", "ulimit -n 32; exec \"$0\" \"$@\""]).arg(env::current_exe().unwrap());
        bash.args(["--exact", "--ignored", "--nocapture"]);
        bash.arg("port::shm::incoming::tests::without_descriptors").env(ALONE, "yes");
        bash.stdout(Stdio::piped());
        let starting = PROCESS_START.write().unwrap();
        let bash = bash.spawn().unwrap();
        drop(starting);
        let output = bash.wait_with_output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && out.contains("has seen everything"), "{out}");
    }

    #[test]
    fn ended_sender_is_removed_although_another_process_has_its_connection() {
        // One that another test starts would have the sender's end, until it executes its program.
        let _no_new_process = PROCESS_START.read().unwrap();
        let (here, there) = (config().ip, config().ip);
        let mut incoming = Incoming::open(there).unwrap();
        let called = handshake::connect_with_ring(here, there).unwrap();
        poll(&mut incoming);
        // A forked process would have it too.
        let _held = incoming.senders[0].connection.as_ref().unwrap().try_clone().unwrap();
        drop(called);
        poll(&mut incoming);
        assert!(incoming.is_empty());
        assert!(!wait_readable(&[incoming.descriptor()], Some(Duration::ZERO)).unwrap());
    }

    #[test]
    fn connections_with_the_number_of_another_file_are_neither_read_nor_closed() {
        let (here, there) = (config().ip, config().ip);
        let mut incoming = Incoming::open(there).unwrap();
        let _called = handshake::connect_with_ring(here, there).unwrap();
        poll(&mut incoming);
        let files = [(); 2].map(|()| UnixStream::pair().unwrap());
        let lost = [0, 1].map(|index| {
            let same = files[index].0.try_clone().unwrap();
            let own = incoming.senders[0].connection.as_ref().unwrap();
            OwnDescriptor::replaced_by(Socket::from(same), own.as_fd())
        });
        let numbers = lost.each_ref().map(|lost| lost.as_raw_fd());
        let [connection, listener] = lost;
        incoming.senders[0].connection = Some(connection);
        incoming.listener = Some(listener);
        look_often(&mut incoming);
        assert!(incoming.is_empty());
        assert!(incoming.listener.as_ref().is_none_or(OwnDescriptor::is_own));
        for ((mut file, mut program), number) in files.into_iter().zip(numbers) {
            assert!(Path::new("/proc/self/fd").join(number.to_string()).exists());
            program.write_all(b"data").unwrap();
            file.read_exact(&mut [0; 4]).unwrap();
        }
    }
}
