//! What waits to be received by another socket of this machine.
//!
//! The kernel tells it to anybody who asks through `sock_diag(7)`, as `ss -um` does; a question takes
//! a few microseconds.
//!
//! It is asked for the socket that a datagram would reach. Where several share an address, each a shard's,
//! that depends for this question on the source port alone. So when an address is asked about for the first
//! time, several source ports are tried; from then on those that led to different sockets, and what is told
//! is the most that waits at any of them. How many there are nobody says: of two none is missed, of 64 some.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::ops::RangeInclusive;

use smallvec::SmallVec;
use socket2::{Domain, Protocol, Socket, Type};

use crate::net::ROCE_PORT;

/// A way to ask.
#[derive(Debug)]
pub(super) struct Backlogs {
    /// `None` where the system has none.
    netlink: Option<Socket>,
    /// Numbers the questions, so that an answer is to the right one.
    asked: u32,
    /// The sockets at each address that was asked about.
    known: HashMap<IpAddr, SmallVec<[Known; 1]>>,
}

/// A socket at an address.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// A question from here is about it.
    source_port: u16,
    /// What the kernel tells it from others by.
    cookie: u64,
}

/// Source ports that are tried.
const TRIED: RangeInclusive<u16> = 1..=32;

/// Addresses of which something is remembered. When there are more all is forgotten.
const REMEMBERED: usize = 1024;

impl Backlogs {
    pub(super) fn new() -> Self {
        let (domain, protocol) =
            (Domain::from(libc::AF_NETLINK), Protocol::from(libc::NETLINK_SOCK_DIAG));
        let netlink = Socket::new(domain, Type::DGRAM, Some(protocol))
            .and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
        Self { netlink: netlink.ok(), asked: 0, known: HashMap::new() }
    }

    /// What the socket at the RoCEv2 port of `to` has; of several the fullest. `None` when no socket of this
    /// machine has it, or the kernel does not tell.
    pub(super) fn ask(&mut self, from: IpAddr, to: IpAddr) -> Option<SocketMemory> {
        let known = match self.known.get(&to) {
            Some(known) => known.clone(),
            None => self.find_all(from, to)?,
        };
        let mut fullest: Option<SocketMemory> = None;
        for Known { source_port, cookie } in known {
            let found = self.ask_from(source_port, from, to);
            if found.is_none_or(|found| found.cookie != cookie) {
                // Others have the address by now.
                self.known.remove(&to);
            }
            let found = found?;
            if fullest.is_none_or(|fullest| found.waiting > fullest.waiting) {
                fullest = Some(found);
            }
        }
        fullest
    }

    /// What one of the sockets has at the RoCEv2 port of `to`, whichever that is.
    pub(super) fn ask_any(&mut self, from: IpAddr, to: IpAddr) -> Option<SocketMemory> {
        self.ask_from(*TRIED.start(), from, to)
    }

    /// Finds the sockets at an address.
    fn find_all(&mut self, from: IpAddr, to: IpAddr) -> Option<SmallVec<[Known; 1]>> {
        let mut all: SmallVec<[Known; 1]> = SmallVec::new();
        for source_port in TRIED {
            let cookie = self.ask_from(source_port, from, to)?.cookie;
            if all.iter().all(|known| known.cookie != cookie) {
                all.push(Known { source_port, cookie });
            }
        }
        if self.known.len() >= REMEMBERED {
            self.known.clear();
        }
        self.known.insert(to, all.clone());
        Some(all)
    }

    /// What the socket has that a datagram from this port would reach.
    fn ask_from(&mut self, port: u16, from: IpAddr, to: IpAddr) -> Option<SocketMemory> {
        self.asked = self.asked.wrapping_add(1);
        let mut netlink = self.netlink.as_ref()?;
        netlink.write_all(&question(self.asked, (from, port), to)).ok()?;
        let mut answer = [0; ANSWER_LEN];
        // The kernel has answered by the time that it was asked.
        let len = netlink.read(&mut answer).ok()?;
        memory(self.asked, answer.get(..len)?)
    }
}

/// What a socket has to receive with, in bytes as the kernel counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SocketMemory {
    /// What waits.
    pub(super) waiting: u64,
    /// What may wait: the size of its receive buffer.
    pub(super) buffer: u64,
    /// What the kernel tells it from others by.
    cookie: u64,
}

/// The kernel's answer is much shorter.
const ANSWER_LEN: usize = 1024;

/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
const BY_FAMILY: u16 = 20;

/// `INET_DIAG_SKMEMINFO` of `linux/inet_diag.h`: the memory of a socket, of which the first number is
/// what waits to be received, and the second what may.
const MEMORY: u16 = 7;

/// Bytes of a `nlmsghdr`, and of an `inet_diag_msg`.
const HEADER: usize = 16;
const MESSAGE: usize = 72;

/// Where an `inet_diag_msg` has the cookie of the socket.
const COOKIE: usize = 44;

/// Bytes of a question.
const QUESTION: u8 = 72;

/// `nlmsghdr` and `inet_diag_req_v2`: the memory of the one socket that a datagram would reach.
///
/// ```text
///  0 length u32   4 type u16   6 flags u16   8 sequence u32   12 port id u32
/// 16 family u8   17 protocol u8   18 extensions u8   20 states u32
/// 24 source port   26 destination port, both big-endian   28 source   44 destination
/// 60 interface u32   64 cookie [u32; 2]
/// ```
fn question(number: u32, (from, port): (IpAddr, u16), to: IpAddr) -> [u8; QUESTION as usize] {
    const REQUEST: u16 = 1;
    const UDP: u8 = 17;
    let family = if to.is_ipv4() { 2 } else { 10 };
    let mut bytes = [0; QUESTION as usize];
    bytes[0..4].copy_from_slice(&u32::from(QUESTION).to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    bytes[8..12].copy_from_slice(&number.to_ne_bytes());
    bytes[16..19].copy_from_slice(&[family, UDP, 1 << (MEMORY - 1)]);
    bytes[20..24].fill(0xff);
    bytes[24..26].copy_from_slice(&port.to_be_bytes());
    bytes[26..28].copy_from_slice(&ROCE_PORT.to_be_bytes());
    address(from, &mut bytes[28..44]);
    address(to, &mut bytes[44..60]);
    // No cookie: the addresses are enough.
    bytes[64..72].fill(0xff);
    bytes
}

fn address(ip: IpAddr, to: &mut [u8]) {
    match ip {
        IpAddr::V4(ip) => to[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => to.copy_from_slice(&ip.octets()),
    }
}

/// The memory of the socket, from the answer to a question.
fn memory(number: u32, answer: &[u8]) -> Option<SocketMemory> {
    if u16_at(answer, 4)? != BY_FAMILY || u32_at(answer, 8)? != number {
        return None;
    }
    let cookie =
        answer.get(HEADER + COOKIE..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))?;
    let mut at = HEADER + MESSAGE;
    loop {
        let (len, kind) = (usize::from(u16_at(answer, at)?), u16_at(answer, at + 2)?);
        if kind == MEMORY {
            let (waiting, buffer) =
                (u32_at(answer, at + 4)?.into(), u32_at(answer, at + 8)?.into());
            return Some(SocketMemory { waiting, buffer, cookie });
        }
        // An attribute is 4 bytes at least, and the next is aligned to 4.
        at += len.max(4).next_multiple_of(4);
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use socket2::SockRef;

    use super::*;

    #[test]
    fn the_kernel_tells_what_waits_and_nothing_where_nobody_is() {
        let [.., high, low] = std::process::id().to_be_bytes();
        let ip = Ipv4Addr::new(127, 62, high, low);
        let (here, there) = (Ipv4Addr::LOCALHOST, UdpSocket::bind((ip, ROCE_PORT)).unwrap());
        let sender = UdpSocket::bind((here, 0)).unwrap();
        let mut backlogs = Backlogs::new();
        let buffer = SockRef::from(&there).recv_buffer_size().unwrap() as u64;
        let mut ask = || {
            let memory = backlogs.ask(here.into(), ip.into())?;
            assert_eq!(memory.buffer, buffer);
            Some(memory.waiting)
        };
        // Few kernels are built without an answer.
        let Some(mut before) = ask() else { return };
        assert_eq!(before, 0);
        for _ in 0..3 {
            sender.send_to(&[0; 1000], (ip, ROCE_PORT)).unwrap();
            let now = ask().unwrap();
            assert!(now >= before + 1000, "{before} and 1000 more are {now}");
            before = now;
        }
        for _ in 0..3 {
            there.recv(&mut [0; 1000]).unwrap();
        }
        assert_eq!(ask(), Some(0));
        drop(there);
        assert_eq!(ask(), None);
    }

    #[test]
    fn of_several_sockets_at_an_address_the_fullest_counts() {
        let [.., high, low] = std::process::id().to_be_bytes();
        let ip: IpAddr = Ipv4Addr::new(127, 61, high, low).into();
        let config = super::super::UdpConfig::new(ip);
        let here = Ipv4Addr::LOCALHOST.into();
        let mut backlogs = Backlogs::new();
        for shards in [2, 1, 4] {
            let ports = super::super::UdpPort::open_shards(&config, shards).unwrap();
            let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            // Few kernels are built without an answer.
            let Some(SocketMemory { waiting: 0, .. }) = backlogs.ask(here, ip) else { return };
            for shard in 0..shards {
                let mut datagram = [0; 1000];
                (datagram[0], datagram[7]) = (4, 0x40 | shard);
                for _ in 0..=shard {
                    sender.send_to(&datagram, (ip, ROCE_PORT)).unwrap();
                }
                let waiting = backlogs.ask(here, ip).map(|memory| memory.waiting);
                let least = 1000 * (u64::from(shard) + 1);
                assert!(waiting >= Some(least), "{waiting:?} at shard {shard} of {shards}");
            }
            drop(ports);
            assert_eq!(backlogs.ask(here, ip), None);
        }
    }

    #[test]
    fn an_answer_is_searched_for_the_memory() {
        let mut answer = vec![0; HEADER + MESSAGE];
        answer[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        answer[8..12].copy_from_slice(&7_u32.to_ne_bytes());
        let attribute = |len: u16, kind: u16| [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
        answer.extend(attribute(5, 8));
        answer.extend([1, 0, 0, 0]);
        answer.extend(attribute(40, MEMORY));
        answer.extend(42_240_u32.to_ne_bytes());
        answer.extend(212_992_u32.to_ne_bytes());
        answer[HEADER + COOKIE..][..8].copy_from_slice(&99_u64.to_ne_bytes());
        let expected = SocketMemory { waiting: 42_240, buffer: 212_992, cookie: 99 };
        assert_eq!(memory(7, &answer), Some(expected));
        assert_eq!(memory(6, &answer), None, "the answer to something else");
        for len in 0..answer.len() {
            assert_eq!(memory(7, &answer[..len]), None, "{len} bytes");
        }
        answer[4] = 2;
        assert_eq!(memory(7, &answer), None, "an error");
    }
}
