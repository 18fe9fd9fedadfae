//! Devices: each with addresses that no other of the process has.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use crate::ids::{Gid, PKey, PdId};
use crate::mem::Memory;
use crate::runtime::counters::{DeviceCounters, Report};
use crate::runtime::down::Down;
use crate::runtime::peers::Peers;
use crate::runtime::{CqNumbers, Shards, XrcdTable, generation};

/// One address or several, and all that is behind them. Dropping the last handle sends what is owed,
/// ends the threads and closes the sockets.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) shards: Arc<Shards>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) name: String,
    /// The first of its addresses.
    pub(crate) ip: IpAddr,
    /// Its addresses, each in its slot, whether an interface has it now or not.
    pub(crate) gids: Vec<Gid>,
    pub(crate) pkeys: Vec<PKey>,
    /// Bytes of its socket's receive buffer.
    pub(crate) receive_buffer: u64,
    pub(super) next_pd: AtomicU32,
    pub(crate) xrcds: XrcdTable,
    pub(crate) cqs: CqNumbers,
    pub(crate) peers: Peers,
    pub(super) threads: Vec<JoinHandle<()>>,
    pub(super) report: Option<Report>,
    pub(super) generation: u32,
}

impl Device {
    /// What the device has counted.
    pub(crate) fn counters(&self) -> Result<DeviceCounters, Down> {
        DeviceCounters::of(&self.shards, &self.name, self.ip)
    }

    /// The number of a new protection domain.
    pub(crate) fn next_pd(&self) -> PdId {
        PdId(self.next_pd.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether it is of this process and not of the one this was forked from.
    pub(super) fn is_ours(&self) -> bool {
        self.generation == generation()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let (threads, report) = (std::mem::take(&mut self.threads), self.report.take());
        if !self.is_ours() {
            // The threads are the parent's, and so is what is owed.
            std::mem::forget((threads, report));
            return;
        }
        self.shards.flush();
        self.shards.iter().for_each(|shard| shard.stop());
        for thread in threads {
            // A panic has been told to those who wait already.
            let _ = thread.join();
        }
        if let Some(report) = report {
            report.finish(&self.shards);
        }
    }
}
