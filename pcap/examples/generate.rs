//! Writes a capture of made-up traffic, to measure how fast captures are read.
//!
//! ```text
//! cargo run --release --package softroce-pcap --example generate -- BYTES FILE
//! ```
//!
//! Nine connections between two hosts take turns, a packet each: three of WRITEs, three of SENDs,
//! three of READs, in messages of sixteen packets of 4 KiB, each acknowledged. Every ICRC holds and no
//! rule is broken. `-` as the file is the standard output.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use softroce::ids::{Qpn, Rkey};
use softroce::net::{Path, ROCE_PORT, source_port};
use softroce::psn::Psn;
use softroce::wire::encap::Headers;
use softroce::wire::icrc::Flow;
use softroce::wire::packet::datagram_len;
use softroce::wire::{Aeth, Bth, Builder, Opcode, ParseError, Reth, Syndrome};
use softroce_pcap::{LinkType, Writer};

const HOSTS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2))];
const CONNECTIONS: u32 = 9;
const MTU: usize = 4096;
/// Packets with payload in a message.
const PACKETS: u32 = 16;
const MESSAGE: u32 = 16 * 4096;
/// Time of a packet of 4 KiB at 100 Gbit/s.
const APART: Duration = Duration::from_nanos(335);
const START: Duration = Duration::from_secs(1_750_000_000);

/// Opcodes of the data of a connection: FIRST, MIDDLE, LAST.
const WORK: [[Opcode; 3]; 3] = [
    [Opcode::RcWriteFirst, Opcode::RcWriteMiddle, Opcode::RcWriteLast],
    [Opcode::RcSendFirst, Opcode::RcSendMiddle, Opcode::RcSendLast],
    [Opcode::RcReadResponseFirst, Opcode::RcReadResponseMiddle, Opcode::RcReadResponseLast],
];

/// A connection: host 0 requests, host 1 responds.
struct Connection {
    /// The queue pairs of the two hosts.
    qps: [Qpn; 2],
    data: [Opcode; 3],
    /// First PSN of the message.
    psn: Psn,
    /// Packets of the message sent so far.
    step: u32,
    /// Number of completed messages.
    msn: u32,
}

impl Connection {
    fn new(n: u32) -> Self {
        let qps = [Qpn::new(0x100 + n), Qpn::new(0x900 + n)];
        let [writes, sends, reads] = WORK;
        let data = match n % 3 {
            0 => writes,
            1 => sends,
            _ => reads,
        };
        // Another PSN for each connection, close to the wrap.
        Self { qps, data, psn: Psn::new(0xff_f000 + 0x1_2345 * n), step: 0, msn: 0 }
    }

    /// Returns opcode, position among the packets with payload, and sending host of the next packet.
    fn next(&mut self) -> (Opcode, u32, usize) {
        let [first, middle, last] = self.data;
        let reads = !first.is_request();
        let (step, sender) = (self.step, usize::from(reads));
        self.step = (step + 1) % (PACKETS + 1);
        match (reads, step) {
            (true, 0) => (Opcode::RcReadRequest, 0, 0),
            (false, PACKETS) => (Opcode::RcAcknowledge, PACKETS - 1, 1),
            _ => {
                let at = step - u32::from(reads);
                let opcode = match at {
                    0 => first,
                    at if at == PACKETS - 1 => last,
                    _ => middle,
                };
                (opcode, at, sender)
            }
        }
    }

    /// Appends the next packet to `frame`, from its IP header on.
    fn packet(&mut self, payload: &[u8], frame: &mut Vec<u8>) -> Result<(), ParseError> {
        let (opcode, at, sender) = self.next();
        let is_answer = sender == 1;
        let carries = self.data.contains(&opcode);
        let bth = Bth {
            opcode,
            dest_qp: self.qps[1 - sender],
            psn: self.psn.plus(at),
            ack_req: opcode.is_request() && opcode.position().is_end(),
            ..Bth::default()
        };
        let ends = matches!(opcode, Opcode::RcAcknowledge | Opcode::RcReadResponseLast);
        // The first response packet of a READ already counts the message.
        let counts = ends || opcode == Opcode::RcReadResponseFirst;
        let aeth = Aeth {
            syndrome: Syndrome::Ack { credits: Aeth::UNLIMITED_CREDITS },
            msn: (self.msn + u32::from(counts)) & 0xff_ffff,
        };
        let path = Path {
            source: HOSTS[sender],
            destination: HOSTS[1 - sender],
            source_port: source_port(0, self.qps[0], self.qps[1]),
            traffic_class: 2,
            hop_limit: 64,
        };
        let len = datagram_len(opcode, if carries { MTU } else { 0 });
        Headers::write(&path, 0, len, frame);
        let start = frame.len();
        frame.resize(start + len, 0);
        let datagram = &mut frame[start..];
        let mut builder = Builder::new(&bth, datagram)?;
        if carries {
            builder.payload_mut().copy_from_slice(payload);
        }
        if is_answer && opcode.layout().aeth.is_some() {
            builder.aeth(&aeth);
        }
        if opcode.layout().reth.is_some() {
            builder.reth(&Reth { addr: 0x7f00_0000_0000, rkey: Rkey(0x1234), length: MESSAGE });
        }
        let flow =
            Flow::new((path.source, path.source_port).into(), (path.destination, ROCE_PORT).into());
        flow.seal(0, datagram);
        if ends {
            self.msn += 1;
            self.psn = self.psn.plus(PACKETS);
        }
        Ok(())
    }
}

/// Returns pseudorandom bytes, more than one payload, so that payloads differ.
fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(8 * MTU / 8).flatten().collect()
}

fn generate(bytes: u64, out: impl Write) -> Result<(), Box<dyn Error>> {
    let mut writer = Writer::new(out, LinkType::Ethernet, "softroce generate")?;
    let mut connections: Vec<_> = (0..CONNECTIONS).map(Connection::new).collect();
    let noise = noise();
    let (mut written, mut time, mut at) = (0, START, 0);
    // Locally administered addresses, then the EtherType of IPv4.
    let ethernet = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let mut frame = Vec::new();
    while written < bytes {
        for connection in &mut connections {
            frame.clear();
            frame.extend(ethernet);
            connection.packet(&noise[at..at + MTU], &mut frame)?;
            writer.packet(time, None, &frame)?;
            time += APART;
            at = (at + 4 * 97) % (7 * MTU);
            written += u64::try_from(frame.len())?;
        }
    }
    Ok(writer.flush()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [bytes, file] = &args[..] else {
        return Err(format!("{} arguments: expected BYTES FILE", args.len()).into());
    };
    let bytes = bytes.parse().map_err(|e| format!("{bytes:?} is not a number of bytes: {e}"))?;
    match file.as_str() {
        "-" => generate(bytes, BufWriter::with_capacity(1 << 20, io::stdout().lock())),
        _ => generate(bytes, BufWriter::with_capacity(1 << 20, File::create(file)?)),
    }
}
