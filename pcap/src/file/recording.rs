//! Captures what a port carries into a file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use softroce::port::{Direction, Sink};
use softroce::time::Instant;

use super::link::LinkType;
use super::writer::Writer;

/// A capture file that is being written by a device.
///
/// The device is given a [`sink`](Self::sink) when it is opened. The file is whole when
/// [`finish`](Self::finish) has returned, or the last handle and sink are gone.
///
/// ```
/// use softroce::port::{Direction, Sink};
/// use softroce::time::Instant;
/// use softroce_pcap::{CaptureFile, LinkType, Writer};
///
/// let capture = CaptureFile::to(Vec::new(), "an example")?;
/// let mut sink = capture.sink();
/// sink.packet(Instant::ZERO, Direction::Sent, &[0x45, 0, 0, 20]);
/// assert_eq!(capture.finish()?, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct CaptureFile<W: Write + Send> {
    state: Arc<Mutex<State<W>>>,
}

#[derive(Debug)]
struct State<W> {
    writer: Writer<W>,
    packets: u64,
    /// Of the first packet: the time since the epoch, less the device's.
    epoch: Option<Duration>,
    /// The first failure; nothing is written after it.
    failure: Option<io::Error>,
}

impl CaptureFile<BufWriter<File>> {
    /// Creates the file, or empties it. `application` is named in its header.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn create(path: &Path, application: &str) -> io::Result<Self> {
        Self::to(BufWriter::new(File::create(path)?), application)
    }
}

impl<W: Write + Send + 'static> CaptureFile<W> {
    /// Writes to any output.
    ///
    /// # Errors
    ///
    /// What the output returns.
    pub fn to(out: W, application: &str) -> io::Result<Self> {
        let writer = Writer::new(out, LinkType::Raw, application)?;
        let state = State { writer, packets: 0, epoch: None, failure: None };
        Ok(Self { state: Arc::new(Mutex::new(state)) })
    }

    /// Returns a sink for the packets of a port. The packets of several sinks come into the file in the
    /// order in which they are shown.
    pub fn sink(&self) -> Box<dyn Sink> {
        Box::new(FileSink { state: Arc::clone(&self.state) })
    }

    /// Writes out what is held back, and says how many packets there are in the file.
    ///
    /// # Errors
    ///
    /// The first that a packet has met, or this.
    pub fn finish(&self) -> io::Result<u64> {
        let mut state = lock(&self.state);
        match state.failure.take() {
            Some(failure) => Err(failure),
            None => state.writer.flush().map(|()| state.packets),
        }
    }
}

#[derive(Debug)]
struct FileSink<W> {
    state: Arc<Mutex<State<W>>>,
}

impl<W: Write + Send> Sink for FileSink<W> {
    fn packet(&mut self, at: Instant, direction: Direction, ip_packet: &[u8]) {
        lock(&self.state).packet(at, direction, ip_packet);
    }
}

impl<W: Write> State<W> {
    fn packet(&mut self, at: Instant, direction: Direction, ip_packet: &[u8]) {
        if self.failure.is_some() {
            return;
        }
        let at = Duration::from_nanos(at.as_nanos());
        let epoch = *self.epoch.get_or_insert_with(|| wall_clock().saturating_sub(at));
        match self.writer.packet(epoch + at, Some(direction), ip_packet) {
            Ok(()) => self.packets += 1,
            Err(failure) => self.failure = Some(failure),
        }
    }
}

/// A panic elsewhere leaves whole records.
fn lock<W>(state: &Mutex<State<W>>) -> MutexGuard<'_, State<W>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::disallowed_methods, reason = "a capture says at which date it was made")]
fn wall_clock() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Reader;

    /// A disk that is full after so many bytes.
    struct Disk {
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.room.checked_sub(bytes.len());
            self.room = room.ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn times_are_of_the_wall_clock_and_as_far_apart_as_the_device_says() {
        let before = wall_clock();
        let capture = CaptureFile::to(Vec::new(), "test").unwrap();
        let mut sink = capture.sink();
        for ns in [5_000, 5_001, 7_000_000_000] {
            sink.packet(Instant::from_nanos(ns), Direction::Received, &[0x45]);
        }
        assert_eq!(capture.finish().unwrap(), 3);
        let file = lock(&capture.state).writer.clone().into_inner();
        let mut reader = Reader::new(file.as_slice()).unwrap();
        let mut times = Vec::new();
        while let Some(packet) = reader.next_packet().unwrap() {
            times.push(packet.time.unwrap());
        }
        let apart: Vec<_> = times.iter().map(|time| (*time - times[0]).as_nanos()).collect();
        assert_eq!(apart, [0, 1, 6_999_995_000]);
        assert!(times[0] >= before && times[0] <= wall_clock());
    }

    #[test]
    fn the_first_failure_ends_the_file_and_is_told() {
        let capture = CaptureFile::to(Disk { room: 150 }, "test").unwrap();
        let mut sink = capture.sink();
        for _ in 0..5 {
            sink.packet(Instant::ZERO, Direction::Sent, &[0x45; 20]);
        }
        assert_eq!(lock(&capture.state).packets, 1);
        assert_eq!(capture.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
