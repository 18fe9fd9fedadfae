//! Waits: for descriptors, for other threads, and the descriptors that wake a wait.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use smallvec::SmallVec;

use super::length;

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
pub(crate) struct Readiness(OwnedFd);

impl Readiness {
    /// Of no descriptor yet.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the call takes a number.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened `fd`, and nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Adds a descriptor, which is told by `token`. It is out again when it is closed, by every process that has it.
    pub(crate) fn add(&self, descriptor: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as _, u64: token };
        let (set, fd) = (self.0.as_raw_fd(), descriptor.as_raw_fd());
        // SAFETY: `event` lives until the call returns; the kernel only reads it.
        let rc = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &mut event) };
        if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Takes a descriptor out.
    pub(crate) fn remove(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let (set, fd) = (self.0.as_raw_fd(), descriptor.as_raw_fd());
        // SAFETY: the call takes numbers; of an event it needs none.
        let rc = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_DEL, fd, ptr::null_mut()) };
        if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The tokens of some that are readable. Those of the others come in later calls.
    pub(crate) fn readable(&self) -> io::Result<SmallVec<[u64; 16]>> {
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

/// Threads that sleep until they are woken.
///
/// A sleep without timeout that a signal interrupts goes on or ends as `read` does: the kernel knows the
/// handler (signal(7), `FUTEX_WAIT`).
#[derive(Debug, Default)]
pub(crate) struct Sleepers(AtomicU32);

impl Sleepers {
    /// Begins to sleep: from now on a wake counts.
    pub(crate) fn ticket(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Sleeps until a wake that is later than the ticket, for at most `timeout`. It may return early.
    pub(crate) fn sleep(&self, ticket: u32, timeout: Option<Duration>) -> Woken {
        let timeout = timeout.map(timespec);
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        let (at, operation) = (self.0.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG);
        // SAFETY: `at` points to a number that lives until the call returns, and so does the timeout if it is
        // not null.
        let rc = unsafe { libc::syscall(libc::SYS_futex, at, operation, ticket, timeout) };
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::ETIMEDOUT) if rc != 0 => Woken::TimedOut,
            Some(libc::EINTR) if rc != 0 => Woken::Interrupted,
            _ => Woken::Ready,
        }
    }

    /// Wakes so many of those that sleep.
    pub(crate) fn wake(&self, count: c_int) {
        self.0.fetch_add(1, Ordering::SeqCst);
        let (at, operation) = (self.0.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG);
        // SAFETY: `at` is an address only: the call reads and writes nothing there.
        unsafe { libc::syscall(libc::SYS_futex, at, operation, count) };
    }
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
