//! Packets as objects of JSON: the common fields first, then the extension headers, under the names of the
//! specification.

use std::io::{self, Write};
use std::net::IpAddr;

use serde::Serialize;
use serde_json::{Map, Value, json};
use softroce::wire::cm::{self, Message};
use softroce::wire::text::PacketLine;
use softroce::wire::{Bth, Datagram, ParseError};

use crate::display_filter::{Field, Subject};
use crate::dissect::{Extent, Icrc, RocePacket};
use crate::file::Packet;
use crate::flow::{CmPlace, CmRelation};
use crate::hex::hex;

/// Version of the schema of every JSON object. It changes when a field is removed or changes its meaning; a new field
/// does not change it.
pub const VERSION: u32 = 1;

#[derive(Serialize)]
struct Versioned<'a, T> {
    version: u32,
    #[serde(flatten)]
    object: &'a T,
}

/// Writes an object of JSON as a line, with `version` as its first field.
///
/// # Errors
///
/// Those of `out`.
pub fn line(out: &mut impl Write, object: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Versioned { version: VERSION, object })?;
    out.write_all(b"\n")
}

/// Capacity for the line of a packet, in bytes. Longer lines have more.
const LINE_CAPACITY: usize = 1024;

/// Writes an object as one piece: the compiler inlines a buffer in memory, not the output of a caller.
fn at_once(out: &mut dyn Write, object: &impl Serialize) -> io::Result<()> {
    let mut text = Vec::with_capacity(LINE_CAPACITY);
    line(&mut text, object)?;
    out.write_all(&text)
}

/// Fields of any frame.
#[derive(Serialize)]
struct Frame<'a> {
    file: &'a str,
    number: u64,
    /// Since the Unix epoch.
    time_ns: Option<u64>,
}

#[derive(Serialize)]
struct PacketObject<'a> {
    #[serde(flatten)]
    frame: Frame<'a>,
    source: IpAddr,
    source_port: u16,
    destination: IpAddr,
    traffic_class: u8,
    hop_limit: u8,
    /// The IPv4 identification.
    #[serde(skip_serializing_if = "Option::is_none")]
    ip_id: Option<u16>,
    /// The network of the VXLAN tunnel.
    #[serde(skip_serializing_if = "Option::is_none")]
    vni: Option<u32>,
    /// Position in a burst that was captured before its segmentation.
    #[serde(skip_serializing_if = "Option::is_none")]
    segment: Option<Segment>,
    /// Whether this is such a burst as a whole, because no ICRC proves a boundary.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unsplit: bool,
    icrc: &'static str,
    #[serde(flatten)]
    content: Content,
}

/// Position of a packet in a burst, from 0.
#[derive(Serialize)]
struct Segment {
    index: usize,
    of: usize,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content {
    Packet(Box<Fields>),
    Error { error: String },
}

#[derive(Serialize)]
struct Fields {
    #[serde(flatten)]
    bth: BthFields,
    /// Bytes of payload on the wire.
    len: usize,
    /// Bytes of payload in the capture.
    captured: usize,
    /// The four bytes as a big-endian number, as in tshark.
    icrc_value: Option<u32>,
    #[serde(flatten)]
    extensions: Extensions,
    /// Message of the connection manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    cm: Option<Value>,
    text: String,
}

/// The fields of the BTH, with the names of its opcode.
#[derive(Serialize)]
struct BthFields {
    transport: &'static str,
    /// Operation as in the text: an ACKNOWLEDGE is an ACK, RNR_NAK or NAK.
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
}

/// Extension headers; those that the opcode does not have are absent.
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

/// Operands of an atomic; FETCH_ADD adds `swap`.
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

impl<'a> Frame<'a> {
    fn of(file: &'a str, packet: &Packet<'_>) -> Self {
        let time_ns = packet.time.and_then(|time| u64::try_from(time.as_nanos()).ok());
        Self { file, number: packet.number, time_ns }
    }
}

impl Fields {
    fn of(datagram: &Datagram<'_>, place: Option<CmPlace>) -> Self {
        let text = PacketLine(datagram).to_string();
        Self {
            bth: BthFields::of(&datagram.bth, &text),
            len: datagram.payload_len,
            captured: datagram.payload.len(),
            icrc_value: datagram.icrc.map(u32::swap_bytes),
            extensions: Extensions::of(datagram),
            cm: Message::of(datagram).map(|message| connection_management(message, place)),
            text,
        }
    }
}

impl BthFields {
    /// `text` begins with the operation.
    fn of(bth: &Bth, text: &str) -> Self {
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

/// Writes a RoCE packet of `file` as a line. `place` is that of its message in a conversation of connection managers.
///
/// # Errors
///
/// Those of `out`.
pub fn packet(
    out: &mut dyn Write,
    file: &str,
    packet: &Packet<'_>,
    roce: &RocePacket<'_>,
    place: Option<CmPlace>,
) -> io::Result<()> {
    let object = PacketObject {
        frame: Frame::of(file, packet),
        source: roce.ip.source.ip(),
        source_port: roce.ip.source.port(),
        destination: roce.ip.destination.ip(),
        traffic_class: roce.ip.traffic_class,
        hop_limit: roce.ip.hop_limit,
        ip_id: roce.ip.ipv4.map(|fields| fields.id),
        vni: roce.vni,
        segment: match roce.extent {
            Extent::Segment { index, of } => Some(Segment { index, of }),
            Extent::Whole | Extent::Unsplit => None,
        },
        unsplit: roce.extent == Extent::Unsplit,
        icrc: match roce.icrc {
            Icrc::Good => "good",
            Icrc::Bad { .. } if roce.is_flush_of_rxe() => "rxe",
            Icrc::Bad { .. } => "bad",
            Icrc::Cut => "not captured",
            Icrc::Missing => "missing",
        },
        content: match &roce.datagram {
            Ok(datagram) => Content::Packet(Box::new(Fields::of(datagram, place))),
            Err(e) => Content::Error { error: e.to_string() },
        },
    };
    at_once(out, &object)
}

/// Returns the name and the fields of a message, and its place in a conversation.
fn connection_management(
    message: Result<Message<'_>, ParseError>,
    place: Option<CmPlace>,
) -> Value {
    let message = match message {
        Ok(message) => message,
        Err(e) => return json!({ "error": e.to_string() }),
    };
    let mut fields = Map::new();
    fields.insert("message".into(), message.body.name().into());
    fields.insert("transaction_id".into(), message.transaction_id.into());
    message.each_field(&mut |name, value| {
        let value = match value {
            cm::Value::Flag(flag) => flag.into(),
            cm::Value::Number(number) | cm::Value::Name(number, _) => number.into(),
            cm::Value::Address(address) => address.to_string().into(),
        };
        fields.insert(name.into(), value);
    });
    fields.insert("private_data".into(), hex(message.private_data).into());
    if let Some(CmPlace { conversation, relation }) = place {
        fields.insert("conversation".into(), conversation.into());
        let earlier = match relation {
            CmRelation::Begins => None,
            CmRelation::Answers { packet, after } => Some(("response_to", packet, after)),
            CmRelation::Repeats { packet, after } => Some(("retransmission_of", packet, after)),
        };
        if let Some((name, packet, after)) = earlier {
            fields.insert(name.into(), packet.into());
            fields.insert("after_s".into(), after.as_secs_f64().into());
        }
    }
    fields.into()
}

/// Writes those of the `fields` that the packet has as an object, as `tshark -T json` does.
///
/// # Errors
///
/// Those of `out`.
pub fn fields(out: &mut dyn Write, fields: &[Field], subject: &Subject<'_>) -> io::Result<()> {
    let mut layers = Map::new();
    for field in fields {
        let texts = field.texts(subject);
        if !texts.is_empty() {
            layers.insert(field.name().to_owned(), texts.into());
        }
    }
    out.write_all(json!({ "_source": { "layers": layers } }).to_string().as_bytes())
}

/// Writes an IP packet that cannot be parsed as a line.
///
/// # Errors
///
/// Those of `out`.
pub fn error(
    out: &mut dyn Write,
    file: &str,
    packet: &Packet<'_>,
    error: &ParseError,
) -> io::Result<()> {
    #[derive(Serialize)]
    struct ErrorObject<'a> {
        #[serde(flatten)]
        frame: Frame<'a>,
        error: String,
    }
    at_once(out, &ErrorObject { frame: Frame::of(file, packet), error: error.to_string() })
}
