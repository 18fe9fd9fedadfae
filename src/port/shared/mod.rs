//! Code that several kinds of port share.

#[cfg(feature = "runtime")]
pub(super) mod backoff;
#[cfg(feature = "runtime")]
pub(super) mod bpf;
pub(super) mod conditions;
pub(super) mod emulated_link;
#[cfg(feature = "runtime")]
pub(super) mod event_fd;
#[cfg(any(feature = "packet", feature = "tap"))]
pub(super) mod frame;
#[cfg(feature = "runtime")]
pub(super) mod name_lease;
#[cfg(feature = "runtime")]
pub(super) mod open_error;
#[cfg(feature = "runtime")]
pub(super) mod receive_buffer;
#[cfg(feature = "runtime")]
pub(super) mod recv_batch;
#[cfg(feature = "runtime")]
pub(super) mod send_failure;
#[cfg(feature = "runtime")]
pub(super) mod socket_owner;
