//! Paths of an RDMA device, below `/sys/class/infiniband` and `/dev/infiniband`, that programs look up themselves.
//! softroce has no kernel module there, and no permission to create files.
//!
//! `roce run` writes a tree of files with the contents that the kernel would have for softroce, and preloads this
//! library. It interposes the functions of libc that take a path, and leads these paths into the tree; other paths do
//! not change. It also interposes `_exit`, to send pending acknowledgements when a process ends that way; and
//! `sigaction`, so that the handler of SIGSEGV and SIGBUS in our libibverbs stays in front, and a program sees only its
//! own handlers. Descriptors of `/dev/infiniband/rdma_cm` are channels of our libibverbs, to which it passes `write` and
//! `close`.
//!
//! * [`tree_path`]: paths of the tree; [`descriptors`]: a set of file descriptors;
//! * [`border`]: the interposed functions; [`signals`]: those that change actions of signals; [`channel`]: those that
//!   take descriptors;
//! * [`next`]: the functions of the libraries behind them.

#![deny(unsafe_code)]

// In tests these functions would replace libc's.
#[cfg(not(test))]
#[expect(unsafe_code, reason = "functions of libc; its documentation says what it rests on")]
mod border;
#[cfg(not(test))]
#[expect(
    unsafe_code,
    reason = "functions of libc; the documentation of `border` says what it rests on"
)]
mod channel;
mod descriptors;
#[cfg(not(test))]
#[expect(unsafe_code, reason = "functions of other libraries, found by their names")]
mod next;
#[cfg(not(test))]
#[expect(
    unsafe_code,
    reason = "functions of libc; the documentation of `border` says what it rests on"
)]
mod signals;
mod tree_path;
