//! How far a row is, on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::measure::Amount;

const STEPS: u64 = 1000;

/// A line on standard error, if that is a terminal.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Says what is being done.
    pub(super) fn begin(what: String) -> Self {
        let bar = ProgressBar::new(STEPS).with_message(what);
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:40}] {percent:>3}%") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.tick();
        Self { bar }
    }

    /// So much is done, after so long.
    pub(super) fn show(&self, amount: Amount, done: u64, elapsed: Duration) {
        let share = match amount {
            Amount::Messages(n) => u128::from(done * STEPS / n),
            Amount::Time(all) => elapsed.as_micros() * u128::from(STEPS) / all.as_micros().max(1),
        };
        self.bar.set_position(u64::try_from(share).unwrap_or(STEPS).min(STEPS));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
