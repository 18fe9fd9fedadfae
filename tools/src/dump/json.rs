//! A packet as an object of JSON: what every packet has comes first, then the extension headers it
//! has, under the names of the specification.

use std::io::Write;
use std::net::IpAddr;

use serde::Serialize;
use softroce::wire::text::Line;
use softroce::wire::{Datagram, ParseError};
use softroce_pcap::{Icrc, Packet, RocePacket};

/// What is shown of any frame.
#[derive(Serialize)]
struct Frame {
    number: u64,
    /// Since the Unix epoch.
    time_ns: Option<u64>,
}

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    frame: Frame,
    source: IpAddr,
    source_port: u16,
    destination: IpAddr,
    icrc: &'static str,
    #[serde(flatten)]
    content: Content,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content {
    Packet(Box<Fields>),
    Error { error: String },
}

#[derive(Serialize)]
struct Fields {
    transport: &'static str,
    /// As the text has it: an ACKNOWLEDGE is an ACK, RNR_NAK or NAK.
    operation: String,
    opcode: u8,
    qp: u32,
    psn: u32,
    ack_req: bool,
    solicited: bool,
    mig_req: bool,
    fecn: bool,
    becn: bool,
    pkey: u16,
    pad: u8,
    /// Bytes of payload.
    len: usize,
    #[serde(flatten)]
    extensions: Extensions,
    text: String,
}

/// Absent where the opcode has no such header.
#[derive(Serialize)]
struct Extensions {
    #[serde(skip_serializing_if = "Option::is_none")]
    deth: Option<Deth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reth: Option<Reth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aeth: Option<Aeth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    atomic: Option<Atomic>,
    #[serde(skip_serializing_if = "Option::is_none")]
    atomic_ack: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    imm: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    invalidate: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    srqn: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ee_context: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flush: Option<Flush>,
}

#[derive(Serialize)]
struct Deth {
    qkey: u32,
    source_qp: u32,
}

#[derive(Serialize)]
struct Reth {
    va: u64,
    rkey: u32,
    dma_len: u32,
}

#[derive(Serialize)]
struct Aeth {
    syndrome: u8,
    msn: u32,
}

/// A FETCH_ADD adds `swap`.
#[derive(Serialize)]
struct Atomic {
    va: u64,
    rkey: u32,
    swap: u64,
    compare: u64,
}

#[derive(Serialize)]
struct Flush {
    placement: u8,
    selectivity: u8,
}

impl Frame {
    fn of(packet: &Packet<'_>) -> Self {
        let time_ns = packet.time.and_then(|time| u64::try_from(time.as_nanos()).ok());
        Self { number: packet.number, time_ns }
    }
}

impl Fields {
    fn of(datagram: &Datagram<'_>) -> Self {
        let bth = &datagram.bth;
        let text = Line(datagram).to_string();
        Self {
            transport: bth.opcode.transport().name(),
            operation: text.split(' ').next().unwrap_or_default().to_owned(),
            opcode: bth.opcode.byte(),
            qp: bth.dest_qp.value(),
            psn: bth.psn.value(),
            ack_req: bth.ack_req,
            solicited: bth.solicited,
            mig_req: bth.migreq,
            fecn: bth.fecn,
            becn: bth.becn,
            pkey: bth.pkey.0,
            pad: bth.pad,
            len: datagram.payload.len(),
            extensions: Extensions::of(datagram),
            text,
        }
    }
}

impl Extensions {
    fn of(datagram: &Datagram<'_>) -> Self {
        Self {
            deth: datagram
                .deth()
                .map(|eth| Deth { qkey: eth.qkey.0, source_qp: eth.source_qp.value() }),
            reth: datagram.reth().map(|eth| Reth {
                va: eth.addr,
                rkey: eth.rkey.0,
                dma_len: eth.length,
            }),
            aeth: datagram.aeth().map(|eth| Aeth { syndrome: eth.syndrome.byte(), msn: eth.msn }),
            atomic: datagram.atomic_eth().map(|eth| Atomic {
                va: eth.addr,
                rkey: eth.rkey.0,
                swap: eth.swap,
                compare: eth.compare,
            }),
            atomic_ack: datagram.atomic_ack_eth().map(|eth| eth.original),
            imm: datagram.imm().map(|imm| imm.0),
            invalidate: datagram.ieth().map(|eth| eth.0.0),
            srqn: datagram.xrceth().map(|eth| eth.srqn),
            ee_context: datagram.rdeth().map(|eth| eth.ee_context),
            flush: datagram.feth().map(|eth| Flush {
                placement: eth.placement.bits(),
                selectivity: eth.selectivity.code(),
            }),
        }
    }
}

/// Writes a RoCE packet.
pub(super) fn packet(
    out: &mut impl Write,
    packet: &Packet<'_>,
    roce: &RocePacket<'_>,
) -> anyhow::Result<()> {
    let shown = Shown {
        frame: Frame::of(packet),
        source: roce.ip.source.ip(),
        source_port: roce.ip.source.port(),
        destination: roce.ip.destination.ip(),
        icrc: match roce.icrc {
            Icrc::Good => "good",
            Icrc::Bad { .. } => "bad",
            Icrc::Missing => "missing",
        },
        content: match &roce.datagram {
            Ok(datagram) => Content::Packet(Box::new(Fields::of(datagram))),
            Err(e) => Content::Error { error: e.to_string() },
        },
    };
    line(out, &shown)
}

/// Writes an IP packet that makes no sense.
pub(super) fn error(
    out: &mut impl Write,
    packet: &Packet<'_>,
    error: &ParseError,
) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Broken {
        #[serde(flatten)]
        frame: Frame,
        error: String,
    }
    line(out, &Broken { frame: Frame::of(packet), error: error.to_string() })
}

fn line(out: &mut impl Write, value: &impl Serialize) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    Ok(writeln!(out)?)
}
