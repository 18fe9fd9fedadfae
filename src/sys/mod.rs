//! System calls and processor instructions, behind functions that are safe to call.
//!
//! `rustix` makes most calls, and `pnet` lists interfaces. `rustix` enters the kernel itself, so a preloaded library
//! that replaces functions of the C library does not see these calls. The C library makes the others (`ffi`, and parts
//! of `messages` and `memory`).
//!
//! | module | subject |
//! |---|---|
//! | `messages`, `cmsg` | datagrams with control messages; descriptors over Unix sockets |
//! | `socket` | options of sockets |
//! | `netlink` | messages of `netlink(7)` |
//! | `sock_diag` | the memory of sockets of other programs |
//! | `interface`, `watch` | network interfaces, and changes of them |
//! | `rtnetlink` | routes, neighbours and link addresses |
//! | `wait` | waits for descriptors and threads |
//! | `process` | user, capabilities, clocks |
//! | `signals` | signal handlers of the program |
//! | `memory` | memory with pages that may be missing: mappings, copies, flushes |
//! | `copies` | copies by the processor that end at a missing page |
//! | `actions`, `fault`, `probe` | actions of signals; the handler that ends these copies; a trial of it |
//! | `ffi` | functions of the C library: further socket options, requests for interfaces, signals, hooks |
//! | `fork` | forked children |
//! | `datagram_memory` | memory with aligned payloads |
//! | `hint` | hints to the processor and to the compiler |

#[cfg(all(feature = "runtime", target_os = "linux", target_arch = "x86_64"))]
mod actions;
#[cfg(feature = "runtime")]
mod cmsg;
#[cfg(all(feature = "runtime", target_os = "linux", target_arch = "x86_64"))]
mod copies;
mod datagram_memory;
#[cfg(all(feature = "runtime", target_os = "linux", target_arch = "x86_64"))]
mod fault;
#[cfg(feature = "runtime")]
mod ffi;
#[cfg(feature = "runtime")]
mod fork;
mod hint;
#[cfg(feature = "runtime")]
mod interface;
#[cfg(feature = "runtime")]
pub(crate) mod memory;
#[cfg(feature = "runtime")]
mod messages;
#[cfg(feature = "runtime")]
mod netlink;
#[cfg(feature = "runtime")]
mod own_descriptor;
#[cfg(all(feature = "runtime", target_os = "linux", target_arch = "x86_64"))]
mod probe;
#[cfg(feature = "runtime")]
mod process;
#[cfg(feature = "packet")]
mod rtnetlink;
#[cfg(feature = "runtime")]
mod signals;
#[cfg(feature = "runtime")]
mod sock_diag;
#[cfg(feature = "runtime")]
mod socket;
#[cfg(feature = "runtime")]
mod wait;
#[cfg(feature = "runtime")]
mod watch;

#[cfg(all(feature = "runtime", target_os = "linux", target_arch = "x86_64"))]
pub use actions::SignalAction;
#[cfg(feature = "runtime")]
pub(crate) use cmsg::integer;
pub(crate) use datagram_memory::{DatagramMemory, HEADER as ALIGNED_HEADER};
#[cfg(all(feature = "runtime", target_os = "linux", target_arch = "x86_64"))]
pub use fault::change as change_signal_action;
#[cfg(feature = "packet")]
pub(crate) use ffi::bind_to_link;
#[cfg(feature = "tap")]
pub(crate) use ffi::offload_tap;
#[cfg(feature = "runtime")]
pub(crate) use ffi::{
    at_exit, attach_reuseport, drops, is_privileged, process_of_peer, set_option, user_of_peer,
};
#[cfg(feature = "runtime")]
pub use fork::{PerProcess, generation};
pub(crate) use hint::{opaque_word, prefetch};
#[cfg(feature = "runtime")]
pub(crate) use interface::{Interface, interface_of, is_of_host};
#[cfg(feature = "tap")]
pub(crate) use interface::{
    add_to_bridge, attach_tap, frames_dropped, interface_named, queue_len, raise_link_address,
    set_link_up, set_mtu, set_queue_len, tap_name,
};
#[cfg(feature = "runtime")]
pub use memory::{handle_faults, read_program, write_program};
#[cfg(feature = "runtime")]
pub(crate) use messages::{
    MAX_MESSAGES, Received, RecvBatch, SendMsg, receive_descriptor, receive_error, send_descriptor,
    send_many, send_one, send_to_peer,
};
#[cfg(feature = "runtime")]
pub(crate) use own_descriptor::OwnDescriptor;
#[cfg(all(test, feature = "runtime"))]
pub(crate) use process::PROCESS_START;
#[cfg(feature = "runtime")]
pub(crate) use process::{
    FileIdentity, has_net_bind_service, has_net_raw, is_dumpable, monotonic, processor_time, user,
};
#[cfg(feature = "packet")]
pub(crate) use rtnetlink::{Neighbour, RtNetlink};
#[cfg(feature = "runtime")]
pub(crate) use signals::{DeferredSignals, Restarts, restarts};
#[cfg(feature = "runtime")]
pub(crate) use sock_diag::{ProbeError, SockDiag, SocketMemory};
#[cfg(feature = "runtime")]
pub(crate) use socket::{forbid_fragments, force_receive_buffer, path_mtu};
#[cfg(feature = "runtime")]
pub use wait::wait_readable;
#[cfg(feature = "runtime")]
pub(crate) use wait::{
    Readiness, Sleepers, Woken, clear_event_fd, event_fd, sleep_on, sleep_on_also,
};
#[cfg(feature = "runtime")]
pub(crate) use watch::{Watch, WatchLost};

/// Whether a call failed because its descriptor is no socket any more: other code has closed it.
#[cfg(feature = "runtime")]
pub(crate) fn is_closed(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBADF | libc::ENOTSOCK))
}
