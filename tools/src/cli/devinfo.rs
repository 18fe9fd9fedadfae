//! `roce devinfo`: its options.

use std::path::PathBuf;

use clap::Args;

use super::DeviceArgs;

/// Show the device: port, GIDs, MTU; with -v limits; with --counters what devices of other programs count.
///
/// A device belongs to one process. To see what the device of a running program has counted, start the
/// program with SOFTROCE_COUNTERS=DIRECTORY and read the files that it writes there: `roce devinfo
/// --counters DIRECTORY/*.prom`.
#[derive(Args, Debug)]
pub(crate) struct DevinfoArgs {
    /// Everything there is to say.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print the counters in these files, written with SOFTROCE_COUNTERS, of each device and of each of
    /// its queue pairs; those at 0 are left out. Without FILE: what every counter counts, and what rxe and
    /// mlx5 call it.
    #[arg(long, value_name = "FILE", num_args = 0..)]
    pub(crate) counters: Option<Vec<PathBuf>>,
    /// One object of JSON, with everything.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}
