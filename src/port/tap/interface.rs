//! The interface of a TAP port: `/dev/net/tun`, attached to a TAP by name.
//!
//! The port creates the TAP, or attaches to an existing one, which it leaves in place. The TAP may be deleted at any
//! time. The descriptor is then detached, and attached again when an interface with that name exists.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use socket2::{Domain, Socket, Type};

use super::config::TapConfig;
use super::open_error::OpenError;
use crate::sys::{self, OwnDescriptor, Readiness, Watch, WatchLost};

/// Device of TAP interfaces.
const TUN: &str = "/dev/net/tun";

/// Bytes of the smallest queued frame, as the kernel counts them: the queue of a TAP has room for a number of frames of
/// any size.
const MIN_FRAME_TRUESIZE: usize = 1024;

/// Tokens of the epoll instance.
const FRAMES_TOKEN: u64 = 0;
const CHANGES_TOKEN: u64 = 1;

/// A TAP, attached or deleted.
#[derive(Debug)]
pub(super) struct Interface {
    tun: OwnDescriptor<File>,
    /// Other code of the process has closed `tun` or the epoll instance.
    is_lost: bool,
    /// Socket for requests about interfaces.
    socket: OwnDescriptor<Socket>,
    watch: Watch,
    readiness: Readiness,
    name: String,
    is_attached: bool,
    pub(super) state: sys::Interface,
}

impl Interface {
    /// Attaches to the TAP, or creates it with a queue for `receive_buffer` bytes.
    pub(super) fn open(config: &TapConfig, receive_buffer: usize) -> Result<Self, OpenError> {
        let os = |what| move |source| OpenError::Os { name: config.name.clone(), what, source };
        let tun = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(TUN);
        let tun = tun.map_err(|source| OpenError::NoTun { source })?;
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).map_err(os("socket"))?;
        let known = |name: &str| sys::interface_named(name, socket.as_fd());
        let before = known(&config.name).map_err(os("getifaddrs"))?;
        // From here on no change is missed.
        let watch = Watch::new();
        let name = sys::attach_tap(tun.as_fd(), &config.name)
            .map_err(|source| OpenError::attach(config, before.is_some(), source))?;
        if before.is_none() {
            set_up(&socket, config, &name, receive_buffer)?;
        }
        let gone = || io::Error::from_raw_os_error(libc::ENODEV);
        let state =
            known(&name).and_then(|state| state.ok_or_else(gone)).map_err(os("getifaddrs"))?;
        offload(&tun);
        let readiness = Readiness::new().map_err(os("epoll"))?;
        readiness.add(tun.as_fd(), FRAMES_TOKEN).map_err(os("epoll"))?;
        if let Some(changes) = watch.as_fd() {
            readiness.add(changes, CHANGES_TOKEN).map_err(os("epoll"))?;
        }
        let (tun, socket) = (OwnDescriptor::new(tun), OwnDescriptor::new(socket));
        Ok(Self { tun, is_lost: false, socket, watch, readiness, name, is_attached: true, state })
    }

    /// Checks that the descriptors still are those of the port's files. Otherwise every later call of [`send`](Self::send)
    /// and [`receive`](Self::receive) fails, so that the program keeps the data of its own files.
    pub(super) fn check(&mut self) {
        self.is_lost |= !self.tun.is_own() || !self.readiness.is_own();
    }

    fn fail_if_lost(&self) -> io::Result<()> {
        if self.is_lost { Err(io::Error::from_raw_os_error(libc::EBADF)) } else { Ok(()) }
    }

    /// Returns whether the system has reported a change since the last call.
    pub(super) fn has_changed(&mut self) -> bool {
        self.watch.has_changed().unwrap_or_else(|WatchLost| {
            // The epoll instance has no descriptor that is closed.
            self.watch = Watch::new();
            if let Some(changes) = self.watch.as_fd() {
                let _ = self.readiness.add(changes, CHANGES_TOKEN);
            }
            true
        })
    }

    /// Updates the state of the interface. Returns `false` if there is none.
    pub(super) fn update_state(&mut self) -> bool {
        match sys::tap_name(self.tun.as_fd()) {
            // It may have been renamed.
            Ok(name) => self.name = name,
            Err(_) => {
                self.detach();
                if !self.attach() {
                    return false;
                }
            }
        }
        let found = sys::interface_named(&self.name, self.socket.as_fd()).ok().flatten();
        self.state = found.unwrap_or(sys::Interface { running: false, ..self.state });
        found.is_some()
    }

    /// Handles a deleted interface: its descriptor would stay readable for ever.
    fn detach(&mut self) {
        if self.is_attached {
            self.is_attached = false;
            let _ = self.readiness.remove(self.tun.as_fd());
        }
        self.state.running = false;
    }

    /// Attaches to an existing interface with that name. None is created: an administrator has deleted it.
    fn attach(&mut self) -> bool {
        let is_there =
            || sys::interface_named(&self.name, self.socket.as_fd()).is_ok_and(|it| it.is_some());
        if !is_there() || sys::attach_tap(self.tun.as_fd(), &self.name).is_err() {
            return false;
        }
        offload(&self.tun);
        self.is_attached = self.readiness.add(self.tun.as_fd(), FRAMES_TOKEN).is_ok();
        self.is_attached
    }

    /// Sends a frame in two parts.
    pub(super) fn send(&self, head: &[u8], payload: &[u8]) -> io::Result<()> {
        self.fail_if_lost()?;
        (&*self.tun).write_vectored(&[IoSlice::new(head), IoSlice::new(payload)]).map(drop).map_err(
            |error| match error.raw_os_error() {
                // The interface is down or deleted.
                Some(libc::EIO | libc::EBADFD) => io::Error::from_raw_os_error(libc::ENETDOWN),
                _ => error,
            },
        )
    }

    /// Reads the next frame and returns its length; `None` if there is none.
    pub(super) fn receive(&self, frame: &mut [u8]) -> io::Result<Option<usize>> {
        self.fail_if_lost()?;
        match (&*self.tun).read(frame) {
            Ok(len) => Ok(Some(len)),
            Err(error) => match error.raw_os_error() {
                // The interface is deleted; the link state reports that.
                Some(libc::EAGAIN | libc::EINTR | libc::EBADFD) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Returns the size of the receive queue in bytes, as a kernel counts them.
    pub(super) fn receive_buffer(&self) -> usize {
        let frames = sys::queue_len(&self.name, self.socket.as_fd()).unwrap_or_default();
        frames * MIN_FRAME_TRUESIZE
    }

    /// Returns the number of frames dropped for lack of space since the interface was created.
    pub(super) fn drops(&self) -> u64 {
        sys::frames_dropped(&self.name).ok().flatten().unwrap_or(0)
    }

    /// Returns a descriptor that is readable when there is a frame or a change.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }
}

/// Enables GSO frames from the kernel; an older kernel splits them.
fn offload(tun: &File) {
    let checksums = libc::TUN_F_CSUM;
    let bursts = checksums | libc::TUN_F_USO4 | libc::TUN_F_USO6;
    if sys::offload_tap(tun.as_fd(), bursts).is_err() {
        // Then the kernel splits bursts and leaves the checksum to be verified.
        let _ = sys::offload_tap(tun.as_fd(), checksums);
    }
}

/// Configures a created interface: adds it to the bridge and sets it up.
fn set_up(
    socket: &Socket,
    config: &TapConfig,
    name: &str,
    receive_buffer: usize,
) -> Result<(), OpenError> {
    let os = |what| move |source| OpenError::Os { name: name.into(), what, source };
    let interface = |name: &str| sys::interface_named(name, socket.as_fd());
    if let Some(bridge) = &config.bridge {
        let no_bridge = |source| OpenError::NoBridge { bridge: bridge.clone(), source };
        let missing = || no_bridge(io::Error::from_raw_os_error(libc::ENODEV));
        let above = interface(bridge).map_err(os("getifaddrs"))?.ok_or_else(missing)?;
        let own = interface(name).map_err(os("getifaddrs"))?;
        let own = own.ok_or_else(|| os("getifaddrs")(io::ErrorKind::NotFound.into()))?;
        // A bridge adopts the lowest link address of its interfaces, unless one is set, and peers of its host would
        // lose it when that changes.
        sys::raise_link_address(name, socket.as_fd()).map_err(os("SIOCSIFHWADDR"))?;
        // A bridge adopts the lowest MTU of its interfaces, unless one is set.
        sys::set_mtu(name, above.mtu, socket.as_fd()).map_err(os("SIOCSIFMTU"))?;
        sys::add_to_bridge(bridge, own.index, socket.as_fd()).map_err(no_bridge)?;
    }
    let frames = receive_buffer.div_ceil(MIN_FRAME_TRUESIZE);
    sys::set_queue_len(name, frames, socket.as_fd()).map_err(os("SIOCSIFTXQLEN"))?;
    sys::set_link_up(name, socket.as_fd()).map_err(os("SIOCSIFFLAGS"))
}
