//! `roce devinfo`: its options.

use clap::Args;

use super::DeviceArgs;

/// Show the device: port, GIDs, MTU; with -v limits and counters.
#[derive(Args, Debug)]
pub(crate) struct DevinfoArgs {
    /// Everything there is to say.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// One object of JSON, with everything.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}
