//! The buffer between a device, which must not wait, and the thread that sends a capture to a client.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use super::record::RecordHeader;
use super::request::CaptureFilter;
use crate::port::{Direction, EventFd, Sink};
use crate::runtime::clock;
use crate::sync::Mutex;
use crate::time::Instant;

/// Bytes of records that wait to be sent: 10 ms of 3 Gbit/s. Packets beyond are dropped.
const BUFFER_BYTES: usize = 4 << 20;

/// The sending thread is woken when the buffer has this many bytes; it looks by itself after a while.
const WAKE_BYTES: usize = BUFFER_BYTES / 2;

/// Records that wait to be sent.
#[derive(Debug)]
pub(super) struct CaptureBuffer {
    waiting: Mutex<Waiting>,
    /// Wakes the sending thread.
    wake: EventFd,
}

#[derive(Debug)]
struct Waiting {
    records: Vec<u8>,
    /// Number of packets dropped since the last record.
    dropped: u32,
}

impl CaptureBuffer {
    /// Returns an empty buffer.
    ///
    /// # Errors
    ///
    /// The process has no more descriptors.
    pub(super) fn new() -> io::Result<Arc<Self>> {
        let waiting = Mutex::new(Waiting { records: Self::room(), dropped: 0 });
        Ok(Arc::new(Self { waiting, wake: EventFd::open()? }))
    }

    /// Returns room for [`take`](Self::take).
    pub(super) fn room() -> Vec<u8> {
        Vec::with_capacity(BUFFER_BYTES)
    }

    /// Returns the descriptor that is readable when much waits.
    pub(super) fn wake(&self) -> &EventFd {
        &self.wake
    }

    /// Exchanges the waiting records for the empty `room`.
    pub(super) fn take(&self, room: &mut Vec<u8>) {
        room.clear();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut waiting.records, room);
    }

    /// Returns the number of packets dropped since the last record.
    pub(super) fn take_dropped(&self) -> u32 {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut waiting.dropped)
    }

    fn put(&self, header: RecordHeader, packet: &[u8]) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let before = waiting.records.len();
        let after = before + RecordHeader::LEN + packet.len();
        if after > BUFFER_BYTES {
            waiting.dropped = waiting.dropped.saturating_add(1);
            return;
        }
        let dropped = std::mem::take(&mut waiting.dropped);
        waiting.records.extend(RecordHeader { dropped, ..header }.to_bytes());
        waiting.records.extend_from_slice(packet);
        drop(waiting);
        if before < WAKE_BYTES && after >= WAKE_BYTES {
            self.wake.ring();
        }
    }
}

/// The [`Sink`] of a port that fills a [`CaptureBuffer`].
pub(super) struct BufferSink {
    buffer: Arc<CaptureBuffer>,
    filter: CaptureFilter,
    /// Time since the Unix epoch at the zero of the device's clock.
    epoch: Duration,
}

impl BufferSink {
    pub(super) fn new(buffer: Arc<CaptureBuffer>, filter: CaptureFilter) -> Self {
        let zero = clock::wall_clock(Instant::ZERO);
        let epoch = zero.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { buffer, filter, epoch }
    }
}

impl Sink for BufferSink {
    fn packet(&mut self, at: Instant, direction: Direction, ip_packet: &[u8]) {
        if !self.filter.admits(ip_packet) {
            return;
        }
        let snap_len = self.filter.snap_len.and_then(|bytes| usize::try_from(bytes).ok());
        let packet = &ip_packet[..snap_len.unwrap_or(usize::MAX).min(ip_packet.len())];
        let length = |packet: &[u8]| u32::try_from(packet.len()).unwrap_or(u32::MAX);
        let header = RecordHeader {
            time: self.epoch + Duration::from_nanos(at.as_nanos()),
            len: length(packet),
            original_len: length(ip_packet),
            dropped: 0,
            direction: Some(direction),
        };
        self.buffer.put(header, packet);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::port::wait_readable;

    fn headers(mut records: &[u8]) -> Vec<RecordHeader> {
        let mut headers = Vec::new();
        while let Some((header, rest)) = records.split_first_chunk() {
            let header = RecordHeader::parse(header).unwrap();
            records = &rest[usize::try_from(header.len).unwrap()..];
            headers.push(header);
        }
        assert!(records.is_empty());
        headers
    }

    #[test]
    fn full_buffer_counts_the_packets_that_it_drops() {
        let buffer = CaptureBuffer::new().unwrap();
        let mut sink = BufferSink::new(Arc::clone(&buffer), CaptureFilter::default());
        let is_woken = || wait_readable(&[buffer.wake().as_fd()], Some(Duration::ZERO)).unwrap();
        let packet = [0x45; 4096];
        let fits = BUFFER_BYTES / (RecordHeader::LEN + packet.len());
        let mut put = || sink.packet(Instant::from_nanos(5), Direction::Sent, &packet);
        put();
        assert!(!is_woken());
        (0..fits + 2).for_each(|_| put());
        assert!(is_woken());
        let mut room = CaptureBuffer::room();
        buffer.take(&mut room);
        assert_eq!(headers(&room).len(), fits);
        put();
        buffer.take(&mut room);
        let [header] = headers(&room)[..] else { panic!("expected a record") };
        assert_eq!((header.dropped, header.len, buffer.take_dropped()), (3, 4096, 0));
    }

    #[test]
    fn snap_length_cuts_packets() {
        let buffer = CaptureBuffer::new().unwrap();
        let filter = CaptureFilter { snap_len: Some(64), ..CaptureFilter::default() };
        let mut sink = BufferSink::new(Arc::clone(&buffer), filter);
        for len in [40, 64, 65] {
            sink.packet(Instant::ZERO, Direction::Received, &vec![0x45; len]);
        }
        let mut room = CaptureBuffer::room();
        buffer.take(&mut room);
        let lengths: Vec<_> =
            headers(&room).iter().map(|header| (header.len, header.original_len)).collect();
        assert_eq!(lengths, [(40, 40), (64, 64), (64, 65)]);
    }
}
