//! Opening the device as the options say, and completing its capture.

use std::fs::File;
use std::io::BufWriter;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use softroce::engine::{MIN_GID_TABLE_LEN, gid_table};
use softroce::port::{Direction, PortKind, Sink};
use softroce::runtime::Environment;
use softroce::time::Instant;
use softroce::verbs::{Context, OpenOptions};
use softroce_cli::DeviceArgs;
use softroce_pcap::CaptureFile;
use softroce_pcap::check::{OnlineCheck, Severity};
use softroce_pcap::flow::Limits;

use crate::check::{Summary, line};
use crate::outcome::Outcome;
use crate::output::{self, Palette};

/// An open device, its capture, and the checker of its packets.
pub(crate) struct OpenDevice {
    pub(crate) context: Context,
    recording: Option<Recording>,
    check: Option<OnlineCheck>,
}

/// Maximum number of findings to print when the device is closed; further ones are counted.
const MAX_FINDINGS: usize = 1000;

/// A capture being written.
pub(crate) struct Recording {
    file: CaptureFile<BufWriter<File>>,
    path: PathBuf,
}

/// Opens the device. `route` is the local address on the path to the other side, if there is one. With `check`,
/// the packets of the device are checked.
pub(crate) fn open(
    device: &DeviceArgs,
    route: Option<IpAddr>,
    check: bool,
) -> anyhow::Result<OpenDevice> {
    let environment = Environment::read()?;
    check_name(device, &environment)?;
    let mut options = OpenOptions::default();
    if let Some((ip, others)) = addresses(device, &environment, route).split_first() {
        options = others.iter().fold(options.ip(*ip), |options, ip| options.also_ip(*ip));
    }
    if !device.pkey.is_empty() {
        options = options.pkeys(device.pkey.iter().copied());
    }
    if let Some(bytes) = device.rcvbuf {
        options = options.receive_buffer(bytes);
    }
    if let Some(kind) = &device.via {
        options = options.via(kind.clone());
    }
    if let Some(count) = device.shards {
        options = options.shards(count);
    }
    if let Some(impairments) = device.impair {
        options = options.impair(impairments);
    }
    let recording = record(device, &environment)?;
    let check = check.then(|| OnlineCheck::new(Limits::default(), MAX_FINDINGS));
    let sinks = [recording.as_ref().map(Recording::sink), check.as_ref().map(OnlineCheck::sink)];
    let sinks: Vec<_> = sinks.into_iter().flatten().collect();
    if !sinks.is_empty() {
        options = options.capture(Box::new(Tee(sinks)));
    }
    Ok(OpenDevice { context: Context::open(options)?, recording, check })
}

/// Checks that the device with the requested name exists.
pub(crate) fn check_name(device: &DeviceArgs, environment: &Environment) -> anyhow::Result<()> {
    let name = environment.name.as_deref().unwrap_or("softroce0");
    match &device.ib_dev {
        Some(wanted) if wanted != name => bail!("no device {wanted}: there is {name}"),
        _ => Ok(()),
    }
}

/// Returns the kind of port of the device.
pub(crate) fn port_kind(device: &DeviceArgs, environment: &Environment) -> PortKind {
    device.via.clone().or_else(|| environment.via.clone()).unwrap_or_default()
}

/// Returns the addresses of the device, if options or environment name any, or else `route`, the local address on
/// the path to the other side. A loopback `route` does not count, because both sides may have it.
pub(crate) fn addresses(
    device: &DeviceArgs,
    environment: &Environment,
    route: Option<IpAddr>,
) -> Vec<IpAddr> {
    let brought = port_kind(device, environment).addresses();
    let said = [&device.ip, &environment.ips, &brought].into_iter().find(|ips| !ips.is_empty());
    said.cloned().unwrap_or_else(|| route.filter(|ip| !ip.is_loopback()).into_iter().collect())
}

/// Returns the address with this GID index, if the options or the environment name addresses.
///
/// # Errors
///
/// The GID table has no such index.
pub(crate) fn address_of(device: &DeviceArgs, gid_index: u8) -> anyhow::Result<Option<IpAddr>> {
    let ips = addresses(device, &Environment::read()?, None);
    let table = gid_table(&ips);
    if usize::from(gid_index) >= table.len().max(MIN_GID_TABLE_LEN) {
        let table = match &table[..] {
            [] => format!("indices 0 to {} only", MIN_GID_TABLE_LEN - 1),
            table => {
                let gids = table.iter().enumerate();
                let gids = gids.map(|(index, gid)| format!("{index} ({})", gid.ip()));
                gids.collect::<Vec<_>>().join(", ")
            }
        };
        bail!("GID index {gid_index} is out of range: the GID table of the device has {table}");
    }
    Ok(table.get(usize::from(gid_index)).map(|gid| gid.ip()))
}

/// Creates the capture file, if one is requested.
pub(crate) fn record(
    device: &DeviceArgs,
    environment: &Environment,
) -> anyhow::Result<Option<Recording>> {
    let Some(path) = device.pcap.as_ref().or(environment.pcap.as_ref()) else { return Ok(None) };
    let application = concat!("roce ", env!("CARGO_PKG_VERSION"));
    let file =
        CaptureFile::create(path, application).with_context(|| path.display().to_string())?;
    Ok(Some(Recording { file, path: path.clone() }))
}

impl OpenDevice {
    /// Closes the device and completes the capture. All objects made from the device must be gone. Prints the
    /// findings of the checker on standard error; a violation makes the outcome [`Outcome::No`].
    pub(crate) fn finish(self) -> anyhow::Result<Outcome> {
        drop(self.context);
        self.recording.map_or(Ok(()), Recording::finish)?;
        Ok(self.check.map_or(Outcome::Yes, |check| report(&check)))
    }
}

fn report(check: &OnlineCheck) -> Outcome {
    let (findings, counts) = check.finish();
    let start = findings.first().and_then(|first| first.time);
    let palette = Palette::of_stderr();
    for finding in &findings {
        let since = finding.time.zip(start).map(|(time, start)| time.saturating_sub(start));
        output::stderr_line(line(finding, since, palette));
    }
    output::warn(format_args!("checked {}", Summary(&counts)));
    if counts.of(Severity::Violation) > 0 { Outcome::No } else { Outcome::Yes }
}

/// A sink that passes packets to several.
struct Tee(Vec<Box<dyn Sink>>);

impl Sink for Tee {
    fn packet(&mut self, at: Instant, direction: Direction, ip_packet: &[u8]) {
        for sink in &mut self.0 {
            sink.packet(at, direction, ip_packet);
        }
    }
}

impl Recording {
    /// Returns the sink for the packets of a port.
    pub(crate) fn sink(&self) -> Box<dyn Sink> {
        self.file.sink()
    }

    /// Completes the file. The port must be gone.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        let path = self.path;
        self.file.finish().map(|_| ()).with_context(|| path.display().to_string())
    }
}
