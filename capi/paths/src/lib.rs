//! What programs look up themselves of an RDMA device, under `/sys/class/infiniband` and
//! `/dev/infiniband`, where softroce has nothing: no kernel module, no right to make anything there.
//!
//! `roce run` writes a small tree of files that says of softroce what the kernel says of its devices, and
//! has this library loaded before the program. It stands before the functions of libc that take a path,
//! and has them look into the tree instead; nothing else is changed. It also stands before `_exit`, so
//! that acknowledgements are sent that are owed when a process ends that way; and before `sigaction`, so that our
//! libibverbs stays the first to handle SIGSEGV and SIGBUS, and a program sees only its own handlers.
//!
//! * [`place`]: which paths these are, and where they lead;
//! * [`border`]: the functions, in the place of libc's; [`signals`]: those that change actions of signals;
//! * [`next`]: the functions behind them.

#![deny(unsafe_code)]

// Tests would have these functions in the place of their own libc's.
#[cfg(not(test))]
#[expect(unsafe_code, reason = "functions of libc; its documentation says what it rests on")]
mod border;
#[cfg(not(test))]
#[expect(unsafe_code, reason = "functions of other libraries, found by their names")]
mod next;
mod place;
#[cfg(not(test))]
#[expect(
    unsafe_code,
    reason = "functions of libc; the documentation of `border` says what it rests on"
)]
mod signals;
