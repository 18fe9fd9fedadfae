//! Exchange of endpoints as in `ibv_srq_pingpong` and `ibv_xsrq_pingpong`: text over TCP.
//!
//! `ibv_srq_pingpong` sends 256 messages of the format of [`exchange`](mod@crate::exchange), however many queue pairs
//! it has. `ibv_xsrq_pingpong` sends one message of 66 bytes: LID, target, initiator, first PSN, shared receive queue
//! and GID. After the test both sides send `END`.
//!
//! ```text
//!   client                                                                  server
//!     │── "0000:000013:000014:123456:000001:0000…ffff0a000001\0" ──────────▶│
//!     │◀── "0000:000015:000016:abcdef:000002:0000…ffff0a000002\0" ──────────│
//!     │                                                    the test, which the server begins
//!     │── "END\0" ─────────────────────────────────────────────────────────▶│
//!     │◀── "END\0" ─────────────────────────────────────────────────────────│
//! ```

use std::io::{Read, Write};
use std::net::{Ipv6Addr, TcpStream};

use anyhow::{Context, bail, ensure};
use softroce::verbs::{Endpoint, Gid, Psn, Qpn, Srqn};

use crate::exchange::{self, DONE, READ_TIMEOUT, printable};

/// Number of endpoints that `ibv_srq_pingpong` sends, however many queue pairs it has.
const EXCHANGED_QPS: usize = 256;

const MESSAGE_LEN: usize = 66;
const END: [u8; 4] = *b"END\0";

/// Numbers and address of one side of the XRC test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct XrcEndpoint {
    pub(super) target: Qpn,
    pub(super) initiator: Qpn,
    pub(super) psn: Psn,
    pub(super) srqn: Srqn,
    pub(super) gid: Gid,
}

/// Exchanges endpoints and connects the queue pairs; the server connects before it sends its endpoints.
pub(super) fn exchange_all(
    stream: &mut TcpStream,
    is_client: bool,
    mine: &[Endpoint],
    connect: impl FnOnce(&[Endpoint]) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Endpoint>> {
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    if is_client {
        write_endpoints(stream, mine)?;
        let theirs = read_endpoints(stream, mine.len())?;
        connect(&theirs)?;
        stream.write_all(&DONE).context("the server closed the connection")?;
        return Ok(theirs);
    }
    let theirs = read_endpoints(stream, mine.len())?;
    connect(&theirs)?;
    write_endpoints(stream, mine)?;
    exchange::read_done(stream)?;
    Ok(theirs)
}

fn write_endpoints(stream: &mut TcpStream, mine: &[Endpoint]) -> anyhow::Result<()> {
    let nobody = Endpoint { gid: Gid([0; 16]), qpn: Qpn::new(0), psn: Psn::new(0) };
    let all = mine.iter().chain(std::iter::repeat(&nobody)).take(EXCHANGED_QPS);
    let words: Vec<u8> = all.flat_map(exchange::format).collect();
    stream.write_all(&words).context("the other side closed the connection")
}

fn read_endpoints(stream: &mut TcpStream, count: usize) -> anyhow::Result<Vec<Endpoint>> {
    let mut messages = vec![[0; exchange::MESSAGE_LEN]; EXCHANGED_QPS];
    for message in &mut messages {
        stream.read_exact(message).context("no endpoint from the other side")?;
    }
    messages.iter().take(count).map(exchange::parse).collect()
}

/// Exchanges the numbers that each side needs over XRC.
pub(super) fn exchange(
    stream: &mut TcpStream,
    is_client: bool,
    mine: &XrcEndpoint,
) -> anyhow::Result<XrcEndpoint> {
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let mut theirs = [0; MESSAGE_LEN];
    if is_client {
        stream.write_all(&format(mine)).context("the server closed the connection")?;
        stream.read_exact(&mut theirs).context("no endpoint from the other side")?;
        return parse(&theirs);
    }
    stream.read_exact(&mut theirs).context("no endpoint from the other side")?;
    let theirs = parse(&theirs)?;
    stream.write_all(&format(mine)).context("the client closed the connection")?;
    Ok(theirs)
}

/// Waits until the other side has finished the test.
pub(super) fn wait_for_close(stream: &mut TcpStream, is_client: bool) -> anyhow::Result<()> {
    if is_client {
        stream.write_all(&END)?;
    }
    let mut end = [0; END.len()];
    stream.read_exact(&mut end).context("the other side closed the connection before the end")?;
    ensure!(end == END, "the other side sent {:?}, expected \"END\"", printable(&end));
    if !is_client {
        stream.write_all(&END)?;
    }
    Ok(())
}

fn format(words: &XrcEndpoint) -> Vec<u8> {
    let XrcEndpoint { target, initiator, psn, srqn, gid } = words;
    let (target, initiator) = (target.value(), initiator.value());
    let (psn, srqn, gid) = (psn.value(), srqn.value(), u128::from_be_bytes(gid.0));
    format!("0000:{target:06x}:{initiator:06x}:{psn:06x}:{srqn:06x}:{gid:032x}\0").into_bytes()
}

fn parse(message: &[u8; MESSAGE_LEN]) -> anyhow::Result<XrcEndpoint> {
    let expected = || {
        let found = printable(message);
        format!(
            "the other side sent {found:?}, expected LID:TARGET:INITIATOR:PSN:SRQN:GID as \
             ibv_xsrq_pingpong sends it"
        )
    };
    let text = message.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = std::str::from_utf8(text).with_context(expected)?;
    let fields: Vec<_> = text.split(':').collect();
    let [_lid, target, initiator, psn, srqn, gid] = fields[..] else { bail!(expected()) };
    let number = |digits: &str| u32::from_str_radix(digits, 16).with_context(expected);
    let gid = u128::from_str_radix(gid.trim(), 16).with_context(expected)?;
    ensure!(gid != 0, "the other side sent no GID: start it with -g INDEX");
    Ok(XrcEndpoint {
        target: Qpn::new(number(target)?),
        initiator: Qpn::new(number(initiator)?),
        psn: Psn::new(number(psn)?),
        srqn: Srqn::new(number(srqn)?),
        gid: Gid::from(Ipv6Addr::from(gid)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_rdma_core() {
        let words = XrcEndpoint {
            target: Qpn::new(0x13),
            initiator: Qpn::new(0xab_cdef),
            psn: Psn::new(0x12_3456),
            srqn: Srqn::new(7),
            gid: Gid::from(std::net::Ipv4Addr::new(10, 77, 0, 2)),
        };
        let text = b"0000:000013:abcdef:123456:000007:00000000000000000000ffff0a4d0002\0";
        assert_eq!(format(&words), text);
        assert_eq!(parse(text).unwrap(), words);
        let error = |text: &[u8; MESSAGE_LEN]| parse(text).unwrap_err().to_string();
        let no_gid = b"0000:000013:abcdef:123456:000007:00000000000000000000000000000000\0";
        let expected = "the other side sent no GID: start it with -g INDEX";
        assert_eq!(error(no_gid), expected);
        let mut rc = [b'0'; MESSAGE_LEN];
        rc[4] = b':';
        assert!(error(&rc).starts_with("the other side sent \"0000:000"), "{}", error(&rc));
    }
}
