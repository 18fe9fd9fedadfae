//! `roce capture`: packets of running programs, to a file.

use std::fs::File;
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use softroce::port::wait_readable;
use softroce::runtime::control::CaptureFilter;
use softroce_cli::{ALL_DEVICES, CaptureArgs, Selection};

use super::device::{LiveDevice, devices};
use super::files::{Ring, RingOptions};
use super::signals::EndSignals;
use super::source::Source;
use super::status::Status;
use super::write::{LiveFile, OutputError, reader_is_gone};
use crate::{outcome, output};

/// Runs the command.
pub(crate) fn run(args: &CaptureArgs) -> anyhow::Result<()> {
    if args.list_devices {
        return list(args.json);
    }
    let Some(path) = &args.write else { return Ok(()) };
    let options =
        args.ring_buffer.iter().try_fold(RingOptions::default(), |all, one| all.with(one));
    let options = options.map_err(anyhow::Error::msg)?;
    let written = match options {
        _ if options == RingOptions::default() => {
            let out = create(path).with_context(|| path.display().to_string())?;
            to_file(&args.interface, args.filter(), out, args.count)
        }
        RingOptions { filesize: None, duration: None, .. } => {
            anyhow::bail!("-b files: expected filesize:KB or duration:SECONDS with it")
        }
        _ => {
            let ring = Ring::new(path, options.files);
            let file = LiveFile::to_ring(ring, options, args.count).map_err(OutputError);
            file.map_err(Into::into)
                .and_then(|file| capture(&args.interface, args.filter(), file, None))
        }
    };
    let (captured, dropped) = written.with_context(|| path.display().to_string())?;
    if !args.quiet {
        let packets = if captured == 1 { "packet" } else { "packets" };
        output::warn(format_args!("{captured} {packets} captured, {dropped} dropped"));
    }
    Ok(())
}

#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    device: &'a str,
    pid: u32,
    program: &'a str,
    ip: std::net::IpAddr,
    via: &'a str,
}

/// Prints the devices as `tshark -D` does.
fn list(json: bool) -> anyhow::Result<()> {
    use std::io::Write;

    let mut out = output::stdout();
    for (number, found) in (1..).zip(devices()?) {
        let LiveDevice { status: Status { device, pid, program, ip, via, .. }, name, .. } = &found;
        if json {
            let listed = Listed { name, device, pid: *pid, program, ip: *ip, via };
            output::json_line(&mut out, &listed)?;
        } else {
            writeln!(out, "{number}. {name} ({}, {via})", found.description())?;
        }
    }
    if !json {
        writeln!(out, "   {ALL_DEVICES} (all devices of this user)")?;
    }
    Ok(out.flush()?)
}

/// Opens the output; waits for the reader of a FIFO.
fn create(path: &Path) -> io::Result<File> {
    match path.to_str() {
        Some("-") => Ok(io::stdout().as_fd().try_clone_to_owned()?.into()),
        _ => File::create(path),
    }
}

/// Captures to an open file, FIFO or pipe. Returns the numbers of packets that were captured and dropped.
pub(super) fn to_file(
    selection: &Selection,
    filter: CaptureFilter,
    out: File,
    count: Option<u64>,
) -> anyhow::Result<(u64, u64)> {
    let fifo = out.metadata()?.file_type().is_fifo().then(|| out.try_clone()).transpose()?;
    capture(selection, filter, LiveFile::to(out, count).map_err(OutputError)?, fifo.as_ref())
}

/// Captures until the end of the device, a signal, or the end of the FIFO's reader.
fn capture(
    selection: &Selection,
    filter: CaptureFilter,
    mut file: LiveFile,
    fifo: Option<&File>,
) -> anyhow::Result<(u64, u64)> {
    let signals = EndSignals::receive()?;
    let result = write(selection, filter, &mut file, fifo, &signals);
    match result {
        Err(error) if !reader_is_gone(&error) => Err(error),
        _ => Ok(file.counts()),
    }
}

fn write(
    selection: &Selection,
    filter: CaptureFilter,
    file: &mut LiveFile,
    fifo: Option<&File>,
    signals: &EndSignals,
) -> anyhow::Result<()> {
    let mut source = Source::open(selection, filter, file)?;
    file.commit()?;
    let others: Vec<_> = fifo.iter().map(|fifo| fifo.as_fd()).chain([signals.as_fd()]).collect();
    let is_read = || {
        // The writing end is ready only when the reading end is closed.
        fifo.is_none_or(|fifo| {
            !wait_readable(&[fifo.as_fd()], Some(Duration::ZERO)).unwrap_or(true)
        })
    };
    while source.run(&others, file)? && !signals.has_come() && is_read() {
        file.commit()?;
    }
    if !file.is_complete() {
        source.finish(file)?;
    }
    Ok(file.finish()?)
}

/// Captures to a pipe, and returns its reading end.
pub(crate) fn pipe(device: &str) -> anyhow::Result<PipeReader> {
    let (reader, writer) = io::pipe()?;
    let selection = Selection::named(device);
    if let Selection::One(name) = &selection {
        // Before the thread, so that the caller gets the error.
        super::device::find(name)?;
    }
    thread::Builder::new().spawn(move || {
        let out = File::from(OwnedFd::from(writer));
        if let Err(error) = to_pipe(&selection, out) {
            output::warn(outcome::text_of(&error));
        }
    })?;
    Ok(reader)
}

/// Captures to a pipe without signals: they end the command.
fn to_pipe(selection: &Selection, out: File) -> anyhow::Result<()> {
    let mut file = LiveFile::to(out, None).map_err(OutputError)?;
    let result = (|| {
        let mut source = Source::open(selection, CaptureFilter::default(), &mut file)?;
        file.commit()?;
        while source.run(&[], &mut file)? {
            file.commit()?;
        }
        source.finish(&mut file)?;
        Ok(file.finish()?)
    })();
    result.or_else(|error| if reader_is_gone(&error) { Ok(()) } else { Err(error) })
}
