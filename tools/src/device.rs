//! Opens the device as the options say, and closes the capture when it is done.

use std::fs::File;
use std::io::BufWriter;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use softroce::runtime::Environment;
use softroce::verbs::{Context, OpenOptions};
use softroce_pcap::CaptureFile;

use crate::cli::DeviceArgs;

/// A device, and the file that shows what it carries.
pub(crate) struct Opened {
    pub(crate) context: Context,
    capture: Option<(CaptureFile<BufWriter<File>>, PathBuf)>,
}

impl DeviceArgs {
    /// Opens the device. `route` is our address on the way to the other side, if there is another
    /// side; a loopback address says nothing, for both may have the same.
    pub(crate) fn open(&self, route: Option<IpAddr>) -> anyhow::Result<Opened> {
        let environment = Environment::read()?;
        let name = environment.name.as_deref().unwrap_or("softroce0");
        if let Some(wanted) = &self.ib_dev {
            ensure!(wanted == name, "no device {wanted}: there is {name}");
        }
        let route = route.filter(|ip| !ip.is_loopback());
        let mut options = OpenOptions::default();
        if let Some(ip) = self.ip.or(environment.ip).or(route) {
            options = options.ip(ip);
        }
        if let Some(bytes) = self.rcvbuf {
            options = options.receive_buffer(bytes);
        }
        if let Some(impairments) = self.impair {
            options = options.impair(impairments);
        }
        let mut capture = None;
        if let Some(path) = self.pcap.clone().or(environment.pcap) {
            let application = concat!("roce ", env!("CARGO_PKG_VERSION"));
            let file = CaptureFile::create(&path, application)
                .with_context(|| path.display().to_string())?;
            options = options.capture(file.sink());
            capture = Some((file, path));
        }
        Ok(Opened { context: Context::open(options)?, capture })
    }
}

impl Opened {
    /// Closes the device and completes the capture. Everything that was made from the device must
    /// be gone.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        drop(self.context);
        match self.capture {
            Some((file, path)) => {
                file.finish().map(|_| ()).with_context(|| path.display().to_string())
            }
            None => Ok(()),
        }
    }
}
