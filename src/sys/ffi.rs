//! Functions of the C library that `rustix` lacks or cannot offer as safe, each behind a safe function.
//!
//! These are integer socket options of any name, `SO_MEMINFO`, programs for `SO_REUSEPORT`, link addresses, requests
//! for interfaces (`ioctl`), a wait for descriptors by number, the handlers and masks of signals, and hooks.
//! `SO_PEERCRED` is here because the process number of a peer in another namespace is 0, which the type of `rustix`
//! does not allow.

use std::ffi::{c_char, c_int, c_ulong};
#[cfg(feature = "tap")]
use std::ffi::{c_short, c_uint};
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

/// A length in the type that the C library has for it, none of which is too small for ours.
pub(super) fn length<T: TryFrom<usize> + Default>(len: usize) -> T {
    T::try_from(len).unwrap_or_default()
}

/// Returns the error that the C library has left behind when `rc` is negative.
fn checked(rc: c_int) -> io::Result<()> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets a socket option that is an `int`.
pub(crate) fn set_option(
    socket: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    let at: *const c_int = &value;
    let len = length(size_of::<c_int>());
    // SAFETY: `at` points to `len` bytes that live until the call returns; the kernel reads them.
    checked(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, at.cast(), len) })
}

/// Attaches a program that chooses the receiving socket of a group (`SO_REUSEPORT`). The program sees the bytes behind
/// the UDP header, and returns the position of a socket in the order in which they were bound.
pub(crate) fn attach_reuseport(
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
    checked(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, at.cast(), len) })
}

/// Returns the number of datagrams that the kernel has dropped instead of queueing them on the socket.
pub(crate) fn drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;
    let mut info = [0_u32; DROPS + 1];
    let mut len = length(size_of_val(&info));
    let (fd, at) = (socket.as_raw_fd(), info.as_mut_ptr());
    // SAFETY: `at` points to `len` writable bytes, of which the kernel writes no more than that.
    checked(unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, at.cast(), &mut len)
    })?;
    Ok(info[DROPS])
}

/// Returns the user that opened the other end of a Unix socket.
pub(crate) fn user_of_peer(socket: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(peer(socket)?.uid)
}

/// Returns the number of the process that opened the other end of a Unix socket; 0 if it has none in this namespace.
pub(crate) fn process_of_peer(socket: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(u32::try_from(peer(socket)?.pid).unwrap_or_default())
}

fn peer(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let at: *mut libc::ucred = &mut peer;
    let mut len = length(size_of::<libc::ucred>());
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: `at` points to `len` writable bytes, of which the kernel writes no more than that.
    checked(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, at.cast(), &mut len) })?;
    Ok(peer)
}

/// Binds a packet socket to an interface, so that it receives frames of this EtherType from there, and sends to it.
#[cfg(feature = "packet")]
pub(crate) fn bind_to_link(
    socket: BorrowedFd<'_>,
    interface: u32,
    ethertype: u16,
) -> io::Result<()> {
    // SAFETY: `sockaddr_ll` consists of integers, for which all zeros is a value.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = length(usize::try_from(libc::AF_PACKET).unwrap_or_default());
    address.sll_protocol = ethertype.to_be();
    address.sll_ifindex = c_int::try_from(interface).map_err(io::Error::other)?;
    let at: *const libc::sockaddr_ll = &address;
    let len = length(size_of::<libc::sockaddr_ll>());
    // SAFETY: `at` points to `len` bytes that live until the call returns; the kernel reads them.
    checked(unsafe { libc::bind(socket.as_raw_fd(), at.cast(), len) })
}

/// A request for an interface: its name, and what is read or set.
pub(super) struct InterfaceRequest(libc::ifreq);

/// A call that takes an [`InterfaceRequest`], and points to nothing from there.
#[derive(Clone, Copy)]
pub(super) struct InterfaceCall(c_ulong);

impl InterfaceCall {
    pub(super) const MTU: Self = Self(libc::SIOCGIFMTU as _);
}

#[cfg(feature = "tap")]
impl InterfaceCall {
    pub(super) const SET_MTU: Self = Self(libc::SIOCSIFMTU as _);
    pub(super) const QUEUE_LEN: Self = Self(libc::SIOCGIFTXQLEN as _);
    pub(super) const SET_QUEUE_LEN: Self = Self(libc::SIOCSIFTXQLEN as _);
    pub(super) const LINK_ADDRESS: Self = Self(libc::SIOCGIFHWADDR as _);
    pub(super) const SET_LINK_ADDRESS: Self = Self(libc::SIOCSIFHWADDR as _);
    pub(super) const FLAGS: Self = Self(libc::SIOCGIFFLAGS as _);
    pub(super) const SET_FLAGS: Self = Self(libc::SIOCSIFFLAGS as _);
    /// `SIOCBRADDIF` of `linux/sockios.h`.
    pub(super) const ADD_TO_BRIDGE: Self = Self(0x89a2);
    pub(super) const ATTACH_TAP: Self = Self(libc::TUNSETIFF as _);
    pub(super) const TAP: Self = Self(libc::TUNGETIFF as _);
}

impl InterfaceRequest {
    /// A request for the interface with this name, of which all else is zero.
    pub(super) fn new(name: &[u8]) -> Self {
        // SAFETY: `ifreq` is integers and a union of them and raw pointers: all zeros is a value.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        // The last byte stays zero, which ends the name.
        for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name) {
            *to = *from as c_char;
        }
        Self(request)
    }

    /// Makes the call.
    pub(super) fn call(&mut self, fd: BorrowedFd<'_>, call: InterfaceCall) -> io::Result<()> {
        let at: *mut libc::ifreq = &mut self.0;
        // SAFETY: the call takes this pointer, which lives until the call returns; the name ends with a zero.
        checked(unsafe { libc::ioctl(fd.as_raw_fd(), call.0 as _, at) })
    }

    /// Returns the number that the kernel has filled in: an MTU or a length.
    pub(super) fn number(&self) -> c_int {
        // SAFETY: every byte of the union is initialized, and any are an integer.
        unsafe { self.0.ifr_ifru.ifru_mtu }
    }
}

#[cfg(feature = "tap")]
impl InterfaceRequest {
    /// Sets the number that the kernel reads: an MTU, a length or the index of an interface.
    pub(super) fn set_number(&mut self, number: c_int) {
        self.0.ifr_ifru.ifru_mtu = number;
    }

    pub(super) fn flags(&self) -> c_short {
        // SAFETY: every byte of the union is initialized, and any are an integer.
        unsafe { self.0.ifr_ifru.ifru_flags }
    }

    pub(super) fn set_flags(&mut self, flags: c_short) {
        self.0.ifr_ifru.ifru_flags = flags;
    }

    /// Replaces the first byte of the link address.
    pub(super) fn set_first_of_link_address(&mut self, first: u8) {
        // SAFETY: every byte of the union is initialized, and any are an address.
        let mut address = unsafe { self.0.ifr_ifru.ifru_hwaddr };
        address.sa_data[0] = c_char::from_ne_bytes([first]);
        self.0.ifr_ifru.ifru_hwaddr = address;
    }

    /// Returns the name that the kernel has filled in.
    pub(super) fn name(&self) -> String {
        let bytes = self.0.ifr_name.iter().take_while(|byte| **byte != 0);
        let bytes: Vec<u8> = bytes.map(|byte| byte.to_ne_bytes()[0]).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Leaves to this process the parts of frames from a TAP that these flags name (`TUN_F_*`).
#[cfg(feature = "tap")]
pub(crate) fn offload_tap(tun: BorrowedFd<'_>, flags: c_uint) -> io::Result<()> {
    let fd = tun.as_raw_fd();
    // SAFETY: TUNSETOFFLOAD takes a number.
    checked(unsafe { libc::ioctl(fd, libc::TUNSETOFFLOAD as _, c_ulong::from(flags)) })
}

/// Waits until one of the descriptors has an event, for at most `timeout`, and returns how many have. This thread
/// blocks the signals of `blocked` meanwhile, if given.
pub(super) fn ppoll(
    polls: &mut [libc::pollfd],
    timeout: Option<Duration>,
    blocked: Option<&BlockedSignals>,
) -> io::Result<usize> {
    let timeout = timeout.map(|time| libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos() as _,
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let (first, count) = (polls.as_mut_ptr(), length(polls.len()));
    let blocked = blocked.map_or(ptr::null(), |blocked| ptr::from_ref(&blocked.0));
    // SAFETY: `first` points to `count` entries that live until the call returns; the timeout and the signal mask are
    // null or live as long. A null mask leaves the signals as they are.
    let n = unsafe { libc::ppoll(first, count, timeout, blocked) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// The signals that a thread blocks.
#[derive(Clone, Copy)]
pub(super) struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    pub(super) fn read() -> Self {
        let mut blocked = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: no set is given, and `blocked` is a place for the one that the call returns.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), blocked.as_mut_ptr()) };
        // SAFETY: all zeros is a set too, the empty one.
        Self(unsafe { blocked.assume_init() })
    }

    /// Sets the signals that this thread blocks.
    pub(super) fn set(&self) {
        // SAFETY: `self` is a set that lives until the call returns; a null pointer asks for nothing.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }

    pub(super) fn contains(&self, signal: c_int) -> bool {
        // SAFETY: `self` is a set; the call checks the number of the signal.
        unsafe { libc::sigismember(&self.0, signal) == 1 }
    }

    /// Returns this set with all signals but these.
    pub(super) fn with_all_but(self, others: &[c_int]) -> Self {
        let mut all = self;
        // SAFETY: the call overwrites a set.
        unsafe { libc::sigfillset(&mut all.0) };
        for signal in others.iter().filter(|signal| !self.contains(**signal)) {
            // SAFETY: `all` is a set; the call checks the number of the signal.
            unsafe { libc::sigdelset(&mut all.0, *signal) };
        }
        all
    }
}

/// Returns the action of a signal; `None` for the C library's own signals.
pub(super) fn signal_action(signal: c_int) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no action is given, and `action` is a place for the one that the call returns.
    let rc = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the call has succeeded. All zeros would be an action too: the default one.
    (rc == 0).then(|| unsafe { action.assume_init() })
}

/// Whether the program has more privileges than the program that started it (`AT_SECURE`): it is set-uid or set-gid, or
/// has file capabilities. The environment is not to be trusted then.
pub(crate) fn is_privileged() -> bool {
    // SAFETY: the call takes a number, and returns 0 where there is no such entry.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Runs `hook` when the process exits by `exit` or by the end of `main`. Other threads may still run then.
pub(crate) fn at_exit(hook: extern "C" fn()) {
    // SAFETY: `hook` is a function of the required type, and functions stay. Without memory for the entry it is not
    // run, and the timer of the peer repeats what it would send.
    let _ = unsafe { libc::atexit(hook) };
}

/// A hook of [`at_fork`].
pub(super) type ForkHook = extern "C" fn();

/// Runs hooks at each `fork`: `before` it, and afterwards in the parent and in the child, which has the calling
/// thread only. Returns whether the C library had memory for them.
pub(super) fn at_fork(
    before: Option<ForkHook>,
    parent: Option<ForkHook>,
    child: Option<ForkHook>,
) -> bool {
    let unsafe_of = |hook: Option<ForkHook>| hook.map(|hook| hook as unsafe extern "C" fn());
    // SAFETY: functions of the required type, which stay.
    unsafe { libc::pthread_atfork(unsafe_of(before), unsafe_of(parent), unsafe_of(child)) == 0 }
}

#[cfg(test)]
mod tests {
    use super::super::signals::DeferredSignals;
    use super::super::{Woken, sleep_on_also};
    use super::*;

    #[test]
    fn deferred_signal_ends_the_next_sleep_and_no_other() {
        extern "C" fn nothing(_: c_int) {}
        let handler: extern "C" fn(c_int) = nothing;
        let mut action = signal_action(libc::SIGUSR2).unwrap();
        action.sa_sigaction = handler as libc::sighandler_t;
        // SAFETY: `action` is an action that lives until the call returns, and its handler does nothing.
        unsafe { libc::sigaction(libc::SIGUSR2, &action, ptr::null_mut()) };
        let sleep = |deferred: &DeferredSignals, timeout| {
            sleep_on_also(&[], [None], Some(timeout), Some(deferred)).unwrap().0
        };
        let is_blocked = |signal| BlockedSignals::read().contains(signal);
        let deferred = DeferredSignals::begin();
        assert!(is_blocked(libc::SIGUSR2) && !is_blocked(libc::SIGSEGV));
        // SAFETY: the signal has a handler.
        unsafe { libc::raise(libc::SIGUSR2) };
        assert_eq!(sleep(&deferred, Duration::from_secs(20)), Woken::Interrupted);
        assert_eq!(sleep(&deferred, Duration::ZERO), Woken::TimedOut);
        drop(deferred);
        assert!(!is_blocked(libc::SIGUSR2));
    }
}
