//! Messages of the connection manager: management datagrams that establish and end connections (IBTA vol 1, §12.6),
//! and the additions of Linux' rdma_cm (annex A11).
//!
//! ```text
//!  active ── REQ ──► passive      my queue pair, starting PSN, limits, path
//!         ◄─ REP ───              mine
//!         ── RTU ──►              go
//!               …
//!         ── DREQ ─►              no more
//!         ◄─ DREP ──
//! ```
//!
//! MRA extends a timeout, REJ rejects, SIDR resolves a UD service to a queue pair. LAP and APR manage alternate
//! paths, which RoCE does not use: only their names are parsed.
//!
//! A body is 232 bytes, padded with zeros. Its last part contains the consumer's *private data*.

mod field;
mod ids;
mod info;
mod messages;

use std::fmt;

pub use field::Value;
pub use ids::{CommId, Guid, ServiceId};
pub use info::Info;
pub use messages::{Dreq, Ids, IpHeader, Mra, Path, Rej, Rep, Req, SidrRep, SidrReq};

use crate::ids::{QKey, Qpn};

use super::packet::{split, truncated};
use super::{Datagram, Mad, Opcode, ParseError};

/// Queue key of queue pair 1.
pub const GSI_QKEY: QKey = QKey(0x8001_0000);

/// Length of a message's body in bytes.
const BODY_LEN: usize = Mad::DATAGRAM_LEN - Mad::LEN;

/// A message of the connection manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// Transaction ID, which associates requests and responses.
    pub transaction_id: u64,
    /// Attribute modifier: the ECE options in REQ, REP and SIDR_REP, otherwise 0.
    pub modifier: u32,
    /// Fields of the message.
    pub body: Body,
    /// Addresses of rdma_cm, in messages that contain them before the consumer's private data.
    pub ip: Option<IpHeader>,
    /// Private data of the consumer, including trailing zeros.
    pub private_data: &'a [u8],
}

/// Type and fields of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Body {
    /// Request for communication.
    Req(Req),
    /// Message receipt acknowledgement, which extends a timeout.
    Mra(Mra),
    /// Rejection.
    Rej(Rej),
    /// Reply to a request for communication.
    Rep(Rep),
    /// Ready to use, the response to a reply.
    Rtu(Ids),
    /// Request for disconnection.
    Dreq(Dreq),
    /// Reply to a request for disconnection.
    Drep(Ids),
    /// Service ID resolution request.
    SidrReq(SidrReq),
    /// Service ID resolution response.
    SidrRep(SidrRep),
    /// Another message, with its attribute ID.
    Other(u16),
}

impl<'a> Message<'a> {
    /// Returns the message in a packet, or `None` when it contains no message of the connection manager.
    ///
    /// # Errors
    ///
    /// [`ParseError::Truncated`] when the packet is shorter than a management datagram, or a capture has truncated
    /// it.
    pub fn of(datagram: &Datagram<'a>) -> Option<Result<Self, ParseError>> {
        let is_ud = datagram.bth.opcode == Opcode::UdSendOnly;
        if !is_ud || datagram.bth.dest_qp != Qpn::GSI {
            return None;
        }
        let mad = Mad::parse(datagram.payload.first_chunk()?);
        (mad.class == Mad::CM).then(|| Self::parse(datagram.payload))
    }

    /// Parses a management datagram of the connection manager.
    ///
    /// # Errors
    ///
    /// [`ParseError::Truncated`] when the datagram has fewer than 256 bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (head, after) = split::<{ Mad::LEN }>(bytes, "MAD")?;
        let body: &[u8; BODY_LEN] =
            after.first_chunk().ok_or(truncated("CM message", BODY_LEN, after.len()))?;
        let mad = Mad::parse(head);
        let (body, private_data) = Body::parse(mad.attribute, body);
        let (ip, private_data) = match body.service_id().and_then(ServiceId::ip_port) {
            Some(_) => match private_data.split_first_chunk::<{ IpHeader::LEN }>() {
                Some((header, rest)) => (Some(IpHeader::parse(header).with_version()), rest),
                None => (None, private_data),
            },
            None => (None, private_data),
        };
        let Mad { transaction_id, modifier, .. } = mad;
        Ok(Self { transaction_id, modifier, body, ip, private_data })
    }

    /// Returns the length in bytes of the consumer's private data.
    pub fn private_data_len(&self) -> usize {
        let header = if self.ip.is_some() { IpHeader::LEN } else { 0 };
        BODY_LEN.saturating_sub(self.body.layout().1 + header)
    }

    /// Writes the datagram, with zeros in all unused bytes. Private data past
    /// [its length](Self::private_data_len) is not written.
    pub fn write(&self, bytes: &mut [u8; Mad::DATAGRAM_LEN]) {
        let (attribute, private) = self.body.layout();
        bytes.fill(0);
        let mad = Mad {
            base_version: Mad::BASE_VERSION,
            class: Mad::CM,
            class_version: Mad::CM_VERSION,
            method: Mad::SEND,
            transaction_id: self.transaction_id,
            attribute,
            modifier: self.modifier,
            ..Mad::default()
        };
        let Some((head, body)) = bytes.split_first_chunk_mut() else { return };
        mad.write(head);
        self.body.write(body);
        let mut at = private;
        if let Some(ip) = &self.ip
            && let Some(header) = body.get_mut(at..).and_then(<[u8]>::first_chunk_mut)
        {
            ip.write(header);
            at += IpHeader::LEN;
        }
        for (to, from) in body.iter_mut().skip(at).zip(self.private_data) {
            *to = *from;
        }
    }

    /// Calls `show` with the name and value of each field, in the order of the message.
    pub fn each_field(&self, show: &mut dyn FnMut(&'static str, Value)) {
        self.body.each_field(show);
        if let Some(ip) = &self.ip {
            ip.each_field(show);
        }
    }
}

impl Body {
    fn parse(attribute: u16, body: &[u8; BODY_LEN]) -> (Self, &[u8]) {
        let message = match attribute {
            0x10 => Self::Req(Req::parse(body)),
            0x11 => Self::Mra(Mra::parse(body)),
            0x12 => Self::Rej(Rej::parse(body)),
            0x13 => Self::Rep(Rep::parse(body)),
            0x14 => Self::Rtu(Ids::parse(body)),
            0x15 => Self::Dreq(Dreq::parse(body)),
            0x16 => Self::Drep(Ids::parse(body)),
            0x17 => Self::SidrReq(SidrReq::parse(body)),
            0x18 => Self::SidrRep(SidrRep::parse(body)),
            other => Self::Other(other),
        };
        let (_, private) = message.layout();
        (message, body.get(private..).unwrap_or_default())
    }

    /// Returns the attribute ID, and the offset of the private data in the body.
    const fn layout(&self) -> (u16, usize) {
        match self {
            Self::Req(_) => (0x10, Req::LEN),
            Self::Mra(_) => (0x11, Mra::LEN),
            Self::Rej(_) => (0x12, Rej::LEN),
            Self::Rep(_) => (0x13, Rep::LEN),
            Self::Rtu(_) => (0x14, Ids::LEN),
            Self::Dreq(_) => (0x15, Dreq::LEN),
            Self::Drep(_) => (0x16, Ids::LEN),
            Self::SidrReq(_) => (0x17, SidrReq::LEN),
            Self::SidrRep(_) => (0x18, SidrRep::LEN),
            Self::Other(attribute) => (*attribute, 0),
        }
    }

    /// Writes the fields into a body of zeros.
    fn write(&self, body: &mut [u8]) {
        /// Calls `write` of a message with the first bytes of the body.
        macro_rules! write {
            ($message:expr) => {
                if let Some(bytes) = body.first_chunk_mut() {
                    $message.write(bytes);
                }
            };
        }
        match self {
            Self::Req(req) => write!(req),
            Self::Mra(mra) => write!(mra),
            Self::Rej(rej) => write!(rej),
            Self::Rep(rep) => write!(rep),
            Self::Rtu(ids) | Self::Drep(ids) => write!(ids),
            Self::Dreq(dreq) => write!(dreq),
            Self::SidrReq(req) => write!(req),
            Self::SidrRep(rep) => write!(rep),
            Self::Other(_) => {}
        }
    }

    /// Returns the name in the specification.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Req(_) => "REQ",
            Self::Mra(_) => "MRA",
            Self::Rej(_) => "REJ",
            Self::Rep(_) => "REP",
            Self::Rtu(_) => "RTU",
            Self::Dreq(_) => "DREQ",
            Self::Drep(_) => "DREP",
            Self::SidrReq(_) => "SIDR_REQ",
            Self::SidrRep(_) => "SIDR_REP",
            Self::Other(0x19) => "LAP",
            Self::Other(0x1a) => "APR",
            Self::Other(_) => "message",
        }
    }

    /// Returns the requested service.
    const fn service_id(&self) -> Option<ServiceId> {
        match self {
            Self::Req(req) => Some(req.service_id),
            Self::SidrReq(req) => Some(req.service_id),
            _ => None,
        }
    }

    fn each_field(&self, show: &mut dyn FnMut(&'static str, Value)) {
        match self {
            Self::Req(req) => req.each_field(show),
            Self::Mra(mra) => mra.each_field(show),
            Self::Rej(rej) => rej.each_field(show),
            Self::Rep(rep) => rep.each_field(show),
            Self::Rtu(ids) | Self::Drep(ids) => ids.each_field(show),
            Self::Dreq(dreq) => dreq.each_field(show),
            Self::SidrReq(req) => req.each_field(show),
            Self::SidrRep(rep) => rep.each_field(show),
            Self::Other(attribute) => show("attribute", Value::Name(u64::from(*attribute), 4)),
        }
    }
}

/// Formats the message as `CM REQ tid=0x… id=0x… …`, without fields that are zero, and with the length of the private
/// data without trailing zeros.
impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CM {} tid=0x{:x}", self.body.name(), self.transaction_id)?;
        let mut result = Ok(());
        self.each_field(&mut |name, value| {
            let is_zero =
                matches!(value, Value::Flag(false) | Value::Number(0) | Value::Name(0, _));
            if !is_zero && result.is_ok() {
                result = write!(f, " {name}={value}");
            }
        });
        result?;
        if let Body::Rej(rej) = &self.body {
            write!(f, " ({})", rej.reason_text())?;
        }
        let used = self.private_data.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        if used > 0 {
            write!(f, " private_data={used}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
