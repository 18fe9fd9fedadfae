//! Errors of the connection manager.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use thiserror::Error;

use crate::cm::{self, BindError, RejectReason, SidrStatus};
use crate::engine::QpType;
use crate::runtime::DeviceError;
use crate::verbs;

/// Error of the connection manager.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The id is in a state that does not allow the call.
    #[doc(alias = "EINVAL")]
    #[error("{call} needs an id that is {needed}, and this one is {found}")]
    State {
        /// The call.
        call: &'static str,
        /// State of the id.
        found: &'static str,
        /// State that allows the call.
        needed: &'static str,
    },
    /// The queue pair type does not fit the port space or the call.
    #[doc(alias = "EINVAL")]
    #[error("{call} is not possible with {found} queue pairs")]
    QpType {
        /// The call.
        call: &'static str,
        /// Type of the queue pair.
        found: QpType,
    },
    /// A value is not valid.
    #[doc(alias = "EINVAL")]
    #[error("{what} is not valid: {found}")]
    Value {
        /// Name of the value.
        what: &'static str,
        /// Its text.
        found: String,
    },
    /// No interface of this machine has the address.
    #[doc(alias = "EADDRNOTAVAIL")]
    #[error("{ip} is not an address of this machine")]
    NotLocal {
        /// Requested address.
        ip: IpAddr,
    },
    /// The device does not have the address.
    #[doc(alias = "ENODEV")]
    #[error("{ip} is not an address of the device, which has {device}")]
    NotOfDevice {
        /// Requested address.
        ip: IpAddr,
        /// First address of the device.
        device: IpAddr,
    },
    /// Another device has the loopback address, so no request arrives here.
    #[doc(alias = "EADDRINUSE")]
    #[error("cannot listen at {ip}: the device of this process has {device}")]
    ForeignLoopback {
        /// Address of the bind.
        ip: IpAddr,
        /// First address of the device.
        device: IpAddr,
    },
    /// Another process at this address has queue pair 1.
    #[doc(alias = "ENODEV")]
    #[error(
        "another process has the connection manager of {ip}: the first one at an address has it"
    )]
    NoGsi {
        /// Address of the device.
        ip: IpAddr,
    },
    /// The port is not available.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// There is no route to the peer.
    #[error("no route to {destination}: {source}")]
    NoRoute {
        /// Address of the peer.
        destination: IpAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The device has no address of the IP version of the peer.
    #[doc(alias = "ENETUNREACH")]
    #[error("no route to {destination}: the device has no address of this IP version")]
    NoSource {
        /// Address of the peer.
        destination: IpAddr,
    },
    /// Multicast groups of the connection manager are IPv4 groups, as in Linux.
    #[doc(alias = "ENOTSUPP")]
    #[error("cannot join {group}: the connection manager joins IPv4 groups only")]
    Group {
        /// Address of the group.
        group: IpAddr,
    },
    /// The agent refuses the call.
    #[error(transparent)]
    Agent(#[from] cm::Error),
    /// A verb has failed.
    #[error(transparent)]
    Verbs(#[from] verbs::Error),
    /// A system call has failed.
    #[error("{what}: {source}")]
    Os {
        /// Purpose of the call.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The peer rejected the connection.
    #[doc(alias = "ECONNREFUSED")]
    #[error("{peer} rejects the connection: {reason}")]
    Rejected {
        /// Address of the peer.
        peer: SocketAddr,
        /// Reason.
        reason: RejectReason,
        /// Private data of the peer, with trailing zeros.
        private_data: Vec<u8>,
    },
    /// The peer refused to resolve the service.
    #[doc(alias = "ECONNREFUSED")]
    #[error("{peer} does not resolve the service: {status}")]
    NotResolved {
        /// Address of the peer.
        peer: SocketAddr,
        /// Status of the reply.
        status: SidrStatus,
        /// Private data of the peer, with trailing zeros.
        private_data: Vec<u8>,
    },
    /// The peer did not answer.
    #[doc(alias = "ETIMEDOUT")]
    #[error("{peer} does not answer")]
    Unreachable {
        /// Address of the peer.
        peer: SocketAddr,
    },
    /// The connection ended during the call.
    #[doc(alias = "ECONNRESET")]
    #[error("{peer} has disconnected")]
    Disconnected {
        /// Address of the peer.
        peer: SocketAddr,
    },
    /// A wait has timed out.
    #[error("no {what} within {after:?}")]
    Timeout {
        /// Name of the awaited event.
        what: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// A signal handler has interrupted a wait.
    #[doc(alias = "EINTR")]
    #[error("a signal has interrupted the wait for the next event")]
    Interrupted,
}

impl Error {
    /// Returns the error number for C programs, as Linux' rdma_cm returns it.
    pub fn errno(&self) -> i32 {
        match self {
            Self::State { .. } | Self::QpType { .. } | Self::Value { .. } => libc::EINVAL,
            Self::NotLocal { .. } => libc::EADDRNOTAVAIL,
            Self::NotOfDevice { .. } | Self::NoGsi { .. } => libc::ENODEV,
            Self::ForeignLoopback { .. } => libc::EADDRINUSE,
            Self::Bind(BindError::Privileged { .. }) => libc::EACCES,
            Self::Bind(BindError::InUse { .. }) => libc::EADDRINUSE,
            Self::Bind(BindError::Conflict { .. } | BindError::Exhausted { .. }) => {
                libc::EADDRNOTAVAIL
            }
            Self::NoRoute { source, .. } | Self::Os { source, .. } => {
                source.raw_os_error().unwrap_or(libc::EIO)
            }
            Self::NoSource { .. } => libc::ENETUNREACH,
            Self::Group { .. } => ENOTSUPP,
            Self::Agent(cm::Error::ServiceInUse(_)) => libc::EADDRINUSE,
            Self::Agent(cm::Error::TooMany { .. }) => libc::ENOMEM,
            Self::Agent(_) => libc::EINVAL,
            // Linux' rdma_cm loses its devices when they go.
            Self::Verbs(verbs::Error::Device(_)) => libc::ENODEV,
            Self::Verbs(error) => error.errno(),
            Self::Rejected { .. } | Self::NotResolved { .. } => libc::ECONNREFUSED,
            Self::Unreachable { .. } => libc::ETIMEDOUT,
            Self::Disconnected { .. } => libc::ECONNRESET,
            Self::Timeout { after, .. } if after.is_zero() => libc::EAGAIN,
            Self::Timeout { .. } => libc::ETIMEDOUT,
            Self::Interrupted => libc::EINTR,
        }
    }
}

/// Error number of the Linux kernel that the C library does not name.
const ENOTSUPP: i32 = 524;

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Self::Verbs(error.into())
    }
}
