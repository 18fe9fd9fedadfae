//! Exchange of endpoints as in `ibv_rc_pingpong`, `ibv_uc_pingpong` and `ibv_ud_pingpong`: text over TCP.
//!
//! ```text
//!   client                                             server
//!     │── "0000:000012:123456:0000…ffff0a000001\0" ──────▶│  connects its queue pair
//!     │◀── "0000:000013:abcdef:0000…ffff0a000002\0" ──────│
//!     │── "done\0" ──────────────────────────────────────▶│
//! ```
//!
//! A message is LID, queue pair number, first PSN and GID in hexadecimal and ends with a zero byte:
//! always 52 bytes.

use std::io::{Read, Write};
use std::net::{Ipv6Addr, Shutdown, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use softroce::verbs::{Endpoint, Gid, Psn, Qpn};

pub(crate) const MESSAGE_LEN: usize = 52;
pub(crate) const DONE: [u8; 5] = *b"done\0";

/// Time that the other side may take for a message.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Exchanges endpoints as the client: sends `mine`, and returns the server's.
pub(crate) fn as_client(stream: &mut TcpStream, mine: &Endpoint) -> anyhow::Result<Endpoint> {
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    stream.write_all(&format(mine)).context("the server closed the connection")?;
    let theirs = read(stream)?;
    stream.write_all(&DONE).context("the server closed the connection")?;
    Ok(theirs)
}

/// Exchanges endpoints as the server: `connect` takes the client's endpoint and returns ours, connected to it.
/// Requests may arrive as soon as the client has ours.
pub(crate) fn as_server(
    stream: &mut TcpStream,
    connect: impl FnOnce(&Endpoint) -> anyhow::Result<Endpoint>,
) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let theirs = read(stream)?;
    let mine = connect(&theirs)?;
    stream.write_all(&format(&mine)).context("the client closed the connection")?;
    read_done(stream)
}

/// Reads the last message of the client.
pub(crate) fn read_done(stream: &mut TcpStream) -> anyhow::Result<()> {
    let mut done = [0; DONE.len()];
    stream
        .read_exact(&mut done)
        .context("the client closed the connection before it was connected")?;
    ensure!(done == DONE, "the client sent {:?}, expected \"done\"", printable(&done));
    Ok(())
}

/// Waits until the other side closes the connection, so that this side still acknowledges its last messages. The
/// rdma-core programs close it as soon as they are connected, and then this returns at once.
pub(crate) fn wait_for_close(mut stream: TcpStream) {
    // A side that is gone or does not respond needs no acknowledgements.
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read(&mut [0]);
}

fn read(stream: &mut TcpStream) -> anyhow::Result<Endpoint> {
    let mut message = [0; MESSAGE_LEN];
    stream.read_exact(&mut message).context("no endpoint from the other side")?;
    parse(&message)
}

/// Formats a message. LIDs exist on InfiniBand only, and are zero here.
pub(crate) fn format(endpoint: &Endpoint) -> [u8; MESSAGE_LEN] {
    let gid = u128::from_be_bytes(endpoint.gid.0);
    let (qpn, psn) = (endpoint.qpn.value(), endpoint.psn.value());
    let text = format!("0000:{qpn:06x}:{psn:06x}:{gid:032x}");
    let mut message = [0; MESSAGE_LEN];
    // 24 bits are six digits, so every byte but the last is written.
    message.iter_mut().zip(text.bytes()).for_each(|(byte, char)| *byte = char);
    message
}

pub(crate) fn parse(message: &[u8; MESSAGE_LEN]) -> anyhow::Result<Endpoint> {
    let expected = || {
        let found = printable(message);
        format!("the other side sent {found:?}, expected LID:QPN:PSN:GID as ibv_*_pingpong send it")
    };
    let text = message.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = std::str::from_utf8(text).with_context(expected)?;
    let fields: Vec<_> = text.split(':').collect();
    let [_lid, qpn, psn, gid] = fields[..] else { bail!(expected()) };
    let number = |digits| u32::from_str_radix(digits, 16).with_context(expected);
    let gid = u128::from_str_radix(gid, 16).with_context(expected)?;
    ensure!(gid != 0, "the other side sent no GID: start it with -g INDEX");
    Ok(Endpoint {
        gid: Gid::from(Ipv6Addr::from(gid)),
        qpn: Qpn::new(number(qpn)?),
        psn: Psn::new(number(psn)?),
    })
}

pub(crate) fn printable(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn endpoint(text: &str) -> Endpoint {
        text.parse().unwrap()
    }

    /// Runs a server on this thread against a client that sends `words`; returns what the client received.
    fn server(words: &[u8], mine: &Endpoint) -> (anyhow::Result<Endpoint>, Vec<u8>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(words).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut stream = listener.accept().unwrap().0;
        let mut theirs = None;
        let result = as_server(&mut stream, |peer| {
            theirs = Some(*peer);
            Ok(*mine)
        });
        drop(stream);
        let mut heard = Vec::new();
        // A server that has not read everything resets the connection.
        let _ = client.read_to_end(&mut heard);
        (result.and_then(|()| theirs.context("no peer")), heard)
    }

    #[test]
    fn server_messages_are_those_of_rdma_core() {
        let mine = endpoint("gid=::ffff:10.77.0.3 qpn=0x000012 psn=0x00beef");
        let words = b"0000:00001c:5c3f1a:00000000000000000000ffff0a4d0002\0done\0";
        let (theirs, heard) = server(words, &mine);
        let expected = endpoint("gid=::ffff:10.77.0.2 qpn=0x00001c psn=0x5c3f1a");
        assert_eq!(theirs.unwrap(), expected);
        assert_eq!(heard, b"0000:000012:00beef:00000000000000000000ffff0a4d0003\0");
    }

    #[test]
    fn errors_name_what_the_client_sent() {
        let mine = endpoint("gid=::1 qpn=1 psn=1");
        let error = |words: &[u8]| server(words, &mine).0.unwrap_err().to_string();
        let no_gid = b"0000:00001c:5c3f1a:00000000000000000000000000000000\0done\0";
        let expected = "the other side sent no GID: start it with -g INDEX";
        assert_eq!(error(no_gid), expected);
        let http = b"GET / HTTP/1.1\r\nHost: 10.77.0.3:18515\r\nAccept: everything\r\n";
        assert!(error(http).starts_with("the other side sent \"GET / HTTP/1.1"), "{}", error(http));
        assert_eq!(error(b"0000:"), "no endpoint from the other side");
        let impolite = b"0000:00001c:5c3f1a:00000000000000000000ffff0a4d0002\0";
        assert_eq!(error(impolite), "the client closed the connection before it was connected");
    }

    #[test]
    fn client_and_server_exchange_endpoints() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (a, b) = (
            endpoint("gid=fe80::1234:5678:9abc:def0 qpn=0xabcdef psn=0xffffff"),
            endpoint("gid=::ffff:127.0.0.2 qpn=0x000002 psn=0x000000"),
        );
        let client = thread::Builder::new()
            .spawn(move || as_client(&mut TcpStream::connect(address).unwrap(), &a).unwrap())
            .unwrap();
        let mut heard = None;
        let mut stream = listener.accept().unwrap().0;
        let connect = |peer: &Endpoint| {
            heard = Some(*peer);
            Ok(b)
        };
        as_server(&mut stream, connect).unwrap();
        assert_eq!((heard, client.join().unwrap()), (Some(a), b));
    }
}
