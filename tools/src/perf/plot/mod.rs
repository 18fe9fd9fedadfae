//! Results as an SVG file.

mod draw;
mod figure;

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::row::Row;
use figure::Figure;

/// A file for a plot.
pub(super) struct Plot {
    path: PathBuf,
    file: File,
    /// Whether this run has created the file and not written to it.
    is_empty: bool,
}

impl Plot {
    /// Opens the file before the measurement, so that errors appear early.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let created = File::options().write(true).create_new(true).open(path);
        let is_empty = created.is_ok();
        let file = created.or_else(|_| File::options().write(true).open(path));
        let file = file.with_context(|| format!("--plot {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file, is_empty })
    }

    /// Draws the rows.
    pub(super) fn draw(mut self, rows: &[Row]) -> anyhow::Result<()> {
        let Some(figure) = Figure::of(rows) else { return Ok(()) };
        let svg = draw::svg(&figure);
        self.write(&svg).with_context(|| format!("--plot {}", self.path.display()))?;
        self.is_empty = false;
        Ok(())
    }

    fn write(&mut self, svg: &str) -> std::io::Result<()> {
        self.file.rewind()?;
        self.file.write_all(svg.as_bytes())?;
        // A device, such as /dev/null, has no length.
        if self.file.metadata()?.is_file() {
            self.file.set_len(svg.len() as u64)?;
        }
        self.file.flush()
    }
}

impl Drop for Plot {
    fn drop(&mut self) {
        if self.is_empty {
            // A failed test leaves no empty file.
            let _ = fs::remove_file(&self.path);
        }
    }
}
