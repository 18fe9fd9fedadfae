//! Fields of management datagrams and of the connection manager's messages, under Wireshark's names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use softroce::ids::Qpn;
use softroce::wire::{Datagram, Opcode};

use super::field::{Field, Kind, Subject, Value, Values, none, one};

/// Bytes of a management datagram.
const MAD_BYTES: usize = 256;
/// Offset of a message in its management datagram.
const MESSAGE: usize = 24;
/// Management class of the connection manager.
const CLASS_CM: u64 = 7;
/// The five bytes before the protocol and port of a service identifier of IP (IBTA annex A11).
const IP_SERVICE: u64 = 1;

/// Attributes of the connection manager's messages.
const REQ: u64 = 0x10;
const REJ: u64 = 0x12;
const REP: u64 = 0x13;
const RTU: u64 = 0x14;
const DREQ: u64 = 0x15;
const DREP: u64 = 0x16;

/// A management datagram.
struct Mad<'a>(&'a [u8; MAD_BYTES]);

impl<'a> Mad<'a> {
    /// Returns the management datagram of a packet, if all of it was captured.
    fn of(subject: &Subject<'a>) -> Option<Self> {
        let datagram: &Datagram<'a> = subject.roce.datagram.as_ref().ok()?;
        let is_management = datagram.bth.opcode == Opcode::UdSendOnly
            && datagram.bth.dest_qp == Qpn::GSI
            && datagram.payload_len == MAD_BYTES;
        is_management.then_some(Self(datagram.payload.first_chunk()?))
    }

    /// Returns `width` bits, 64 at most, from a bit of a byte on; bit 0 is the highest.
    fn bits(&self, byte: usize, bit: usize, width: usize) -> u64 {
        let end = byte + (bit + width).div_ceil(8);
        let bytes = self.0.get(byte..end).unwrap_or_default();
        let number = bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte));
        let below = (bytes.len() * 8).saturating_sub(bit + width);
        let mask = (1_u128 << width) - 1;
        u64::try_from(number >> below & mask).unwrap_or_default()
    }

    /// Returns whether it has the connection manager's message with an attribute.
    fn is(&self, attribute: u64) -> bool {
        self.bits(1, 0, 8) == CLASS_CM && self.bits(16, 0, 16) == attribute
    }
}

/// Returns bits of the management datagram's header.
fn mad(subject: &Subject<'_>, byte: usize, width: usize) -> Values {
    one(Mad::of(subject).map(|mad| Value::Number(mad.bits(byte, 0, width))))
}

/// Returns bits of the message with an attribute, from a bit of one of its bytes on.
fn message(
    subject: &Subject<'_>,
    attribute: u64,
    (byte, bit): (usize, usize),
    width: usize,
) -> Values {
    let mad = Mad::of(subject).filter(|mad| mad.is(attribute));
    one(mad.map(|mad| Value::Number(mad.bits(MESSAGE + byte, bit, width))))
}

/// Returns an address in the REQ, if it is of the family. Sixteen bytes hold either: IPv4 as the last four of them, after
/// `::ffff`, or after zeros in the private data of an IP service.
fn address(subject: &Subject<'_>, byte: usize, is_v4: bool) -> Values {
    let Some(mad) = Mad::of(subject).filter(|mad| mad.is(REQ)) else { return none() };
    let Some(bytes) = mad.0.get(MESSAGE + byte..).and_then(|rest| rest.first_chunk::<16>()) else {
        return none();
    };
    let v6 = Ipv6Addr::from(*bytes);
    let address = match v6.to_ipv4_mapped() {
        Some(v4) => IpAddr::from(v4),
        None => IpAddr::from(v6),
    };
    one((address.is_ipv4() == is_v4).then_some(Value::Address(address)))
}

/// Returns the REQ of a service of IP. Its private data begins with ports and addresses.
fn ip_service<'a>(subject: &Subject<'a>) -> Option<Mad<'a>> {
    Mad::of(subject).filter(|mad| mad.is(REQ) && mad.bits(MESSAGE + 8, 0, 40) == IP_SERVICE)
}

/// Returns bits of the private data of an IP service.
fn ip_bits(subject: &Subject<'_>, byte: usize, bit: usize, width: usize) -> Values {
    one(ip_service(subject).map(|mad| Value::Number(mad.bits(PRIVATE + byte, bit, width))))
}

/// Returns an address in the private data of an IP service, if it is of this version of IP.
fn ip_address(subject: &Subject<'_>, byte: usize, version: u64) -> Values {
    let mad = ip_service(subject).filter(|mad| mad.bits(PRIVATE + 1, 0, 4) == version);
    one(mad.and_then(|mad| {
        let bytes = mad.0.get(PRIVATE + byte..)?.first_chunk::<16>()?;
        let [.., a, b, c, d] = *bytes;
        let v4 = Ipv4Addr::new(a, b, c, d);
        Some(Value::Address(if version == 4 { v4.into() } else { Ipv6Addr::from(*bytes).into() }))
    }))
}

/// Offset of the private data of a REQ in the management datagram.
const PRIVATE: usize = MESSAGE + 140;

/// A number in the header of a management datagram: its name, its first byte and its bits.
macro_rules! mad {
    ($name:literal, $byte:literal, $width:literal) => {
        Field::new($name, Kind::Hex($width), |s| mad(s, $byte, $width))
    };
}

/// A number in a message: its name, the bits of its type, the message, its first byte and bit, and its bits.
macro_rules! cm {
    ($name:literal, $type:literal, $attribute:ident, $byte:literal, $bit:literal, $width:literal) => {
        Field::new($name, Kind::Hex($type), |s| message(s, $attribute, ($byte, $bit), $width))
    };
}

/// A LID in a REQ: its name and its first byte.
macro_rules! lid {
    ($name:literal, $byte:literal) => {
        Field::new($name, Kind::Decimal(16), |s| message(s, REQ, ($byte, 0), 16))
    };
}

/// Fields without private data and reserved bits. Nor is the flow label here, of which Wireshark 4.0 shows other bits.
pub(super) const CM_FIELDS: &[Field] = &[
    Field::new("infiniband.mad", Kind::Header, |s| one(Mad::of(s).map(|_| Value::Header))),
    mad!("infiniband.mad.baseversion", 0, 8),
    mad!("infiniband.mad.mgmtclass", 1, 8),
    mad!("infiniband.mad.classversion", 2, 8),
    mad!("infiniband.mad.method", 3, 8),
    mad!("infiniband.mad.status", 4, 16),
    mad!("infiniband.mad.classspecific", 6, 16),
    mad!("infiniband.mad.transactionid", 8, 64),
    mad!("infiniband.mad.attributeid", 16, 16),
    mad!("infiniband.mad.attributemodifier", 20, 32),
    cm!("infiniband.cm.req", 32, REQ, 0, 0, 32),
    cm!("infiniband.cm.req.serviceid", 64, REQ, 8, 0, 64),
    Field::new("infiniband.cm.req.serviceid.protocol", Kind::Hex(8), |s| {
        one(ip_service(s).map(|mad| Value::Number(mad.bits(MESSAGE + 13, 0, 8))))
    }),
    Field::new("infiniband.cm.req.serviceid.dport", Kind::Hex(16), |s| {
        one(ip_service(s).map(|mad| Value::Number(mad.bits(MESSAGE + 14, 0, 16))))
    }),
    cm!("infiniband.cm.req.localcaguid", 64, REQ, 16, 0, 64),
    cm!("infiniband.cm.req.localqkey", 32, REQ, 28, 0, 32),
    cm!("infiniband.cm.req.localqpn", 24, REQ, 32, 0, 24),
    cm!("infiniband.cm.req.responderres", 8, REQ, 35, 0, 8),
    cm!("infiniband.cm.req.localeecn", 24, REQ, 36, 0, 24),
    cm!("infiniband.cm.req.initdepth", 8, REQ, 39, 0, 8),
    cm!("infiniband.cm.req.remoteeecn", 24, REQ, 40, 0, 24),
    cm!("infiniband.cm.req.remoteresptout", 8, REQ, 43, 0, 5),
    cm!("infiniband.cm.req.transpsvctype", 8, REQ, 43, 5, 2),
    cm!("infiniband.cm.req.e2eflowctrl", 8, REQ, 43, 7, 1),
    cm!("infiniband.cm.req.startpsn", 24, REQ, 44, 0, 24),
    cm!("infiniband.cm.req.localresptout", 8, REQ, 47, 0, 5),
    cm!("infiniband.cm.req.retrcount", 8, REQ, 47, 5, 3),
    cm!("infiniband.cm.req.pkey", 16, REQ, 48, 0, 16),
    cm!("infiniband.cm.req.pppmtu", 8, REQ, 50, 0, 4),
    cm!("infiniband.cm.req.rdcexist", 8, REQ, 50, 4, 1),
    cm!("infiniband.cm.req.rnrretrcount", 8, REQ, 50, 5, 3),
    cm!("infiniband.cm.req.maxcmretr", 8, REQ, 51, 0, 4),
    cm!("infiniband.cm.req.srq", 8, REQ, 51, 4, 1),
    cm!("infiniband.cm.req.ext_transport", 8, REQ, 51, 5, 3),
    lid!("infiniband.cm.req.prim_locallid", 52),
    lid!("infiniband.cm.req.prim_remotelid", 54),
    Field::new("infiniband.cm.req.prim_localgid", Kind::V6, |s| address(s, 56, false)),
    Field::new("infiniband.cm.req.prim_localgid_ipv4", Kind::V4, |s| address(s, 56, true)),
    Field::new("infiniband.cm.req.prim_remotegid", Kind::V6, |s| address(s, 72, false)),
    Field::new("infiniband.cm.req.prim_remotegid_ipv4", Kind::V4, |s| address(s, 72, true)),
    cm!("infiniband.cm.req.prim_tfcclass", 8, REQ, 92, 0, 8),
    cm!("infiniband.cm.req.prim_hoplim", 8, REQ, 93, 0, 8),
    cm!("infiniband.cm.req.prim_sl", 8, REQ, 94, 0, 4),
    cm!("infiniband.cm.req.prim_subnetlocal", 8, REQ, 94, 4, 1),
    cm!("infiniband.cm.req.prim_localacktout", 8, REQ, 95, 0, 5),
    lid!("infiniband.cm.req.alt_locallid", 96),
    lid!("infiniband.cm.req.alt_remotelid", 98),
    cm!("infiniband.cm.req.alt_tfcclass", 8, REQ, 136, 0, 8),
    cm!("infiniband.cm.req.alt_hoplim", 8, REQ, 137, 0, 8),
    cm!("infiniband.cm.req.alt_sl", 8, REQ, 138, 0, 4),
    cm!("infiniband.cm.req.alt_subnetlocal", 8, REQ, 138, 4, 1),
    cm!("infiniband.cm.req.alt_localacktout", 8, REQ, 139, 0, 5),
    Field::new("infiniband.cm.req.ip_cm.majv", Kind::Hex(8), |s| ip_bits(s, 0, 0, 4)),
    Field::new("infiniband.cm.req.ip_cm.minv", Kind::Hex(8), |s| ip_bits(s, 0, 4, 4)),
    Field::new("infiniband.cm.req.ip_cm.ipv", Kind::Hex(8), |s| ip_bits(s, 1, 0, 4)),
    Field::new("infiniband.cm.req.ip_cm.sport", Kind::Hex(16), |s| ip_bits(s, 2, 0, 16)),
    Field::new("infiniband.cm.req.ip_cm.sip4", Kind::V4, |s| ip_address(s, 4, 4)),
    Field::new("infiniband.cm.req.ip_cm.sip6", Kind::V6, |s| ip_address(s, 4, 6)),
    Field::new("infiniband.cm.req.ip_cm.dip4", Kind::V4, |s| ip_address(s, 20, 4)),
    Field::new("infiniband.cm.req.ip_cm.dip6", Kind::V6, |s| ip_address(s, 20, 6)),
    cm!("infiniband.cm.rep", 32, REP, 0, 0, 32),
    cm!("infiniband.cm.rep.remotecommid", 32, REP, 4, 0, 32),
    cm!("infiniband.cm.rep.localqkey", 32, REP, 8, 0, 32),
    cm!("infiniband.cm.rep.localqpn", 24, REP, 12, 0, 24),
    cm!("infiniband.cm.rep.localeecn", 24, REP, 16, 0, 24),
    cm!("infiniband.cm.rep.startpsn", 24, REP, 20, 0, 24),
    cm!("infiniband.cm.rep.respres", 8, REP, 24, 0, 8),
    cm!("infiniband.cm.rep.initdepth", 8, REP, 25, 0, 8),
    cm!("infiniband.cm.rep.tgtackdelay", 8, REP, 26, 0, 5),
    cm!("infiniband.cm.rep.failoveracc", 8, REP, 26, 5, 2),
    cm!("infiniband.cm.rep.e2eflowctrl", 8, REP, 26, 7, 1),
    cm!("infiniband.cm.rep.rnrretrcount", 8, REP, 27, 0, 3),
    cm!("infiniband.cm.rep.srq", 8, REP, 27, 3, 1),
    cm!("infiniband.cm.rep.localcaguid", 64, REP, 28, 0, 64),
    cm!("infiniband.cm.rtu.localcommid", 32, RTU, 0, 0, 32),
    cm!("infiniband.cm.rtu.remotecommid", 32, RTU, 4, 0, 32),
    cm!("infiniband.cm.dreq.localcommid", 32, DREQ, 0, 0, 32),
    cm!("infiniband.cm.dreq.remotecommid", 32, DREQ, 4, 0, 32),
    cm!("infiniband.cm.drsp.localcommid", 32, DREP, 0, 0, 32),
    cm!("infiniband.cm.drsp.remotecommid", 32, DREP, 4, 0, 32),
    cm!("infiniband.cm.rej.localcommid", 32, REJ, 0, 0, 32),
    cm!("infiniband.cm.rej.remotecommid", 32, REJ, 4, 0, 32),
    cm!("infiniband.cm.req.remoteqpneecn", 24, DREQ, 8, 0, 24),
    cm!("infiniband.cm.rej.msgrej", 8, REJ, 8, 0, 2),
    cm!("infiniband.cm.rej.rejinfolen", 8, REJ, 9, 0, 7),
    cm!("infiniband.cm.rej.reason", 16, REJ, 10, 0, 16),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_from_the_highest() {
        let mut bytes = [0; MAD_BYTES];
        bytes[..9].copy_from_slice(&[0xa7, 0xff, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd]);
        let mad = Mad(&bytes);
        assert_eq!((mad.bits(0, 0, 5), mad.bits(0, 5, 3)), (0x14, 7));
        assert_eq!((mad.bits(2, 0, 16), mad.bits(1, 0, 64)), (0x123, 0xff01_2345_6789_abcd));
        assert_eq!(mad.bits(MAD_BYTES - 1, 0, 32), 0);
    }
}
