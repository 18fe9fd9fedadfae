//! Progress of a row, on a terminal.

use std::cell::Cell;
use std::env;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use rustix::termios::tcgetwinsize;

use crate::measure::Amount;

/// Characters of the bar.
const BAR_CHARS: usize = 40;

/// Clears the line, and returns the cursor to its start.
const CLEAR: &str = "\r\x1b[K";

/// Progress bar on standard error, if that is a terminal.
pub struct Progress {
    /// The text before the bar; `None` without a terminal.
    what: Option<String>,
    /// The percentage that the terminal shows.
    percent: Cell<Option<usize>>,
}

impl Progress {
    /// Starts a bar with this text.
    pub fn begin(what: String) -> Self {
        let is_dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        let what = (io::stderr().is_terminal() && !is_dumb).then_some(what);
        let progress = Self { what, percent: Cell::new(None) };
        progress.draw(0);
        progress
    }

    /// Updates the bar.
    pub fn show(&self, amount: Amount, done: u64, elapsed: Duration) {
        let percent = match amount {
            Amount::Messages(n) => u128::from(done) * 100 / u128::from(n.max(1)),
            Amount::Time(all) => elapsed.as_micros() * 100 / all.as_micros().max(1),
        };
        self.draw(usize::try_from(percent).unwrap_or(100).min(100));
    }

    fn draw(&self, percent: usize) {
        let Some(what) = &self.what else { return };
        if self.percent.replace(Some(percent)) == Some(percent) {
            return;
        }
        // A longer line than the terminal's would remain above the next one.
        let columns = tcgetwinsize(io::stderr()).map_or(80, |size| usize::from(size.ws_col));
        let line: String = line(what, percent).chars().take(columns.saturating_sub(1)).collect();
        self.write(&format!("{CLEAR}{line}"));
    }

    fn write(&self, text: &str) {
        // The measurement goes on without its bar.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.what.is_some() {
            self.write(CLEAR);
        }
    }
}

/// Returns the bar with the text before it.
fn line(what: &str, percent: usize) -> String {
    let filled = BAR_CHARS * percent / 100;
    let tip = if filled < BAR_CHARS { ">" } else { "" };
    format!("{what} [{:BAR_CHARS$}] {percent:>3}%", "=".repeat(filled) + tip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_grows_with_the_percentage() {
        let space = |n| " ".repeat(n);
        assert_eq!(line("write-bw 64", 0), format!("write-bw 64 [>{}]   0%", space(39)));
        let half = format!("write-bw 64 [{}>{}]  50%", "=".repeat(20), space(19));
        assert_eq!(line("write-bw 64", 50), half);
        assert_eq!(line("write-bw 64", 100), format!("write-bw 64 [{}] 100%", "=".repeat(40)));
    }
}
