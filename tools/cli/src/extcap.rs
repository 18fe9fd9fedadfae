//! `roce extcap`: its options.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Name of the link to the command that Wireshark runs.
pub const EXTCAP_NAME: &str = "roce-extcap";

/// Show the devices of running programs in Wireshark's and tshark's list of interfaces.
///
/// Wireshark runs the programs in its extcap folder with the options below. `roce extcap --install` puts a link to
/// `roce` there.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub struct ExtcapArgs {
    /// Put the link into the personal extcap folder of Wireshark: ~/.local/lib/wireshark/extcap, or, for Wireshark
    /// before 4.2, ~/.config/wireshark/extcap.
    #[arg(long)]
    pub install: bool,
    /// With --install: the folder, in place of Wireshark's.
    #[arg(long, value_name = "DIRECTORY", requires = "install", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Print the devices of this user.
    #[arg(long, help_heading = "Called by Wireshark")]
    pub extcap_interfaces: bool,
    /// Print the link type of a device.
    #[arg(long, help_heading = "Called by Wireshark")]
    pub extcap_dlts: bool,
    /// Print the options of a device.
    #[arg(long, help_heading = "Called by Wireshark")]
    pub extcap_config: bool,
    /// Capture a device; without --fifo, check the filter.
    #[arg(long, help_heading = "Called by Wireshark")]
    pub capture: bool,
    /// Device.
    #[arg(long, value_name = "DEVICE", help_heading = "Called by Wireshark")]
    pub extcap_interface: Option<String>,
    /// Capture filter, as that of `roce capture`.
    #[arg(long, value_name = "FILTER", help_heading = "Called by Wireshark")]
    pub extcap_capture_filter: Option<String>,
    /// FIFO to write to.
    #[arg(long, value_name = "FIFO", help_heading = "Called by Wireshark", value_hint = ValueHint::FilePath)]
    pub fifo: Option<PathBuf>,
    /// Number of bytes of each packet; 0 for all.
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 0,
        hide_default_value = true,
        help_heading = "Called by Wireshark"
    )]
    pub snaplen: u32,
    /// Version of Wireshark.
    #[arg(long, value_name = "VERSION", num_args = 0..=1, require_equals = true, help_heading = "Called by Wireshark")]
    pub extcap_version: Option<Option<String>>,
    /// Option for which Wireshark requests new values; there is none.
    #[arg(long, value_name = "OPTION", help_heading = "Called by Wireshark")]
    pub extcap_reload_option: Option<String>,
}
