//! The buffer between a device, which must not wait, and the thread that sends a capture to a client.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use super::record::RecordHeader;
use super::request::CaptureFilter;
use crate::port::{Direction, Sink};
use crate::runtime::clock;
use crate::sync::Mutex;
use crate::time::Instant;

/// Bytes of records that wait to be sent. The thread of the connection empties the buffer every 10 ms, so a capture
/// carries at most 3 Gbit/s; the packets beyond cost the device a branch.
const BUFFER_BYTES: usize = 4 << 20;

/// Records that wait to be sent.
#[derive(Debug)]
pub(super) struct CaptureBuffer {
    records: Mutex<Vec<u8>>,
    /// A packet did not fit, and the buffer has not been emptied since.
    is_full: AtomicBool,
    /// Number of packets dropped since the last record.
    dropped: AtomicU32,
}

impl CaptureBuffer {
    /// Returns an empty buffer.
    pub(super) fn new() -> Arc<Self> {
        let records = Mutex::new(Self::room());
        let (is_full, dropped) = (AtomicBool::new(false), AtomicU32::new(0));
        Arc::new(Self { records, is_full, dropped })
    }

    /// Returns room for [`take`](Self::take).
    pub(super) fn room() -> Vec<u8> {
        Vec::with_capacity(BUFFER_BYTES)
    }

    /// Exchanges the waiting records for the empty `room`.
    pub(super) fn take(&self, room: &mut Vec<u8>) {
        room.clear();
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *records, room);
        self.is_full.store(false, Ordering::Relaxed);
    }

    /// Returns the number of packets dropped since the last record.
    pub(super) fn take_dropped(&self) -> u32 {
        self.dropped.swap(0, Ordering::Relaxed)
    }

    fn put(&self, header: RecordHeader, packet: &[u8]) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if records.len() + RecordHeader::LEN + packet.len() > BUFFER_BYTES {
            self.is_full.store(true, Ordering::Relaxed);
            drop(records);
            return self.drop_packets(1);
        }
        records.extend(RecordHeader { dropped: self.take_dropped(), ..header }.to_bytes());
        records.extend_from_slice(packet);
    }

    fn drop_packets(&self, count: u32) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
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

    fn is_full(&self) -> bool {
        self.buffer.is_full.load(Ordering::Relaxed)
    }

    fn skipped(&mut self, packets: usize) {
        self.buffer.drop_packets(u32::try_from(packets).unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let buffer = CaptureBuffer::new();
        let mut sink = BufferSink::new(Arc::clone(&buffer), CaptureFilter::default());
        let packet = [0x45; 4096];
        let fits = BUFFER_BYTES / (RecordHeader::LEN + packet.len());
        let put = |sink: &mut BufferSink| {
            sink.packet(Instant::from_nanos(5), Direction::Sent, &packet);
        };
        (0..fits).for_each(|_| put(&mut sink));
        assert!(!sink.is_full());
        put(&mut sink);
        assert!(sink.is_full());
        sink.skipped(2);
        let mut room = CaptureBuffer::room();
        buffer.take(&mut room);
        assert_eq!((headers(&room).len(), sink.is_full()), (fits, false));
        put(&mut sink);
        buffer.take(&mut room);
        let [header] = headers(&room)[..] else { panic!("expected a record") };
        assert_eq!((header.dropped, header.len, buffer.take_dropped()), (3, 4096, 0));
    }

    #[test]
    fn snap_length_cuts_packets() {
        let buffer = CaptureBuffer::new();
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
