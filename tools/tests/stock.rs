//! `roce pingpong` against imitations of rdma-core's programs, byte by byte, which share no code with it: TCP, UDP,
//! headers and ICRC.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use roce::{Listener, command};

/// Content of messages in `ibv_uc_pingpong` and `ibv_ud_pingpong`.
const FILL: u8 = 0x7b;

const SIZE: usize = 100;

/// Returns a message as both sides send it with `-c`: a zero at the start of each page.
fn message() -> [u8; SIZE] {
    let mut message = [FILL; SIZE];
    message[0] = 0;
    message
}

/// Opcodes of SEND_ONLY.
const UC_SEND_ONLY: u8 = 0x24;
const UD_SEND_ONLY: u8 = 0x64;

const QPN: [u8; 3] = [0x00, 0x00, 0x1c];
const PSN: [u8; 3] = [0x5c, 0x3f, 0x1a];

/// An imitated program: its queue pair, behind a socket.
struct Stock {
    ip: Ipv4Addr,
    opcode: u8,
    socket: UdpSocket,
    /// Socket that sends packets.
    sender: UdpSocket,
}

/// Endpoint of the other side.
struct Theirs {
    ip: Ipv4Addr,
    qpn: [u8; 3],
    psn: [u8; 3],
}

impl Stock {
    fn new(ip: [u8; 4], opcode: u8) -> Self {
        let ip = Ipv4Addr::from(ip);
        let socket = UdpSocket::bind((ip, 4791)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { ip, opcode, socket, sender: UdpSocket::bind((ip, 0)).unwrap() }
    }

    /// Returns the endpoint message: 52 bytes, the last a zero.
    fn words(&self) -> Vec<u8> {
        let ip = u32::from(self.ip);
        format!("0000:00001c:5c3f1a:00000000000000000000ffff{ip:08x}\0").into_bytes()
    }

    /// Sends a message in one packet.
    fn send(&self, to: &Theirs) {
        let mut packet = vec![self.opcode, 0, 0xff, 0xff, 0];
        packet.extend(to.qpn);
        packet.push(0);
        packet.extend(PSN);
        if self.opcode == UD_SEND_ONLY {
            packet.extend([0x11, 0x11, 0x11, 0x11, 0]);
            packet.extend(QPN);
        }
        packet.extend(message());
        let std::net::SocketAddr::V4(from) = self.sender.local_addr().unwrap() else { panic!() };
        let to = SocketAddrV4::new(to.ip, 4791);
        packet.extend(icrc(from, to, &packet));
        self.sender.send_to(&packet, to).unwrap();
    }

    /// Receives a message, and compares every byte of the packet.
    fn receive(&self, from: &Theirs) {
        let mut packet = [0; 2048];
        let (len, source) = self.socket.recv_from(&mut packet).unwrap();
        let (covered, found) = packet[..len].split_last_chunk::<4>().unwrap();
        let std::net::SocketAddr::V4(source) = source else { panic!() };
        assert_eq!(*source.ip(), from.ip);
        assert_eq!(*found, icrc(source, SocketAddrV4::new(self.ip, 4791), covered));
        let mut expected = vec![self.opcode, 0x40, 0xff, 0xff, 0];
        expected.extend(QPN);
        expected.push(0);
        expected.extend(from.psn);
        if self.opcode == UD_SEND_ONLY {
            expected.extend([0x11, 0x11, 0x11, 0x11, 0]);
            expected.extend(from.qpn);
        }
        expected.extend(message());
        assert_eq!(covered, expected);
    }
}

impl Theirs {
    fn read(stream: &mut TcpStream) -> Self {
        let mut words = [0; 52];
        stream.read_exact(&mut words).unwrap();
        let text = std::str::from_utf8(&words).unwrap().strip_suffix('\0').unwrap();
        let [lid, qpn, psn, gid] = text.split(':').collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        assert_eq!((lid, qpn.len(), psn.len(), gid.len()), ("0000", 6, 6, 32));
        let ip = gid.strip_prefix("00000000000000000000ffff").unwrap();
        let number = |text| u32::from_str_radix(text, 16).unwrap();
        let low = |text| {
            let [_, bytes @ ..] = number(text).to_be_bytes();
            bytes
        };
        Self { ip: Ipv4Addr::from(number(ip)), qpn: low(qpn), psn: low(psn) }
    }
}

/// Returns the ICRC of a datagram in an IPv4 packet with identification 0 and DF, in wire order.
fn icrc(from: SocketAddrV4, to: SocketAddrV4, datagram: &[u8]) -> [u8; 4] {
    let len = |len: usize| u16::try_from(len).unwrap().to_be_bytes();
    let (ip_len, udp_len) = (len(28 + datagram.len() + 4), len(8 + datagram.len() + 4));
    let mut bytes = vec![0xff; 8];
    bytes.extend([0x45, 0xff, ip_len[0], ip_len[1], 0, 0, 0x40, 0, 0xff, 17, 0xff, 0xff]);
    bytes.extend(from.ip().octets());
    bytes.extend(to.ip().octets());
    bytes.extend(from.port().to_be_bytes());
    bytes.extend(to.port().to_be_bytes());
    bytes.extend([udp_len[0], udp_len[1], 0xff, 0xff]);
    let masked = bytes.len() + 4;
    bytes.extend(datagram);
    bytes[masked] = 0xff;
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    });
    (!crc).to_le_bytes()
}

const GAMES: [(&str, u8, [u8; 4]); 2] =
    [("uc", UC_SEND_ONLY, [127, 97, 0, 1]), ("ud", UD_SEND_ONLY, [127, 97, 0, 2])];

#[test]
fn rdma_core_client_exchanges_messages() {
    for (transport, opcode, ip) in GAMES {
        let listener = Listener::start(&[
            "pingpong",
            "--transport",
            transport,
            "-n",
            "1",
            "-s",
            "100",
            "--chk",
        ]);
        let stock = Stock::new(ip, opcode);
        let mut stream = TcpStream::connect(format!("127.0.0.1:{}", listener.port)).unwrap();
        stream.write_all(&stock.words()).unwrap();
        let theirs = Theirs::read(&mut stream);
        stream.write_all(b"done\0").unwrap();
        drop(stream);
        stock.send(&theirs);
        stock.receive(&theirs);
        let (status, out, err) = listener.finish();
        assert_eq!(status, Some(0), "{transport}: {out}{err}");
        let remote = format!(
            "remote address: LID 0x0000, QPN 0x00001c, PSN 0x5c3f1a, GID ::ffff:{}",
            stock.ip
        );
        assert!(out.contains(&remote), "{out}");
    }
}

#[test]
fn rdma_core_server_exchanges_messages() {
    for (transport, opcode, ip) in GAMES {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port().to_string();
        let ip = [ip[0], ip[1], 1, ip[3]];
        let stock = Stock::new(ip, opcode);
        let args =
            ["pingpong", "--transport", transport, "-n", "1", "-s", "100", "--chk", "127.0.0.1"];
        let client = command(&[&args[..], &["-p", &port]].concat())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut stream = server.accept().unwrap().0;
        let theirs = Theirs::read(&mut stream);
        stream.write_all(&stock.words()).unwrap();
        let mut done = [0; 5];
        stream.read_exact(&mut done).unwrap();
        assert_eq!(done, *b"done\0");
        drop(stream);
        stock.receive(&theirs);
        stock.send(&theirs);
        assert!(client.wait_with_output().unwrap().status.success(), "{transport}");
    }
}
