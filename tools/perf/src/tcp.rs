//! Control connections over TCP.

use std::io::{self, Write};
use std::net::{IpAddr, TcpListener, TcpStream, ToSocketAddrs};

use anyhow::Context;

/// Connects to a listening side; `program` names what may listen there.
pub fn connect(host: &str, port: u16, program: &str) -> anyhow::Result<TcpStream> {
    let addresses: Vec<_> =
        (host, port).to_socket_addrs().with_context(|| format!("host {host}"))?.collect();
    let context = || format!("no {program} listens at {host}, TCP port {port}");
    TcpStream::connect(addresses.as_slice()).with_context(context)
}

/// Accepts one connection on every address of this machine; see [`listen`].
pub fn accept(port: u16, announce: bool) -> anyhow::Result<TcpStream> {
    accept_one(&listen(port, announce)?)
}

/// Accepts the next connection.
pub fn accept_one(listener: &TcpListener) -> anyhow::Result<TcpStream> {
    Ok(listener.accept().context("waiting for the other side")?.0)
}

/// Listens on every address of this machine. Port 0 is any free one; `announce` prints the port.
pub fn listen(port: u16, announce: bool) -> anyhow::Result<TcpListener> {
    // Both IP versions, or IPv4 where there is no IPv6.
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

/// Returns the local address of a connection.
pub fn local_ip(stream: &TcpStream) -> anyhow::Result<IpAddr> {
    Ok(stream.local_addr()?.ip().to_canonical())
}
