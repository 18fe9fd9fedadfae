//! Configuration of a TAP port.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

/// Maximum length of an interface name.
const MAX_NAME: usize = 15;

/// Configuration of a TAP port: its interface, and its addresses on the link. As text, in any order after the name:
///
/// ```
/// use softroce::port::tap::TapConfig;
///
/// let text = "tap0,ip=10.0.0.5/24,ip=fd00::5/64,gateway=10.0.0.1,mac=02:00:00:00:00:05";
/// let config: TapConfig = text.parse()?;
/// assert_eq!(config.networks[1].ip, "fd00::5".parse::<std::net::IpAddr>()?);
/// assert_eq!(config.to_string(), text);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TapConfig {
    /// Name of the interface. One that does not exist is created, and deleted with the port; `%d` stands for the first
    /// free number.
    pub name: String,
    /// Networks on the link, each with the address of the port. A device with other addresses uses those, which must be
    /// in one of these networks.
    pub networks: Vec<Network>,
    /// Gateways to other networks: at most one of each IP version, in one of the networks.
    pub gateways: Vec<IpAddr>,
    /// MAC address; `None`: derived from the first IP address.
    pub mac: Option<Mac>,
    /// Bridge that a created interface is added to.
    pub bridge: Option<String>,
}

/// An address with the prefix length of its network.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Network {
    /// The address.
    pub ip: IpAddr,
    /// Prefix length in bits.
    pub prefix: u8,
}

/// Unicast MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mac(pub [u8; 6]);

/// Error for a string that describes no TAP port.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum TapConfigError {
    /// The name is no interface name.
    #[error(
        "`{found}` is no name of an interface: expected 1 to {MAX_NAME} letters, digits or the like"
    )]
    Name {
        /// The name.
        found: String,
    },
    /// The item is unknown.
    #[error("`{found}`: expected ip=ADDRESS/PREFIX, gateway=ADDRESS, mac=MAC or bridge=NAME")]
    Item {
        /// The item.
        found: String,
    },
    /// The value is invalid.
    #[error("{key}={found}: expected {expected}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        found: String,
        /// Description of a valid value.
        expected: &'static str,
    },
    /// The key appears twice.
    #[error("{key} is given twice")]
    Twice {
        /// The key.
        key: &'static str,
    },
}

impl TapConfig {
    /// Returns a configuration for the interface with this name, without an address.
    pub fn new(name: impl Into<String>) -> Self {
        let (networks, gateways) = (Vec::new(), Vec::new());
        Self { name: name.into(), networks, gateways, mac: None, bridge: None }
    }

    fn set(&mut self, item: &str) -> Result<(), TapConfigError> {
        let unknown = || TapConfigError::Item { found: item.into() };
        let (key, value) = item.split_once('=').ok_or_else(unknown)?;
        let wrong = |key, expected| TapConfigError::Value { key, found: value.into(), expected };
        match key {
            "ip" => {
                let unlike =
                    || wrong("ip", "the address of one host and its network, as 10.0.0.5/24");
                self.networks.push(Network::parse(value).ok_or_else(unlike)?);
            }
            "gateway" => {
                let ip: IpAddr = value.parse().map_err(|_| wrong("gateway", "an IP address"))?;
                if self.gateways.iter().any(|other| other.is_ipv4() == ip.is_ipv4()) {
                    return Err(TapConfigError::Twice { key: "gateway of one IP version" });
                }
                self.gateways.push(ip);
            }
            "mac" => {
                let mac = value.parse().map_err(|MacError| {
                    wrong("mac", "the link address of one host, as 02:00:00:00:00:05")
                })?;
                if self.mac.replace(mac).is_some() {
                    return Err(TapConfigError::Twice { key: "mac" });
                }
            }
            "bridge" => {
                let name = interface_name(value)?;
                if self.bridge.replace(name).is_some() {
                    return Err(TapConfigError::Twice { key: "bridge" });
                }
            }
            _ => return Err(unknown()),
        }
        Ok(())
    }
}

fn interface_name(text: &str) -> Result<String, TapConfigError> {
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ':' | '=');
    if text.is_empty() || text.len() > MAX_NAME || text.contains(is_odd) {
        return Err(TapConfigError::Name { found: text.into() });
    }
    Ok(text.into())
}

impl FromStr for TapConfig {
    type Err = TapConfigError;

    fn from_str(text: &str) -> Result<Self, TapConfigError> {
        let mut items = text.split(',');
        let mut config = Self::new(interface_name(items.next().unwrap_or_default())?);
        items.try_for_each(|item| config.set(item))?;
        Ok(config)
    }
}

impl fmt::Display for TapConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for Network { ip, prefix } in &self.networks {
            write!(f, ",ip={ip}/{prefix}")?;
        }
        for gateway in &self.gateways {
            write!(f, ",gateway={gateway}")?;
        }
        if let Some(mac) = self.mac {
            write!(f, ",mac={mac}")?;
        }
        if let Some(bridge) = &self.bridge {
            write!(f, ",bridge={bridge}")?;
        }
        Ok(())
    }
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (ip, prefix) = text.split_once('/')?;
        let (ip, prefix): (IpAddr, u8) = (ip.parse().ok()?, prefix.parse().ok()?);
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let network = Self { ip, prefix };
        ((1..=most).contains(&prefix) && network.has_host(ip)).then_some(network)
    }

    /// Returns whether an address may belong to a host of this network.
    pub(super) fn has_host(&self, ip: IpAddr) -> bool {
        let is_one = !ip.is_unspecified() && !ip.is_multicast() && ip.to_canonical() == ip;
        is_one && self.contains(ip) && !self.is_broadcast(ip)
    }

    /// Returns whether an address is in this network.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let (ours, theirs, unused) = match (self.ip, ip) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                (ours.to_bits().into(), theirs.to_bits().into(), 32_u8)
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => (ours.to_bits(), theirs.to_bits(), 128),
            _ => return false,
        };
        let host_bits = u32::from(unused.saturating_sub(self.prefix));
        let differing: u128 = ours ^ theirs;
        differing.checked_shr(host_bits).unwrap_or(0) == 0
    }

    /// Returns whether an address is the network's broadcast address.
    pub fn is_broadcast(&self, ip: IpAddr) -> bool {
        let IpAddr::V4(bits) = ip else { return false };
        let hosts = u32::MAX.checked_shr(self.prefix.into()).unwrap_or(0);
        let is_last = self.prefix < 31 && self.contains(ip) && bits.to_bits() & hosts == hosts;
        is_last || bits.is_broadcast()
    }
}

impl Mac {
    /// Returns the MAC address for an IP address: always the same, and different for different IPv4 addresses. It is
    /// locally administered.
    pub fn of(ip: IpAddr) -> Self {
        let (kind, [a, b, c, d]) = match ip {
            IpAddr::V4(ip) => (0x54, ip.octets()),
            IpAddr::V6(ip) => (0x56, crc32fast::hash(&ip.octets()).to_be_bytes()),
        };
        Self([0x02, kind, a, b, c, d])
    }
}

/// Error for a string that is no unicast MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("expected the link address of one host, as 02:00:00:00:00:05")]
pub struct MacError;

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let byte = |part: &str| {
            let are_digits = part.len() <= 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            u8::from_str_radix(part, 16).ok().filter(|_| are_digits).ok_or(MacError)
        };
        let bytes: Vec<u8> = text.split(':').map(byte).collect::<Result<_, _>>()?;
        let bytes: [u8; 6] = bytes.try_into().map_err(|_| MacError)?;
        let is_group = bytes[0] & 1 == 1;
        if is_group || bytes == [0; 6] { Err(MacError) } else { Ok(Self(bytes)) }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn configuration_round_trips_as_text() {
        for text in [
            "tap0",
            "roce%d,ip=127.0.0.1/8,bridge=br0",
            "t,ip=10.0.0.5/24,ip=fd00::5/64,gateway=10.0.0.1,gateway=fd00::1,mac=0a:00:00:00:00:ff",
        ] {
            assert_eq!(text.parse::<TapConfig>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn errors_contain_the_found_value() {
        let error = |text: &str| text.parse::<TapConfig>().unwrap_err().to_string();
        let name = |found| {
            format!(
                "`{found}` is no name of an interface: expected 1 to 15 letters, digits or the like"
            )
        };
        assert_eq!(error(""), name(""));
        assert_eq!(error("ip=10.0.0.5/24"), name("ip=10.0.0.5/24"));
        assert_eq!(error("sixteen-letters-"), name("sixteen-letters-"));
        assert_eq!(error("t,bridge=a/b"), name("a/b"));
        let item = "expected ip=ADDRESS/PREFIX, gateway=ADDRESS, mac=MAC or bridge=NAME";
        assert_eq!(error("t,10.0.0.5/24"), format!("`10.0.0.5/24`: {item}"));
        assert_eq!(error("t,vlan=7"), format!("`vlan=7`: {item}"));
        let host = "expected the address of one host and its network, as 10.0.0.5/24";
        for ip in [
            "10.0.0.5",
            "10.0.0.5/33",
            "10.0.0.5/0",
            "224.0.0.1/4",
            "10.0.0.255/24",
            "::/64",
            "::ffff:1.2.3.4/96",
        ] {
            assert_eq!(error(&format!("t,ip={ip}")), format!("ip={ip}: {host}"));
        }
        let mac = "expected the link address of one host, as 02:00:00:00:00:05";
        for odd in ["01:00:00:00:00:05", "00:00:00:00:00:00", "02:00:00:00:05", "02:00:00:00:00:+5"]
        {
            assert_eq!(error(&format!("t,mac={odd}")), format!("mac={odd}: {mac}"));
        }
        assert_eq!(error("t,gateway=r"), "gateway=r: expected an IP address");
        assert_eq!(
            error("t,gateway=10.0.0.1,gateway=10.0.0.2"),
            "gateway of one IP version is given twice"
        );
        assert_eq!(error("t,bridge=a,bridge=b"), "bridge is given twice");
    }

    #[test]
    fn a_network_has_the_addresses_that_begin_alike() {
        let network = |text: &str| Network::parse(text).unwrap();
        for (net, inside, outside) in [
            ("10.0.0.5/24", "10.0.0.255", "10.0.1.5"),
            ("10.0.0.5/32", "10.0.0.5", "10.0.0.4"),
            ("127.0.0.1/1", "10.0.0.1", "128.0.0.1"),
            ("fd00::5/64", "fd00::1:2:3:4", "fd00:0:0:1::5"),
            ("fd00::5/128", "fd00::5", "10.0.0.5"),
        ] {
            assert!(network(net).contains(ip(inside)), "{inside} in {net}");
            assert!(!network(net).contains(ip(outside)), "{outside} in {net}");
        }
        assert!(network("10.0.0.5/24").is_broadcast(ip("10.0.0.255")));
        assert!(network("10.0.0.5/24").is_broadcast(ip("255.255.255.255")));
        assert!(!network("10.0.0.4/31").is_broadcast(ip("10.0.0.5")));
        assert!(!network("10.0.0.5/16").is_broadcast(ip("10.0.0.255")));
    }

    #[test]
    fn a_mac_follows_from_the_address_and_is_ours_to_give() {
        assert_eq!(Mac::of(ip("10.0.0.5")).to_string(), "02:54:0a:00:00:05");
        assert_eq!(Mac::of(ip("fd00::5")), Mac::of(ip("fd00::5")));
        assert_ne!(Mac::of(ip("fd00::5")), Mac::of(ip("fd00::6")));
    }
}
