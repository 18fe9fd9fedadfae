//! Opening the device in somebody else's process.

use std::fs::File;
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::Pid;
use softroce::runtime::{Environment, OpenError};
use softroce::verbs::{Context, Error, OpenOptions};
use softroce_pcap::CaptureFile;

use crate::border::at_exit;
use crate::gate::lock;
use crate::log;

/// The process that has opened a device last; 0 before.
static OPENER: AtomicU32 = AtomicU32::new(0);

/// Opens the device as the environment says, or gets another handle on it.
pub(crate) fn open() -> Result<Context, Error> {
    let _manners = Manners::put_on();
    OPENER.store(process::id(), Ordering::Relaxed);
    let environment = Environment::read().map_err(OpenError::from)?;
    let Some(path) = environment.pcap else { return Context::open(OpenOptions::default()) };
    match Context::open(capturing(&path)?) {
        // It has its capture from who has opened it first.
        Err(Error::Open(OpenError::AlreadyOpen { .. })) => Context::open(OpenOptions::default()),
        opened => opened,
    }
}

/// The file of the packets, and the process that has made it. It stays when the device is closed, and
/// goes on when it is opened again.
static CAPTURE: Mutex<Option<(u32, CaptureFile<File>)>> = Mutex::new(None);

/// What is not done while a process forks.
pub(crate) type Held = MutexGuard<'static, Option<(u32, CaptureFile<File>)>>;

pub(crate) fn hold() -> Held {
    lock(&CAPTURE)
}

/// Options for a device whose packets are written to a file. Where the path has `%p` the number of the
/// process is put, so that several do not write to one.
fn capturing(path: &Path) -> Result<OpenOptions, Error> {
    let failed = |source| Error::Os { what: "the file of SOFTROCE_PCAP", source };
    let me = process::id();
    let mut capture = lock(&CAPTURE);
    let file = match capture.take() {
        Some((maker, file)) if maker == me => file,
        _ => {
            // Before the device is opened, so that what it sends in the end is there by then.
            at_exit(complete_capture);
            let path = path.to_string_lossy().replace("%p", &me.to_string());
            CaptureFile::to(File::create(path).map_err(failed)?, "softroce").map_err(failed)?
        }
    };
    let sink = file.sink();
    *capture = Some((me, file));
    Ok(OpenOptions::default().capture(sink))
}

/// The end of the process by `_exit`, before which nothing else of ours runs. It may come in the handler of
/// a signal, so every step is async-signal-safe. Of a capture each packet is in the file by then.
pub(crate) extern "C" fn flush() {
    // A child that `vfork` has made, and that could not be another program, ends like this: it has the
    // memory of its parent, whose devices are not to be given up.
    if OPENER.load(Ordering::Relaxed) == process::id() {
        softroce::runtime::flush();
    }
}

/// Writes out what is held back of the packets.
pub(crate) extern "C" fn complete_capture() {
    // Another thread may hold it, and go on for as long as it likes.
    let Ok(capture) = CAPTURE.try_lock() else { return };
    if let Some((maker, file)) = &*capture
        && *maker == process::id()
        && let Err(error) = file.finish()
    {
        log::failed(&error);
    }
}

/// How a thread is to be while others are started from it: a thread inherits the signals that are
/// blocked, and ours must not get the program's; and the processors that it may run on, which the
/// program may have chosen for one of its own threads. Ours run where the first thread may: `taskset`
/// and MPI's launchers bind a process by that one.
struct Manners {
    signals: Option<SigSet>,
    processors: Option<CpuSet>,
}

/// The thread that asks.
const THIS: Pid = Pid::from_raw(0);

impl Manners {
    fn put_on() -> Self {
        let mut blocked = SigSet::all();
        // Of what a thread does itself. The library may take them for memory that is not there.
        blocked.remove(Signal::SIGSEGV);
        blocked.remove(Signal::SIGBUS);
        let signals = blocked.thread_swap_mask(SigmaskHow::SIG_SETMASK).ok();
        let processors = sched_getaffinity(THIS).ok();
        if processors.is_some()
            && let Ok(of_first) = sched_getaffinity(Pid::this())
        {
            let _ = sched_setaffinity(THIS, &of_first);
        }
        Self { signals, processors }
    }
}

impl Drop for Manners {
    fn drop(&mut self) {
        if let Some(processors) = &self.processors {
            let _ = sched_setaffinity(THIS, processors);
        }
        if let Some(signals) = &self.signals {
            let _ = signals.thread_set_mask();
        }
    }
}
