//! Errors of calls to the agent.

use thiserror::Error;

use crate::engine::{QpState, QpType};
use crate::ids::{Gid, PKey};
use crate::wire::cm::ServiceId;

use super::state::State;
use super::types::ConnId;

/// Error of a call to the agent. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The id does not exist, or has been destroyed.
    #[error("no id {0}")]
    UnknownId(ConnId),
    /// The id is in a state that does not allow the call.
    #[error("the id is in {found}; the call needs {needed}")]
    State {
        /// State of the id.
        found: State,
        /// States that allow the call.
        needed: &'static str,
    },
    /// The private data does not fit the message.
    #[error("private data has {found} bytes; the message holds {max}")]
    PrivateData {
        /// Length in bytes.
        found: usize,
        /// Maximum length in bytes.
        max: usize,
    },
    /// Another listener has this service ID at the same address.
    #[error("service 0x{:016x} has a listener already", .0.0)]
    ServiceInUse(ServiceId),
    /// The device has no more ids.
    #[error("{max} ids are in use, which is the limit")]
    TooMany {
        /// Maximum number of ids.
        max: usize,
    },
    /// The source of the path is no address of the device.
    #[error("{0} is no address of the device")]
    Source(Gid),
    /// The addresses of the path have different IP versions.
    #[error("{source_gid} and {destination} have different IP versions")]
    Family {
        /// Source of the path.
        source_gid: Gid,
        /// Destination of the path.
        destination: Gid,
    },
    /// The device is no member of the partition.
    #[error("the device is no member of the partition of P_Key {0}")]
    PKey(PKey),
    /// The type of the queue pair does not fit the call.
    #[error("{found} queue pairs do not {call}")]
    QpType {
        /// Type of the queue pair.
        found: QpType,
        /// The call.
        call: &'static str,
    },
    /// A parameter exceeds its range.
    #[error("{name} is {found}; at most {max} is possible")]
    Range {
        /// Name of the parameter.
        name: &'static str,
        /// Its value.
        found: u32,
        /// Its maximum.
        max: u32,
    },
    /// The connection manager has no attributes for this state of a queue pair.
    #[error("the connection manager has no attributes for {0}")]
    NoAttributes(QpState),
}
