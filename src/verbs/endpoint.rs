//! Addresses of queue pairs, which peers exchange before they connect.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use thiserror::Error;

use crate::ids::{Gid, Qpn};
use crate::psn::Psn;

/// Address of a queue pair. The program passes it to the peer before they connect, over any channel.
///
/// The text form is one line:
///
/// ```
/// use softroce::verbs::Endpoint;
///
/// let line = "gid=::ffff:127.0.0.1 qpn=0x000012 psn=0x123456";
/// let peer: Endpoint = line.parse()?;
/// assert_eq!(peer.to_string(), line);
/// # Ok::<(), softroce::verbs::EndpointError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Endpoint {
    /// GID of the device.
    pub gid: Gid,
    /// Queue pair number.
    pub qpn: Qpn,
    /// PSN of the first request of the queue pair.
    pub psn: Psn,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gid={} qpn={} psn=0x{:06x}", self.gid, self.qpn, self.psn.value())
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let field = |name: &'static str| {
            text.split_ascii_whitespace()
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
                .ok_or(EndpointError::Missing { name })
        };
        let gid: Ipv6Addr = field("gid").and_then(|text| {
            text.parse().map_err(|_| EndpointError::Gid { found: text.to_owned() })
        })?;
        let number = |name| field(name).and_then(|text| number(name, text));
        Ok(Self { gid: gid.into(), qpn: Qpn::new(number("qpn")?), psn: Psn::new(number("psn")?) })
    }
}

/// Parses a 24-bit number, hexadecimal with `0x` or decimal.
fn number(name: &'static str, text: &str) -> Result<u32, EndpointError> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let number = number.ok().filter(|number| *number <= 0xff_ffff);
    number.ok_or_else(|| EndpointError::Number { name, found: text.to_owned() })
}

/// Error for a text that is not an [`Endpoint`].
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum EndpointError {
    /// A field is missing.
    #[error("an endpoint is gid=ADDRESS qpn=NUMBER psn=NUMBER, and {name}= is missing")]
    Missing {
        /// Name of the field.
        name: &'static str,
    },
    /// The GID is not valid.
    #[error("gid={found} is not an IPv6 address (of IPv4 it is ::ffff:a.b.c.d)")]
    Gid {
        /// Text of the field.
        found: String,
    },
    /// A number is not valid or too large.
    #[error("{name}={found} is not a number of 24 bits, as 0x123456")]
    Number {
        /// Name of the field.
        name: &'static str,
        /// Text of the field.
        found: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_field() {
        let error = |text: &str| text.parse::<Endpoint>().unwrap_err().to_string();
        assert_eq!(
            error("gid=::1 psn=0x1"),
            "an endpoint is gid=ADDRESS qpn=NUMBER psn=NUMBER, and qpn= is missing"
        );
        assert_eq!(
            error("gid=1.2.3.4 qpn=1 psn=1"),
            "gid=1.2.3.4 is not an IPv6 address (of IPv4 it is ::ffff:a.b.c.d)"
        );
        assert_eq!(
            error("gid=::1 qpn=0x1000000 psn=1"),
            "qpn=0x1000000 is not a number of 24 bits, as 0x123456"
        );
    }

    #[test]
    fn fields_come_in_any_order_and_in_decimal() {
        let endpoint: Endpoint = "psn=10 gid=fe80::1 qpn=17".parse().unwrap();
        assert_eq!(endpoint.to_string(), "gid=fe80::1 qpn=0x000011 psn=0x00000a");
    }
}
