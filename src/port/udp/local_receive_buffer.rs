//! The receive buffer of a socket of this machine, from `sock_diag(7)`.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::{OnceLock, PoisonError};
use std::time::Duration;

use super::recv_queue_probe::RecvQueueProbe;
use crate::sync::Mutex;
use crate::sys::{PerProcess, ProbeError, SocketMemory, monotonic};
use crate::time::Instant;

/// Time for which an answer counts for further connections to the same address.
const ANSWER_LIFETIME: Duration = Duration::from_millis(100);

/// Returns the receive buffer of a socket at the RoCEv2 port of `to`, in bytes as its kernel counts them, as it was at most
/// [`ANSWER_LIFETIME`] ago. `None` if no socket of this machine has the address, or the kernel does not report it.
pub(crate) fn local_receive_buffer(from: IpAddr, to: IpAddr) -> Option<u64> {
    static UDP_DIAG: UdpDiag = UdpDiag::new();
    static LAST: PerProcess<Mutex<LastAnswer>> = PerProcess::new(|_| Mutex::default());

    let mut last = LAST.get().lock().unwrap_or_else(PoisonError::into_inner);
    last.or_ask((from, to), Instant::from_nanos(monotonic()), || {
        let mut probe = RecvQueueProbe::new();
        UDP_DIAG.ask(&mut probe, from, to).map(|memory| memory.buffer)
    })
}

/// The last receive buffer that the kernel has reported: a program that makes many connections at once asks for the same
/// again and again.
#[derive(Debug, Default)]
struct LastAnswer(Option<Answer>);

#[derive(Debug)]
struct Answer {
    /// Source and destination.
    of: (IpAddr, IpAddr),
    /// Size of the receive buffer, in bytes.
    buffer: u64,
    at: Instant,
}

impl LastAnswer {
    /// Returns the last answer if it is for these addresses and recent; otherwise the one that `ask` returns. No socket is
    /// not an answer: there may be one the next moment.
    fn or_ask(
        &mut self,
        of: (IpAddr, IpAddr),
        now: Instant,
        ask: impl FnOnce() -> Option<u64>,
    ) -> Option<u64> {
        let is_recent = |last: &&Answer| last.of == of && now - last.at < ANSWER_LIFETIME;
        if let Some(last) = self.0.as_ref().filter(is_recent) {
            return Some(last.buffer);
        }
        let buffer = ask();
        self.0 = buffer.map(|buffer| Answer { of, buffer, at: now });
        buffer
    }
}

/// Whether the kernel reports UDP sockets, once that is certain.
///
/// A kernel without the module for UDP answers as if there were no socket, and looks for the module each time, which takes
/// a process. So such a kernel is asked no more.
#[derive(Debug)]
struct UdpDiag(OnceLock<bool>);

/// A kernel with `sock_diag(7)`.
trait Kernel {
    /// Returns the memory of the socket at the RoCEv2 port of `to`; `None` without one.
    fn memory(&mut self, from: IpAddr, to: IpAddr) -> Result<Option<SocketMemory>, ProbeError>;

    /// Whether the kernel has `sock_diag(7)`, as far as is known.
    fn is_supported(&self) -> bool;

    /// Returns the memory of a socket that exists. `None` if the kernel does not report it.
    fn memory_of_existing(&mut self) -> Result<Option<SocketMemory>, ProbeError>;
}

impl UdpDiag {
    const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Asks the kernel, unless it is known to report no UDP sockets.
    fn ask(&self, kernel: &mut impl Kernel, from: IpAddr, to: IpAddr) -> Option<SocketMemory> {
        let reports = match self.0.get() {
            Some(reports) => *reports,
            None => self.find_out(kernel)?,
        };
        if !reports {
            return None;
        }
        kernel.memory(from, to).ok().flatten()
    }

    /// Asks for a socket that exists, because no answer about another one proves anything. `None` if it remains unknown.
    fn find_out(&self, kernel: &mut impl Kernel) -> Option<bool> {
        let reports = match kernel.memory_of_existing() {
            Ok(found) => found.is_some(),
            // The next request may succeed.
            Err(ProbeError) if kernel.is_supported() => return None,
            Err(ProbeError) => false,
        };
        // Another thread may have found out the same.
        let _ = self.0.set(reports);
        Some(reports)
    }
}

impl Kernel for RecvQueueProbe {
    fn memory(&mut self, from: IpAddr, to: IpAddr) -> Result<Option<SocketMemory>, ProbeError> {
        self.ask_any(Instant::ZERO, from, to)
    }

    fn is_supported(&self) -> bool {
        Self::is_supported(self)
    }

    fn memory_of_existing(&mut self) -> Result<Option<SocketMemory>, ProbeError> {
        // It has every address, so no interface needs to be up.
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(|_| ProbeError)?;
        let port = socket.local_addr().map_err(|_| ProbeError)?.port();
        self.ask_port(Instant::ZERO, Ipv4Addr::LOCALHOST.into(), (Ipv4Addr::LOCALHOST.into(), port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::ROCE_PORT;
    use crate::port::prerequisite;

    const FROM: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const TO: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
    const FOUND: SocketMemory = SocketMemory { waiting: 0, buffer: 212_992, cookie: 1 };

    /// A kernel with fixed answers.
    struct Fixed {
        memory: Result<Option<SocketMemory>, ProbeError>,
        is_supported: bool,
        existing: Result<Option<SocketMemory>, ProbeError>,
        requests: usize,
    }

    const FIXED: Fixed =
        Fixed { memory: Ok(None), is_supported: true, existing: Ok(Some(FOUND)), requests: 0 };

    impl Kernel for Fixed {
        fn memory(&mut self, _: IpAddr, _: IpAddr) -> Result<Option<SocketMemory>, ProbeError> {
            self.requests += 1;
            self.memory
        }

        fn is_supported(&self) -> bool {
            self.is_supported
        }

        fn memory_of_existing(&mut self) -> Result<Option<SocketMemory>, ProbeError> {
            self.requests += 1;
            self.existing
        }
    }

    /// Asks a kernel three times, then one that reports the socket. Returns the requests to the first, and the last
    /// answer.
    fn ask_thrice(mut kernel: Fixed) -> (usize, Option<SocketMemory>) {
        let udp_diag = UdpDiag::new();
        for _ in 0..3 {
            assert_eq!(udp_diag.ask(&mut kernel, FROM, TO), None);
        }
        let mut reporting = Fixed { memory: Ok(Some(FOUND)), ..FIXED };
        (kernel.requests, udp_diag.ask(&mut reporting, FROM, TO))
    }

    #[test]
    fn answer_counts_for_further_connections_to_the_same_address_for_a_moment() {
        let mut last = LastAnswer::default();
        let mut buffer = |from, to, at, found| last.or_ask((from, to), at, || found);
        let [first, second, third] =
            [1, 2, 3].map(|halves| Instant::ZERO + ANSWER_LIFETIME / 2 * halves);
        assert_eq!(buffer(FROM, TO, first, None), None);
        assert_eq!(buffer(FROM, TO, first, Some(1)), Some(1), "no socket is no answer");
        assert_eq!(buffer(FROM, TO, second, Some(2)), Some(1));
        assert_eq!(buffer(FROM, TO, third, Some(3)), Some(3));
        assert_eq!(buffer(TO, FROM, third, Some(4)), Some(4), "other addresses");
        assert_eq!(buffer(FROM, TO, third, None), None);
    }

    #[test]
    fn address_without_a_socket_does_not_stop_later_requests() {
        // The kernel proves once that it reports sockets.
        assert_eq!(ask_thrice(FIXED), (4, Some(FOUND)));
    }

    #[test]
    fn transient_failures_do_not_stop_later_requests() {
        assert_eq!(ask_thrice(Fixed { memory: Err(ProbeError), ..FIXED }), (4, Some(FOUND)));
        assert_eq!(ask_thrice(Fixed { existing: Err(ProbeError), ..FIXED }), (3, Some(FOUND)));
    }

    #[test]
    fn kernel_without_udp_diag_gets_no_later_requests() {
        assert_eq!(ask_thrice(Fixed { existing: Ok(None), ..FIXED }), (1, None));
        let unsupported = Fixed { existing: Err(ProbeError), is_supported: false, ..FIXED };
        assert_eq!(ask_thrice(unsupported), (1, None));
    }

    /// A packet socket or TAP has no UDP socket at its own address either.
    #[test]
    fn device_without_a_udp_socket_does_not_stop_later_requests() {
        let [.., high, low] = std::process::id().to_be_bytes();
        let ip = Ipv4Addr::new(127, 59, high, low);
        assert_eq!(local_receive_buffer(FROM, TO), None);
        let _socket = UdpSocket::bind((ip, ROCE_PORT)).unwrap();
        let found = local_receive_buffer(Ipv4Addr::LOCALHOST.into(), ip.into());
        let is_reported =
            RecvQueueProbe::new().memory_of_existing().is_ok_and(|found| found.is_some());
        if !is_reported {
            return prerequisite::missing(
                "the kernel does not answer sock_diag(7) requests for UDP sockets",
            );
        }
        assert!(found.is_some());
    }
}
