//! The system calls of the ports that no library we use has: messages, interfaces, socket options, waiting.
//!
//! Everything `unsafe` of `io` is here, behind functions that are safe to call.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use smallvec::SmallVec;

mod interface;
mod messages;
mod signals;

#[cfg(feature = "packet")]
pub(super) use interface::bind_to_link;
pub(super) use interface::{Interface, interface_of};
#[cfg(feature = "tap")]
pub(super) use interface::{
    add_to_bridge, attach_tap, frames_dropped, interface_named, is_of_host, offload_tap, queue_len,
    raise_link_address, set_link_up, set_mtu, set_queue_len, tap_name,
};
pub(super) use messages::{
    Envelope, Inbox, MAX_MESSAGES, Received, receive_descriptor, receive_error, send_descriptor,
    send_many, send_one, send_to_peer,
};

pub(crate) use signals::{Restarts, Sleepers, restarts};

/// Whether a call failed because its descriptor is no socket any more: somebody else has closed it.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBADF | libc::ENOTSOCK))
}

/// A length in the type that the C library has for it, none of which is too small for ours.
fn length<T: TryFrom<usize> + Default>(len: usize) -> T {
    T::try_from(len).unwrap_or_default()
}

/// Sets a socket option that is an `int`.
pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    let at: *const c_int = &value;
    let len = length(size_of::<c_int>());
    // SAFETY: `at` points to `len` bytes that live until the call returns; the kernel reads them.
    let rc = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, at.cast(), len) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has the sockets of a group (`SO_REUSEPORT`) chosen by a program. It sees what has arrived behind the UDP
/// header, and returns the place of a socket in the order in which they were bound.
pub(super) fn attach_reuseport(
    socket: BorrowedFd<'_>,
    program: &[socket2::SockFilter],
) -> io::Result<()> {
    // The kernel reads the program, and `SockFilter` is a transparent `sock_filter`.
    let filter = program.as_ptr().cast_mut().cast();
    let program = libc::sock_fprog { len: length(program.len()), filter };
    let at: *const libc::sock_fprog = &program;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF);
    let len = length(size_of::<libc::sock_fprog>());
    // SAFETY: `at` points to `len` bytes that live until the call returns, and the program that they point
    // to is borrowed as long, with its length; the kernel reads both.
    let rc = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, at.cast(), len) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The value of a socket option that is an `int`.
pub(super) fn option(socket: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let at: *mut c_int = &mut value;
    let mut len = length(size_of::<c_int>());
    // SAFETY: `at` points to `len` writable bytes, of which the kernel writes no more than that.
    let rc = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, at.cast(), &mut len) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Datagrams that the kernel has thrown away instead of queueing them on the socket.
pub(super) fn drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;
    let mut info = [0_u32; DROPS + 1];
    let mut len = length(size_of_val(&info));
    let (fd, at) = (socket.as_raw_fd(), info.as_mut_ptr());
    // SAFETY: `at` points to `len` writable bytes, of which the kernel writes no more than that.
    let rc =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, at.cast(), &mut len) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(info[DROPS]) }
}

/// What has ended a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Woken {
    /// What was waited for.
    Ready,
    /// The time is over.
    TimedOut,
    /// A signal, of which a handler has run.
    Interrupted,
}

/// Waits until one of the descriptors is readable, for at most `timeout` (`None`: for ever). Returns
/// whether one is; it may also return early with `false`, when a signal came in.
///
/// ```
/// use std::io::Write;
/// use std::net::{Ipv4Addr, TcpListener, TcpStream};
/// use std::os::fd::AsFd;
/// use std::time::Duration;
///
/// use softroce::io::wait_readable;
///
/// let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
/// assert!(!wait_readable(&[listener.as_fd()], Some(Duration::ZERO))?);
/// let _client = TcpStream::connect(listener.local_addr()?)?;
/// assert!(wait_readable(&[listener.as_fd()], None)?);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// When the kernel refuses to wait: too many descriptors.
pub fn wait_readable(
    descriptors: &[BorrowedFd<'_>],
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let numbers: SmallVec<[RawFd; 8]> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    sleep_on(&numbers, timeout).map(|woken| woken == Woken::Ready)
}

/// The same by the numbers of descriptors, which may be closed meanwhile: then it is another file that is
/// waited for, or none.
///
/// # Errors
///
/// As above.
pub(crate) fn sleep_on(descriptors: &[RawFd], timeout: Option<Duration>) -> io::Result<Woken> {
    let poll = |fd: &RawFd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 };
    let mut polls: SmallVec<[libc::pollfd; 8]> = descriptors.iter().map(poll).collect();
    let timeout = timeout.map(timespec);
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let (first, count) = (polls.as_mut_ptr(), length(polls.len()));
    // SAFETY: `first` points to `count` entries that live until the call returns; the timeout is
    // null or lives as long; a null signal mask leaves the signals as they are.
    let n = unsafe { libc::ppoll(first, count, timeout, ptr::null()) };
    if n >= 0 {
        return Ok(if n > 0 { Woken::Ready } else { Woken::TimedOut });
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(Woken::Interrupted),
        _ => Err(error),
    }
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos() as _,
    }
}

/// Descriptors of which one asks at once which are readable, however many there are.
#[derive(Debug)]
pub(super) struct Readiness(OwnedFd);

impl Readiness {
    /// Of no descriptor yet.
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: the call takes a number.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened `fd`, and nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Adds a descriptor, which is told by `token`. It is out again when it is closed, by every process that has it.
    pub(super) fn add(&self, descriptor: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as _, u64: token };
        let (set, fd) = (self.0.as_raw_fd(), descriptor.as_raw_fd());
        // SAFETY: `event` lives until the call returns; the kernel only reads it.
        let rc = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &mut event) };
        if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Takes a descriptor out.
    pub(super) fn remove(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let (set, fd) = (self.0.as_raw_fd(), descriptor.as_raw_fd());
        // SAFETY: the call takes numbers; of an event it needs none.
        let rc = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_DEL, fd, ptr::null_mut()) };
        if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The tokens of some that are readable. Those of the others come in later calls.
    pub(super) fn readable(&self) -> io::Result<SmallVec<[u64; 16]>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
        let (first, most) = (events.as_mut_ptr(), length(events.len()));
        // SAFETY: `first` points to `most` entries, of which the kernel fills in some.
        let n = unsafe { libc::epoll_wait(self.0.as_raw_fd(), first, most, 0) };
        let Ok(n) = usize::try_from(n) else { return Err(io::Error::last_os_error()) };
        Ok(events.iter().take(n).map(|event| event.u64).collect())
    }
}

impl AsFd for Readiness {
    /// Readable when one of them is.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The user that the other end of a Unix socket was opened by.
pub(super) fn user_of_peer(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let at: *mut libc::ucred = &mut who;
    let mut len = length(size_of::<libc::ucred>());
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: `at` points to `len` writable bytes, of which the kernel writes no more than that.
    let rc = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, at.cast(), &mut len) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(who.uid) }
}

/// The user that this process acts for.
pub(super) fn user() -> u32 {
    // SAFETY: the call takes nothing, and always succeeds.
    unsafe { libc::geteuid() }
}

/// Whether this thread may do what takes `CAP_NET_RAW`.
pub(crate) fn has_net_raw() -> bool {
    /// `CAP_NET_RAW`, and the version of the call that has two words for each set (capability.h).
    const NET_RAW: u32 = 13;
    const VERSION: u32 = 0x2008_0522;
    // The version, and the number of the calling thread.
    let header = [VERSION, 0];
    // Effective, permitted and inheritable capabilities, twice.
    let mut sets = [0_u32; 6];
    // SAFETY: `header` is a version and a thread, and `sets` has room for what the call returns in that version.
    let rc = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    rc == 0 && (sets[0] >> NET_RAW) & 1 == 1
}

/// Whether the program has more privileges than the program that started it: it is set-uid, set-gid, or has
/// file capabilities (`AT_SECURE`). The environment is not to be trusted then.
pub(crate) fn is_privileged() -> bool {
    // SAFETY: the call takes a number, and answers 0 where there is no such entry.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Nanoseconds since the system was started: what the standard library's clock says, without the
/// arithmetic around it. A poll that finds nothing reads it once.
pub(crate) fn monotonic() -> u64 {
    nanos_of(libc::CLOCK_MONOTONIC)
}

/// How long processors have worked for this process.
pub(crate) fn processor_time() -> Duration {
    Duration::from_nanos(nanos_of(libc::CLOCK_PROCESS_CPUTIME_ID))
}

fn nanos_of(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a place for what the call returns. Every system has these clocks.
    unsafe { libc::clock_gettime(clock, &mut time) };
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or_default() * 1_000_000_000 + nanos.unwrap_or_default()
}

/// Opens a counter that can be waited on: it is readable while it is not zero, and a read of its 8
/// bytes sets it back to zero.
pub(crate) fn event_fd() -> io::Result<OwnedFd> {
    // SAFETY: the call takes two numbers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened `fd`, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets the counter of an [`event_fd`] back to zero. Never waits, even if an application has cleared
/// `O_NONBLOCK`, which the descriptor shares with all its copies.
pub(crate) fn clear_event_fd(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut count = [0_u8; 8];
    let part = libc::iovec { iov_base: count.as_mut_ptr().cast(), iov_len: count.len() };
    // The offset of a descriptor without a position.
    let none = -1;
    // SAFETY: `part` names 8 writable bytes that live until the call returns.
    let n = unsafe { libc::preadv2(fd.as_raw_fd(), &part, 1, none, libc::RWF_NOWAIT) };
    if n >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::EOPNOTSUPP) {
        return Err(error);
    }
    // Before Linux 5.8 an eventfd has no such flag.
    if wait_readable(&[fd], Some(Duration::ZERO))? {
        // SAFETY: `count` has 8 writable bytes that live until the call returns.
        let n = unsafe { libc::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Has `hook` run when the process exits by `exit` or by the end of `main`. Other threads may still
/// run then.
pub(crate) fn at_exit(hook: extern "C" fn()) {
    // SAFETY: `hook` is a function of the type that is asked for, and functions stay. Without
    // memory for the entry it is not run, and what it would send is sent again by the peer's timer.
    let _ = unsafe { libc::atexit(hook) };
}

/// Has hooks run by `fork`: `before` it, and when it is made in the parent and in the child, where there
/// is the calling thread only.
pub(crate) fn at_fork(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: functions of the type that is asked for. The only error is out of memory.
    let _ = unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
}
