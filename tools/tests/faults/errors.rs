//! The system calls that are made to fail, and the errors that their manual pages name.

use std::io;

use nix::errno::Errno;

use super::trace::Site;

/// A call that fails.
#[derive(Clone)]
pub(crate) struct Fault {
    pub(crate) site: Site,
    pub(crate) error: &'static str,
    /// Whether all calls of that name after it fail too.
    pub(crate) lasts: bool,
}

impl Fault {
    /// The option of strace that has the call fail.
    pub(crate) fn inject(&self) -> String {
        let Self { site: Site { call, nth, .. }, error, lasts } = self;
        let each = if *lasts { "+" } else { "" };
        // The kernel does not answer `brk` with an error but with the old end of the heap.
        let result = if *call == "brk" { "retval=0".to_owned() } else { format!("error={error}") };
        format!("inject={call}:{result}:when={nth}{each}")
    }

    /// What the system says of the error.
    pub(crate) fn text(&self) -> String {
        let number =
            (1..200).find(|number| format!("{:?}", Errno::from_raw(*number)) == self.error);
        io::Error::from_raw_os_error(number.unwrap()).to_string()
    }
}

/// The faults at a site: all, or those of the first error.
pub(crate) fn faults(site: &Site, all: bool) -> impl Iterator<Item = Fault> {
    let (call, errors) = ERRORS.iter().find(|(call, _)| *call == site.call).unwrap();
    let errors = if all { errors } else { &errors[..1] };
    // glibc ends the program when netlink answers with an error of IP.
    let is_netlink = site.name.contains("NETLINK");
    let of_ip = ["ECONNREFUSED", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH"];
    // An eventfd with room is always written.
    let is_eventfd = *call == "write" && site.name.contains("eventfd");
    let can_be = move |error: &str| !is_netlink || !of_ip.contains(&error);
    let errors = errors.iter().filter(move |error| !is_eventfd && can_be(error));
    let both = errors.flat_map(|error| [(*error, false), (*error, true)]);
    let happens = move |(error, lasts): &(&str, bool)| {
        // A call that is interrupted, or finds no data or no room, is made again without end. Of the writes some are
        // to eventfds.
        let moves_data = call.starts_with("recv") || call.starts_with("send");
        let always = *error == "EINTR" || *call == "write" || (moves_data && *error == "EAGAIN");
        !*lasts || !always
    };
    both.filter(happens).map(|(error, lasts)| Fault { site: site.clone(), error, lasts })
}

/// Messages in which the system's error stands in other words, and the calls and errors of which they tell.
const TRANSLATED: &[(&str, &str, &str)] = &[
    ("bind", "EADDRINUSE", "is held by"),
    ("bind", "EADDRINUSE", " is free"),
    ("bind", "EADDRNOTAVAIL", "is not an address of this machine"),
    // So `pthread_create` has it.
    ("clone3", "ENOMEM", "starting a thread: Resource temporarily unavailable"),
    ("mmap", "ENOMEM", "starting a thread: Resource temporarily unavailable"),
    ("mprotect", "ENOMEM", "starting a thread: Resource temporarily unavailable"),
    // Completions of a connection that loses all packets.
    ("send", "", "RETRY_EXC_ERR"),
    ("recv", "", "RETRY_EXC_ERR"),
    ("send", "", "within 4s"),
    ("recv", "", "within 4s"),
    ("accept4", "", "RETRY_EXC_ERR"),
    ("mmap", "EAGAIN", "RETRY_EXC_ERR"),
];

/// Whether a message names the error.
pub(crate) fn is_clear(said: &str, fault: &Fault) -> bool {
    let translated = TRANSLATED.iter().any(|(call, error, words)| {
        fault.site.call.starts_with(call) && fault.error.starts_with(error) && said.contains(words)
    });
    said.contains(&fault.text()) || translated
}

/// Errors of a lack of descriptors or memory.
const NO_ROOM: &[&str] = &["EMFILE", "ENFILE", "ENOMEM"];

/// Errors of a call that sends. `EAGAIN` and `ENOBUFS` pass, or the network is slow.
const SEND: &[&str] = &[
    "EAGAIN",
    "ENOBUFS",
    "ENOMEM",
    "EINTR",
    "EPERM",
    "EMSGSIZE",
    "EINVAL",
    "EIO",
    "ENETUNREACH",
    "EHOSTUNREACH",
    "ENETDOWN",
    "ECONNREFUSED",
];

/// Errors of a call that receives.
const RECEIVE: &[&str] =
    &["EAGAIN", "EINTR", "ENOMEM", "ENOBUFS", "ECONNREFUSED", "EHOSTUNREACH", "ENETDOWN", "EIO"];

/// Each call with its errors.
pub(crate) const ERRORS: &[(&str, &[&str])] = &[
    ("accept4", &["EMFILE", "ENOBUFS", "ECONNABORTED", "EINTR", "EPERM"]),
    ("bind", &["EADDRINUSE", "EADDRNOTAVAIL", "EACCES", "EPERM", "ENOMEM", "EINVAL"]),
    ("brk", &["ENOMEM"]),
    ("clock_gettime", &["EINVAL", "ENOSYS"]),
    ("clone", &["EAGAIN", "ENOMEM"]),
    ("clone3", &["EAGAIN", "ENOMEM", "ENOSYS"]),
    (
        "connect",
        &["EADDRNOTAVAIL", "EAGAIN", "ECONNREFUSED", "EINTR", "ENETUNREACH", "ETIMEDOUT", "EPERM"],
    ),
    ("epoll_create1", NO_ROOM),
    ("epoll_ctl", &["ENOMEM", "ENOSPC", "EPERM"]),
    ("epoll_pwait", &["EINTR"]),
    ("eventfd2", &["EMFILE", "ENFILE", "ENOMEM", "ENODEV", "ENOSYS"]),
    ("fallocate", &["ENOSPC", "EOPNOTSUPP", "EINTR"]),
    ("fcntl", &["EPERM", "EINVAL", "EMFILE"]),
    ("flock", &["EINTR", "ENOLCK", "EAGAIN"]),
    ("ftruncate", &["EINVAL", "ENOSPC", "EPERM"]),
    ("getdents64", &["EIO", "ENOENT"]),
    ("getrandom", &["EINTR", "ENOSYS", "EPERM"]),
    ("getsockname", &["ENOBUFS"]),
    ("getsockopt", &["ENOPROTOOPT", "EINVAL", "ENOBUFS"]),
    ("ioctl", &["ENODEV", "EPERM", "EINVAL", "ENOTTY"]),
    ("listen", &["EADDRINUSE", "EOPNOTSUPP"]),
    ("lseek", &["EINVAL", "ESPIPE"]),
    ("madvise", &["ENOMEM", "EAGAIN", "EINVAL", "EFAULT", "ENOSYS"]),
    ("memfd_create", &["EMFILE", "ENFILE", "ENOMEM", "ENOSYS", "EPERM"]),
    ("mkdir", &["EACCES", "EEXIST", "ENOSPC", "EROFS"]),
    ("mmap", &["ENOMEM", "EAGAIN", "EPERM"]),
    ("mprotect", &["ENOMEM", "EACCES"]),
    ("mremap", &["ENOMEM", "EAGAIN"]),
    ("munmap", &["ENOMEM", "EINVAL"]),
    ("newfstatat", &["ENOENT", "EACCES", "ENOMEM"]),
    ("openat", &["EMFILE", "ENFILE", "ENOENT", "EACCES", "ENOMEM", "EINTR"]),
    ("pipe2", NO_ROOM),
    ("poll", &["EINTR", "ENOMEM", "EINVAL"]),
    ("ppoll", &["EINTR", "ENOMEM", "EINVAL"]),
    ("prctl", &["EPERM", "EINVAL"]),
    ("process_vm_readv", &["EPERM", "ENOSYS", "EFAULT", "ENOMEM"]),
    ("process_vm_writev", &["EPERM", "ENOSYS", "EFAULT", "ENOMEM"]),
    ("read", &["EINTR", "EIO", "ENOMEM"]),
    ("readlink", &["EACCES", "ENOENT", "ENOMEM"]),
    ("recvfrom", RECEIVE),
    ("recvmmsg", RECEIVE),
    // Not ECONNREFUSED: glibc ends the program when netlink answers so.
    ("recvmsg", &["EAGAIN", "EINTR", "ENOMEM", "ENOBUFS", "EIO"]),
    ("rt_sigaction", &["EINVAL", "ENOSYS"]),
    ("sched_getaffinity", &["EPERM", "EINVAL"]),
    ("sched_setaffinity", &["EPERM", "EINVAL"]),
    ("sendmmsg", SEND),
    ("sendmsg", SEND),
    ("sendto", SEND),
    ("setsockopt", &["ENOPROTOOPT", "EPERM", "EINVAL", "ENOMEM", "ENOBUFS"]),
    ("shutdown", &["ENOTCONN", "ENOBUFS"]),
    ("socket", &["EMFILE", "ENFILE", "ENOBUFS", "EACCES", "EPERM", "EAFNOSUPPORT"]),
    ("socketpair", &["EMFILE", "ENFILE", "EOPNOTSUPP"]),
    ("statx", &["ENOENT", "EACCES", "ENOSYS"]),
    ("symlink", &["EACCES", "ENOSPC", "EEXIST"]),
    ("uname", &["EFAULT"]),
    ("unlink", &["EACCES", "ENOENT"]),
    ("write", &["EINTR", "EIO", "EPIPE", "ENOSPC"]),
    ("writev", &["EINTR", "EIO", "EPIPE"]),
];
