//! A port on ordinary UDP sockets: no root, no capabilities.
//!
//! One socket, bound to port 4791 of one address, receives. Each UDP source port that queue pairs use has a socket that
//! sends. These are unconnected, because the kernel then gives a packet IPv4 identification 0, and the segments of a
//! burst 0, 1, 2, …; the ICRC covers the identification. The receiver does not see it, and `wire::icrc` computes it
//! from the ICRC.
//!
//! Short messages of a request-response flow leave from connected sockets, which are faster (`connected_flows`). The
//! kernel numbers their packets from a random start, which the port finds out, and it seals the datagrams for that.
//!
//! All sockets are bound to the address, so the port needs no control messages for the destination of received
//! datagrams and the source of sent ones.
//!
//! Each multicast group that the port has joined has a socket too.
//!
//! A device with several shards has a port for each of them, at the same address (`steer`).

use std::fmt::Display;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use smallvec::{SmallVec, smallvec};

use super::config::PortConfig;
use super::counters::PortCounters;
use super::opener::{Kind, OpenPortError, PortOpener};
use super::shared::backoff::SendBackoff;
use super::shared::bpf::DROP;
use super::shared::name_lease::NameLease;
use super::shared::send_failure::SendFailure;
use super::traits::{
    Control, Datapath, JoinError, LinkState, Port, PortInfo, SOURCE_PORTS, TransmitError,
};
use crate::ids::Qpn;
use crate::net::{Burst, RxBuffer};
use crate::sys::{self, Watch, WatchLost};
use crate::time::Instant;
use groups::Groups;
use receive::RxSocket;
use recv_queue_probe::RecvQueueProbe;
use send::Senders;
use socket::{AssumedMtuWarning, PreparedSocket};
use steer::ReuseportGroup;

mod connected;
mod connected_flows;
pub(super) mod filter;
mod groups;
mod local_receive_buffer;
mod receive;
mod recv_queue_probe;
mod route;
pub(super) mod send;
pub(super) mod socket;
mod sources;
mod steer;

pub use super::shared::open_error::OpenError;
pub use super::shared::socket_owner::{SocketOwner, socket_owners};
pub(crate) use local_receive_buffer::local_receive_buffer;
pub use route::Route;

/// A port on ordinary UDP sockets.
#[derive(Debug)]
pub struct UdpPort {
    config: PortConfig,
    info: PortInfo,
    assumed_mtu: Option<AssumedMtuWarning>,
    rx_socket: RxSocket,
    groups: Groups,
    /// Watch for changes of interfaces; opened by the first [`poll_link`](Control::poll_link).
    watch: Option<Watch>,
    senders: Senders,
    recv_queue_probe: RecvQueueProbe,
    backoff: SendBackoff,
    counters: PortCounters,
    /// State shared with the ports of other shards. Dropped last, so that the lease of the address ends after the
    /// socket is closed.
    _group: Option<ReuseportGroup>,
}

impl UdpPort {
    /// Opens the port.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: the address is not available; [`OpenError::InUse`] if another process or the kernel's `rdma_rxe`
    /// has it.
    pub fn open(config: &PortConfig) -> Result<Self, OpenError> {
        if config.groups_only {
            return Self::open_for_groups(config);
        }
        Self::take(config, Self::prepare(config)?, None)
    }

    /// Opens a port that shares the address and receives groups only. Its unicast socket drops all datagrams and has no
    /// GRO, which would merge packets of several receivers.
    fn open_for_groups(config: &PortConfig) -> Result<Self, OpenError> {
        let os = |what| move |source| OpenError::Os { ip: config.ip, what, source };
        let prepared = Self::prepare(&PortConfig { gro: false, ..config.clone() })?;
        let socket = &prepared.0.socket;
        socket.attach_filter(&[DROP]).map_err(os("SO_ATTACH_FILTER"))?;
        socket.set_reuse_port(true).map_err(os("SO_REUSEPORT"))?;
        Self::take(config, prepared, None)
    }

    /// Opens ports at one address, one for each of `shards` shards, in order of shards: see [`Qpn::shard`]. A port may
    /// receive datagrams of another shard, which it does not check.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open). [`OpenError::Shards`]: the number of shards is no power of two, or more than 64
    /// ([`Qpn::SHARDS`]).
    pub fn open_shards(config: &PortConfig, shards: u8) -> Result<Vec<Self>, OpenError> {
        let ip = config.ip;
        if !shards.is_power_of_two() || shards > Qpn::SHARDS {
            return Err(OpenError::Shards { ip, found: shards });
        }
        let os = |what| move |source| OpenError::Os { ip, what, source };
        let share = |(receiver, _): &(PreparedSocket, _)| {
            receiver.socket.set_reuse_port(true).map_err(os("SO_REUSEPORT"))
        };
        // The first socket is bound before it shares the address, which fails if another socket has the address. It stays
        // open: a process that starts inherits it for a moment, in which a second attempt to bind would fail.
        let first = Self::prepare(config)?;
        let claim = NameLease::whole(ip).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => OpenError::in_use(ip),
            _ => os("claiming the address")(source),
        })?;
        let group = ReuseportGroup::new(claim);
        first.0.bind(ip)?;
        share(&first)?;
        let mut ports = vec![Self::with_bound(config, first, Some(group.clone()))?];
        for _ in 1..shards {
            let next = Self::prepare(config)?;
            share(&next)?;
            ports.push(Self::take(config, next, Some(group.clone()))?);
        }
        // The kernel makes the group when the second socket joins.
        if let [first, _, ..] = &ports[..] {
            sys::attach_reuseport(first.rx_socket.socket().as_fd(), &steer::by_destination(shards))
                .map_err(os("SO_ATTACH_REUSEPORT_CBPF"))?;
        }
        Ok(ports)
    }

    /// Binds the address and makes a port of the prepared socket.
    fn take(
        config: &PortConfig,
        prepared: (PreparedSocket, PortInfo),
        group: Option<ReuseportGroup>,
    ) -> Result<Self, OpenError> {
        prepared.0.bind(config.ip)?;
        Self::with_bound(config, prepared, group)
    }

    /// Makes a port of a bound socket.
    fn with_bound(
        config: &PortConfig,
        (receiver, info): (PreparedSocket, PortInfo),
        group: Option<ReuseportGroup>,
    ) -> Result<Self, OpenError> {
        let ip = config.ip;
        let sources = group.as_ref().map(ReuseportGroup::sources);
        let mut senders = Senders::new(ip, info.interface, info.gso, sources);
        if let Some(port) = config.source_port {
            let refused = |source| OpenError::SourcePort { ip, port, source };
            senders.open(port).map_err(refused)?;
        }
        Ok(Self {
            config: config.clone(),
            info,
            assumed_mtu: receiver.assumed_mtu,
            rx_socket: RxSocket::new(ip, receiver.socket),
            groups: Groups::default(),
            watch: None,
            senders,
            recv_queue_probe: RecvQueueProbe::new(),
            backoff: SendBackoff::default(),
            counters: PortCounters::default(),
            _group: group,
        })
    }

    /// Returns the properties of a port with this configuration, whether or not the address is available.
    ///
    /// # Errors
    ///
    /// The system refuses a call that the port needs.
    pub fn survey(config: &PortConfig) -> Result<PortInfo, OpenError> {
        Self::prepare(config).map(|(_, info)| info)
    }

    /// Returns an unbound socket for a port.
    fn prepare(config: &PortConfig) -> Result<(PreparedSocket, PortInfo), OpenError> {
        let ip = config.ip;
        if ip.is_unspecified() || ip.is_multicast() {
            return Err(OpenError::NotOneHost { ip });
        }
        let receiver = PreparedSocket::new(config)?;
        let os = |source| OpenError::Os { ip, what: "SO_RCVBUF", source };
        let info = PortInfo {
            ip,
            interface: receiver.interface.index,
            link_mtu: receiver.interface.mtu,
            gso: config.gso && socket::supports_gso(&receiver.socket),
            max_burst_segments: socket::max_gso_segments(),
            max_batch_bytes: usize::MAX,
            gro: receiver.gro,
            receive_buffer: receiver.socket.recv_buffer_size().map_err(os)?,
            sees_ip_header: false,
            omits_icrcs: false,
        };
        Ok((receiver, info))
    }

    /// Sends a prefix of `bursts`; splits the first one into datagrams if the kernel cannot.
    fn send(&mut self, now: Instant, bursts: &[Burst]) -> Result<usize, SendFailure> {
        let Some(first) = bursts.first() else { return Ok(0) };
        let whole = bursts.iter().take_while(|burst| !self.senders.must_split(burst)).count();
        let sent = match whole {
            0 => Err(SendFailure::GsoUnsupported),
            _ => self.senders.send(
                now,
                &bursts[..whole],
                self.rx_socket.socket(),
                &mut self.counters,
            ),
        };
        if sent != Err(SendFailure::GsoUnsupported) {
            return sent;
        }
        self.senders.send_split(first, self.rx_socket.socket(), &mut self.counters)?;
        self.counters.gso_refused += 1;
        Ok(1)
    }

    /// Receives datagrams to groups, and returns the number of messages.
    fn receive_of_groups(&mut self, sink: &mut dyn FnMut(RxBuffer<'_>)) -> io::Result<usize> {
        let mut messages = 0;
        for group in self.groups.readable()? {
            messages += self.rx_socket.receive_of_group(group, &mut self.counters, sink)?;
        }
        Ok(messages)
    }

    /// Moves the sockets to another interface, which has the address now.
    fn follow(&mut self, interface: u32) {
        socket::multicast_from(self.rx_socket.socket(), self.info.ip, interface);
        self.senders.follow(interface);
        self.groups.follow(&self.config, interface);
    }
}

impl Datapath for UdpPort {
    fn transmit(&mut self, now: Instant, bursts: &[Burst]) -> Result<usize, TransmitError> {
        if !self.backoff.may_send(now) {
            return Ok(0);
        }
        self.rx_socket.sends(bursts.iter().map(|burst| burst.byte_len()).sum());
        let mut taken = 0;
        while taken < bursts.len() {
            match self.send(now, &bursts[taken..]) {
                Ok(sent) => {
                    self.backoff.sent();
                    taken += sent;
                }
                Err(SendFailure::Busy | SendFailure::GsoUnsupported)
                    if self.backoff.had_no_room(now) =>
                {
                    self.counters.busy += 1;
                    break;
                }
                Err(failure) => {
                    self.counters.refused += 1;
                    return Err(TransmitError { taken, kind: failure.into() });
                }
            }
        }
        Ok(taken)
    }

    fn send_last(&mut self, burst: &Burst) {
        self.senders.send_last(burst, self.rx_socket.socket());
    }

    fn receive(&mut self, _now: Instant, sink: &mut dyn FnMut(RxBuffer<'_>)) -> io::Result<usize> {
        let messages = match self.config.groups_only {
            true => 0,
            false => self.rx_socket.receive(&mut self.counters, sink)?,
        };
        // Most ports have no groups, and this runs a million times a second.
        let of_groups = if self.groups.is_empty() { 0 } else { self.receive_of_groups(sink)? };
        Ok(messages + of_groups)
    }

    fn receive_queue_bytes(&mut self, now: Instant, to: IpAddr) -> Option<u64> {
        self.recv_queue_probe.ask(now, self.info.ip, to).map(|memory| memory.waiting)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.backoff.retry_at()
    }

    fn counters(&self) -> PortCounters {
        // Some sandboxes lack the option.
        let kernel_drops = u64::from(sys::drops(self.rx_socket.socket().as_fd()).unwrap_or(0));
        PortCounters { kernel_drops: kernel_drops + self.groups.drops(), ..self.counters }
    }

    fn descriptors(&self) -> SmallVec<[BorrowedFd<'_>; 4]> {
        let mut descriptors = smallvec![self.rx_socket.socket().as_fd()];
        descriptors.extend(self.groups.descriptor());
        descriptors.extend(self.watch.as_ref().and_then(Watch::as_fd));
        descriptors
    }
}

impl Control for UdpPort {
    fn source_port(&mut self, _: IpAddr, wanted: u16) -> u16 {
        match self.config.source_port {
            Some(port) => port,
            None => self.senders.source_port_for(wanted | *SOURCE_PORTS.start()),
        }
    }

    fn report_ip_fields(&mut self) {
        socket::report_ip_fields(self.rx_socket.socket(), self.info.ip);
    }

    fn keep_identifications(&mut self) {
        self.senders.keep_identifications();
    }

    fn join(&mut self, group: IpAddr) -> Result<(), JoinError> {
        self.groups.join(&self.config, self.info.interface, group)
    }

    fn leave(&mut self, group: IpAddr) {
        self.groups.leave(group);
    }

    fn poll_link(&mut self) -> Option<LinkState> {
        self.rx_socket.check();
        let changed = match self.watch.as_ref().map(Watch::has_changed) {
            Some(Ok(changed)) => changed,
            // The next call opens another. The caller sees that a descriptor is missing.
            Some(Err(WatchLost)) => {
                self.watch = None;
                false
            }
            None => {
                self.watch = Some(Watch::new());
                true
            }
        };
        if !changed {
            return None;
        }
        // Without a report of the interface the state counts as unchanged.
        let interface = sys::interface_of(self.info.ip, self.rx_socket.socket().as_fd()).ok()?;
        if let Some(interface) = interface {
            if interface.index != self.info.interface {
                self.follow(interface.index);
            }
            (self.info.interface, self.info.link_mtu) = (interface.index, interface.mtu);
        }
        Some(LinkState {
            ip: self.info.ip,
            interface: self.info.interface,
            has_address: interface.is_some(),
            running: interface.is_some_and(|interface| interface.running),
            mtu: self.info.link_mtu,
        })
    }

    fn info(&self) -> PortInfo {
        self.info
    }
}

/// The kind of [`UdpPort`].
#[derive(Clone, Copy, Debug)]
pub(super) struct UdpKind;

impl Kind for UdpKind {
    fn name(&self) -> &'static str {
        "udp"
    }

    fn has_shards(&self) -> bool {
        true
    }

    fn opener(&self, _ips: &[IpAddr]) -> Result<Box<dyn PortOpener>, OpenPortError> {
        Ok(Box::new(*self))
    }
}

impl PortOpener for UdpKind {
    fn open(
        &self,
        config: &PortConfig,
        shards: u8,
        warn: &mut dyn FnMut(&dyn Display),
    ) -> Result<Vec<Box<dyn Port>>, OpenPortError> {
        let ports = match shards {
            1 => vec![UdpPort::open(config)?],
            _ => UdpPort::open_shards(config, shards)?,
        };
        if let Some(assumed) = ports.first().and_then(|port| port.assumed_mtu.as_ref()) {
            warn(assumed);
        }
        Ok(ports.into_iter().map(|port| Box::new(port) as Box<dyn Port>).collect())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::HashSet;
    use std::fs::{self, File};
    use std::net::{Ipv4Addr, SocketAddr};
    use std::process;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::super::{prerequisite, wait_readable};
    use super::*;
    use crate::net::{BurstToken, Path, ROCE_PORT, RxMeta, TransmitErrorKind};
    use crate::wire::Opcode;
    use crate::wire::icrc::{Flow, Verdict};

    const NOW: Instant = Instant::ZERO;

    /// Returns a loopback address that no other test uses, nor another run of the tests.
    fn fresh_ip() -> IpAddr {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let place =
            process::id().wrapping_mul(64).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        Ipv4Addr::from(0x7f40_0000 | place & 0x003f_ffff).into()
    }

    pub(in crate::port) fn config() -> PortConfig {
        PortConfig::new(fresh_ip())
    }

    pub(super) fn open(config: &PortConfig) -> UdpPort {
        UdpPort::open(config).unwrap()
    }

    pub(in crate::port) fn path(from: &mut impl Port, to: IpAddr, wanted: u16) -> Path {
        let source = from.info().ip;
        let source_port = from.source_port(source, wanted);
        Path { source, destination: to, source_port, traffic_class: 0, hop_limit: 64 }
    }

    /// Returns a sealed burst with one segment for each length: SENDs filled with their index.
    pub(in crate::port) fn burst(path: Path, lens: &[usize]) -> Burst {
        let mut burst = Burst::new();
        burst.reset(path, BurstToken(0));
        for (id, len) in (0..).zip(lens) {
            let segment = burst.push(*len);
            segment.fill(u8::try_from(id).unwrap());
            segment[..2].copy_from_slice(&[Opcode::RcSendOnly.byte(), 0x40]);
            Flow::of_path(&path).seal(id, segment);
        }
        burst
    }

    pub(in crate::port) struct Buffer {
        pub(in crate::port) segments: Vec<Vec<u8>>,
        pub(in crate::port) meta: RxMeta,
    }

    impl Buffer {
        pub(in crate::port) fn lens(&self) -> Vec<usize> {
            self.segments.iter().map(Vec::len).collect()
        }
    }

    /// Receives until `datagrams` have arrived.
    pub(in crate::port) fn receive(port: &mut impl Port, datagrams: usize) -> Vec<Buffer> {
        let mut buffers = Vec::new();
        let mut missing = datagrams;
        while missing > 0 {
            let waits = port.arm();
            let ready = !waits
                || wait_readable(&port.descriptors(), Some(Duration::from_secs(20))).unwrap();
            assert!(ready, "{missing} of {datagrams} datagrams have not arrived");
            let take = |rx: RxBuffer<'_>| {
                let segments: Vec<_> = rx.segments().map(<[u8]>::to_vec).collect();
                missing = missing.saturating_sub(segments.len());
                buffers.push(Buffer { segments, meta: rx.meta });
            };
            port.receive(NOW, &mut { take }).unwrap();
        }
        buffers
    }

    #[test]
    fn a_burst_arrives_as_one_buffer_with_its_header_fields() {
        let (mut a, mut b) = (open(&config()), open(&config()));
        b.report_ip_fields();
        let plain = path(&mut a, b.info().ip, 0xc123);
        let marked = Path { traffic_class: 0xba, hop_limit: 17, ..plain };
        let lens = [&[4112; 14][..], &[20]].concat();
        let bursts = [burst(plain, &lens), burst(marked, &lens)];
        assert_eq!(a.transmit(NOW, &bursts), Ok(2));
        let buffers = receive(&mut b, 30);
        for (buffer, path) in buffers.iter().zip([plain, marked]) {
            let meta = RxMeta {
                source: SocketAddr::new(path.source, path.source_port),
                destination: path.destination,
                traffic_class: path.traffic_class,
                hop_limit: path.hop_limit,
                ipv4: None,
                may_omit_icrc: false,
            };
            assert_eq!((buffer.meta, buffer.lens()), (meta, lens.clone()));
            for (index, segment) in (0..).zip(&buffer.segments) {
                assert_eq!(Flow::of_path(&path).check(None, index, segment), Verdict::Good);
            }
        }
        assert_eq!(buffers.len(), 2);
        let (tx, rx) = (a.counters(), b.counters());
        assert_eq!((tx.tx_bursts, tx.tx_datagrams), (2, 30));
        assert_eq!((rx.rx_buffers, rx.rx_datagrams), (2, 30));
        assert_eq!((tx.tx_bytes, rx.rx_bytes), (2 * 57_588, 2 * 57_588));
    }

    #[test]
    fn the_last_burst_arrives_and_is_not_counted() {
        let (mut a, mut b) = (open(&config()), open(&config()));
        let plain = path(&mut a, b.info().ip, 0xc123);
        let marked = Path { traffic_class: 0xba, ..plain };
        for burst in [burst(plain, &[20]), burst(marked, &[20]), burst(plain, &[64, 20])] {
            a.send_last(&burst);
            assert_eq!(receive(&mut b, burst.len())[0].segments[0].len(), burst.segment_len());
        }
        assert_eq!(a.counters().tx_bursts, 0);
        a.send_last(&burst(Path { source: b.info().ip, ..plain }, &[20]));
        a.send_last(&burst(plain, &[28]));
        assert_eq!(receive(&mut b, 1)[0].lens(), [28], "that of another address has not been sent");
    }

    #[test]
    fn many_bursts_from_several_ports_arrive_in_order() {
        let (mut a, mut b) = (open(&config()), open(&config()));
        let to = b.info().ip;
        let ports = [0xc001, 0xc001, 0xd002, 0xc001].map(|wanted| path(&mut a, to, wanted));
        let bursts: Vec<_> =
            (0..40).map(|i| burst(ports[(i / 10) % 4], &[64 + i, 64 + i][..1 + i % 2])).collect();
        assert_eq!(a.transmit(NOW, &bursts), Ok(40));
        let buffers = receive(&mut b, 60);
        let sent: Vec<_> = bursts.iter().map(|b| (b.path.source_port, b.segment_len())).collect();
        let got: Vec<_> = buffers.iter().map(|b| (b.meta.source.port(), b.lens()[0])).collect();
        assert_eq!(got, sent);
    }

    #[test]
    fn without_gro_the_segments_arrive_one_by_one() {
        let mut a = open(&config());
        let mut b = open(&PortConfig { gro: false, ..config() });
        assert!(!b.info().gro);
        let path = path(&mut a, b.info().ip, 0xc000);
        assert_eq!(a.transmit(NOW, &[burst(path, &[1040, 1040, 1040])]), Ok(1));
        let verdicts: Vec<_> = receive(&mut b, 3)
            .iter()
            .map(|buffer| Flow::of_path(&path).check(None, 0, &buffer.segments[0]))
            .collect();
        let recovered = |id| Verdict::Recovered { id };
        assert_eq!(verdicts, [Verdict::Good, recovered(1), recovered(2)]);
    }

    #[test]
    fn without_gso_the_segments_are_sealed_for_leaving_alone() {
        let mut a = open(&PortConfig { gso: false, ..config() });
        let mut b = open(&config());
        assert!(!a.info().gso);
        let path = path(&mut a, b.info().ip, 0xc000);
        let bursts = [burst(path, &[80]), burst(path, &[1040, 1040, 20]), burst(path, &[80])];
        assert_eq!(a.transmit(NOW, &bursts), Ok(3));
        let buffers = receive(&mut b, 5);
        let lens: Vec<_> = buffers.iter().flat_map(Buffer::lens).collect();
        assert_eq!(lens, [80, 1040, 1040, 20, 80]);
        for segment in buffers.iter().flat_map(|buffer| &buffer.segments) {
            assert_eq!(Flow::of_path(&path).check(None, 0, segment), Verdict::Good);
        }
        let counters = a.counters();
        assert_eq!((counters.tx_datagrams, counters.gso_refused), (5, 1));
    }

    /// Returns a port at the loopback address of IPv6; `None` without IPv6. There is one such address, so a file lock
    /// serializes tests that use it.
    pub(super) fn ipv6_loopback() -> Option<(File, UdpPort)> {
        let lock = std::env::temp_dir().join("softroce-test-ipv6-loopback");
        // Never truncated, should it be another file.
        let lock = File::options().append(true).create(true).open(lock).unwrap();
        lock.lock().unwrap();
        match UdpPort::open(&PortConfig::new("::1".parse().unwrap())) {
            Ok(port) => Some((lock, port)),
            Err(OpenError::NotLocal { .. }) => None,
            Err(OpenError::Os { source, .. })
                if source.raw_os_error() == Some(libc::EAFNOSUPPORT) =>
            {
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn ipv6_port_works_like_ipv4() {
        let Some((_turn, mut port)) = ipv6_loopback() else {
            return prerequisite::missing("IPv6 (::1)");
        };
        let own = port.info().ip;
        port.report_ip_fields();
        let plain = path(&mut port, own, 0xc777);
        let marked = Path { traffic_class: 0x2b, hop_limit: 3, ..plain };
        for path in [plain, marked] {
            assert_eq!(port.transmit(NOW, &[burst(path, &[4112, 4112, 16])]), Ok(1));
            let [buffer] = &receive(&mut port, 3)[..] else { panic!("more than one buffer") };
            assert_eq!(buffer.lens(), [4112, 4112, 16]);
            assert_eq!(buffer.meta.source, SocketAddr::new(path.source, path.source_port));
            assert_eq!(buffer.meta.destination, path.destination);
            assert_eq!(buffer.meta.traffic_class, path.traffic_class);
            assert_eq!(buffer.meta.hop_limit, path.hop_limit);
            assert_eq!(Flow::of_path(&path).check(None, 2, &buffer.segments[2]), Verdict::Good);
        }
    }

    #[test]
    fn an_address_has_one_holder_and_the_error_names_it() {
        let config = config();
        let first = open(&config);
        let error = UdpPort::open(&config).unwrap_err();
        let expected = format!(
            "UDP port 4791 of {} is held by this process; an address can have one holder",
            config.ip
        );
        assert_eq!(error.to_string(), expected);
        drop(first);
        open(&config);
    }

    #[test]
    fn socket_owners_are_listed_and_survey_works_on_their_address() {
        let config = config();
        let port = open(&config);
        assert!(socket_owners().contains(&(config.ip, SocketOwner::ThisProcess)));
        assert_eq!(UdpPort::survey(&config).unwrap(), port.info());
        drop(port);
        assert!(socket_owners().iter().all(|(ip, _)| *ip != config.ip));
    }

    #[test]
    fn only_own_addresses_can_be_opened() {
        let error = |ip: &str| {
            UdpPort::open(&PortConfig::new(ip.parse().unwrap()))
                .map(|_| ())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(error("192.0.2.1"), "192.0.2.1 is not an address of this machine");
        let not_one = " is not the address of one host; give the one that peers send to";
        for ip in ["0.0.0.0", "::", "224.0.0.1", "ff02::1"] {
            assert_eq!(error(ip), format!("{ip}{not_one}"));
        }
    }

    #[test]
    fn source_ports_are_kept_and_shared_when_there_are_many() {
        let config = config();
        let (mut port, ip) = (open(&config), config.ip);
        let first = port.source_port(ip, 0xc001);
        assert_eq!(port.source_port(ip, 0xc001), first);
        let agreed: Vec<_> = (0xe000..0xe100).map(|wanted| port.source_port(ip, wanted)).collect();
        let different: HashSet<_> = agreed.iter().chain([&first]).collect();
        assert_eq!(different.len(), sources::MAX_SOCKETS);
        assert!(agreed.iter().all(|port| SOURCE_PORTS.contains(port)));
        assert_eq!(port.source_port(ip, 0xe0ff), *agreed.last().unwrap(), "the same each time");
    }

    #[test]
    fn a_source_port_of_another_program_is_passed_over() {
        let config = config();
        let squatter = std::net::UdpSocket::bind((config.ip, 0xc100)).unwrap();
        let agreed = open(&config).source_port(config.ip, 0xc100);
        assert!(agreed != 0xc100 && SOURCE_PORTS.contains(&agreed), "{agreed:#x}");
        let fixed = PortConfig { source_port: Some(0xc100), ..config };
        let error = UdpPort::open(&fixed).unwrap_err().to_string();
        assert!(error.starts_with("cannot send from UDP port 49408 of 127."), "{error}");
        drop(squatter);
        assert_eq!(open(&fixed).source_port(fixed.ip, 0xd000), 0xc100);
    }

    #[test]
    fn the_roce_port_can_be_the_source_port() {
        let mut a = open(&PortConfig { source_port: Some(ROCE_PORT), ..config() });
        let mut b = open(&config());
        let path = path(&mut a, b.info().ip, 0xc000);
        assert_eq!(path.source_port, ROCE_PORT);
        assert_eq!(a.transmit(NOW, &[burst(path, &[64])]), Ok(1));
        assert_eq!(receive(&mut b, 1)[0].meta.source.port(), ROCE_PORT);
    }

    #[test]
    fn refusals_say_which_burst_and_why() {
        let mut port = open(&config());
        let own = port.info().ip;
        let good = path(&mut port, own, 0xc000);
        let refused = |taken, kind| Err(TransmitError { taken, kind });
        for (bad, kind) in [
            (Path { source: fresh_ip(), ..good }, TransmitErrorKind::Other),
            (Path { source_port: 0xd000, ..good }, TransmitErrorKind::Other),
            (Path { destination: "::1".parse().unwrap(), ..good }, TransmitErrorKind::Unreachable),
        ] {
            let bursts = [burst(good, &[64]), burst(bad, &[64]), burst(good, &[64])];
            assert_eq!(port.transmit(NOW, &bursts), refused(1, kind));
        }
        assert_eq!((port.counters().tx_bursts, port.counters().refused), (3, 3));
    }

    #[test]
    fn datagrams_without_room_are_counted() {
        let mut a = open(&config());
        let mut b = open(&PortConfig { receive_buffer: Some(65_536), ..config() });
        assert_eq!(b.info().receive_buffer, 65_536);
        let path = path(&mut a, b.info().ip, 0xc000);
        let lone: Vec<_> = (0..30).map(|_| burst(path, &[4112])).collect();
        assert_eq!(a.transmit(NOW, &lone), Ok(30));
        let arrived = |b: &UdpPort| b.counters().rx_datagrams + b.counters().kernel_drops;
        for _ in 0..1000 {
            b.receive(NOW, &mut |_| ()).unwrap();
            if arrived(&b) == 30 {
                break;
            }
            wait_readable(&b.descriptors(), Some(Duration::from_millis(20))).unwrap();
        }
        assert_eq!(arrived(&b), 30);
        let counters = b.counters();
        assert!((1..30).contains(&counters.kernel_drops), "{counters:?}");
    }

    #[test]
    fn the_link_mtu_is_the_interface_s() {
        let mtu = fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        assert_eq!(open(&config()).info().link_mtu.to_string(), mtu.trim());
    }

    #[test]
    fn nothing_received_is_zero_buffers() {
        let mut port = open(&config());
        assert_eq!(port.receive(NOW, &mut |_| panic!("a buffer")).unwrap(), 0);
        assert!(!wait_readable(&port.descriptors(), Some(Duration::ZERO)).unwrap());
        assert_eq!(port.poll_timeout(), None);
    }

    #[test]
    fn a_port_without_room_pauses_and_then_refuses() {
        let (mut port, peer) = (open(&config()), open(&config()));
        let path = path(&mut port, peer.info().ip, 0xc000);
        let bursts = [burst(path, &[64])];
        assert!(port.backoff.had_no_room(NOW));
        let retry_at = port.poll_timeout().unwrap();
        assert!(retry_at > NOW);
        assert_eq!((port.transmit(NOW, &bursts), port.counters().tx_bursts), (Ok(0), 0));
        assert_eq!((port.transmit(retry_at, &bursts), port.poll_timeout()), (Ok(1), None));
        let kinds = [SendFailure::Busy, SendFailure::Refused(TransmitErrorKind::TooLong)];
        let kinds = kinds.map(TransmitErrorKind::from);
        assert_eq!(kinds, [TransmitErrorKind::NoRoom, TransmitErrorKind::TooLong]);
    }

    #[test]
    fn a_port_without_room_is_busy_and_others_are_refused() {
        let failure =
            |errno, segments| SendFailure::from_os(&io::Error::from_raw_os_error(errno), segments);
        for errno in [libc::EAGAIN, libc::ENOBUFS, libc::ENOMEM, libc::EINTR] {
            assert_eq!([failure(errno, 1), failure(errno, 9)], [SendFailure::Busy; 2]);
        }
        assert_eq!(
            [failure(libc::EINVAL, 2), failure(libc::EIO, 2)],
            [SendFailure::GsoUnsupported; 2]
        );
        for (errno, kind) in [
            (libc::EINVAL, TransmitErrorKind::Other),
            (libc::ENETUNREACH, TransmitErrorKind::Unreachable),
            (libc::EMSGSIZE, TransmitErrorKind::TooLong),
            (libc::EPERM, TransmitErrorKind::Forbidden),
            (libc::EBADF, TransmitErrorKind::Closed),
            (libc::ENOTSOCK, TransmitErrorKind::Closed),
        ] {
            assert_eq!(failure(errno, 1), SendFailure::Refused(kind));
        }
    }
}
