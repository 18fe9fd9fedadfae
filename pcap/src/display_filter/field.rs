//! Fields of packets under Wireshark's names.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::dissect::RocePacket;
use crate::file::Packet;
use crate::hex::hex;

/// A RoCE packet with the frame in which it was captured.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The frame.
    pub frame: &'a Packet<'a>,
    /// The packet; of an unsegmented burst, one of its packets.
    pub roce: &'a RocePacket<'a>,
    /// Time since the first frame of the capture.
    pub since_start: Duration,
}

/// A value of a field.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Value {
    /// A number or flag.
    Number(u64),
    /// An address.
    Address(IpAddr),
    /// A time.
    Time(Duration),
    /// Four bytes in their order on the wire.
    Bytes([u8; 4]),
    /// A header, which is present or not.
    Header,
}

/// Type of a field, and how its values are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A decimal number of so many bits.
    Decimal(u32),
    /// A hexadecimal number of so many bits.
    Hex(u32),
    Flag,
    V4,
    V6,
    Time,
    Bytes,
    Header,
}

/// The values of a field in a packet: none, one, or those of both ends.
pub(super) type Values = [Option<Value>; 2];

/// A field by its name in Wireshark.
#[derive(Clone, Copy)]
pub struct Field {
    name: &'static str,
    pub(super) kind: Kind,
    get: fn(&Subject<'_>) -> Values,
}

impl Field {
    pub(super) const fn new(
        name: &'static str,
        kind: Kind,
        get: fn(&Subject<'_>) -> Values,
    ) -> Self {
        Self { name, kind, get }
    }

    /// Returns the name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the values in a packet.
    pub fn values(&self, subject: &Subject<'_>) -> impl Iterator<Item = Value> {
        (self.get)(subject).into_iter().flatten()
    }

    /// Returns the values in a packet as `tshark -T fields` prints them.
    pub fn texts(&self, subject: &Subject<'_>) -> Vec<String> {
        self.values(subject).map(|value| self.text(value)).collect()
    }

    /// Returns a value as `tshark -T fields` prints it.
    fn text(&self, value: Value) -> String {
        match (value, self.kind) {
            (Value::Number(number), Kind::Hex(bits)) => {
                let digits = usize::try_from(bits.div_ceil(4)).unwrap_or_default();
                format!("0x{number:0digits$x}")
            }
            (Value::Number(number), _) => number.to_string(),
            (Value::Address(address), _) => address.to_string(),
            (Value::Time(time), _) => format!("{}.{:09}", time.as_secs(), time.subsec_nanos()),
            (Value::Bytes(bytes), _) => hex(&bytes),
            (Value::Header, _) => self.name.to_owned(),
        }
    }
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Field {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Field {}

pub(super) const fn none() -> Values {
    [None, None]
}

pub(super) fn one(value: Option<Value>) -> Values {
    [value, None]
}
