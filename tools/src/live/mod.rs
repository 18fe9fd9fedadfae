//! Devices of running programs: their state, and captures of their packets, through control sockets
//! ([`softroce::runtime::control`]).

mod capture;
mod device;
mod extcap;
mod files;
mod install;
mod reorder;
mod signals;
mod source;
mod status;
mod stream;
mod write;

pub(crate) use capture::{pipe, run};
pub(crate) use extcap::run as run_extcap;
pub(crate) use signals::EndSignals;
pub(crate) use status::{ListenerStatus, QpStatus, Status, Statuses};
