//! The packets of the selected devices.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use softroce::port::wait_readable;
use softroce::runtime::control::{CaptureFilter, NewDevices, RecordHeader, SocketName, sockets};
use softroce_cli::Selection;
use softroce_pcap::Description;
use softroce_perf::clock::now;

use super::device::{description, find};
use super::reorder::{Held, Reorder};
use super::status::Status;
use super::stream::Stream;

/// Interval at which a capture of all devices looks for new ones.
const SCAN_INTERVAL: Duration = Duration::from_millis(50);

/// Receiver of the packets of a [`Source`].
pub(super) trait Consumer {
    /// Adds an interface. Its packets have the next number.
    fn interface(&mut self, description: Description) -> anyhow::Result<()>;

    /// Takes a packet. Returns false if it is the last one that is wanted.
    fn packet(
        &mut self,
        interface: usize,
        header: &RecordHeader,
        packet: &[u8],
    ) -> anyhow::Result<bool>;

    /// Takes the number of packets that a device has dropped behind its last one.
    fn dropped(&mut self, interface: usize, count: u32);
}

/// Captures of the selected devices.
#[derive(Debug)]
pub(super) struct Source {
    filter: CaptureFilter,
    /// All devices are selected.
    is_all: bool,
    /// Announcements of new devices; they are found by looking for them, too.
    new_devices: Option<NewDevices>,
    streams: Vec<(usize, Stream)>,
    /// Devices that have been tried.
    known: BTreeSet<SocketName>,
    next_scan: Instant,
    interfaces: usize,
    reorder: Reorder,
}

impl Source {
    /// Begins to capture the selected devices.
    pub(super) fn open(
        selection: &Selection,
        filter: CaptureFilter,
        consumer: &mut dyn Consumer,
    ) -> anyhow::Result<Self> {
        let mut source = Self {
            filter,
            is_all: *selection == Selection::All,
            // Others may have all slots.
            new_devices: NewDevices::listen().ok().filter(|_| *selection == Selection::All),
            streams: Vec::new(),
            known: BTreeSet::new(),
            next_scan: now(),
            interfaces: 0,
            reorder: Reorder::default(),
        };
        if let Selection::One(name) = selection {
            let device = find(name)?;
            let opened = Stream::open(device.socket, &source.filter);
            source.add(opened.with_context(|| device.name)?, consumer)?;
        }
        Ok(source)
    }

    fn add(
        &mut self,
        (stream, status): (Stream, Status),
        consumer: &mut dyn Consumer,
    ) -> anyhow::Result<()> {
        let snap_len = self.filter.snap_len.unwrap_or_default();
        let (name, text) = (status.device.clone(), description(&status));
        consumer.interface(Description { name, text, snap_len })?;
        self.streams.push((self.interfaces, stream));
        self.interfaces += 1;
        Ok(())
    }

    /// Returns whether all selected devices have ended.
    pub(super) fn is_over(&self) -> bool {
        !self.is_all && self.streams.is_empty() && self.reorder.is_empty()
    }

    /// Passes packets to `consumer` until it wants no more, the devices have ended, or one of the `others` is readable.
    /// Returns whether the capture goes on.
    pub(super) fn run(
        &mut self,
        others: &[BorrowedFd<'_>],
        consumer: &mut dyn Consumer,
    ) -> anyhow::Result<bool> {
        self.scan(consumer)?;
        let mut descriptors: Vec<_> =
            self.streams.iter().map(|(_, stream)| stream.as_fd()).collect();
        descriptors.extend(self.new_devices.as_ref().map(AsFd::as_fd));
        descriptors.extend_from_slice(others);
        let waits = self.is_all || !self.reorder.is_empty();
        wait_readable(&descriptors, waits.then_some(SCAN_INTERVAL))?;
        while let Some(device) = self.new_devices.as_ref().and_then(NewDevices::accept) {
            self.attach(device.name, consumer)?;
        }
        let wanted = self.read(consumer)?;
        Ok(wanted && !self.is_over())
    }

    /// Passes the packets that are left. Returns when there are no more.
    pub(super) fn finish(&mut self, consumer: &mut dyn Consumer) -> anyhow::Result<()> {
        self.read(consumer)?;
        self.release(None, consumer).map(drop)
    }

    /// Begins to capture devices that are new.
    fn scan(&mut self, consumer: &mut dyn Consumer) -> anyhow::Result<()> {
        if !self.is_all || now() < self.next_scan {
            return Ok(());
        }
        self.next_scan = now() + SCAN_INTERVAL;
        let names = sockets().context("/proc/net/unix")?;
        self.known.retain(|name| names.contains(name));
        for name in names {
            self.attach(name, consumer)?;
        }
        Ok(())
    }

    /// Begins to capture a device unless it has been tried. Those of other users, and of processes that end at this
    /// moment, are left out.
    fn attach(&mut self, name: SocketName, consumer: &mut dyn Consumer) -> anyhow::Result<()> {
        if self.known.insert(name)
            && let Ok(opened) = Stream::open(name, &self.filter)
        {
            self.add(opened, consumer)?;
        }
        Ok(())
    }

    fn read(&mut self, consumer: &mut dyn Consumer) -> anyhow::Result<bool> {
        let is_alone = !self.is_all;
        let mut wanted = true;
        for (interface, stream) in &mut self.streams {
            stream.read(|header, packet| {
                if header.is_end() {
                    consumer.dropped(*interface, header.dropped);
                } else if !is_alone {
                    let packet = packet.into();
                    self.reorder.put(Held { interface: *interface, header: *header, packet });
                } else if wanted {
                    wanted = consumer.packet(*interface, header, packet)?;
                }
                Ok(())
            })?;
        }
        self.streams.retain(|(_, stream)| !stream.is_over());
        Ok(wanted && self.release(Some(wall_clock()), consumer)?)
    }

    /// Passes the packets that have been held long enough.
    fn release(
        &mut self,
        now: Option<Duration>,
        consumer: &mut dyn Consumer,
    ) -> anyhow::Result<bool> {
        while let Some(held) = self.reorder.take(now) {
            if !consumer.packet(held.interface, &held.header, &held.packet)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the time since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "packets have the time of the wall clock")]
pub(super) fn wall_clock() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
