//! System calls and processor instructions, behind functions that are safe to call.
//!
//! | module | subject |
//! |---|---|
//! | `messages`, `cmsg` | datagrams with control messages; descriptors over Unix sockets |
//! | `socket` | socket options and link addresses |
//! | `interface`, `watch` | network interfaces, and changes of them |
//! | `wait` | waits for descriptors and threads |
//! | `process` | privileges, clocks, hooks |
//! | `signals` | signal handlers of the program |
//! | `memory` | memory whose pages may be missing: mappings, copies, flushes |
//! | `fault` | copies that survive a missing page |
//! | `hint` | hints to the processor and to the compiler |

#[cfg(feature = "runtime")]
mod cmsg;
#[cfg(all(feature = "runtime", target_os = "linux", target_arch = "x86_64"))]
mod fault;
mod hint;
#[cfg(feature = "runtime")]
mod interface;
#[cfg(feature = "runtime")]
pub(crate) mod memory;
#[cfg(feature = "runtime")]
mod messages;
#[cfg(feature = "runtime")]
mod process;
#[cfg(feature = "runtime")]
mod signals;
#[cfg(feature = "runtime")]
mod socket;
#[cfg(feature = "runtime")]
mod wait;
#[cfg(feature = "runtime")]
mod watch;

#[cfg(feature = "runtime")]
pub(crate) use cmsg::integer;
pub(crate) use hint::{by_itself, prefetch};
#[cfg(feature = "runtime")]
pub(crate) use interface::{Interface, interface_of};
#[cfg(feature = "tap")]
pub(crate) use interface::{
    add_to_bridge, attach_tap, frames_dropped, interface_named, is_of_host, offload_tap, queue_len,
    raise_link_address, set_link_up, set_mtu, set_queue_len, tap_name,
};
#[cfg(feature = "runtime")]
pub(crate) use messages::{
    Envelope, Inbox, MAX_MESSAGES, Received, receive_descriptor, receive_error, send_descriptor,
    send_many, send_one, send_to_peer,
};
#[cfg(feature = "runtime")]
pub(crate) use process::{
    at_exit, at_fork, has_net_raw, is_privileged, monotonic, processor_time, user,
};
#[cfg(feature = "runtime")]
pub(crate) use signals::{Restarts, restarts};
#[cfg(feature = "packet")]
pub(crate) use socket::bind_to_link;
#[cfg(feature = "runtime")]
pub(crate) use socket::{attach_reuseport, drops, is_closed, option, set_option, user_of_peer};
#[cfg(feature = "runtime")]
pub use wait::wait_readable;
#[cfg(feature = "runtime")]
pub(crate) use wait::{Readiness, Sleepers, Woken, clear_event_fd, event_fd, sleep_on};
#[cfg(feature = "runtime")]
pub(crate) use watch::Watch;

#[cfg(feature = "runtime")]
/// A length in the type that the C library has for it, none of which is too small for ours.
fn length<T: TryFrom<usize> + Default>(len: usize) -> T {
    T::try_from(len).unwrap_or_default()
}
