//! `roce extcap`: devices of running programs as interfaces of Wireshark.

use std::fs::File;
use std::io::Write;

use anyhow::Context;
use softroce_cli::{ALL_DEVICES, ExtcapArgs, Selection, parse_capture_filter};

use super::capture::to_file;
use super::device::devices;
use super::install;
use crate::output;

/// Link type of raw IP packets.
const LINKTYPE_RAW: u32 = 101;

/// Runs the command.
pub(crate) fn run(args: &ExtcapArgs) -> anyhow::Result<()> {
    let mut out = output::stdout();
    if args.install {
        let lines = install::install(args.dir.as_deref())?;
        return Ok(out.write_all(lines.as_bytes())?);
    }
    if args.extcap_interfaces {
        return Ok(out.write_all(interfaces()?.as_bytes())?);
    }
    if args.extcap_dlts {
        let dlt =
            format!("dlt {{number={LINKTYPE_RAW}}}{{name=RAW}}{{display=IP packets of RoCEv2}}\n");
        return Ok(out.write_all(dlt.as_bytes())?);
    }
    if args.extcap_config {
        return Ok(out.write_all(CONFIG.as_bytes())?);
    }
    drop(out);
    if args.capture { capture(args) } else { Ok(()) }
}

/// Options that Wireshark shows for a device.
const CONFIG: &str = "arg {number=0}{call=--snaplen}{display=Bytes of each packet}{tooltip=From the IP header; 0 \
                      for all}{type=unsigned}{default=0}{required=false}\n";

/// Returns the sentences that describe the devices.
fn interfaces() -> anyhow::Result<String> {
    let mut text = format!(
        "extcap {{version={}}}{{display=softroce}}\n\
         interface {{value={ALL_DEVICES}}}{{display=all softroce devices of this user}}\n",
        env!("CARGO_PKG_VERSION")
    );
    for device in devices()? {
        let display = plain(&device.description());
        text.push_str(&format!("interface {{value={}}}{{display={display}}}\n", device.name));
    }
    Ok(text)
}

/// Replaces the characters that end a value.
fn plain(text: &str) -> String {
    text.replace(|c: char| c.is_control() || ['{', '}'].contains(&c), "_")
}

fn capture(args: &ExtcapArgs) -> anyhow::Result<()> {
    let text = args.extcap_capture_filter.as_deref().unwrap_or_default();
    let mut filter = parse_capture_filter(text).map_err(anyhow::Error::msg)?;
    let Some(fifo) = &args.fifo else { return Ok(()) };
    filter.snap_len = Some(args.snaplen).filter(|bytes| *bytes > 0);
    let device = args.extcap_interface.as_deref().unwrap_or(ALL_DEVICES);
    let name = || fifo.display().to_string();
    let out = File::options().write(true).open(fifo).with_context(name)?;
    to_file(&Selection::named(device), filter, out, None).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_name_does_not_end_a_sentence() {
        assert_eq!(plain("PID 1, a}{display=b\n"), "PID 1, a__display=b_");
    }
}
