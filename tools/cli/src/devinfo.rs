//! `roce devinfo`: its options.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::DeviceArgs;

/// Show the device: port, GIDs and MTU; limits with -v; counters of other programs' devices with --counters.
///
/// A device belongs to one process. To see the counters of a running program, start it with
/// SOFTROCE_COUNTERS=DIRECTORY and read the files that it writes there: `roce devinfo --counters DIRECTORY/*.prom`.
#[derive(Args, Debug)]
pub struct DevinfoArgs {
    /// Print all attributes of the device, port and GID table.
    #[arg(short, long)]
    pub verbose: bool,
    /// Print only the names of devices.
    #[arg(short, long)]
    pub list: bool,
    /// Print the counters in these files, written with SOFTROCE_COUNTERS, of each device and each of its queue
    /// pairs; counters at 0 are left out. Without FILE: the meaning of each counter, and its names in rxe and mlx5.
    #[arg(long, value_name = "FILE", num_args = 0.., value_hint = ValueHint::FilePath)]
    pub counters: Option<Vec<PathBuf>>,
    /// Print one object of JSON with everything; with --counters FILE, one for each file.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub device: DeviceArgs,
}
