//! Progress of a row, on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::measure::Amount;

const PROGRESS_STEPS: u64 = 1000;

/// Progress bar on standard error, if that is a terminal.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Starts a bar with this text.
    pub(super) fn begin(what: String) -> Self {
        let bar = ProgressBar::new(PROGRESS_STEPS).with_message(what);
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:40}] {percent:>3}%") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.tick();
        Self { bar }
    }

    /// Updates the bar.
    pub(super) fn show(&self, amount: Amount, done: u64, elapsed: Duration) {
        let share = match amount {
            Amount::Messages(n) => u128::from(done * PROGRESS_STEPS / n),
            Amount::Time(all) => {
                elapsed.as_micros() * u128::from(PROGRESS_STEPS) / all.as_micros().max(1)
            }
        };
        self.bar.set_position(u64::try_from(share).unwrap_or(PROGRESS_STEPS).min(PROGRESS_STEPS));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
