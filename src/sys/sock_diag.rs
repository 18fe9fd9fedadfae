//! Requests to the kernel about the memory of UDP sockets: `sock_diag(7)`, as `ss -um` makes them.
//!
//! The kernel answers within the call that sends a request, so by then the answer has arrived or is lost. It repeats
//! the sequence number of its request; answers to earlier requests are discarded. After a failure the probe pauses, for
//! a second at most, and tries again. It stops for good only if the kernel lacks `sock_diag`.

use std::io::{self, Read, Write};
use std::mem;
use std::net::IpAddr;
use std::time::Duration;

use socket2::Socket;

use super::netlink::{self, ERROR, Message, attributes, u32_at};
use super::{OwnDescriptor, is_closed};

/// Pause after the first of several failures; it doubles with each.
const MIN_PAUSE: Duration = Duration::from_millis(1);

/// Longest pause after a failure.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of requests for one call of [`ask`](SockDiag::ask).
const MAX_REQUESTS: usize = 2;

/// Maximum number of system calls for one request.
const MAX_CALLS_PER_REQUEST: usize = 256;

/// Maximum number of bytes read of an answer; most are much shorter.
const MAX_ANSWER_BYTES: usize = 1024;

/// Memory that a socket receives into, in bytes as the kernel counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SocketMemory {
    /// Bytes in the receive queue.
    pub(crate) waiting: u64,
    /// Size of the receive buffer.
    pub(crate) buffer: u64,
    /// Kernel's unique identifier of the socket.
    pub(crate) cookie: u64,
}

/// Error for a request without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProbeError;

/// A connection to the kernel that carries requests and answers.
pub(crate) trait Channel: Sized {
    /// Opens the channel.
    fn open() -> io::Result<Self>;

    /// Sends a request.
    fn send(&mut self, request: &[u8]) -> io::Result<()>;

    /// Receives an answer without waiting, and returns the length of what fits `to`.
    fn receive(&mut self, to: &mut [u8]) -> io::Result<usize>;

    /// Drops the channel without closing its descriptor.
    fn forget(self);
}

/// A socket of the netlink protocol `NETLINK_SOCK_DIAG`.
#[derive(Debug)]
pub(crate) struct Netlink(OwnDescriptor<Socket>);

impl Channel for Netlink {
    fn open() -> io::Result<Self> {
        netlink::open(libc::NETLINK_SOCK_DIAG).map(OwnDescriptor::new).map(Self)
    }

    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        // A datagram is sent whole or not at all.
        let mut socket: &Socket = &self.0;
        socket.write(request).map(drop)
    }

    fn receive(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut socket: &Socket = &self.0;
        socket.read(to)
    }

    fn forget(self) {
        mem::forget(self.0);
    }
}

/// Reason for a missing answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failure {
    /// Another attempt may succeed.
    Transient,
    /// Other code has closed the descriptor.
    Closed,
    /// The kernel lacks `sock_diag`.
    Unsupported,
}

impl Failure {
    fn from_os(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(
                libc::EAFNOSUPPORT
                | libc::EPROTONOSUPPORT
                | libc::ESOCKTNOSUPPORT
                | libc::EOPNOTSUPP
                | libc::ENOSYS,
            ) => Self::Unsupported,
            _ if is_closed(error) => Self::Closed,
            _ => Self::Transient,
        }
    }
}

/// The requesting side of `sock_diag`.
#[derive(Debug)]
pub(crate) struct SockDiag<C = Netlink> {
    /// Open from the first request on.
    channel: Option<C>,
    is_supported: bool,
    /// Sequence number of the last request.
    sequence: u32,
    /// No request is sent before this time.
    paused_until: Duration,
    /// Pause after the next failure.
    pause: Duration,
}

impl<C: Channel> SockDiag<C> {
    pub(crate) fn new() -> Self {
        Self {
            channel: None,
            is_supported: true,
            sequence: 0,
            paused_until: Duration::ZERO,
            pause: MIN_PAUSE,
        }
    }

    /// Whether the kernel has `sock_diag`, as far as is known.
    pub(crate) fn is_supported(&self) -> bool {
        self.is_supported
    }

    /// Returns the memory of the socket that a datagram from `from` to `to` would reach; `None` if no socket of this
    /// machine has that address. `now` is the time since any fixed moment.
    ///
    /// # Errors
    ///
    /// [`ProbeError`]: the kernel does not answer, or not now.
    pub(crate) fn ask(
        &mut self,
        now: Duration,
        from: (IpAddr, u16),
        to: (IpAddr, u16),
    ) -> Result<Option<SocketMemory>, ProbeError> {
        if !self.is_supported || now < self.paused_until {
            return Err(ProbeError);
        }
        match self.attempt(from, to) {
            Ok(memory) => {
                self.pause = MIN_PAUSE;
                Ok(memory)
            }
            Err(failure) => {
                self.fail(now, failure);
                Err(ProbeError)
            }
        }
    }

    fn fail(&mut self, now: Duration, failure: Failure) {
        match failure {
            Failure::Transient => {}
            // By now the number may be that of another file, which is not to be closed here.
            Failure::Closed => self.channel.take().into_iter().for_each(C::forget),
            Failure::Unsupported => {
                self.is_supported = false;
                self.channel = None;
            }
        }
        self.paused_until = now + self.pause;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
    }

    /// Sends a request and leaves its answer unread.
    #[cfg(test)]
    pub(crate) fn leave_an_answer(&mut self, from: (IpAddr, u16), to: (IpAddr, u16)) {
        let channel = self.channel.as_mut().unwrap();
        channel.send(&request(self.sequence, from, to)).unwrap();
    }

    /// Sends requests until one is answered.
    fn attempt(
        &mut self,
        from: (IpAddr, u16),
        to: (IpAddr, u16),
    ) -> Result<Option<SocketMemory>, Failure> {
        let channel = match &mut self.channel {
            Some(channel) => channel,
            None => self.channel.insert(C::open().map_err(|error| Failure::from_os(&error))?),
        };
        for _ in 0..MAX_REQUESTS {
            self.sequence = self.sequence.wrapping_add(1);
            let request = request(self.sequence, from, to);
            match exchange(channel, self.sequence, &request) {
                // The answer is lost.
                Err(Failure::Transient) => {}
                ended => return ended,
            }
        }
        Err(Failure::Transient)
    }
}

/// Sends a request, and receives until its answer is there.
fn exchange<C: Channel>(
    channel: &mut C,
    sequence: u32,
    request: &[u8],
) -> Result<Option<SocketMemory>, Failure> {
    let mut is_sent = false;
    let mut answer = [0; MAX_ANSWER_BYTES];
    for _ in 0..MAX_CALLS_PER_REQUEST {
        let called = match is_sent {
            false => channel.send(request).map(|()| 0),
            true => channel.receive(&mut answer),
        };
        match called {
            Ok(_) if !is_sent => is_sent = true,
            Ok(len) => match Answer::parse(answer.get(..len).unwrap_or_default()) {
                Some(answer) if answer.sequence == sequence => return answer.memory,
                // Late, or cut within its header.
                _ => {}
            },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // An answer found no room. The kernel says so once; ours may be another.
            Err(error) if is_sent && error.raw_os_error() == Some(libc::ENOBUFS) => {}
            Err(error) => return Err(Failure::from_os(&error)),
        }
    }
    Err(Failure::Transient)
}

/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
const BY_FAMILY: u16 = 20;

/// `INET_DIAG_SKMEMINFO` of `linux/inet_diag.h`: its first number is the bytes that wait to be received, its
/// second the size of the receive buffer.
const MEMORY: u16 = 7;

/// Bytes of an `inet_diag_msg`.
const MESSAGE_BYTES: usize = 72;

/// Offset of the socket's cookie in an `inet_diag_msg`.
const COOKIE_OFFSET: usize = 44;

/// Bytes of a request.
const REQUEST_BYTES: u8 = 72;

/// Builds `nlmsghdr` and `inet_diag_req_v2`: a request for the memory of the one socket that a datagram would reach.
///
/// ```text
///  0 length u32   4 type u16   6 flags u16   8 sequence u32   12 port id u32
/// 16 family u8   17 protocol u8   18 extensions u8   20 states u32
/// 24 source port   26 destination port, both big-endian   28 source   44 destination
/// 60 interface u32   64 cookie [u32; 2]
/// ```
fn request(
    sequence: u32,
    (from, source_port): (IpAddr, u16),
    (to, port): (IpAddr, u16),
) -> [u8; REQUEST_BYTES as usize] {
    const UDP: u8 = 17;
    let family = if to.is_ipv4() { 2 } else { 10 };
    let mut bytes = [0; REQUEST_BYTES as usize];
    bytes[0..4].copy_from_slice(&u32::from(REQUEST_BYTES).to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&netlink::REQUEST.to_ne_bytes());
    bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    bytes[16..19].copy_from_slice(&[family, UDP, 1 << (MEMORY - 1)]);
    bytes[20..24].fill(0xff);
    bytes[24..26].copy_from_slice(&source_port.to_be_bytes());
    bytes[26..28].copy_from_slice(&port.to_be_bytes());
    write_address(from, &mut bytes[28..44]);
    write_address(to, &mut bytes[44..60]);
    // No cookie: the addresses are enough.
    bytes[64..72].fill(0xff);
    bytes
}

fn write_address(ip: IpAddr, to: &mut [u8]) {
    match ip {
        IpAddr::V4(ip) => to[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => to.copy_from_slice(&ip.octets()),
    }
}

/// An answer of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Answer {
    /// Sequence number of the request.
    sequence: u32,
    /// Content; `Transient` when it cannot be understood or the kernel had no memory for it.
    memory: Result<Option<SocketMemory>, Failure>,
}

impl Answer {
    /// Parses a message, which may be cut. `None` without a whole header.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let Message { kind, sequence, body } = Message::parse(bytes)?;
        let memory = match kind {
            BY_FAMILY => memory(body).map(Some).ok_or(Failure::Transient),
            ERROR => refusal(body),
            _ => Err(Failure::Transient),
        };
        Some(Self { sequence, memory })
    }
}

/// Returns the content of a `nlmsgerr`: no such socket is no failure.
fn refusal(body: &[u8]) -> Result<Option<SocketMemory>, Failure> {
    let errno = u32_at(body, 0).and_then(|errno| errno.cast_signed().checked_neg());
    match errno {
        Some(libc::ENOENT) => Ok(None),
        Some(errno) => Err(Failure::from_os(&io::Error::from_raw_os_error(errno))),
        None => Err(Failure::Transient),
    }
}

/// Returns the memory that an `inet_diag_msg` with its attributes tells.
fn memory(body: &[u8]) -> Option<SocketMemory> {
    let cookie =
        body.get(COOKIE_OFFSET..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))?;
    let mut attributes = attributes(body.get(MESSAGE_BYTES..)?);
    let (_, numbers) = attributes.find(|(kind, _)| *kind == MEMORY)?;
    Some(SocketMemory {
        waiting: u32_at(numbers, 0)?.into(),
        buffer: u32_at(numbers, 4)?.into(),
        cookie,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::net::Ipv4Addr;

    use super::super::netlink::HEADER_LEN;
    use super::*;

    /// What the kernel does with a call.
    enum Step {
        /// A request is taken, or an answer with this sequence number relative to the last request arrives.
        Takes,
        Answers(i32, Vec<u8>),
        Fails(i32),
    }
    use Step::{Answers, Fails, Takes};

    thread_local! {
        static SCRIPT: RefCell<VecDeque<Step>> = const { RefCell::new(VecDeque::new()) };
        static OPENED: Cell<usize> = const { Cell::new(0) };
        static OPEN_FAILS: Cell<Option<i32>> = const { Cell::new(None) };
    }

    /// A kernel that follows the script; it has nothing more to say at its end.
    #[derive(Default)]
    struct Scripted {
        sequence: u32,
    }

    impl Channel for Scripted {
        fn open() -> io::Result<Self> {
            if let Some(errno) = OPEN_FAILS.get() {
                return Err(io::Error::from_raw_os_error(errno));
            }
            OPENED.set(OPENED.get() + 1);
            Ok(Self::default())
        }

        fn send(&mut self, request: &[u8]) -> io::Result<()> {
            match SCRIPT.with_borrow_mut(VecDeque::pop_front) {
                Some(Takes) => {
                    self.sequence = u32_at(request, 8).unwrap();
                    Ok(())
                }
                Some(Fails(errno)) => Err(io::Error::from_raw_os_error(errno)),
                Some(Answers(..)) | None => panic!("a request that the script does not have"),
            }
        }

        fn receive(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let step = SCRIPT.with_borrow_mut(|script| match script.front() {
                Some(Answers(..) | Fails(_)) => script.pop_front(),
                Some(Takes) | None => None,
            });
            match step {
                Some(Answers(later, mut bytes)) => {
                    let sequence = self.sequence.wrapping_add_signed(later);
                    if let Some(at) = bytes.get_mut(8..12) {
                        at.copy_from_slice(&sequence.to_ne_bytes());
                    }
                    let len = bytes.len().min(to.len());
                    to[..len].copy_from_slice(&bytes[..len]);
                    Ok(len)
                }
                Some(Fails(errno)) => Err(io::Error::from_raw_os_error(errno)),
                Some(Takes) | None => Err(io::ErrorKind::WouldBlock.into()),
            }
        }

        fn forget(self) {}
    }

    const NOW: Duration = Duration::ZERO;
    const FROM: (IpAddr, u16) = (IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
    const TO: (IpAddr, u16) = (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), 4791);

    const FOUND: SocketMemory = SocketMemory { waiting: 42_240, buffer: 212_992, cookie: 99 };

    /// A probe of a kernel without a script.
    fn new_probe() -> SockDiag<Scripted> {
        SCRIPT.take();
        OPENED.set(0);
        OPEN_FAILS.set(None);
        SockDiag::new()
    }

    fn script(steps: impl IntoIterator<Item = Step>) {
        SCRIPT.set(steps.into_iter().collect());
    }

    fn ask(
        probe: &mut SockDiag<Scripted>,
        now: Duration,
    ) -> Result<Option<SocketMemory>, ProbeError> {
        let answered = probe.ask(now, FROM, TO);
        assert!(SCRIPT.with_borrow(VecDeque::is_empty), "the script was not played to its end");
        answered
    }

    fn header(kind: u16) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes
    }

    fn found(memory: SocketMemory) -> Vec<u8> {
        let mut bytes = header(BY_FAMILY);
        bytes.resize(HEADER_LEN + MESSAGE_BYTES, 0);
        bytes[HEADER_LEN + COOKIE_OFFSET..][..8].copy_from_slice(&memory.cookie.to_ne_bytes());
        let attribute = |len: u16, kind: u16| [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(attribute(5, 8));
        bytes.extend([1, 0, 0, 0]);
        bytes.extend(attribute(40, MEMORY));
        bytes.extend(u32::try_from(memory.waiting).unwrap().to_ne_bytes());
        bytes.extend(u32::try_from(memory.buffer).unwrap().to_ne_bytes());
        bytes.extend([0; 28]);
        bytes
    }

    fn error(errno: i32) -> Vec<u8> {
        [header(ERROR), errno.wrapping_neg().to_ne_bytes().to_vec()].concat()
    }

    #[test]
    fn answer_is_searched_for_the_memory() {
        let bytes = found(FOUND);
        assert_eq!(Answer::parse(&bytes), Some(Answer { sequence: 0, memory: Ok(Some(FOUND)) }));
        for len in 0..HEADER_LEN {
            assert_eq!(Answer::parse(&bytes[..len]), None, "{len} bytes");
        }
        for len in HEADER_LEN..bytes.len() {
            let answer = Answer::parse(&bytes[..len]).unwrap();
            assert_eq!(answer.memory, Err(Failure::Transient), "{len} bytes");
        }
        let refused = |errno| Answer::parse(&error(errno)).unwrap().memory;
        assert_eq!(refused(libc::ENOENT), Ok(None));
        assert_eq!(refused(libc::ENOMEM), Err(Failure::Transient));
        assert_eq!(refused(libc::EOPNOTSUPP), Err(Failure::Unsupported));
        assert_eq!(refused(i32::MIN), Err(Failure::Transient));
        assert_eq!(Answer::parse(&header(ERROR)).unwrap().memory, Err(Failure::Transient));
        assert_eq!(Answer::parse(&header(3)).unwrap().memory, Err(Failure::Transient));
    }

    #[test]
    fn stale_and_foreign_and_short_answers_are_discarded() {
        let mut probe = new_probe();
        let other = SocketMemory { waiting: 1, ..FOUND };
        script([
            Takes,
            Answers(-1, found(other)),
            Answers(0x7000_0000, found(other)),
            Answers(-2, error(libc::EOPNOTSUPP)),
            Answers(0, vec![0; 11]),
            Answers(0, vec![]),
            Answers(0, found(FOUND)),
        ]);
        assert_eq!(ask(&mut probe, NOW), Ok(Some(FOUND)));
    }

    #[test]
    fn lost_answer_is_asked_for_again_and_a_late_one_is_not_taken_for_the_next() {
        let mut probe = new_probe();
        let other = SocketMemory { waiting: 1, ..FOUND };
        script([
            Takes,
            Fails(libc::ENOBUFS),
            Takes,
            Answers(-1, found(other)),
            Answers(0, found(FOUND)),
        ]);
        // The pause of the script between both requests is `EAGAIN`.
        assert_eq!(ask(&mut probe, NOW), Ok(Some(FOUND)));
    }

    #[test]
    fn interrupted_calls_are_repeated() {
        let mut probe = new_probe();
        script([
            Fails(libc::EINTR),
            Fails(libc::EINTR),
            Takes,
            Fails(libc::EINTR),
            Answers(0, found(FOUND)),
        ]);
        assert_eq!(ask(&mut probe, NOW), Ok(Some(FOUND)));
    }

    #[test]
    fn failures_pause_the_probe_for_a_second_at_most_and_then_it_recovers() {
        let mut probe = new_probe();
        let (mut now, mut pause) = (NOW, MIN_PAUSE);
        for errno in [libc::EAGAIN, libc::ENOBUFS, libc::ENOMEM, libc::ECONNREFUSED, libc::EPERM]
            .into_iter()
            .cycle()
            .take(20)
        {
            script([Fails(errno), Fails(errno)]);
            assert_eq!(ask(&mut probe, now), Err(ProbeError));
            // Nothing is sent meanwhile.
            assert_eq!(ask(&mut probe, now + (pause - Duration::from_nanos(1))), Err(ProbeError));
            now += pause;
            pause = (2 * pause).min(MAX_PAUSE);
        }
        script([Takes, Answers(0, found(FOUND))]);
        assert_eq!(ask(&mut probe, now), Ok(Some(FOUND)));
        // The next pause is short again.
        script([Takes, Answers(0, header(3)), Takes]);
        assert_eq!(ask(&mut probe, now), Err(ProbeError));
        script([Takes, Answers(0, error(libc::ENOENT))]);
        assert_eq!(ask(&mut probe, now + MIN_PAUSE), Ok(None));
        assert_eq!(OPENED.get(), 1);
    }

    #[test]
    fn flood_of_stale_answers_ends_the_question() {
        let mut probe = new_probe();
        let stale = || Answers(-1, found(FOUND));
        script([Takes].into_iter().chain((1..MAX_CALLS_PER_REQUEST).map(|_| stale())).chain([
            Takes,
            stale(),
            Answers(0, found(FOUND)),
        ]));
        assert_eq!(ask(&mut probe, NOW), Ok(Some(FOUND)));
    }

    #[test]
    fn channel_that_cannot_be_opened_is_tried_again() {
        let mut probe = new_probe();
        OPEN_FAILS.set(Some(libc::EMFILE));
        assert_eq!(ask(&mut probe, NOW), Err(ProbeError));
        OPEN_FAILS.set(None);
        assert_eq!(ask(&mut probe, NOW), Err(ProbeError), "too early");
        script([Takes, Answers(0, found(FOUND))]);
        assert_eq!(ask(&mut probe, NOW + MIN_PAUSE), Ok(Some(FOUND)));
        assert_eq!(OPENED.get(), 1);
    }

    #[test]
    fn channel_that_other_code_has_closed_is_opened_anew() {
        let mut probe = new_probe();
        script([Fails(libc::EBADF)]);
        assert_eq!(ask(&mut probe, NOW), Err(ProbeError));
        script([Takes, Answers(0, found(FOUND))]);
        assert_eq!(ask(&mut probe, NOW + MIN_PAUSE), Ok(Some(FOUND)));
        assert_eq!(OPENED.get(), 2);
    }

    #[test]
    fn kernel_without_the_facility_is_asked_once() {
        let later = NOW + Duration::from_secs(3600);
        let mut probe = new_probe();
        OPEN_FAILS.set(Some(libc::EPROTONOSUPPORT));
        assert_eq!(ask(&mut probe, NOW), Err(ProbeError));
        OPEN_FAILS.set(None);
        assert_eq!(ask(&mut probe, later), Err(ProbeError));
        let mut probe = new_probe();
        script([Takes, Answers(0, error(libc::EOPNOTSUPP))]);
        assert_eq!(ask(&mut probe, NOW), Err(ProbeError));
        assert_eq!(ask(&mut probe, later), Err(ProbeError));
    }
}
