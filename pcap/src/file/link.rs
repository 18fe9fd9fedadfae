//! Link types: what stands before the IP header in a captured frame.
//!
//! ```text
//!  Ethernet    dst 6 │ src 6 │ (tag 4)* │ type 2 │ IP
//!  Linux SLL   packet 2 │ arphrd 2 │ len 2 │ address 8 │ type 2 │ IP
//!  Linux SLL2  type 2 │ 0 2 │ interface 4 │ arphrd 2 │ packet 1 │ len 1 │ address 8 │ IP
//!  Null, Loop  address family 4 (host order, network order) │ IP
//!  Raw         IP
//! ```

use softroce::port::Direction;
use softroce::wire::{ParseError, encap};
use thiserror::Error;

/// What the frames of a capture begin with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LinkType {
    /// BSD loopback: the address family in the byte order of the capturing host.
    #[doc(alias = "LINKTYPE_NULL")]
    Null,
    /// Ethernet, with VLAN tags or without.
    #[doc(alias = "LINKTYPE_ETHERNET")]
    Ethernet,
    /// The IP packet itself, of either version.
    #[doc(alias = "LINKTYPE_RAW")]
    Raw,
    /// OpenBSD loopback: the address family in network byte order.
    #[doc(alias = "LINKTYPE_LOOP")]
    Loop,
    /// Linux "cooked": what `tcpdump -i any` wrote until libpcap 1.10.
    #[doc(alias = "LINKTYPE_LINUX_SLL")]
    LinuxSll,
    /// The IPv4 packet itself.
    #[doc(alias = "LINKTYPE_IPV4")]
    Ipv4,
    /// The IPv6 packet itself.
    #[doc(alias = "LINKTYPE_IPV6")]
    Ipv6,
    /// Linux "cooked", second version: what `tcpdump -i any` writes now.
    #[doc(alias = "LINKTYPE_LINUX_SLL2")]
    LinuxSll2,
}

/// Why a frame holds no IP packet that we can show.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum NotIp {
    /// The capture's link type is none of [`LinkType`].
    #[error("link type {0} is not one of Ethernet, raw IP, Linux cooked, loopback")]
    LinkType(u32),
    /// The frame ends inside its link header.
    #[error(transparent)]
    Cut(#[from] ParseError),
    /// Another protocol: ARP, LLDP, ….
    #[error("ethertype 0x{0:04x} is not IP")]
    EtherType(u16),
    /// Another protocol on a loopback interface.
    #[error("address family {0} is not IP")]
    Family(u32),
    /// Where the IP version should be 4 or 6.
    #[error("IP version {0}, expected 4 or 6")]
    Version(u8),
}

/// Packet types of a Linux "cooked" header: to the capturing host, and from it.
const PACKET_HOST: u16 = 0;
const PACKET_OUTGOING: u16 = 4;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;

impl LinkType {
    /// Every link type with its number in capture files. Raw IP has two more, which differ by
    /// operating system and stand for `DLT_RAW` where a program wrote that by mistake.
    const NUMBERS: [(u32, Self); 10] = [
        (0, Self::Null),
        (1, Self::Ethernet),
        (12, Self::Raw),
        (14, Self::Raw),
        (101, Self::Raw),
        (108, Self::Loop),
        (113, Self::LinuxSll),
        (228, Self::Ipv4),
        (229, Self::Ipv6),
        (276, Self::LinuxSll2),
    ];

    /// The link type with this `LINKTYPE_` number, or `None` when we cannot read it.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::NUMBERS.iter().find(|(n, _)| *n == number).map(|(_, link)| *link)
    }

    /// Its `LINKTYPE_` number.
    pub const fn number(self) -> u16 {
        match self {
            Self::Null => 0,
            Self::Ethernet => 1,
            Self::Raw => 101,
            Self::Loop => 108,
            Self::LinuxSll => 113,
            Self::Ipv4 => 228,
            Self::Ipv6 => 229,
            Self::LinuxSll2 => 276,
        }
    }

    /// The IP packet in `frame`, from its first byte to the end of the frame: padding of the link
    /// is included, and only the IP header's first nibble has been looked at.
    ///
    /// # Errors
    ///
    /// Why there is none, when there is none.
    pub fn ip(self, frame: &[u8]) -> Result<&[u8], NotIp> {
        match self {
            Self::Raw | Self::Ipv4 | Self::Ipv6 => with_version(frame),
            Self::Ethernet => of_type(encap::ethernet(frame)?),
            Self::LinuxSll => {
                let (header, rest) = split::<16>(frame)?;
                let ethertype = u16::from_be_bytes([header[14], header[15]]);
                of_type(encap::untagged(ethertype, rest)?)
            }
            Self::LinuxSll2 => {
                let (header, rest) = split::<20>(frame)?;
                let ethertype = u16::from_be_bytes([header[0], header[1]]);
                of_type(encap::untagged(ethertype, rest)?)
            }
            Self::Null => {
                let (header, rest) = split::<4>(frame)?;
                let family = u32::from_le_bytes(*header);
                // The order is that of the machine that captured, which no field tells; families
                // are small numbers.
                of_family(if family > 0xffff { family.swap_bytes() } else { family }, rest)
            }
            Self::Loop => {
                let (header, rest) = split::<4>(frame)?;
                of_family(u32::from_be_bytes(*header), rest)
            }
        }
    }
}

impl LinkType {
    /// Returns whether the capturing host sent or received `frame`, if its link header tells.
    pub(super) fn direction(self, frame: &[u8]) -> Option<Direction> {
        let packet_type = match self {
            Self::LinuxSll => u16::from_be_bytes(*frame.first_chunk()?),
            Self::LinuxSll2 => u16::from(*frame.get(10)?),
            _ => return None,
        };
        match packet_type {
            PACKET_HOST => Some(Direction::Received),
            PACKET_OUTGOING => Some(Direction::Sent),
            // Broadcasts and multicasts come from this host as well, and frames to other hosts pass by.
            _ => None,
        }
    }
}

fn split<const N: usize>(frame: &[u8]) -> Result<(&[u8; N], &[u8]), NotIp> {
    frame.split_first_chunk().ok_or_else(|| cut("link header", N, frame.len()))
}

fn cut(part: &'static str, need: usize, have: usize) -> NotIp {
    ParseError::Truncated { part, need, have }.into()
}

fn of_type((ethertype, rest): (u16, &[u8])) -> Result<&[u8], NotIp> {
    match ethertype {
        ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => with_version(rest),
        other => Err(NotIp::EtherType(other)),
    }
}

fn of_family(family: u32, rest: &[u8]) -> Result<&[u8], NotIp> {
    match family {
        // AF_INET everywhere; AF_INET6 of Linux, of OpenBSD and NetBSD, of FreeBSD, of macOS.
        2 | 10 | 24 | 28 | 30 => with_version(rest),
        other => Err(NotIp::Family(other)),
    }
}

fn with_version(packet: &[u8]) -> Result<&[u8], NotIp> {
    match packet.first().map(|byte| byte >> 4) {
        Some(4 | 6) => Ok(packet),
        Some(version) => Err(NotIp::Version(version)),
        None => Err(cut("IP header", 1, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IP: &[u8] = &[0x45, 0, 0, 20];

    fn frame(header: &[u8]) -> Vec<u8> {
        [header, IP].concat()
    }

    #[test]
    fn ip_is_found_behind_every_link_header() {
        let mut sll2 = [0; 20];
        sll2[0] = 0x08;
        let mut sll = [0; 16];
        sll[14] = 0x08;
        let cases: [(LinkType, &[u8]); 9] = [
            (LinkType::Raw, &[]),
            (LinkType::Ipv4, &[]),
            (LinkType::Ethernet, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x08, 0x00]),
            (
                LinkType::Ethernet,
                &[
                    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x88, 0xa8, 0, 5, 0x81, 0x00, 0, 6, 0x08,
                    0x00,
                ],
            ),
            (LinkType::LinuxSll, &sll),
            (LinkType::LinuxSll2, &sll2),
            (LinkType::Null, &[2, 0, 0, 0]),
            (LinkType::Null, &[0, 0, 0, 2]),
            (LinkType::Loop, &[0, 0, 0, 24]),
        ];
        for (link, header) in cases {
            assert_eq!(link.ip(&frame(header)), Ok(IP), "{link:?} {header:x?}");
        }
    }

    #[test]
    fn cooked_headers_tell_the_direction() {
        let (mut sll, mut sll2) = ([0; 16], [0; 20]);
        let told =
            [(0, Some(Direction::Received)), (1, None), (3, None), (4, Some(Direction::Sent))];
        for (packet_type, expected) in told {
            (sll[1], sll2[10]) = (packet_type, packet_type);
            assert_eq!(LinkType::LinuxSll.direction(&sll), expected);
            assert_eq!(LinkType::LinuxSll2.direction(&sll2), expected);
        }
        assert_eq!(LinkType::LinuxSll2.direction(&sll2[..10]), None);
        assert_eq!(LinkType::Ethernet.direction(&sll), None);
    }

    #[test]
    fn what_is_not_ip_says_what_it_is() {
        let arp = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x08, 0x06];
        assert_eq!(LinkType::Ethernet.ip(&frame(&arp)), Err(NotIp::EtherType(0x0806)));
        assert_eq!(LinkType::Loop.ip(&[0, 0, 0, 7]), Err(NotIp::Family(7)));
        assert_eq!(LinkType::Raw.ip(&[0x5f]), Err(NotIp::Version(5)));
        let error = |link: LinkType, frame| link.ip(frame).unwrap_err().to_string();
        let short = error(LinkType::Ethernet, &[0; 13]);
        assert_eq!(short, "truncated in Ethernet: need 14 bytes, have 13");
        let short = error(LinkType::LinuxSll2, &[0; 19]);
        assert_eq!(short, "truncated in link header: need 20 bytes, have 19");
        let mut tag = [0; 15];
        tag[12] = 0x81;
        let short = error(LinkType::Ethernet, &tag);
        assert_eq!(short, "truncated in VLAN tag: need 4 bytes, have 1");
    }

    #[test]
    fn numbers_go_there_and_back() {
        for (number, link) in LinkType::NUMBERS {
            assert_eq!(LinkType::from_number(number), Some(link));
            assert_eq!(LinkType::from_number(link.number().into()), Some(link));
        }
        assert_eq!(LinkType::from_number(105), None);
    }
}
