//! The time that bare UDP needs for the datagrams of a message: a limit for programs that exchange such messages.
//!
//! ```text
//! cargo run --release --package softroce-tools --example datagrams -- SECONDS '92'
//! cargo run --release --package softroce-tools --example datagrams -- SECONDS '4140/4112 20'
//! cargo run --release --package softroce-tools --example datagrams -- SECONDS '76 36; 32 20; 61680/4112 4112'
//! ```
//!
//! A message is a list of steps, separated by semicolons, in which the two sides take turns. In a step a side sends
//! bursts, each with one system call: `4140/4112` are 4140 bytes in segments of 4112. The other side polls until it
//! has them all. With an odd number of steps the sides change places after each message, as in a ping-pong. The
//! example prints the median time of a message in microseconds, over the loopback interface.

#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::env;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::errno::Errno;
use nix::sys::socket::sockopt::{RcvBuf, SndBuf, UdpGroSegment};
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt};

const USAGE: &str = "usage: datagrams SECONDS 'BYTES[/SEGMENT] ...[; BYTES[/SEGMENT] ...]'";

/// Largest burst: one UDP send.
const MAX_BURST: usize = 65_507;

/// Send and receive buffer of a socket.
const SOCKET_BUFFER: usize = 4 << 20;

/// A loss of datagrams ends the measurement after this time.
const LOSS_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
struct Burst {
    bytes: usize,
    segment: u16,
}

type Step = Vec<Burst>;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [seconds, message] = arguments.as_slice() else { bail!("{USAGE}") };
    let seconds = seconds.parse().with_context(|| format!("seconds: {seconds:?} is no number"))?;
    let duration =
        Duration::try_from_secs_f64(seconds).with_context(|| format!("seconds: {seconds}"))?;
    let steps = message.split(';').map(parse_step).collect::<anyhow::Result<Vec<_>>>()?;

    let [a, b] = [open()?, open()?];
    a.connect(b.local_addr()?)?;
    b.connect(a.local_addr()?)?;
    let end = Instant::now() + duration;
    let [mut times, _] = thread::scope(|scope| {
        let steps = steps.as_slice();
        let second = scope.spawn(move || run(&b, steps, false, end));
        let first = run(&a, steps, true, end);
        let second = second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        anyhow::Ok([first?, second?])
    })?;
    times.sort_unstable();
    let median = times.get(times.len() / 2).context("no message in this time")?;
    println!("{:.2}", median.as_secs_f64() * 1e6);
    Ok(())
}

fn parse_step(text: &str) -> anyhow::Result<Step> {
    let parse = |word: &str| {
        let (bytes, segment) = word.split_once('/').unwrap_or((word, word));
        let burst: Option<Burst> = bytes
            .parse()
            .ok()
            .zip(segment.parse().ok())
            .map(|(bytes, segment)| Burst { bytes, segment });
        let burst = burst.with_context(|| format!("{word:?} is no burst; {USAGE}"))?;
        let in_range = (1..=MAX_BURST).contains(&burst.bytes) && burst.segment > 0;
        ensure!(in_range, "a burst has 1 to {MAX_BURST} bytes, found {word:?}");
        Ok(burst)
    };
    let step = text.split_whitespace().map(parse).collect::<anyhow::Result<Step>>()?;
    ensure!(!step.is_empty(), "an empty step; {USAGE}");
    Ok(step)
}

fn open() -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_nonblocking(true)?;
    setsockopt(&socket, UdpGroSegment, &true)?;
    setsockopt(&socket, RcvBuf, &SOCKET_BUFFER)?;
    setsockopt(&socket, SndBuf, &SOCKET_BUFFER)?;
    Ok(socket)
}

/// Takes turns with the other side until `end`, and then until that side ends too. Returns the times of the messages.
fn run(
    socket: &UdpSocket,
    steps: &[Step],
    mut sends: bool,
    end: Instant,
) -> anyhow::Result<Vec<Duration>> {
    let mut buffer = vec![0; 1 << 16];
    let mut times = Vec::new();
    let mut begin = Instant::now();
    loop {
        for step in steps {
            if sends {
                step.iter().try_for_each(|burst| send(socket, &buffer, *burst))?;
            } else if !receive(socket, &mut buffer, step)? {
                // The other side has ended before this one, which is at most one message behind.
                return Ok(times);
            }
            sends = !sends;
        }
        let now = Instant::now();
        times.push(now - begin);
        begin = now;
        // Only the side that sends next may end: nothing is under way then.
        if now >= end && sends {
            return Ok(times);
        }
    }
}

fn send(socket: &UdpSocket, buffer: &[u8], burst: Burst) -> anyhow::Result<()> {
    let slices = [IoSlice::new(&buffer[..burst.bytes])];
    let segmented = [ControlMessage::UdpGsoSegments(&burst.segment)];
    let control: &[_] = if burst.bytes > burst.segment.into() { &segmented } else { &[] };
    sendmsg::<SockaddrStorage>(socket.as_raw_fd(), &slices, control, MsgFlags::empty(), None)?;
    Ok(())
}

/// Receives the bytes of a step. Returns false if nothing arrives for a while.
fn receive(socket: &UdpSocket, buffer: &mut [u8], step: &Step) -> anyhow::Result<bool> {
    let expected: usize = step.iter().map(|burst| burst.bytes).sum();
    let mut received = 0;
    let mut polls = 0u32;
    let mut deadline = None;
    while received < expected {
        match receive_one(socket, buffer) {
            Ok(bytes) => received += bytes,
            Err(Errno::EAGAIN) => {
                polls += 1;
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + LOSS_TIMEOUT);
                if polls.is_multiple_of(1024) && Instant::now() >= deadline {
                    ensure!(received == 0, "{received} of {expected} bytes arrived");
                    return Ok(false);
                }
            }
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
    ensure!(received == expected, "{received} bytes arrived, expected {expected}");
    Ok(true)
}

fn receive_one(socket: &UdpSocket, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut control = nix::cmsg_space!(i32);
    let mut slices = [IoSliceMut::new(buffer)];
    let message =
        recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), MsgFlags::empty())?;
    Ok(message.bytes)
}
