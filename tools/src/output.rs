//! Standard output and standard error: closed pipes, JSON and colors.

use std::fmt::{self, Display};
use std::io::{self, StdoutLock, Write};

use anstream::AutoStream;
use clap::ColorChoice;
use clap::builder::styling::{AnsiColor, Style};

pub(crate) use softroce_pcap::json::line as json_line;

/// Error of a write to a pipe that its reader has closed, as `head` does.
#[derive(Debug)]
struct ReaderClosed;

impl Display for ReaderClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reader of standard output has closed it")
    }
}

impl std::error::Error for ReaderClosed {}

/// Returns whether a command failed only because the reader of its output is gone.
pub(crate) fn is_reader_closed(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(is_closed)
}

fn is_closed(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<ReaderClosed>())
}

/// Locked standard output. Its errors name it, and a closed pipe is told from other errors.
pub(crate) struct Stdout(StdoutLock<'static>);

/// Locks standard output.
pub(crate) fn stdout() -> Stdout {
    Stdout(io::stdout().lock())
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

fn named(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::Interrupted => error,
        kind @ io::ErrorKind::BrokenPipe => io::Error::new(kind, ReaderClosed),
        kind => io::Error::new(kind, format!("standard output: {error}")),
    }
}

/// Writes a line to standard error. Nothing is left to report to if that fails.
pub(crate) fn stderr_line(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Writes `roce: MESSAGE` to standard error.
pub(crate) fn warn(message: impl Display) {
    let prefix = Palette::of(&io::stderr()).paint(Paint::Name, "roce:");
    stderr_line(format_args!("{prefix} {message}"));
}

/// Roles of colored text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Paint {
    /// Something is wrong.
    Bad,
    /// Something deserves attention.
    Caution,
    /// All is well.
    Good,
    /// Something happened that is neither good nor bad.
    Event,
    /// The name of the command in a message.
    Name,
    /// A heading.
    Heading,
}

/// The colors of a stream, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Palette {
    is_colored: bool,
}

impl Palette {
    /// Palette without colors.
    pub(crate) const PLAIN: Self = Self { is_colored: false };

    /// Returns colors for a terminal, unless `--color` or the environment (`NO_COLOR`) says otherwise.
    fn of(stream: &impl anstream::stream::RawStream) -> Self {
        Self { is_colored: AutoStream::choice(stream) != anstream::ColorChoice::Never }
    }

    /// Returns the palette of standard output.
    pub(crate) fn of_stdout() -> Self {
        Self::of(&io::stdout())
    }

    /// Returns the palette of standard error.
    pub(crate) fn of_stderr() -> Self {
        Self::of(&io::stderr())
    }

    /// Returns `text` in the color of its role.
    pub(crate) fn paint<T: Display>(self, paint: Paint, text: T) -> Painted<T> {
        let style = match paint {
            _ if !self.is_colored => Style::new(),
            Paint::Bad => AnsiColor::Red.on_default().bold(),
            Paint::Caution => AnsiColor::Yellow.on_default(),
            Paint::Good => AnsiColor::Green.on_default(),
            Paint::Event => AnsiColor::Cyan.on_default(),
            Paint::Name | Paint::Heading => Style::new().bold(),
        };
        Painted { style, text }
    }
}

/// Text in a color.
pub(crate) struct Painted<T> {
    style: Style,
    text: T,
}

impl<T: Display> Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.style)?;
        self.text.fmt(f)?;
        write!(f, "{:#}", self.style)
    }
}

/// Applies `--color` to both streams.
pub(crate) fn set_color(choice: ColorChoice) {
    match choice {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_pipe_of_standard_output_differs_from_other_closed_pipes() {
        let pipe = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_reader_closed(&anyhow::Error::from(named(pipe())).context("printing")));
        assert!(!is_reader_closed(&anyhow::Error::from(pipe()).context("a TCP connection")));
        assert_eq!(
            named(io::ErrorKind::StorageFull.into()).to_string(),
            "standard output: no storage space"
        );
    }

    #[test]
    fn json_objects_begin_with_their_version() {
        let mut line = Vec::new();
        json_line(&mut line, &serde_json::json!({ "a": 1 })).unwrap();
        assert_eq!(line, b"{\"version\":1,\"a\":1}\n");
    }

    #[test]
    fn plain_palette_adds_nothing() {
        assert_eq!(format!("[{:<5}]", Palette::PLAIN.paint(Paint::Bad, "no")), "[no   ]");
        let colored = Palette { is_colored: true }.paint(Paint::Bad, "no").to_string();
        assert!(colored.starts_with("\u{1b}[") && colored.contains("no"), "{colored:?}");
    }
}
