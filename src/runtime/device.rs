//! Devices: each has addresses that no other device of the process has.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use crate::ids::{Gid, PKey, PdId};
use crate::mem::Memory;
use crate::runtime::control::ControlServer;
use crate::runtime::counters::{CountersFile, DeviceCounters};
use crate::runtime::device_error::DeviceError;
use crate::runtime::peers::PeerReceiveBuffers;
use crate::runtime::{CqNumbers, Shards, XrcdTable, generation};

/// A device with one address or several. Dropping the last handle sends pending packets, ends the threads and closes
/// the sockets.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) shards: Arc<Shards>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) name: String,
    /// The first address.
    pub(crate) ip: IpAddr,
    /// GID table, whether or not an interface has the address now.
    pub(crate) gids: Vec<Gid>,
    pub(crate) pkeys: Vec<PKey>,
    /// Receive buffer of its socket, in bytes.
    pub(crate) receive_buffer: u64,
    pub(super) next_pd: AtomicU32,
    pub(crate) xrcds: XrcdTable,
    pub(crate) cqs: CqNumbers,
    pub(crate) peers: PeerReceiveBuffers,
    pub(super) threads: Vec<JoinHandle<()>>,
    pub(super) report: Option<CountersFile>,
    pub(super) control: Option<Arc<ControlServer>>,
    pub(super) generation: u32,
}

impl Device {
    /// Returns the counters.
    pub(crate) fn counters(&self) -> Result<DeviceCounters, DeviceError> {
        DeviceCounters::of(&self.shards, &self.name, self.ip)
    }

    /// Writes the file with the counters, if there is one.
    pub(super) fn write_counters_file(&self) {
        if let Some(report) = &self.report {
            report.write(&self.shards);
        }
    }

    /// Sends the last packets of captures when the process ends.
    pub(super) fn flush_captures_at_exit(&self) {
        if let Some(control) = &self.control {
            control.flush_at_exit();
        }
    }

    /// Returns the number of a new protection domain.
    pub(crate) fn next_pd(&self) -> PdId {
        PdId(self.next_pd.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns whether this process has opened the device, and not its parent.
    pub(super) fn is_ours(&self) -> bool {
        self.generation == generation()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let (threads, report) = (std::mem::take(&mut self.threads), self.report.take());
        if !self.is_ours() {
            // The threads, connections and pending packets belong to the parent.
            std::mem::forget((threads, report, self.control.take()));
            return;
        }
        self.shards.flush();
        let unheard = self.shards.iter().filter(|shard| !shard.stop()).count();
        let own = thread::current().id();
        // A task or a handler of events that the device's thread has run may drop the last handle: the thread ends then
        // without being waited for. So does a thread that cannot be woken.
        let ends = |thread: &JoinHandle<()>| unheard == 0 && thread.thread().id() != own;
        for thread in threads.into_iter().filter(ends) {
            // Waiters have already received an error for a panic.
            let _ = thread.join();
        }
        if let Some(control) = &self.control {
            control.close();
        }
        if let Some(report) = report {
            report.finish(&self.shards);
        }
    }
}
