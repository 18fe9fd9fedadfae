//! The terminal: keys at once, and the alternate screen.

use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::io::{Errno, read};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use softroce::port::wait_readable;

use crate::output::{self, Palette};

use super::screen::Line;

/// Size of a terminal that does not report one.
const DEFAULT_SIZE: (usize, usize) = (80, 24);

/// Selects the alternate screen, and hides the cursor.
const OPEN: &str = "\x1b[?1049h\x1b[?25l";

/// Shows the cursor, and selects the main screen.
const CLOSE: &str = "\x1b[?25h\x1b[?1049l";

/// Moves the cursor to the first line.
const HOME: &str = "\x1b[H";

/// Clears the rest of a line.
const CLEAR_LINE: &str = "\x1b[K";

/// Clears the rest of the screen.
const CLEAR_REST: &str = "\x1b[J";

/// Returns whether standard input and output are terminals.
pub(super) fn is_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// The terminal of the command. It is as before when this is dropped.
pub(super) struct Terminal {
    before: Termios,
    input: io::Stdin,
    palette: Palette,
}

impl Terminal {
    /// Takes keys without a line feed, and selects the alternate screen.
    pub(super) fn open() -> anyhow::Result<Self> {
        let input = io::stdin();
        let before = tcgetattr(&input)?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        // A stopped command would leave the terminal as it is now.
        modes.special_codes[SpecialCodeIndex::VSUSP] = 0;
        tcsetattr(&input, OptionalActions::Now, &modes)?;
        let terminal = Self { before, input, palette: Palette::of_stdout() };
        terminal.write(OPEN)?;
        Ok(terminal)
    }

    /// Returns width and height.
    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (size.ws_col.into(), size.ws_row.into())
            }
            _ => DEFAULT_SIZE,
        }
    }

    /// Shows these lines.
    pub(super) fn draw(&mut self, lines: &[Line]) -> anyhow::Result<()> {
        let lines: Vec<_> = lines.iter().map(|line| line.text(self.palette) + CLEAR_LINE).collect();
        self.write(&format!("{HOME}{}{CLEAR_REST}", lines.join("\r\n")))
    }

    /// Returns the bytes of keys that were pressed; `None` at the end of the terminal.
    pub(super) fn read(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        if !wait_readable(&[self.as_fd()], Some(Duration::ZERO))? {
            return Ok(Some(Vec::new()));
        }
        let mut bytes = [0; 256];
        match read(&self.input, &mut bytes) {
            // The terminal has hung up.
            Ok(0) | Err(Errno::IO) => Ok(None),
            Ok(len) => Ok(bytes.get(..len).map(<[u8]>::to_vec)),
            Err(Errno::INTR | Errno::AGAIN) => Ok(Some(Vec::new())),
            Err(error) => Err(error.into()),
        }
    }

    fn write(&self, text: &str) -> anyhow::Result<()> {
        let mut out = output::stdout();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = self.write(CLOSE);
        let _ = tcsetattr(&self.input, OptionalActions::Now, &self.before);
    }
}

impl AsFd for Terminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }
}
