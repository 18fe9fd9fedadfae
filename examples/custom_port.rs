//! A custom port: two devices connected by Unix datagram sockets, without a network.
//!
//! [`UnixPort`] is a complete port. The engine is the same as with UDP sockets, so every verb works. A port only has
//! to carry datagrams, and may lose them.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixDatagram};
use std::process;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use softroce::net::{Burst, Ipv4Fields, MAX_BURST_SEGMENTS, RxBuffer, RxMeta};
use softroce::port::{
    Control, CustomPort, Datapath, PortCounters, PortInfo, PortKind, TransmitError,
};
use softroce::time::Instant;
use softroce::verbs::*;

/// A port on Unix datagram sockets of this process.
struct UnixPort {
    ip: Ipv4Addr,
    socket: UnixDatagram,
    buffer: Vec<u8>,
    /// Time of the next attempt after a receiver had no room.
    retry_at: Option<Instant>,
    counters: PortCounters,
}

/// Length in bytes of the header of each message: source address, UDP source port, traffic class, hop limit, segment
/// length.
const HEADER_LEN: usize = 10;

/// Returns the socket address of a port: a name in the abstract namespace, which is released when the process ends.
fn name(ip: IpAddr) -> io::Result<net::SocketAddr> {
    net::SocketAddr::from_abstract_name(format!("softroce-example-{}-{ip}", process::id()))
}

impl UnixPort {
    fn open(ip: IpAddr) -> io::Result<Self> {
        let IpAddr::V4(ip) = ip else { return Err(ErrorKind::Unsupported.into()) };
        let socket = UnixDatagram::bind_addr(&name(ip.into())?)?;
        socket.set_nonblocking(true)?;
        let (buffer, counters) = (vec![0; HEADER_LEN + (64 << 10)], PortCounters::default());
        Ok(Self { ip, socket, buffer, retry_at: None, counters })
    }
}

impl Datapath for UnixPort {
    fn transmit(&mut self, now: Instant, bursts: &[Burst]) -> Result<usize, TransmitError> {
        self.retry_at = None;
        for (taken, burst) in bursts.iter().enumerate() {
            let segment_len = u16::try_from(burst.segment_len()).unwrap_or(u16::MAX);
            let mut message = self.ip.octets().to_vec();
            message.extend(burst.path.source_port.to_be_bytes());
            message.extend([burst.path.traffic_class, burst.path.hop_limit]);
            message.extend(segment_len.to_be_bytes());
            message.extend_from_slice(burst.data());
            let to = name(burst.path.destination);
            match to.and_then(|to| self.socket.send_to_addr(&message, &to)) {
                // The receiver has no room, so the engine offers the burst again later.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.counters.busy += 1;
                    self.retry_at = Some(now + Duration::from_micros(50));
                    return Ok(taken);
                }
                Ok(_) => self.counters.sent(burst),
                // The destination does not exist, so the burst is lost.
                Err(_) => {}
            }
        }
        Ok(bursts.len())
    }

    fn receive(&mut self, _: Instant, sink: &mut dyn FnMut(RxBuffer<'_>)) -> io::Result<usize> {
        for count in 0..16 {
            let len = match self.socket.recv(&mut self.buffer) {
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(count),
                Err(error) => return Err(error),
            };
            let message = self.buffer.get(..len).and_then(<[u8]>::split_first_chunk);
            let Some((&[a, b, c, d, p0, p1, traffic_class, hop_limit, s0, s1], data)) = message
            else {
                continue;
            };
            let source_port = u16::from_be_bytes([p0, p1]);
            let meta = RxMeta {
                source: SocketAddr::new([a, b, c, d].into(), source_port),
                destination: self.ip.into(),
                traffic_class,
                hop_limit,
                // Segment `i` of a burst has identification `i`, which its ICRC covers.
                ipv4: Some(Ipv4Fields { id: 0, dont_fragment: true }),
                may_omit_icrc: false,
            };
            let buffer = RxBuffer { data, segment_len: u16::from_be_bytes([s0, s1]).into(), meta };
            self.counters.received(&buffer);
            sink(buffer);
        }
        Ok(16)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.retry_at
    }

    fn descriptors(&self) -> SmallVec<[BorrowedFd<'_>; 4]> {
        smallvec![self.socket.as_fd()]
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

impl Control for UnixPort {
    fn info(&self) -> PortInfo {
        PortInfo {
            ip: self.ip.into(),
            interface: 0,
            link_mtu: 4200,
            gso: true,
            max_burst_segments: MAX_BURST_SEGMENTS,
            max_batch_bytes: usize::MAX,
            gro: true,
            receive_buffer: 64 << 10,
            sees_ip_header: true,
            omits_icrcs: false,
        }
    }

    fn source_port(&mut self, _: IpAddr, wanted: u16) -> u16 {
        wanted
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kind = PortKind::Custom(CustomPort::new("unix", |config| UnixPort::open(config.ip)));
    // These addresses need no network interface.
    let open = |host| {
        let ip = IpAddr::from([10, 9, 8, host]);
        Context::open(OpenOptions::default().ip(ip).via(kind.clone()))
    };
    let (near, far) = (open(1)?, open(2)?);

    let (near_cq, far_cq) = (near.create_cq(16, None)?, far.create_cq(16, None)?);
    let (near_pd, far_pd) = (near.alloc_pd(), far.alloc_pd());
    let source = near_pd.alloc_mr(1 << 20, Access::LOCAL_WRITE)?;
    let target = far_pd.alloc_mr(1 << 20, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let near_qp = near_pd.create_qp(&QpConfig::rc(&near_cq))?;
    let far_qp = far_pd.create_qp(&QpConfig::rc(&far_cq))?;
    near_qp.connect(&far_qp.endpoint(), &ConnectOptions::default())?;
    far_qp.connect(&near_qp.endpoint(), &ConnectOptions::default())?;

    let data: Vec<u8> = (0..1 << 20).map(|index: u32| index.to_be_bytes()[3]).collect();
    source.write_at(0, &data)?;
    near_qp.post_send(SendRequest::write(1, source.sge(..), target.remote(0)).signaled())?;
    let completion = near_cq.wait_one(None)?;

    let mut seen = vec![0; data.len()];
    target.read_at(0, &mut seen)?;
    assert_eq!(seen, data);
    println!("{}: {} bytes through Unix sockets", completion.status, seen.len());
    Ok(())
}
