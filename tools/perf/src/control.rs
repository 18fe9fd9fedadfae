//! The TCP control connection between two sides of `roce`: one line of JSON for each message.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::tcp;

/// Maximum length of a message.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// One end of the control connection.
pub struct Control {
    stream: BufReader<TcpStream>,
}

impl Control {
    pub fn new(stream: TcpStream) -> anyhow::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sets the time that [`receive`](Self::receive) waits; `None` waits without limit.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> anyhow::Result<()> {
        Ok(self.stream.get_ref().set_read_timeout(timeout)?)
    }

    pub fn send<T: Serialize>(&mut self, message: &T) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).context("the other side is gone")
    }

    pub fn receive<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        self.receive_or_end()?.context("the other side closed the connection")
    }

    /// Receives a message; `None` when the other side has closed the connection.
    pub fn receive_or_end<T: DeserializeOwned>(&mut self) -> anyhow::Result<Option<T>> {
        let mut line = Vec::new();
        let mut limited = (&mut self.stream).take(MAX_LINE_BYTES);
        let n = limited.read_until(b'\n', &mut line).context("no message from the other side")?;
        if n == 0 {
            return Ok(None);
        }
        serde_json::from_slice(&line).map(Some).with_context(|| {
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end().chars().take(60).collect::<String>();
            format!("the other side sent {text:?}, expected a message of roce of the same version")
        })
    }

    /// Returns whether a message is waiting, or the other side has closed the connection.
    pub fn has_message(&mut self) -> anyhow::Result<bool> {
        if !self.stream.buffer().is_empty() {
            return Ok(true);
        }
        let fd = self.stream.get_ref().as_raw_fd();
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        match recv(fd, &mut [0], flags) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(false),
            Err(e) => Err(e).context("the other side is gone"),
        }
    }

    /// Returns a descriptor that is readable when a message is waiting.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.get_ref().as_fd()
    }

    /// Returns the local address of the connection.
    pub fn local_ip(&self) -> anyhow::Result<IpAddr> {
        tcp::local_ip(self.stream.get_ref())
    }
}
