//! Waits: for descriptors, for other threads, and the descriptors that wake a wait.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::{Errno, ReadWriteFlags, preadv2, read};
use rustix::thread::futex;
use smallvec::SmallVec;

use super::signals::DeferredSignals;
use super::{OwnDescriptor, ffi};

/// Reason why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Woken {
    /// A descriptor or item is ready.
    Ready,
    /// The time is over.
    TimedOut,
    /// A signal handler has run.
    Interrupted,
    /// A descriptor is not open, so no wait for it sleeps.
    Closed,
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
/// use softroce::port::wait_readable;
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
    sleep_on(&numbers, timeout).map(|woken| matches!(woken, Woken::Ready | Woken::Closed))
}

/// The same by the numbers of descriptors, which may be closed meanwhile: then the wait is for another file, or
/// for none.
///
/// # Errors
///
/// As above.
pub(crate) fn sleep_on(descriptors: &[RawFd], timeout: Option<Duration>) -> io::Result<Woken> {
    Ok(sleep_on_also(descriptors, [], timeout, None)?.0)
}

/// Waits for further descriptors, and returns whether each of those is ready. Takes deferred signals meanwhile.
///
/// # Errors
///
/// As above.
pub(crate) fn sleep_on_also<const N: usize>(
    descriptors: &[RawFd],
    also: [Option<RawFd>; N],
    timeout: Option<Duration>,
    deferred: Option<&DeferredSignals>,
) -> io::Result<(Woken, [bool; N])> {
    // The kernel ignores negative numbers.
    let also = also.into_iter().map(|fd| fd.unwrap_or(-1));
    let poll = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut polls: SmallVec<[libc::pollfd; 8]> =
        also.chain(descriptors.iter().copied()).map(poll).collect();
    let woken = match ffi::ppoll(&mut polls, timeout, deferred.map(DeferredSignals::blocked_before))
    {
        Ok(0) => Woken::TimedOut,
        Ok(_) if polls.iter().any(|poll| poll.revents & libc::POLLNVAL != 0) => Woken::Closed,
        Ok(_) => Woken::Ready,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            return Ok((Woken::Interrupted, [false; N]));
        }
        Err(error) => return Err(error),
    };
    let mut ready = polls.iter().map(|poll| poll.revents != 0);
    Ok((woken, [(); N].map(|()| ready.next().unwrap_or(false))))
}

/// A set of descriptors (`epoll`). One call finds the readable ones, however many there are.
#[derive(Debug)]
pub(crate) struct Readiness(OwnDescriptor<OwnedFd>);

impl Readiness {
    /// Creates an empty set.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(OwnDescriptor::new(epoll::create(epoll::CreateFlags::CLOEXEC)?)))
    }

    /// Returns whether the descriptor still is that of an epoll instance or another file without an inode.
    #[cfg(feature = "tap")]
    pub(crate) fn is_own(&self) -> bool {
        self.0.is_own()
    }

    /// Adds a descriptor under the name `token`. It is out again when every process that has it has closed it.
    pub(crate) fn add(&self, descriptor: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let token = epoll::EventData::new_u64(token);
        Ok(epoll::add(&self.0, descriptor, token, epoll::EventFlags::IN)?)
    }

    /// Removes a descriptor.
    pub(crate) fn remove(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.0, descriptor)?)
    }

    /// Returns the tokens of some that are readable. Those of the others come in later calls.
    ///
    /// # Errors
    ///
    /// `EBADF` if other code of the process has closed the descriptor, also if its number is that of another file.
    pub(crate) fn readable(&self) -> io::Result<SmallVec<[u64; 16]>> {
        const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut room = [const { MaybeUninit::uninit() }; 16];
        let (events, _) =
            epoll::wait(&self.0, &mut room, Some(&NO_WAIT)).map_err(|error| match error {
                Errno::INVAL => Errno::BADF,
                error => error,
            })?;
        Ok(events.iter().map(|event: &epoll::Event| { event.data }.u64()).collect())
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
        // A time that is too long for the kernel is for ever.
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        match futex::wait(&self.0, futex::Flags::PRIVATE, ticket, timeout.as_ref()) {
            Err(Errno::TIMEDOUT) => Woken::TimedOut,
            Err(Errno::INTR) => Woken::Interrupted,
            _ => Woken::Ready,
        }
    }

    /// Wakes up to `count` sleeping threads.
    pub(crate) fn wake(&self, count: i32) {
        self.0.fetch_add(1, Ordering::SeqCst);
        // The only error is an address that is not mapped.
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, count.unsigned_abs());
    }
}

/// Opens a counter that can be waited on: it is readable while it is not zero, and a read of its 8
/// bytes sets it back to zero.
pub(crate) fn event_fd() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Sets the counter of an [`event_fd`] back to zero. Never waits, even if an application has cleared
/// `O_NONBLOCK`, which the descriptor shares with all its copies.
pub(crate) fn clear_event_fd(fd: BorrowedFd<'_>) -> io::Result<()> {
    /// The offset -1, for a descriptor without a position.
    const NO_OFFSET: u64 = u64::MAX;
    let mut count = [0; 8];
    let parts = &mut [IoSliceMut::new(&mut count)];
    match preadv2(fd, parts, NO_OFFSET, ReadWriteFlags::NOWAIT) {
        Ok(_) => return Ok(()),
        Err(Errno::OPNOTSUPP) => {}
        Err(error) => return Err(error.into()),
    }
    // Before Linux 5.8 an eventfd has no such flag.
    if wait_readable(&[fd], Some(Duration::ZERO))? {
        read(fd, &mut count)?;
    }
    Ok(())
}
