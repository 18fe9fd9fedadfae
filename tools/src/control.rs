//! The TCP connection between the two sides of `roce perf`: a line of JSON a message.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// No message of ours is longer.
const LONGEST_LINE: u64 = 64 << 10;

/// One end of the connection.
pub(crate) struct Control {
    stream: BufReader<TcpStream>,
}

impl Control {
    pub(crate) fn new(stream: TcpStream) -> anyhow::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// How long [`receive`](Self::receive) waits; for ever when `None`.
    pub(crate) fn set_patience(&mut self, patience: Option<Duration>) -> anyhow::Result<()> {
        Ok(self.stream.get_ref().set_read_timeout(patience)?)
    }

    pub(crate) fn send<T: Serialize>(&mut self, message: &T) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).context("the other side is gone")
    }

    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        self.receive_or_end()?.context("the other side closed the connection")
    }

    /// The same; `None` when the other side has closed the connection.
    pub(crate) fn receive_or_end<T: DeserializeOwned>(&mut self) -> anyhow::Result<Option<T>> {
        let mut line = Vec::new();
        let mut limited = (&mut self.stream).take(LONGEST_LINE);
        let n = limited.read_until(b'\n', &mut line).context("no word from the other side")?;
        if n == 0 {
            return Ok(None);
        }
        serde_json::from_slice(&line).map(Some).with_context(|| {
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end().chars().take(60).collect::<String>();
            format!("the other side says {text:?}, which is not what roce perf says here")
        })
    }

    /// The address the connection has on this host.
    pub(crate) fn local(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.stream.get_ref().local_addr()?)
    }
}
