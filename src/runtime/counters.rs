//! Counters of a device: read by the program, or written to a file once a second.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::cm;
use crate::counter::{Counter, Family, Sample};
use crate::ids::Qpn;
use crate::port::{Datapath, PortCounters};
use crate::runtime::LinkCounters;
use crate::runtime::device_error::DeviceError;
use crate::runtime::shards::Shards;
use crate::sync::Mutex;
use crate::transport::outputs::Counters;

/// Counters of a device since it was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceCounters {
    /// The device's name.
    pub name: String,
    /// Its address.
    pub ip: IpAddr,
    /// Protocol counters: of all queue pairs, and of packets to none.
    pub protocol: Counters,
    /// Port counters: datagrams, and drops of the kernel.
    pub port: PortCounters,
    /// Counters of the interface.
    pub link: LinkCounters,
    /// Counters of the connection manager.
    pub cm: cm::Counters,
    /// Protocol counters of each queue pair.
    pub by_qp: Vec<(Qpn, Counters)>,
}

impl DeviceCounters {
    pub(crate) fn of(shards: &Shards, name: &str, ip: IpAddr) -> Result<Self, DeviceError> {
        let (protocol, port) = Self::totals(shards)?;
        // All shards have the same interfaces.
        let (link, cm) =
            shards.first().with(|core, _| (core.link_counters(), core.cm_counters()))?;
        let mut by_qp = Vec::new();
        for shard in shards.iter() {
            shard.with(|core, _| by_qp.extend(core.engine.counters_by_qp()))?;
        }
        Ok(Self { name: name.to_owned(), ip, protocol, port, link, cm, by_qp })
    }

    /// Returns the sums over all engines and ports.
    pub(crate) fn totals(shards: &Shards) -> Result<(Counters, PortCounters), DeviceError> {
        let mut totals = (Counters::default(), PortCounters::default());
        for shard in shards.iter() {
            shard.with(|core, _| {
                totals.0 += &core.engine.counters();
                totals.1 += &core.port.counters();
            })?;
        }
        Ok(totals)
    }

    /// Returns every counter of the device.
    pub fn iter(&self) -> impl Iterator<Item = Counter> + use<> {
        let Self { protocol, port, link, cm, .. } = self;
        protocol.iter().chain(port.iter()).chain(link.iter()).chain(cm.iter())
    }

    /// Returns the counters of the device and of each queue pair in the text format of Prometheus: metrics
    /// `softroce_…_total` with the labels `device` and `ip`, and `softroce_qp_…_total` with `qp` in addition.
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// let ctx = Context::open(OpenOptions::loopback().name("rdma"))?;
    /// let line = format!("softroce_retransmitted_total{{device=\"rdma\",ip=\"{}\"}} 0\n", ctx.ip());
    /// assert!(ctx.counters()?.prometheus().contains(&line));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn prometheus(&self) -> String {
        let labels = || vec![("device", self.name.clone()), ("ip", self.ip.to_string())];
        let device = Sample { labels: labels(), counters: self.iter().collect() };
        let of_qp = |(qpn, counters): &(Qpn, Counters)| {
            let mut labels = labels();
            labels.push(("qp", qpn.to_string()));
            Sample { labels, counters: counters.iter().collect() }
        };
        let qps = self.by_qp.iter().map(of_qp).collect();
        let device = Family { prefix: "softroce", samples: vec![device] };
        format!("{device}{}", Family { prefix: "softroce_qp", samples: qps })
    }
}

/// Writes the counters of a device to a file, once a second and at the end.
#[derive(Debug)]
pub(crate) struct CountersFile {
    file: File,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// File with the counters of a device.
#[derive(Clone, Debug)]
struct File {
    path: PathBuf,
    name: String,
    ip: IpAddr,
    /// Locked while the file is replaced.
    replacing: Arc<Mutex<()>>,
}

impl CountersFile {
    /// Number of destroyed queue pairs that are still reported.
    pub(crate) const MAX_DESTROYED_QPS: usize = 1024;

    /// Interval of the writes.
    const WRITE_INTERVAL: Duration = Duration::from_secs(1);

    /// Writes the file, and starts the thread that repeats it.
    pub(crate) fn start(
        directory: &Path,
        name: &str,
        ip: IpAddr,
        shards: &Arc<Shards>,
    ) -> io::Result<Self> {
        let path = directory.join(format!("{name}-{ip}.prom").replace('/', "_"));
        let file = File { path, name: name.to_owned(), ip, replacing: Arc::new(Mutex::new(())) };
        file.write(shards)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (its_file, its_stop) = (file.clone(), Arc::clone(&stop));
        let its_shards = Arc::clone(shards);
        let thread = thread::Builder::new().name(format!("{name}-counters")).spawn(move || {
            while !its_stop.load(Ordering::Acquire) {
                thread::park_timeout(Self::WRITE_INTERVAL);
                // An error cannot be reported; a full disk may have space the next time.
                let _ = its_file.write(&its_shards);
            }
        })?;
        Ok(Self { file, stop, thread: Some(thread) })
    }

    /// Writes the file. An error cannot be reported.
    pub(crate) fn write(&self, shards: &Shards) {
        let _ = self.file.write(shards);
    }

    /// Writes the file for the last time.
    pub(crate) fn finish(self, shards: &Shards) {
        let file = self.file.clone();
        drop(self);
        let _ = file.write(shards);
    }
}

impl Drop for CountersFile {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The thread ends after `stop`, and does not panic.
            let _ = thread.join();
        }
    }
}

impl File {
    /// Replaces the file atomically.
    fn write(&self, shards: &Shards) -> io::Result<()> {
        // A failed device counts no more.
        let Ok(counters) = DeviceCounters::of(shards, &self.name, self.ip) else { return Ok(()) };
        let _replacing = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let new = self.path.with_extension("prom.new");
        fs::write(&new, counters.prometheus())?;
        fs::rename(&new, &self.path)
    }
}
