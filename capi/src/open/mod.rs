//! Opening and closing of the device.

pub(crate) mod signals;
mod table;
mod thread_attr;

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use softroce::runtime::{Environment, OpenError};
use softroce::verbs::{self, Error, OpenOptions};

use crate::abi::{Handle, IbvContext, IbvDevice};
use crate::border::{Errno, handle_or_null, report, zero_or_errno};
use crate::objects::context::Context;
use crate::objects::device::Device;
use crate::objects::{capture, descriptor};

use thread_attr::ThreadAttrGuard;

/// The number of the process that has opened a device last, or 0.
static OPENER: AtomicU32 = AtomicU32::new(0);

/// Opens the device with the configuration in the environment, or returns another handle to it. `options` returns the
/// options without that configuration.
pub(crate) fn open_with(options: &dyn Fn() -> OpenOptions) -> Result<verbs::Context, Error> {
    let _attr = ThreadAttrGuard::new();
    OPENER.store(process::id(), Ordering::Relaxed);
    let environment = Environment::read().map_err(OpenError::from)?;
    let Some(path) = environment.pcap else {
        return verbs::Context::open(options());
    };
    match verbs::Context::open(options().capture(capture::sink(&path)?)) {
        // The open device already has a capture.
        Err(Error::Open(OpenError::AlreadyOpen { .. })) => verbs::Context::open(options()),
        opened => opened,
    }
}

pub(crate) extern "C" fn open_device(device: Handle<IbvDevice>) -> Handle<IbvContext> {
    handle_or_null(|| {
        device.get()?;
        let verbs = open_with(&OpenOptions::default).map_err(Errno::failed)?;
        Device::opened_at(verbs.ip());
        report::opened(verbs.ip());
        let events = verbs.event_fd()?;
        descriptor::set_blocking(events)?;
        let c = table::verbs_context(device, events.as_raw_fd());
        Ok(Handle::new(Context { c, verbs, objects: Default::default() }))
    })
}

pub(crate) extern "C" fn close_device(context: Handle<IbvContext>) -> c_int {
    zero_or_errno(|| {
        context.get()?;
        context.destroy();
        capture::complete();
        Ok(())
    })
}

/// Runs before the process ends by `_exit`, where no other code of this library runs. A signal handler may
/// call it, so every step is async-signal-safe. The capture file has every packet by then.
pub(crate) extern "C" fn flush() {
    // A child of `vfork` that failed to execute another program ends like this. It shares the memory of
    // its parent, and the devices of the parent stay open.
    if OPENER.load(Ordering::Relaxed) == process::id() {
        softroce::runtime::flush();
    }
}
