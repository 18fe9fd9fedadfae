//! The packets of one device, as they come from its process.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use softroce::runtime::control::{CaptureFilter, RecordHeader, Request, SocketName};
use softroce_perf::clock::now;

use super::status::{Connection, Status, connect};

/// Longest wait until a device begins a capture.
const START_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes that one call reads at most, so that other devices are read too.
const READ_BYTES: usize = 1 << 20;

/// A capture of the packets of a device.
#[derive(Debug)]
pub(super) struct Stream {
    connection: Connection,
    chunk: Box<[u8]>,
    is_over: bool,
}

impl Stream {
    /// Begins the capture. Returns the properties of the device.
    pub(super) fn open(name: SocketName, filter: &CaptureFilter) -> anyhow::Result<(Self, Status)> {
        let mut connection = connect(name)?;
        connection.request(&Request::Capture(filter.clone()))?;
        let status = connection.reply(now() + START_TIMEOUT)?;
        connection.stream.set_nonblocking(true)?;
        let chunk = vec![0; READ_BYTES].into_boxed_slice();
        Ok((Self { connection, chunk, is_over: false }, status))
    }

    /// Returns whether the device or its process has ended.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Passes the records that have arrived to `take`. The record that ends the capture has no packet.
    pub(super) fn read(
        &mut self,
        mut take: impl FnMut(&RecordHeader, &[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let received = &mut self.connection.received;
        match self.connection.stream.read(&mut self.chunk) {
            // The process has ended without closing its device.
            Ok(0) => self.is_over = true,
            Ok(len) => received.extend_from_slice(&self.chunk[..len]),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.is_over = true,
        }
        let mut used = 0;
        while let Some((header, rest)) = received[used..].split_first_chunk() {
            let header = RecordHeader::parse(header)?;
            let Some(packet) = usize::try_from(header.len).ok().and_then(|len| rest.get(..len))
            else {
                break;
            };
            self.is_over |= header.is_end();
            take(&header, packet)?;
            used += RecordHeader::LEN + packet.len();
        }
        received.drain(..used);
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.stream.as_fd()
    }
}
