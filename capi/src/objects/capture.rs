//! The capture file that `SOFTROCE_PCAP` names. It exists once in a process.

use std::fs::File;
use std::path::Path;
use std::process;
use std::sync::Mutex;

use softroce::port::Sink;
use softroce::runtime::PerProcess;
use softroce::verbs::Error;
use softroce_pcap::CaptureFile;

use crate::border::at_exit;
use crate::gate::lock;
use crate::log;

/// A capture file and the number of the process that has created it.
type OwnedFile = (u32, CaptureFile<File>);

/// The file stays when the device is closed, and continues when the device is opened again.
static CAPTURE: PerProcess<Mutex<Option<OwnedFile>>> = PerProcess::new(|_| Mutex::new(None));

/// Returns the part of a capture file to which a device writes its packets. `%p` in the path becomes the number
/// of the process, so that several processes write to different files.
///
/// # Errors
///
/// [`Error::Os`] when the file cannot be created or written.
pub(crate) fn sink(path: &Path) -> Result<Box<dyn Sink>, Error> {
    let failed = |source| Error::Os { what: "the file of SOFTROCE_PCAP", source };
    let me = process::id();
    let mut capture = lock(CAPTURE.get());
    let file = match capture.take() {
        Some((owner, file)) if owner == me => file,
        _ => {
            // Hooks run in reverse order. This one runs after that of the device, which sends packets
            // when it closes.
            at_exit(complete);
            let path = path.to_string_lossy().replace("%p", &me.to_string());
            CaptureFile::to(File::create(path).map_err(failed)?, "softroce").map_err(failed)?
        }
    };
    let sink = file.sink();
    *capture = Some((me, file));
    Ok(sink)
}

/// Writes buffered packets to the file. Does nothing while another thread has the file locked: it may
/// keep the lock for any time.
pub(crate) extern "C" fn complete() {
    let Some(Ok(capture)) = CAPTURE.if_made().map(Mutex::try_lock) else { return };
    if let Some((owner, file)) = &*capture
        && *owner == process::id()
        && let Err(error) = file.finish()
    {
        log::failed(&error);
    }
}
