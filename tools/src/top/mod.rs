//! `roce top`: devices and queue pairs of all running programs of this user.

mod input;
mod rates;
mod screen;
mod terminal;

use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::ensure;
use serde::Serialize;
use softroce::port::wait_readable;
use softroce_cli::TopArgs;
use softroce_perf::clock::now;

use crate::live::EndSignals;
use crate::output::{self, Palette};

use input::{Keys, View};
use rates::{DeviceRow, Sampler};
use terminal::Terminal;

/// Runs the command.
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<()> {
    let interval = Duration::from_secs(args.interval.into());
    let signals = EndSignals::receive()?;
    let mut sampler = Sampler::default();
    let first = sampler.sample()?;
    if args.once {
        // A program without a device needs no second sample.
        if !first.is_empty() && wait_readable(&[signals.as_fd()], Some(interval))? {
            return Ok(());
        }
        return print(args, sampler.sample()?);
    }
    ensure!(
        terminal::is_terminal(),
        "standard input and output: expected a terminal; --once prints without one"
    );
    live(args, interval, &signals, &mut sampler, first)
}

#[derive(Serialize)]
struct Printed {
    devices: Vec<DeviceRow>,
}

fn print(args: &TopArgs, rows: Vec<DeviceRow>) -> anyhow::Result<()> {
    let mut view = View::of(args);
    let mut out = output::stdout();
    let devices = view.select(rows);
    if args.json {
        return Ok(output::json_line(&mut out, &Printed { devices })?);
    }
    let lines = screen::table(&devices, true, None);
    for line in lines {
        writeln!(out, "{}", line.text(Palette::of_stdout()).trim_end())?;
    }
    Ok(out.flush()?)
}

/// Shows samples until the user quits.
fn live(
    args: &TopArgs,
    interval: Duration,
    signals: &EndSignals,
    sampler: &mut Sampler,
    mut rows: Vec<DeviceRow>,
) -> anyhow::Result<()> {
    let mut view = View::of(args);
    let mut terminal = Terminal::open()?;
    let mut keys = Keys::default();
    let mut due = now() + interval;
    loop {
        let (width, height) = terminal.size();
        let devices = view.select(rows.clone());
        terminal.draw(&screen::screen(&devices, &mut view, width, height))?;
        let left = due.saturating_duration_since(now());
        wait_readable(&[terminal.as_fd(), signals.as_fd()], Some(left))?;
        if signals.has_come() {
            return Ok(());
        }
        let Some(bytes) = terminal.read()? else { return Ok(()) };
        for key in keys.parse(&bytes) {
            view.handle(key);
        }
        if view.is_over {
            return Ok(());
        }
        if now() >= due {
            due = now() + interval;
            if !view.is_paused {
                rows = sampler.sample()?;
            }
        }
    }
}
