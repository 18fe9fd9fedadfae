//! The private protocol of `rping`.
//!
//! ```text
//! client                                     server
//! advertises a buffer     ── SEND 16 ──►
//!                         ◄─── READ ────     reads it
//!                         ◄── SEND 16 ──     is done
//! advertises a second one ── SEND 16 ──►
//!                         ◄── WRITE ────     writes the same bytes
//!                         ◄── SEND 16 ──     is done
//! compares both
//! ```
//!
//! A message is an advertisement of 16 bytes: address, key and length, big-endian. The content of the server's messages
//! has no meaning.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde::Serialize;
use softroce::port::wait_readable;
use softroce::verbs::*;
use softroce_perf::clock;
use softroce_perf::completion::success;

/// Longest wait for the end of a connection: the data has been exchanged.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Length of an advertisement in bytes.
const ADVERT_BYTES: usize = 16;

/// Maximum length of a ping in bytes.
const MAX_PING_BYTES: usize = 65_535;

/// Places of the messages in the memory region: the received advertisement, the one to send, and two buffers.
const RECEIVED: usize = 0;
const SENT: usize = ADVERT_BYTES;
const FIRST: usize = 64;
const SECOND: usize = FIRST + MAX_PING_BYTES + 1;
const REGION_BYTES: usize = SECOND + MAX_PING_BYTES + 1;

const RECV_WR_ID: u64 = 1;
const SEND_WR_ID: u64 = 2;
const RDMA_WR_ID: u64 = 3;

/// Number of pings.
#[derive(Clone, Copy, Default, Serialize)]
pub(super) struct Score {
    pub(super) pings: u64,
    pub(super) bytes: u64,
    /// Pings that came back with other bytes.
    pub(super) damaged: u64,
}

/// A buffer of the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Advert {
    remote: RemoteAddr,
    len: u32,
}

impl Advert {
    fn parse(bytes: [u8; ADVERT_BYTES]) -> Self {
        let [a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3, l0, l1, l2, l3] = bytes;
        let addr = u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7]);
        let rkey = Rkey(u32::from_be_bytes([k0, k1, k2, k3]));
        Self { remote: RemoteAddr { addr, rkey }, len: u32::from_be_bytes([l0, l1, l2, l3]) }
    }

    fn write(&self) -> [u8; ADVERT_BYTES] {
        let mut bytes = [0; ADVERT_BYTES];
        bytes[..8].copy_from_slice(&self.remote.addr.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.remote.rkey.0.to_be_bytes());
        bytes[12..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// Queue pair, memory and connection of one side.
struct End {
    context: Context,
    qp: QueuePair,
    cq: CompletionQueue,
    channel: CompletionChannel,
    mr: MemoryRegion,
    timeout: Duration,
    connection: Option<cm::Connection>,
}

impl End {
    fn new(context: &Context, timeout: Duration) -> anyhow::Result<Self> {
        let channel = context.create_channel()?;
        let cq = context.create_cq(16, Some(&channel))?;
        let pd = context.alloc_pd();
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let mr = pd.alloc_mr(REGION_BYTES, access)?;
        let cap = QpCap { max_send_wr: 4, max_recv_wr: 4, ..QpCap::default() };
        let qp = pd.create_qp(&QpConfig { cap, ..QpConfig::rc(&cq) })?;
        let context = context.clone();
        Ok(Self { context, qp, cq, channel, mr, timeout, connection: None })
    }

    /// Posts the receive request for the next message. The queue pair must have left RESET.
    fn post_recv(&self) -> anyhow::Result<()> {
        let place = RECEIVED..RECEIVED + ADVERT_BYTES;
        Ok(self.qp.post_recv(RecvRequest::new(RECV_WR_ID, self.mr.sge(place)))?)
    }

    /// Takes the queue pair to INIT, with a receive request before the peer can send.
    fn prepare(&self) -> anyhow::Result<()> {
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        self.qp.modify(softroce::engine::InitAttr::Connected { access })?;
        self.post_recv()
    }

    fn post_send(&self, advert: &Advert) -> anyhow::Result<()> {
        self.mr.write_at(SENT, &advert.write())?;
        let place = SENT..SENT + ADVERT_BYTES;
        Ok(self.qp.post_send(SendRequest::send(SEND_WR_ID, self.mr.sge(place)).signaled())?)
    }

    /// Waits for a message and the completions before it. `None` after a disconnection.
    fn next_message(&self) -> anyhow::Result<Option<Advert>> {
        let Some(length) = self.next(RECV_WR_ID)? else { return Ok(None) };
        ensure!(
            usize::try_from(length)? == ADVERT_BYTES,
            "a message of {length} bytes arrived, expected {ADVERT_BYTES}: this is not rping"
        );
        let mut bytes = [0; ADVERT_BYTES];
        self.mr.read_at(RECEIVED, &mut bytes)?;
        self.post_recv()?;
        Ok(Some(Advert::parse(bytes)))
    }

    /// Waits for the completion of a request, and returns its length. `None` after a disconnection.
    fn next(&self, wr_id: u64) -> anyhow::Result<Option<u32>> {
        let start = clock::now();
        loop {
            self.cq.req_notify(false);
            while let Some(completion) = self.cq.poll_one() {
                if completion.status == WcStatus::WrFlushErr {
                    return Ok(None);
                }
                let completion = success(completion)?;
                if completion.wr_id == wr_id {
                    return Ok(Some(completion.byte_len));
                }
            }
            let Some(connection) = &self.connection else { bail!("not connected") };
            match connection.poll() {
                None => {}
                Some(cm::ConnectionEvent::Established) => continue,
                Some(cm::ConnectionEvent::Disconnected { .. }) => return Ok(None),
                Some(event) => bail!("the connection failed: {event:?}"),
            }
            let rest = self.timeout.saturating_sub(clock::now() - start);
            ensure!(!rest.is_zero(), "no answer within {} s", self.timeout.as_secs_f64());
            if wait_readable(&[self.channel.as_fd(), connection.event_fd()?], Some(rest))? {
                // Completions are polled for; this takes the announcement only.
                let _ = self.channel.wait(Duration::ZERO);
            }
        }
    }
}

/// The side that answers pings.
pub(super) struct Server(End);

impl Server {
    pub(super) fn new(context: &Context, timeout: Duration) -> anyhow::Result<Self> {
        Ok(Self(End::new(context, timeout)?))
    }

    /// Serves a client until it disconnects.
    pub(super) fn serve(&mut self, incoming: cm::Incoming) -> anyhow::Result<Score> {
        let Self(end) = self;
        end.prepare()?;
        end.connection = Some(incoming.accept(&end.qp, &cm::Accept::default())?);
        let mut score = Score::default();
        while let Some(len) = Self::read(end)? {
            if !Self::write_back(end, len)? {
                bail!("the client disconnected during a ping");
            }
            score.pings += 1;
            score.bytes += u64::from(len);
        }
        Ok(score)
    }

    /// Reads the first buffer of a ping, and returns its length. `None` after the last ping.
    fn read(end: &End) -> anyhow::Result<Option<u32>> {
        let Some(advert) = end.next_message()? else { return Ok(None) };
        let place = Self::place(&advert)?;
        let read = SendRequest::read(RDMA_WR_ID, end.mr.sge(place), advert.remote);
        end.qp.post_send(read.signaled())?;
        end.next(RDMA_WR_ID)?.context("the client disconnected during a ping")?;
        end.post_send(&advert)?;
        Ok(Some(advert.len))
    }

    /// Writes the data to the second buffer. Returns false after a disconnection.
    fn write_back(end: &End, len: u32) -> anyhow::Result<bool> {
        let Some(advert) = end.next_message()? else { return Ok(false) };
        let place = Self::place(&Advert { len: len.min(advert.len), ..advert })?;
        let write = SendRequest::write(RDMA_WR_ID, end.mr.sge(place), advert.remote);
        end.qp.post_send(write.signaled())?;
        if end.next(RDMA_WR_ID)?.is_none() {
            return Ok(false);
        }
        end.post_send(&advert)?;
        Ok(true)
    }

    /// Returns the place of a buffer's content in the memory of this side.
    fn place(advert: &Advert) -> anyhow::Result<std::ops::Range<usize>> {
        let len = usize::try_from(advert.len)?;
        ensure!(
            len <= MAX_PING_BYTES,
            "the client has a buffer of {len} bytes, expected at most {MAX_PING_BYTES}"
        );
        Ok(FIRST..FIRST + len)
    }
}

/// The side that pings.
pub(super) struct Client {
    end: End,
    size: u32,
}

impl Client {
    pub(super) fn new(context: &Context, size: u32, timeout: Duration) -> anyhow::Result<Self> {
        Ok(Self { end: End::new(context, timeout)?, size })
    }

    pub(super) fn connect(&mut self, peer: SocketAddr) -> anyhow::Result<()> {
        let end = &mut self.end;
        end.prepare()?;
        let options = cm::Connect { timeout: Some(end.timeout), ..cm::Connect::default() };
        end.connection = Some(cm::connect(&end.context, peer, &end.qp, &options)?);
        Ok(())
    }

    /// Pings, disconnects, and returns what came back.
    pub(super) fn ping(&mut self, count: u64) -> anyhow::Result<Score> {
        let mut score = Score::default();
        for number in 0..count {
            let is_whole = self.ping_once(number)?;
            score.pings += 1;
            score.bytes += u64::from(self.size);
            score.damaged += u64::from(!is_whole);
        }
        if let Some(connection) = &self.end.connection {
            connection.disconnect()?;
            // The answer of the peer has no influence on the result.
            let _ = connection.wait(DISCONNECT_TIMEOUT);
        }
        Ok(score)
    }

    /// Returns whether the bytes came back unchanged.
    fn ping_once(&self, number: u64) -> anyhow::Result<bool> {
        let (end, size) = (&self.end, usize::try_from(self.size)?);
        let sent = content(number, size);
        end.mr.write_at(FIRST, &sent)?;
        end.mr.write_at(SECOND, &vec![0; size])?;
        for offset in [FIRST, SECOND] {
            end.post_send(&Advert { remote: end.mr.remote(offset), len: self.size })?;
            end.next_message()?.context("the server disconnected during a ping")?;
        }
        let mut received = vec![0; size];
        end.mr.read_at(SECOND, &mut received)?;
        Ok(received == sent)
    }
}

/// Returns the content of a ping: a text that ends with a zero, since `rping` writes back what is before the first zero.
fn content(number: u64, size: usize) -> Vec<u8> {
    let letters = (b'A'..=b'z').cycle().skip(usize::try_from(number % 58).unwrap_or_default());
    let head = format!("rdma-ping-{number}: ").into_bytes();
    let mut bytes: Vec<_> = head.into_iter().chain(letters).take(size.saturating_sub(1)).collect();
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advertisement_is_big_endian() {
        let remote = RemoteAddr { addr: 0x0102_0304_0506_0708, rkey: Rkey(0x1112_1314) };
        let advert = Advert { remote, len: 0x2122_2324 };
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24];
        assert_eq!((advert.write(), Advert::parse(bytes)), (bytes, advert));
    }

    #[test]
    fn content_is_a_string_of_its_length() {
        for number in [0, 9, 57, 58, u64::MAX] {
            let bytes = content(number, 64);
            assert_eq!((bytes.len(), bytes.iter().position(|byte| *byte == 0)), (64, Some(63)));
        }
        assert_ne!(content(1, 64), content(2, 64));
    }
}
