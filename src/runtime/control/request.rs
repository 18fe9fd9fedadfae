//! Requests of clients: a line of text.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

use crate::ids::Qpn;
use crate::wire::Bth;
use crate::wire::encap::{IPV4_LEN, IPV6_LEN, UDP_LEN};

/// First words of each request: the protocol and its version.
const PREFIX: &str = "softroce 1 ";

/// Maximum length of a request in bytes.
pub(super) const MAX_REQUEST_BYTES: usize = 4096;

/// Maximum number of queue pairs, and of addresses, in a filter.
const MAX_FILTER_ITEMS: usize = 64;

/// A request to a device. Its text form is the line that a client sends, without the line feed.
///
/// ```
/// use softroce::runtime::control::Request;
///
/// let request: Request = "softroce 1 capture snap_len=128 qp=17 ip=10.0.0.2".parse()?;
/// assert_eq!(request.to_string(), "softroce 1 capture snap_len=128 qp=17 ip=10.0.0.2");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// State and counters of the device and its queue pairs.
    Status,
    /// Packets from now on.
    Capture(CaptureFilter),
}

/// Selection of the packets of a capture. An empty list selects all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CaptureFilter {
    /// Maximum number of bytes of each packet, from its IP header; `None` for all.
    pub snap_len: Option<u32>,
    /// Destination queue pairs.
    pub qps: Vec<Qpn>,
    /// Addresses, as source or destination.
    pub ips: Vec<IpAddr>,
}

/// Error for a line that is no request.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The protocol or its version differs.
    #[error("`{found}` is no request: expected one that begins with `{PREFIX}`")]
    Version {
        /// The line.
        found: String,
    },
    /// There is no such request.
    #[error("`{found}` is no request: expected `status` or `capture`")]
    Unknown {
        /// The word.
        found: String,
    },
    /// An argument is invalid.
    #[error(
        "`{found}` is no argument of `capture`: expected snap_len=BYTES, qp=NUMBER or ip=ADDRESS"
    )]
    Argument {
        /// The argument.
        found: String,
    },
    /// There are too many arguments.
    #[error("more than {MAX_FILTER_ITEMS} queue pairs or addresses")]
    TooMany,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        let Self::Capture(filter) = self else { return f.write_str("status") };
        f.write_str("capture")?;
        filter.snap_len.iter().try_for_each(|bytes| write!(f, " snap_len={bytes}"))?;
        filter.qps.iter().try_for_each(|qpn| write!(f, " qp={}", qpn.value()))?;
        filter.ips.iter().try_for_each(|ip| write!(f, " ip={ip}"))
    }
}

impl FromStr for Request {
    type Err = RequestError;

    fn from_str(line: &str) -> Result<Self, RequestError> {
        let version = || RequestError::Version { found: line.into() };
        let mut words = line.strip_prefix(PREFIX).ok_or_else(version)?.split(' ');
        match words.next().unwrap_or_default() {
            "status" => Ok(Self::Status),
            "capture" => {
                let mut filter = CaptureFilter::default();
                words.try_for_each(|word| filter.add(word))?;
                Ok(Self::Capture(filter))
            }
            found => Err(RequestError::Unknown { found: found.into() }),
        }
    }
}

impl CaptureFilter {
    fn add(&mut self, word: &str) -> Result<(), RequestError> {
        let wrong = || RequestError::Argument { found: word.into() };
        let (name, value) = word.split_once('=').ok_or_else(wrong)?;
        match name {
            "snap_len" => self.snap_len = Some(value.parse().map_err(|_| wrong())?),
            "qp" => {
                let number: u32 = value.parse().map_err(|_| wrong())?;
                let qpn = Qpn::new(number);
                self.qps.push(Some(qpn).filter(|qpn| qpn.value() == number).ok_or_else(wrong)?);
            }
            "ip" => self.ips.push(value.parse().map_err(|_| wrong())?),
            _ => return Err(wrong()),
        }
        match self.qps.len().max(self.ips.len()) {
            0..=MAX_FILTER_ITEMS => Ok(()),
            _ => Err(RequestError::TooMany),
        }
    }

    /// Returns whether the capture has this packet, which begins with the IP header.
    pub(super) fn admits(&self, packet: &[u8]) -> bool {
        if self.qps.is_empty() && self.ips.is_empty() {
            return true;
        }
        let Some((ends, bth)) = ends_and_bth(packet) else { return false };
        let is_to = |bth: &[u8; Bth::LEN]| self.qps.contains(&Bth::destination(bth));
        (self.ips.is_empty() || ends.iter().any(|ip| self.ips.contains(ip)))
            && (self.qps.is_empty() || bth.first_chunk().is_some_and(is_to))
    }
}

/// Returns both addresses of a packet that a port has captured, without options, and its bytes from the BTH.
fn ends_and_bth(packet: &[u8]) -> Option<([IpAddr; 2], &[u8])> {
    let address = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<4>()?));
    let long_address = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<16>()?));
    match packet.first()? >> 4 {
        4 => Some(([address(12)?, address(16)?], packet.get(IPV4_LEN + UDP_LEN..)?)),
        6 => Some(([long_address(8)?, long_address(24)?], packet.get(IPV6_LEN + UDP_LEN..)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{Ipv4Fields, Path};
    use crate::wire::encap::Headers;

    #[test]
    fn request_is_parsed_as_it_was_written() {
        let filter = CaptureFilter {
            snap_len: Some(96),
            qps: [1, 0xff_ffff].map(Qpn::new).into(),
            ips: vec!["fd00::1".parse().unwrap()],
        };
        let all = CaptureFilter::default();
        for request in [Request::Status, Request::Capture(filter), Request::Capture(all)] {
            assert_eq!(request.to_string().parse(), Ok(request));
        }
    }

    #[test]
    fn error_names_the_word() {
        let error = |line: &str| line.parse::<Request>().unwrap_err().to_string();
        assert_eq!(
            error("GET / HTTP/1.1"),
            "`GET / HTTP/1.1` is no request: expected one that begins with `softroce 1 `"
        );
        assert_eq!(
            error("softroce 1 reset"),
            "`reset` is no request: expected `status` or `capture`"
        );
        for word in ["", "qp", "qp=x", "qp=16777216", "ip=here", "snap_len=-1", "port=1"] {
            let expected = format!(
                "`{word}` is no argument of `capture`: expected snap_len=BYTES, qp=NUMBER or ip=ADDRESS"
            );
            assert_eq!(error(&format!("softroce 1 capture {word}")), expected);
        }
        let many = "qp=1 ".repeat(MAX_FILTER_ITEMS + 1);
        assert_eq!(
            error(&format!("softroce 1 capture {}", many.trim_end())),
            "more than 64 queue pairs or addresses"
        );
    }

    /// Returns a packet to a queue pair.
    fn packet(source: &str, destination: &str, qpn: u32) -> Vec<u8> {
        let path = Path {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            source_port: 0xc000,
            traffic_class: 0,
            hop_limit: 64,
        };
        let ipv4 = Ipv4Fields { id: 0, dont_fragment: true };
        let mut packet = Vec::new();
        Headers { path, flow_label: 0, ipv4 }.append(16, &mut packet);
        packet.extend([[0x64, 0, 0xff, 0xff], qpn.to_be_bytes(), [0; 4], [0; 4]].concat());
        packet
    }

    #[test]
    fn filter_selects_by_destination_and_addresses() {
        for (a, b) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let packet = packet(a, b, 0x11);
            let admits = |qps: &[u32], ips: &[&str]| {
                let qps = qps.iter().copied().map(Qpn::new).collect();
                let ips = ips.iter().map(|ip| ip.parse().unwrap()).collect();
                CaptureFilter { snap_len: None, qps, ips }.admits(&packet)
            };
            assert!(admits(&[], &[]) && admits(&[0x10, 0x11], &[]) && admits(&[0x11], &[a]));
            assert!(admits(&[], &[b, "10.9.9.9"]));
            assert!(!admits(&[0x10], &[a]) && !admits(&[0x11], &["10.9.9.9"]));
        }
    }

    #[test]
    fn filter_rejects_cut_packets() {
        let whole = packet("10.0.0.1", "10.0.0.2", 0x11);
        let filter = CaptureFilter { qps: vec![Qpn::new(0x11)], ..CaptureFilter::default() };
        for len in 0..IPV4_LEN + UDP_LEN + Bth::LEN {
            assert!(!filter.admits(&whole[..len]), "{len} bytes");
        }
        assert!(filter.admits(&whole));
    }
}
