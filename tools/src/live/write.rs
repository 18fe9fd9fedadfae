//! Writes the packets of a capture as pcapng.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use softroce::runtime::control::RecordHeader;
use softroce_pcap::{Description, LinkType, Record, Writer};
use softroce_perf::clock::now;

use super::files::{BlockFile, Ring, RingOptions};
use super::source::{Consumer, wall_clock};

/// Bytes of blocks that wait at most.
const MAX_WAITING_BYTES: u64 = 1 << 20;

/// Program that the file names.
const APPLICATION: &str = concat!("roce capture ", env!("CARGO_PKG_VERSION"));

/// A capture file that is being written.
#[derive(Debug)]
pub(super) struct LiveFile {
    writer: Writer<BlockFile>,
    /// The other files of a ring, and when the present one was begun.
    ring: Option<(Ring, RingOptions)>,
    opened: Instant,
    interfaces: Vec<Interface>,
    /// Number of packets that are still wanted.
    left: Option<u64>,
    /// Bytes of the file when blocks were written last.
    committed: u64,
}

#[derive(Debug)]
struct Interface {
    description: Description,
    received: u64,
    dropped: u64,
}

/// Error of the output.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct OutputError(#[source] pub(super) io::Error);

/// Returns whether a capture has failed only because the reader of its FIFO or pipe is gone.
pub(super) fn reader_is_gone(error: &anyhow::Error) -> bool {
    let mut outputs = error.chain().filter_map(|cause| cause.downcast_ref::<OutputError>());
    outputs.any(|OutputError(error)| error.kind() == io::ErrorKind::BrokenPipe)
}

impl LiveFile {
    /// Writes to an open file, at most `count` packets.
    pub(super) fn to(out: File, count: Option<u64>) -> io::Result<Self> {
        Self::begin(out, None, count)
    }

    /// Writes to the files of a ring.
    pub(super) fn to_ring(
        mut ring: Ring,
        options: RingOptions,
        count: Option<u64>,
    ) -> io::Result<Self> {
        let first = ring.next(wall_clock())?;
        Self::begin(first, Some((ring, options)), count)
    }

    fn begin(out: File, ring: Option<(Ring, RingOptions)>, left: Option<u64>) -> io::Result<Self> {
        let writer = Writer::section(BlockFile::new(out), APPLICATION)?;
        let interfaces = Vec::new();
        Ok(Self { writer, ring, opened: now(), interfaces, left, committed: 0 })
    }

    /// Returns the numbers of packets that were written and dropped.
    pub(super) fn counts(&self) -> (u64, u64) {
        let sum = |of: fn(&Interface) -> u64| self.interfaces.iter().map(of).sum();
        (sum(|interface| interface.received), sum(|interface| interface.dropped))
    }

    /// Returns whether no more packets are wanted.
    pub(super) fn is_complete(&self) -> bool {
        self.left == Some(0)
    }

    /// Writes what waits.
    pub(super) fn commit(&mut self) -> Result<(), OutputError> {
        self.writer.flush().map_err(OutputError)?;
        self.committed = self.writer.get_ref().len();
        Ok(())
    }

    /// Ends the file with the statistics of each interface.
    pub(super) fn finish(&mut self) -> Result<(), OutputError> {
        let time = wall_clock();
        for (number, interface) in (0..).zip(&self.interfaces) {
            let Interface { received, dropped, .. } = *interface;
            self.writer.statistics(number, time, received, dropped).map_err(OutputError)?;
        }
        self.commit()
    }

    /// Begins the next file of a ring if this one is full.
    fn rotate(&mut self, time: Duration) -> Result<(), OutputError> {
        let len = self.writer.get_ref().len();
        let Some((ring, options)) = &mut self.ring else { return Ok(()) };
        if !options.is_full(len, now() - self.opened) {
            return Ok(());
        }
        self.writer.flush().map_err(OutputError)?;
        let file = ring.next(time).map_err(OutputError)?;
        self.writer = Writer::section(BlockFile::new(file), APPLICATION).map_err(OutputError)?;
        self.opened = now();
        self.committed = 0;
        for Interface { description, .. } in &self.interfaces {
            self.writer.described_interface(LinkType::Raw, description).map_err(OutputError)?;
        }
        Ok(())
    }
}

impl Consumer for LiveFile {
    fn interface(&mut self, description: Description) -> anyhow::Result<()> {
        self.writer.described_interface(LinkType::Raw, &description).map_err(OutputError)?;
        self.interfaces.push(Interface { description, received: 0, dropped: 0 });
        Ok(())
    }

    fn packet(
        &mut self,
        interface: usize,
        header: &RecordHeader,
        packet: &[u8],
    ) -> anyhow::Result<bool> {
        self.dropped(interface, header.dropped);
        if self.is_complete() {
            return Ok(false);
        }
        self.rotate(header.time)?;
        if let Some(found) = self.interfaces.get_mut(interface) {
            found.received += 1;
        }
        let record = Record {
            interface: u32::try_from(interface)?,
            time: header.time,
            direction: header.direction,
            frame: packet,
            original_len: header.original_len,
            comment: "",
        };
        self.writer.record(&record).map_err(OutputError)?;
        if self.writer.get_ref().len() - self.committed >= MAX_WAITING_BYTES {
            self.commit()?;
        }
        if let Some(left) = &mut self.left {
            *left -= 1;
        }
        Ok(!self.is_complete())
    }

    fn dropped(&mut self, interface: usize, count: u32) {
        if let Some(found) = self.interfaces.get_mut(interface) {
            found.dropped += u64::from(count);
        }
    }
}
