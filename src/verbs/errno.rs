//! Error numbers (`errno`) for the errors of verbs.

use std::io;

use crate::engine::{CreateError, McastError, ModifyError, PostError, SrqError};
use crate::mem::{AccessError, AdviseError, DmError, RegisterError};
#[cfg(feature = "packet")]
use crate::port::packet;
#[cfg(feature = "tap")]
use crate::port::tap;
use crate::port::{CustomPortError, JoinError, udp};
use crate::runtime::{DeviceError, OpenError, XrcdError};
use crate::verbs::Error;
use crate::verbs::usage::UNACKNOWLEDGED_EVENTS;

impl Error {
    /// Returns whether the object has unacknowledged events and no other users.
    /// [`wait_acknowledged`](super::QueuePair::wait_acknowledged) waits until it can be destroyed.
    pub fn is_unacknowledged(&self) -> bool {
        matches!(self, Self::InUse { by: UNACKNOWLEDGED_EVENTS, .. })
    }

    /// Returns the error number for C programs: that of the manual pages of libibverbs, or, where these give none, of
    /// the Linux kernel.
    ///
    /// ```
    /// use softroce::verbs::*;
    ///
    /// let ctx = Context::open(OpenOptions::loopback())?;
    /// let error = ctx.create_cq(0, None).unwrap_err();
    /// assert_eq!(error.errno(), 22); // EINVAL
    /// # Ok::<(), Error>(())
    /// ```
    pub fn errno(&self) -> i32 {
        match self {
            Self::Open(error) => of_open(error),
            Self::Device(DeviceError::Failed | DeviceError::SocketClosed | DeviceError::Forked) => {
                libc::EIO
            }
            Self::Alloc(_) | Self::Full { .. } => libc::ENOMEM,
            Self::Register(error) => of_register(error),
            Self::DeviceMemory(DmError::Exhausted { .. }) => libc::ENOMEM,
            Self::Advise(error) => of_advise(error),
            Self::InUse { .. } => libc::EBUSY,
            Self::Create(error) => of_create(error),
            Self::Modify { source, .. } => of_modify(source),
            Self::Post { source, .. } | Self::PostSrq { source, .. } => of_post(source),
            Self::Srq(error) => of_srq(error),
            Self::Xrcd(XrcdError::NotOpen) => libc::EAGAIN,
            Self::Xrcd(XrcdError::Exists) => libc::EINVAL,
            Self::EmptyGid { .. } => libc::ENODATA,
            Self::NoSuchTarget { .. } => libc::ENOENT,
            Self::Mcast { source, .. } => of_mcast(source),
            Self::Join(error) => of_join(error),
            Self::CompletionFields { .. } => libc::EOPNOTSUPP,
            Self::DeviceMemory(DmError::Empty | DmError::Alignment { .. })
            | Self::WindowType { .. }
            | Self::Limit { .. }
            | Self::CqTooSmall { .. }
            | Self::OtherDevice { .. }
            | Self::NoParentDomain
            | Self::Address { .. }
            | Self::Header
            | Self::NotADatagram { .. }
            | Self::TableIndex { .. } => libc::EINVAL,
            // A wait of zero duration is the read of a non-blocking descriptor.
            Self::Timeout { after, .. } if after.is_zero() => libc::EAGAIN,
            Self::Timeout { .. } => libc::ETIMEDOUT,
            Self::Interrupted { .. } => libc::EINTR,
            Self::Overrun { .. } => libc::EOVERFLOW,
            Self::Os { source, .. } => of_system(source),
        }
    }
}

/// Returns the number that the system reported, if the error comes from the system.
fn of_system(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

fn of_open(error: &OpenError) -> i32 {
    match error {
        OpenError::Port(port) => of_port(port),
        #[cfg(feature = "packet")]
        OpenError::PacketPort(port) => of_packet_port(port),
        #[cfg(feature = "tap")]
        OpenError::TapPort(port) => of_tap_port(port),
        OpenError::OtherPort(port) => {
            port.downcast_ref().map_or(libc::EIO, |port: &CustomPortError| of_system(&port.source))
        }
        OpenError::NoneFree { last } => last.as_ref().map_or(libc::EADDRINUSE, of_port),
        OpenError::AlreadyOpen { .. } | OpenError::Belongs { .. } => libc::EBUSY,
        OpenError::Environment(_)
        | OpenError::SameAddress { .. }
        | OpenError::TooManyAddresses { .. }
        | OpenError::LinkMtu { .. }
        | OpenError::Shards { .. }
        | OpenError::ShardsVia { .. }
        | OpenError::NoPKey
        | OpenError::InvalidPKey(_)
        | OpenError::SamePartition { .. } => libc::EINVAL,
        OpenError::Counters { source, .. } | OpenError::Os { source, .. } => of_system(source),
    }
}

fn of_port(error: &udp::OpenError) -> i32 {
    match error {
        udp::OpenError::NotOneHost { .. }
        | udp::OpenError::SourcePort { .. }
        | udp::OpenError::Shards { .. } => libc::EINVAL,
        udp::OpenError::NotLocal { .. } => libc::EADDRNOTAVAIL,
        udp::OpenError::InUse { .. } => libc::EADDRINUSE,
        udp::OpenError::Os { source, .. } => of_system(source),
    }
}

#[cfg(feature = "packet")]
fn of_packet_port(error: &packet::OpenError) -> i32 {
    match error {
        packet::OpenError::Full { .. } => libc::EADDRINUSE,
        packet::OpenError::NotPermitted { .. } => libc::EPERM,
        packet::OpenError::NoInterface { .. } => libc::EADDRNOTAVAIL,
        packet::OpenError::NotEthernet { .. } => libc::EPFNOSUPPORT,
        packet::OpenError::Os { source, .. } => of_system(source),
    }
}

#[cfg(feature = "tap")]
fn of_tap_port(error: &tap::OpenError) -> i32 {
    match error {
        tap::OpenError::MayNotMake { .. } | tap::OpenError::NotYours { .. } => libc::EPERM,
        tap::OpenError::InUse { .. } => libc::EBUSY,
        tap::OpenError::OfThisHost { .. } => libc::EADDRINUSE,
        tap::OpenError::NoAddress { .. } | tap::OpenError::NoNetwork { .. } => libc::EADDRNOTAVAIL,
        tap::OpenError::NotATap { .. }
        | tap::OpenError::NotOneHost { .. }
        | tap::OpenError::FarGateway { .. }
        | tap::OpenError::TooManyAddresses { .. } => libc::EINVAL,
        tap::OpenError::NoTun { source }
        | tap::OpenError::NoBridge { source, .. }
        | tap::OpenError::Os { source, .. } => of_system(source),
    }
}

fn of_register(error: &RegisterError) -> i32 {
    match error {
        RegisterError::Unsupported { .. } => libc::EOPNOTSUPP,
        RegisterError::TableFull { .. } => libc::ENOMEM,
        RegisterError::Windows(_) => libc::EBUSY,
        RegisterError::Empty
        | RegisterError::NeedsLocalWrite { .. }
        | RegisterError::AddressOverflow { .. }
        | RegisterError::NotPersistent
        | RegisterError::TooLong { .. }
        | RegisterError::NotZeroBased
        | RegisterError::OutsideDm { .. }
        | RegisterError::Gone => libc::EINVAL,
    }
}

/// `ibv_advise_mr` also reports unmapped or read-only memory as outside of the region. The kernel returns `ENOMEM`
/// for unmapped memory and `EINVAL` for read-only memory.
fn of_advise(error: &AdviseError) -> i32 {
    match error {
        AdviseError::Access(AccessError::WrongDomain { .. }) => libc::EPERM,
        AdviseError::Access(_) => libc::EFAULT,
        AdviseError::Os(source) => match of_system(source) {
            libc::ENOMEM | libc::EINVAL => libc::EFAULT,
            other => other,
        },
    }
}

fn of_create(error: &CreateError) -> i32 {
    match error {
        CreateError::TooMany { .. } | CreateError::NumbersRest { .. } => libc::ENOMEM,
        CreateError::SendOps { .. } => libc::EOPNOTSUPP,
        CreateError::NoSuchSrq(_)
        | CreateError::SrqType { .. }
        | CreateError::NoXrcd
        | CreateError::NoCq { .. } => libc::EINVAL,
    }
}

fn of_modify(error: &ModifyError) -> i32 {
    match error {
        ModifyError::PrivilegedQkey { .. } => libc::EPERM,
        ModifyError::NoSuchQp(_)
        | ModifyError::Illegal { .. }
        | ModifyError::Attributes { .. }
        | ModifyError::CurState { .. }
        | ModifyError::Draining
        | ModifyError::ReadsPosted { .. }
        | ModifyError::OutOfRange { .. }
        | ModifyError::UnknownAttributes { .. }
        | ModifyError::Cap
        | ModifyError::Value { .. }
        | ModifyError::PathMtu { .. }
        | ModifyError::SgidIndex { .. }
        | ModifyError::EmptyGid { .. }
        | ModifyError::GidFamily { .. }
        | ModifyError::ToGroup { .. }
        | ModifyError::AltPath
        | ModifyError::MigState { .. } => libc::EINVAL,
    }
}

fn of_post(error: &PostError) -> i32 {
    match error {
        PostError::QueueFull { .. } => libc::ENOMEM,
        PostError::NoSuchQp(_)
        | PostError::NoSuchSrq(_)
        | PostError::Shared { .. }
        | PostError::State { .. }
        | PostError::TooManySges { .. }
        | PostError::TooLong { .. }
        | PostError::InlineTooLong { .. }
        | PostError::InlineAnswer
        | PostError::LocalData { .. }
        | PostError::WindowAccess { .. }
        | PostError::AtomicLength { .. }
        | PostError::AtomicWriteLength { .. }
        | PostError::FlushPlacement { .. }
        | PostError::NoSuchOperation { .. }
        | PostError::NoQueue { .. }
        | PostError::NoSrqn
        | PostError::NoTarget
        | PostError::Address { .. }
        | PostError::NotDeclared { .. }
        | PostError::NoReads => libc::EINVAL,
    }
}

fn of_srq(error: &SrqError) -> i32 {
    match error {
        SrqError::TooMany { .. } => libc::ENOMEM,
        SrqError::InUse { .. } => libc::EBUSY,
        SrqError::NoSuchSrq(_)
        | SrqError::Empty
        | SrqError::TooSmall { .. }
        | SrqError::Limit { .. } => libc::EINVAL,
    }
}

fn of_mcast(error: &McastError) -> i32 {
    match error {
        McastError::TooManyGroups { .. } | McastError::TooManyMembers { .. } => libc::ENOMEM,
        McastError::NoSuchQp(_)
        | McastError::Service { .. }
        | McastError::NotAGroup { .. }
        | McastError::IpVersion { .. }
        | McastError::NotAttached { .. } => libc::EINVAL,
    }
}

fn of_join(error: &JoinError) -> i32 {
    match error {
        JoinError::Unsupported { .. } => libc::EOPNOTSUPP,
        JoinError::NotAGroup { .. } => libc::EINVAL,
        JoinError::Os { source, .. } => of_system(source),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ids::{CqId, QKey, Qpn};
    use crate::verbs::WcFlags;

    #[test]
    fn errors_have_the_errno_of_the_manual_pages() {
        let qpn = Qpn::new(7);
        let post = |source| Error::Post { qpn, source };
        let timeout = |after| Error::Timeout { what: "announcement", after };
        let in_use = Error::InUse { what: "queue", by: "events", count: 1 };
        for (error, expected) in [
            (post(PostError::QueueFull { capacity: 4 }), libc::ENOMEM),
            (post(PostError::NoTarget), libc::EINVAL),
            (in_use, libc::EBUSY),
            (timeout(Duration::ZERO), libc::EAGAIN),
            (timeout(Duration::from_secs(1)), libc::ETIMEDOUT),
            (Error::Interrupted { what: "announcement" }, libc::EINTR),
            (CreateError::TooMany { max: 4 }.into(), libc::ENOMEM),
            (DmError::Exhausted { len: 2, left: 1 }.into(), libc::ENOMEM),
            (Error::Register(RegisterError::NotPersistent), libc::EINVAL),
            (Error::Advise(AccessError::UnknownKey { key: 1 }.into()), libc::EFAULT),
            (Error::Advise(AccessError::WrongDomain { key: 1 }.into()), libc::EPERM),
            (
                Error::Advise(AdviseError::Os(io::Error::from_raw_os_error(libc::ENOMEM))),
                libc::EFAULT,
            ),
            (Error::CompletionFields { unsupported: WcFlags::CVLAN }, libc::EOPNOTSUPP),
            (Error::CqTooSmall { cq: CqId(1), depth: 1, held: 2 }, libc::EINVAL),
            (Error::Modify { qpn, source: ModifyError::Draining }, libc::EINVAL),
            (
                Error::Modify { qpn, source: ModifyError::PrivilegedQkey { qkey: QKey(1 << 31) } },
                libc::EPERM,
            ),
            (
                Error::Os { what: "eventfd", source: io::Error::from_raw_os_error(libc::EMFILE) },
                libc::EMFILE,
            ),
            (DeviceError::Failed.into(), libc::EIO),
            (DeviceError::SocketClosed.into(), libc::EIO),
        ] {
            assert_eq!(error.errno(), expected, "{error}");
        }
    }
}
