//! Receive queues of other sockets of this machine.
//!
//! The kernel reports them through `sock_diag(7)`, as to `ss -um`, without privileges. A request takes a few
//! microseconds.
//!
//! A request names the addresses and ports of a datagram, and the kernel reports the socket that it would reach. Where
//! several sockets share an address (`SO_REUSEPORT`, one for each shard), the kernel selects one by the source port. So
//! the first request for an address tries several source ports. Later requests use those that reached different
//! sockets, and the fullest queue counts. The number of sockets is unknown: of two sockets the probe finds both, of 64
//! it misses some.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use smallvec::SmallVec;

use crate::net::ROCE_PORT;
use crate::sys::{ProbeError, SockDiag, SocketMemory};
use crate::time::Instant;

/// Probe for the receive queues of sockets of this machine.
#[derive(Debug)]
pub(super) struct RecvQueueProbe {
    probe: SockDiag,
    /// Sockets found at each address.
    known: HashMap<IpAddr, SmallVec<[ProbedSocket; 1]>>,
}

/// A socket at an address.
#[derive(Clone, Copy, Debug)]
struct ProbedSocket {
    /// Source port of requests that reach it.
    source_port: u16,
    /// The kernel's identifier of the socket.
    cookie: u64,
}

/// Source ports that the first request for an address tries.
const PROBED_SOURCE_PORTS: RangeInclusive<u16> = 1..=32;

/// Maximum number of addresses in the cache, which is then cleared.
const MAX_CACHED_ADDRESSES: usize = 1024;

impl RecvQueueProbe {
    pub(super) fn new() -> Self {
        Self { probe: SockDiag::new(), known: HashMap::new() }
    }

    /// Returns the memory of the socket at the RoCEv2 port of `to`; of several sockets, of the fullest. `None` if no
    /// socket of this machine has the address, or the kernel does not report it.
    pub(super) fn ask(&mut self, now: Instant, from: IpAddr, to: IpAddr) -> Option<SocketMemory> {
        self.fullest(now, from, to).ok().flatten()
    }

    fn fullest(
        &mut self,
        now: Instant,
        from: IpAddr,
        to: IpAddr,
    ) -> Result<Option<SocketMemory>, ProbeError> {
        let known = match self.known.get(&to) {
            Some(known) => known.clone(),
            None => match self.find_all(now, from, to)? {
                Some(known) => known,
                None => return Ok(None),
            },
        };
        let mut fullest: Option<SocketMemory> = None;
        for ProbedSocket { source_port, cookie } in known {
            let found = self.memory(now, (from, source_port), to)?;
            if found.is_none_or(|found| found.cookie != cookie) {
                // Other sockets have the address by now.
                self.known.remove(&to);
            }
            let Some(found) = found else { return Ok(None) };
            if fullest.is_none_or(|fullest| found.waiting > fullest.waiting) {
                fullest = Some(found);
            }
        }
        Ok(fullest)
    }

    /// Returns the memory of any of the sockets at the RoCEv2 port of `to`; `None` without one.
    pub(super) fn ask_any(
        &mut self,
        now: Instant,
        from: IpAddr,
        to: IpAddr,
    ) -> Result<Option<SocketMemory>, ProbeError> {
        self.memory(now, (from, *PROBED_SOURCE_PORTS.start()), to)
    }

    /// Returns the memory of the socket at an address and port.
    pub(super) fn ask_port(
        &mut self,
        now: Instant,
        from: IpAddr,
        to: (IpAddr, u16),
    ) -> Result<Option<SocketMemory>, ProbeError> {
        self.probe.ask(now.since(Instant::ZERO), (from, *PROBED_SOURCE_PORTS.start()), to)
    }

    /// Whether the kernel has `sock_diag(7)`, as far as is known.
    pub(super) fn is_supported(&self) -> bool {
        self.probe.is_supported()
    }

    /// Returns the memory of the socket that a datagram from `from` to the RoCEv2 port of `to` would reach.
    fn memory(
        &mut self,
        now: Instant,
        from: (IpAddr, u16),
        to: IpAddr,
    ) -> Result<Option<SocketMemory>, ProbeError> {
        self.probe.ask(now.since(Instant::ZERO), from, (to, ROCE_PORT))
    }

    /// Finds the sockets at an address.
    fn find_all(
        &mut self,
        now: Instant,
        from: IpAddr,
        to: IpAddr,
    ) -> Result<Option<SmallVec<[ProbedSocket; 1]>>, ProbeError> {
        let mut all: SmallVec<[ProbedSocket; 1]> = SmallVec::new();
        for source_port in PROBED_SOURCE_PORTS {
            let Some(found) = self.memory(now, (from, source_port), to)? else {
                return Ok(None);
            };
            let cookie = found.cookie;
            if all.iter().all(|known| known.cookie != cookie) {
                all.push(ProbedSocket { source_port, cookie });
            }
        }
        if self.known.len() >= MAX_CACHED_ADDRESSES {
            self.known.clear();
        }
        self.known.insert(to, all.clone());
        Ok(Some(all))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use socket2::SockRef;

    use super::*;
    use crate::port::prerequisite;

    const NOW: Instant = Instant::ZERO;

    /// Kernels without `CONFIG_INET_UDP_DIAG` do not answer, nor do sandboxes without `NETLINK_SOCK_DIAG`.
    const NO_ANSWER: &str = "the kernel does not answer sock_diag(7) requests for UDP sockets";

    #[test]
    fn the_kernel_tells_what_waits_and_nothing_where_nobody_is() {
        let [.., high, low] = std::process::id().to_be_bytes();
        let ip = Ipv4Addr::new(127, 62, high, low);
        let (here, there) = (Ipv4Addr::LOCALHOST, UdpSocket::bind((ip, ROCE_PORT)).unwrap());
        let sender = UdpSocket::bind((here, 0)).unwrap();
        let mut recv_queue_probe = RecvQueueProbe::new();
        let buffer = SockRef::from(&there).recv_buffer_size().unwrap() as u64;
        let mut ask = || {
            let memory = recv_queue_probe.ask(NOW, here.into(), ip.into())?;
            assert_eq!(memory.buffer, buffer);
            Some(memory.waiting)
        };
        let Some(mut before) = ask() else { return prerequisite::missing(NO_ANSWER) };
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
        let config = super::super::PortConfig::new(ip);
        let here = Ipv4Addr::LOCALHOST.into();
        let mut recv_queue_probe = RecvQueueProbe::new();
        for shards in [2, 1, 4] {
            let ports = super::super::UdpPort::open_shards(&config, shards).unwrap();
            let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let Some(empty) = recv_queue_probe.ask(NOW, here, ip) else {
                return prerequisite::missing(NO_ANSWER);
            };
            assert_eq!(empty.waiting, 0);
            for shard in 0..shards {
                let mut datagram = [0; 1000];
                (datagram[0], datagram[7]) = (4, 0x40 | shard);
                for _ in 0..=shard {
                    sender.send_to(&datagram, (ip, ROCE_PORT)).unwrap();
                }
                let waiting = recv_queue_probe.ask(NOW, here, ip).map(|memory| memory.waiting);
                let least = 1000 * (u64::from(shard) + 1);
                assert!(waiting >= Some(least), "{waiting:?} at shard {shard} of {shards}");
            }
            drop(ports);
            assert_eq!(recv_queue_probe.ask(NOW, here, ip), None);
        }
    }

    #[test]
    fn stale_answer_in_the_socket_does_not_stop_the_probe() {
        let [.., high, low] = std::process::id().to_be_bytes();
        let ip: IpAddr = Ipv4Addr::new(127, 60, high, low).into();
        let _there = UdpSocket::bind((ip, ROCE_PORT)).unwrap();
        let here = Ipv4Addr::LOCALHOST.into();
        let mut recv_queue_probe = RecvQueueProbe::new();
        let Some(before) = recv_queue_probe.ask(NOW, here, ip) else {
            return prerequisite::missing(NO_ANSWER);
        };
        recv_queue_probe.probe.leave_an_answer((here, 1), (ip, ROCE_PORT));
        for _ in 0..3 {
            assert_eq!(recv_queue_probe.ask(NOW, here, ip), Some(before));
        }
    }
}
