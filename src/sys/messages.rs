//! Messages: batches of datagrams with control messages, and descriptors over Unix sockets.
//!
//! `rustix` has neither the control messages of UDP nor `recvmmsg`, so datagrams with a name or control messages are
//! sent and received through the C library.

use std::ffi::c_uint;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;

use rustix::cmsg_space;
use rustix::net::{
    self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use super::cmsg::{Control, Name};
use super::datagram_memory::DatagramMemory;
use super::ffi::length;

/// Messages that one call sends or receives at most.
pub(crate) const MAX_MESSAGES: usize = 16;

/// Bytes of the largest buffer that the kernel hands up: what an IP packet can hold.
const BUFFER_BYTES: usize = 65_536;

/// Destination and control messages of a burst.
#[derive(Clone, Debug, Default)]
pub(crate) struct SendMsg {
    pub(crate) to: Name,
    pub(crate) control: Control,
}

/// An empty message header. All zeros is one: null pointers and lengths of zero.
fn empty_message() -> libc::msghdr {
    // SAFETY: `msghdr` consists of integers and raw pointers, for which all zeros is a value.
    unsafe { mem::zeroed() }
}

/// A header that lends `msg` and `data` to the kernel, which only reads them.
fn outgoing(msg: &SendMsg, iov: &mut libc::iovec) -> libc::msghdr {
    let (name, control) = (msg.to.bytes(), msg.control.bytes());
    let mut message = empty_message();
    message.msg_name = name.as_ptr().cast_mut().cast();
    message.msg_namelen = length(name.len());
    message.msg_iov = iov;
    message.msg_iovlen = 1;
    if !control.is_empty() {
        message.msg_control = control.as_ptr().cast_mut().cast();
        message.msg_controllen = length(control.len());
    }
    message
}

fn lent(data: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() }
}

// The calls that one small datagram waits for are made past the C library, where they are
// cancellation points. That saves a tenth of a poll, and no thread is cancelled in the middle of a
// turn, with the device locked.

/// `sendto`.
fn send_to(fd: RawFd, data: &[u8], to: &[u8]) -> io::Result<usize> {
    let (at, flags) = (data.as_ptr(), libc::MSG_DONTWAIT);
    let name = to.as_ptr();
    // SAFETY: `at` and `name` point to borrowed bytes of the lengths given, which are only read.
    let n = unsafe { libc::syscall(libc::SYS_sendto, fd, at, data.len(), flags, name, to.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// `sendmsg`.
///
/// # Safety
///
/// What `message` points to can be read for as long as it says.
unsafe fn send_message(fd: RawFd, message: &libc::msghdr) -> io::Result<usize> {
    let (at, flags) = (ptr::from_ref(message), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    // SAFETY: the caller has seen to what `message` points to, and the kernel only reads that.
    let n = unsafe { libc::syscall(libc::SYS_sendmsg, fd, at, flags) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// `recvmsg`.
///
/// # Safety
///
/// `message` points to plain bytes that no other code uses, and all of its lengths may be written.
unsafe fn receive_message(fd: RawFd, message: &mut libc::msghdr) -> io::Result<usize> {
    let (at, flags) = (ptr::from_mut(message), libc::MSG_DONTWAIT);
    // SAFETY: the caller has seen to what `message` points to; the kernel keeps to the lengths in it.
    let n = unsafe { libc::syscall(libc::SYS_recvmsg, fd, at, flags) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Sends one message, without waiting.
pub(crate) fn send_one(socket: BorrowedFd<'_>, msg: &SendMsg, data: &[u8]) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    if msg.control.bytes().is_empty() {
        // This is faster than `sendmsg` by a twentieth of what a small datagram takes.
        return send_to(fd, data, msg.to.bytes()).map(drop);
    }
    let mut iov = lent(data);
    let message = outgoing(msg, &mut iov);
    // SAFETY: the name, the data and the control bytes that `message` points to are borrowed until
    // this function returns, with the lengths given.
    unsafe { send_message(fd, &message) }.map(drop)
}

/// Sends one datagram to the peer that the socket is connected to, without waiting.
pub(crate) fn send_to_peer(socket: BorrowedFd<'_>, data: &[u8]) -> io::Result<()> {
    net::send(socket, data, SendFlags::DONTWAIT)?;
    Ok(())
}

/// Receives from the error queue of a socket, without waiting, and returns the number of bytes written to `to`.
pub(crate) fn receive_error(socket: BorrowedFd<'_>, to: &mut [u8]) -> io::Result<usize> {
    let (len, _) = net::recv(socket, to, RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT)?;
    Ok(len)
}

/// Sends up to [`MAX_MESSAGES`] messages, one an msg, without waiting. Returns how many the
/// kernel took; the error is the first message's.
pub(crate) fn send_many<'a>(
    socket: BorrowedFd<'_>,
    msgs: &'a [SendMsg],
    data: impl IntoIterator<Item = &'a [u8]>,
) -> io::Result<usize> {
    let mut iovs = [lent(&[]); MAX_MESSAGES];
    let mut messages = [libc::mmsghdr { msg_hdr: empty_message(), msg_len: 0 }; MAX_MESSAGES];
    let mut count: c_uint = 0;
    let parts = msgs.iter().zip(data).zip(&mut iovs).zip(&mut messages);
    for (((msg, data), iov), message) in parts {
        *iov = lent(data);
        message.msg_hdr = outgoing(msg, iov);
        count += 1;
    }
    let (fd, first) = (socket.as_raw_fd(), messages.as_mut_ptr());
    // SAFETY: the first `count` of `messages` are filled in; what they point to is borrowed until
    // this function returns, with the lengths given. `sendmmsg` writes to `msg_len` only.
    let n = unsafe { libc::sendmmsg(fd, first, count, libc::MSG_DONTWAIT as _) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// A received message.
pub(crate) struct Received<'a> {
    pub(crate) from: &'a Name,
    pub(crate) data: &'a [u8],
    pub(crate) control: &'a Control,
}

/// Buffers for received messages: [`MAX_MESSAGES`] of them, reused by each call.
#[derive(Debug)]
pub(crate) struct RecvBatch {
    memory: DatagramMemory,
    slots: Box<[Slot]>,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    name: Name,
    control: Control,
    len: usize,
}

impl RecvBatch {
    pub(crate) fn new() -> Self {
        Self {
            // Pages are touched when a datagram needs them.
            memory: DatagramMemory::new(MAX_MESSAGES * BUFFER_BYTES),
            slots: vec![Slot::default(); MAX_MESSAGES].into_boxed_slice(),
        }
    }

    /// Receives up to `most` messages, without waiting, and returns how many there were.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
        let received =
            if most <= 1 { self.receive_one(socket) } else { self.receive_many(socket, most) };
        received.or_else(|error| match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(0),
            _ => Err(error),
        })
    }

    /// The messages of the last [`receive`](Self::receive).
    pub(crate) fn messages(&self, count: usize) -> impl Iterator<Item = Received<'_>> {
        let buffers = self.memory.chunks(BUFFER_BYTES);
        self.slots.iter().zip(buffers).take(count).map(|(slot, buffer)| Received {
            from: &slot.name,
            data: buffer.get(..slot.len).unwrap_or_default(),
            control: &slot.control,
        })
    }

    fn receive_one(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let Some(slot) = self.slots.first_mut() else { return Ok(0) };
        let mut iov = room(&mut self.memory[..BUFFER_BYTES]);
        let mut message = incoming(slot, &mut iov);
        // SAFETY: `message` points to a name, a buffer and a control buffer that are borrowed
        // exclusively until this function returns, and gives their sizes. They hold plain bytes.
        let n = unsafe { receive_message(socket.as_raw_fd(), &mut message) }?;
        slot.filled(&message, n);
        Ok(1)
    }

    fn receive_many(&mut self, socket: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
        let mut iovs = [lent(&[]); MAX_MESSAGES];
        let mut messages = [libc::mmsghdr { msg_hdr: empty_message(), msg_len: 0 }; MAX_MESSAGES];
        let mut count: c_uint = 0;
        let buffers = self.memory.chunks_mut(BUFFER_BYTES);
        let parts = self.slots.iter_mut().zip(buffers).zip(&mut iovs).zip(&mut messages);
        for (((slot, buffer), iov), message) in parts.take(most) {
            *iov = room(buffer);
            message.msg_hdr = incoming(slot, iov);
            count += 1;
        }
        let (fd, first) = (socket.as_raw_fd(), messages.as_mut_ptr());
        let flags = libc::MSG_DONTWAIT as _;
        // SAFETY: as in `receive_one`, for each of the first `count` of `messages`, which point to
        // different slots and buffers. A null timeout is none.
        let n = unsafe { libc::recvmmsg(fd, first, count, flags, ptr::null_mut()) };
        let Ok(n) = usize::try_from(n) else { return Err(io::Error::last_os_error()) };
        for (slot, message) in self.slots.iter_mut().zip(&messages).take(n) {
            slot.filled(&message.msg_hdr, message.msg_len as usize);
        }
        Ok(n)
    }
}

impl Slot {
    fn filled(&mut self, message: &libc::msghdr, len: usize) {
        self.len = len;
        #[expect(clippy::unnecessary_cast, reason = "the type differs between C libraries")]
        self.control.set_len(message.msg_controllen as usize);
    }
}

/// A header that lends `slot` to the kernel to be written.
fn incoming(slot: &mut Slot, iov: &mut libc::iovec) -> libc::msghdr {
    let mut message = empty_message();
    let name = slot.name.room();
    message.msg_namelen = length(name.len());
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_iov = iov;
    message.msg_iovlen = 1;
    let control = slot.control.room();
    message.msg_controllen = length(control.len());
    message.msg_control = control.as_mut_ptr().cast();
    message
}

fn room(buffer: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() }
}

/// Sends bytes over a Unix socket, and a descriptor with the first of them, without waiting.
pub(crate) fn send_descriptor(
    socket: BorrowedFd<'_>,
    data: &[u8],
    descriptor: BorrowedFd<'_>,
) -> io::Result<usize> {
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let descriptors = [descriptor];
    let is_pushed = control.push(SendAncillaryMessage::ScmRights(&descriptors));
    debug_assert!(is_pushed, "the buffer has room for one descriptor");
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(net::sendmsg(socket, &[IoSlice::new(data)], &mut control, flags)?)
}

/// Receives bytes from a Unix socket, without waiting, and the first of the descriptors that come with them.
/// Returns the number of bytes. Further descriptors are closed.
///
/// # Errors
///
/// `EMFILE` if the kernel has closed all of them, because the process has no number for one: the bytes are lost then.
/// Other errors of the system.
pub(crate) fn receive_descriptor(
    socket: BorrowedFd<'_>,
    to: &mut [u8],
) -> io::Result<(usize, Option<OwnedFd>)> {
    /// Descriptors that fit the buffer. The kernel closes any others.
    const MAX_DESCRIPTORS: usize = 16;
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = net::recvmsg(socket, &mut [IoSliceMut::new(to)], &mut control, flags)?;
    let all = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    // A descriptor that is not kept is closed.
    let first = all.flatten().fold(None, |first: Option<OwnedFd>, other| first.or(Some(other)));
    if first.is_none() && received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    Ok((received.bytes, first))
}
