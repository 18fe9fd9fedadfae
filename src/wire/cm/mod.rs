//! Messages of the connection manager: management datagrams by which two queue pairs get to know
//! each other (IBTA vol 1, §12.6), and what Linux' rdma_cm adds to them (annex A11).
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
//! MRA asks for patience, REJ says no, SIDR asks for the queue pair behind a UD service. LAP and
//! APR, for alternate paths, are not used over RoCE: of them only the name is read.
//!
//! A body is 232 bytes, filled up with zeros; the last part of it belongs to the consumer
//! (*private data*).

mod field;
mod ids;
mod messages;

use std::fmt;

pub use field::Value;
pub use ids::{CommId, Guid, ServiceId};
pub use messages::{Dreq, Ids, IpHeader, Mra, Path, Rej, Rep, Req, SidrRep, SidrReq};

use crate::ids::{QKey, Qpn};

use super::packet::{split, truncated};
use super::{Datagram, Mad, Opcode, ParseError};

/// The queue key of queue pair 1.
pub const GSI_QKEY: QKey = QKey(0x8001_0000);

/// Bytes of a message's body.
const BODY_LEN: usize = Mad::DATAGRAM_LEN - Mad::LEN;

/// A message of the connection manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// Joins a question and its answers.
    pub transaction_id: u64,
    /// What it says.
    pub body: Body,
    /// Addresses, where rdma_cm has put them before the consumer's private data.
    pub ip: Option<IpHeader>,
    /// The consumer's, in full length: what was not used is zeros.
    pub private_data: &'a [u8],
}

/// Which message it is, with its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Body {
    /// Asks for a connection.
    Req(Req),
    /// Asks for patience.
    Mra(Mra),
    /// Says no.
    Rej(Rej),
    /// Says yes.
    Rep(Rep),
    /// Ready to use: the answer to REP.
    Rtu(Ids),
    /// Ends a connection.
    Dreq(Dreq),
    /// The answer to that.
    Drep(Ids),
    /// Asks for the queue pair of a UD service.
    SidrReq(SidrReq),
    /// The answer to that.
    SidrRep(SidrRep),
    /// A message that is not read further, by its attribute.
    Other(u16),
}

impl<'a> Message<'a> {
    /// The message in a packet. `None` when it is no message of the connection manager.
    ///
    /// # Errors
    ///
    /// [`ParseError::Truncated`] when the packet is shorter than these messages are, or a capture
    /// has cut it.
    pub fn of(datagram: &Datagram<'a>) -> Option<Result<Self, ParseError>> {
        let is_ud = datagram.bth.opcode == Opcode::UdSendOnly;
        if !is_ud || datagram.bth.dest_qp != Qpn::GSI {
            return None;
        }
        let mad = Mad::parse(datagram.payload.first_chunk()?);
        (mad.class == Mad::CM).then(|| Self::parse(datagram.payload))
    }

    /// Takes a management datagram of the connection manager apart.
    ///
    /// # Errors
    ///
    /// [`ParseError::Truncated`] when there are fewer than 256 bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (head, after) = split::<{ Mad::LEN }>(bytes, "MAD")?;
        let body: &[u8; BODY_LEN] =
            after.first_chunk().ok_or(truncated("CM message", BODY_LEN, after.len()))?;
        let mad = Mad::parse(head);
        let (body, private_data) = Body::parse(mad.attribute, body);
        let (ip, private_data) = match body.service_id().and_then(ServiceId::ip_port) {
            Some(_) => match private_data.split_first_chunk::<{ IpHeader::LEN }>() {
                Some((header, rest)) => (Some(IpHeader::parse(header)), rest),
                None => (None, private_data),
            },
            None => (None, private_data),
        };
        Ok(Self { transaction_id: mad.transaction_id, body, ip, private_data })
    }

    /// Shows every field, in the order of the message: its name, and what it has.
    pub fn each_field(&self, show: &mut dyn FnMut(&'static str, Value)) {
        self.body.each_field(show);
        if let Some(ip) = &self.ip {
            ip.each_field(show);
        }
    }
}

impl Body {
    fn parse(attribute: u16, body: &[u8; BODY_LEN]) -> (Self, &[u8]) {
        let (message, private) = match attribute {
            0x10 => (Self::Req(Req::parse(body)), 140),
            0x11 => (Self::Mra(Mra::parse(body)), 10),
            0x12 => (Self::Rej(Rej::parse(body)), 84),
            0x13 => (Self::Rep(Rep::parse(body)), 36),
            0x14 => (Self::Rtu(Ids::parse(body)), 8),
            0x15 => (Self::Dreq(Dreq::parse(body)), 12),
            0x16 => (Self::Drep(Ids::parse(body)), 8),
            0x17 => (Self::SidrReq(SidrReq::parse(body)), 16),
            0x18 => (Self::SidrRep(SidrRep::parse(body)), 96),
            other => (Self::Other(other), 0),
        };
        (message, &body[private..])
    }

    /// Its name in the specification.
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

    /// The service that is asked for.
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

/// `CM REQ tid=0x… id=0x… …`: fields that are zero are left out, and so is private data but for its
/// length without the zeros at its end.
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
