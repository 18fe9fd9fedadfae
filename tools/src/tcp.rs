//! The TCP connections over which two sides agree.

use std::io::{self, Write};
use std::net::{IpAddr, TcpListener, TcpStream, ToSocketAddrs};

use anyhow::Context;

/// Connects to the `roce` or stock program that listens; `program` is what it may be.
pub(crate) fn connect(host: &str, port: u16, program: &str) -> anyhow::Result<TcpStream> {
    let addresses: Vec<_> =
        (host, port).to_socket_addrs().with_context(|| format!("host {host}"))?.collect();
    let nobody = || format!("no {program} listens at {host}, TCP port {port}");
    TcpStream::connect(addresses.as_slice()).with_context(nobody)
}

/// Waits for the other side at every address of this machine, as [`listen`] says.
pub(crate) fn accept(port: u16, announce: bool) -> anyhow::Result<TcpStream> {
    accept_one(&listen(port, announce)?)
}

/// Waits for the next one.
pub(crate) fn accept_one(listener: &TcpListener) -> anyhow::Result<TcpStream> {
    Ok(listener.accept().context("waiting for the other side")?.0)
}

/// Listens at every address of this machine. Port 0 is any; with `announce` it is printed which.
pub(crate) fn listen(port: u16, announce: bool) -> anyhow::Result<TcpListener> {
    // Both IP versions, or the one where there is no other.
    let listener = TcpListener::bind(("::", port))
        .or_else(|_| TcpListener::bind(("0.0.0.0", port)))
        .with_context(|| format!("TCP port {port}"))?;
    if announce {
        let mut out = io::stdout().lock();
        writeln!(out, "{}", listener.local_addr()?.port())?;
        out.flush()?;
    }
    Ok(listener)
}

/// Our address on the way to the other side.
pub(crate) fn local_ip(stream: &TcpStream) -> anyhow::Result<IpAddr> {
    Ok(stream.local_addr()?.ip().to_canonical())
}
