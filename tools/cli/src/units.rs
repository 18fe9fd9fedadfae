//! Parsers of numbers with units.

use std::time::Duration;

use softroce::ids::{Mtu, PKey, Qpn};

/// Parses bytes: `65536`, `64k`, `64K`, `8M`, `1G`; the suffixes are powers of 1024.
pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    let expected = "expected bytes, such as 65536, 64K or 8M";
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(split);
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return Err(expected.into()),
    };
    let number: usize = digits.parse().map_err(|_| expected)?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "expected fewer bytes than an address space has".into())
}

/// Parses the bytes of a message: up to 2^31.
pub(crate) fn message(text: &str) -> Result<usize, String> {
    let bytes = bytes(text)?;
    if bytes <= 1 << 31 {
        Ok(bytes)
    } else {
        Err("expected at most 2G, the longest message".into())
    }
}

/// Maximum length of a message in bytes: that of perftest.
pub const MAX_MESSAGE: usize = i32::MAX as usize;

/// Parses the bytes of a message that is not empty.
pub(crate) fn full_message(text: &str) -> Result<usize, String> {
    let bytes = bytes(text)?;
    match (1..=MAX_MESSAGE).contains(&bytes) {
        true => Ok(bytes),
        false => Err(format!("expected 1 to {MAX_MESSAGE} bytes, as perftest does")),
    }
}

/// Parses a time in seconds that is not zero.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    match moment(text)? {
        Duration::ZERO => Err("expected more than 0 seconds".into()),
        duration => Ok(duration),
    }
}

/// Parses a time in seconds.
pub(crate) fn moment(text: &str) -> Result<Duration, String> {
    let duration = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    duration.ok_or_else(|| "expected seconds, such as 5 or 0.25".into())
}

/// Parses a queue pair number, decimal or with 0x.
pub(crate) fn qpn(text: &str) -> Result<Qpn, String> {
    let number = number(text).filter(|number| *number <= 0xff_ffff);
    number.map(Qpn::new).ok_or_else(|| "expected a number up to 0xffffff".into())
}

/// Parses a partition key, decimal or with 0x.
pub(crate) fn pkey(text: &str) -> Result<PKey, String> {
    let key = number(text).and_then(|number| u16::try_from(number).ok());
    key.map(PKey).ok_or_else(|| "expected a number up to 0xffff".into())
}

/// Parses a number, decimal or with 0x.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Parses a path MTU in bytes.
pub(crate) fn mtu(text: &str) -> Result<Mtu, String> {
    let mtu = text.parse().ok().and_then(Mtu::from_bytes);
    mtu.ok_or_else(|| "expected 256, 512, 1024, 2048 or 4096".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_a_binary_suffix() {
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("64k"), Ok(65536));
        assert_eq!(bytes("2G"), Ok(2 << 30));
        for wrong in ["", "k", "-1", "1kb", "1.5k", "99999999999999999999"] {
            assert_eq!(bytes(wrong).unwrap_err(), "expected bytes, such as 65536, 64K or 8M");
        }
        assert_eq!(
            bytes("99999999999999G").unwrap_err(),
            "expected fewer bytes than an address space has"
        );
    }

    #[test]
    fn message_is_not_longer_than_verbs_allow() {
        assert_eq!(message("2G"), Ok(1 << 31));
        assert!(message("2147483649").is_err());
        assert_eq!((full_message("1"), full_message("0").is_err()), (Ok(1), true));
    }

    #[test]
    fn seconds_are_positive_decimals() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["0", "-1", "nan", "1s", "1e300"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn qpn_has_24_bits() {
        assert_eq!(qpn("0x12"), Ok(Qpn::new(0x12)));
        assert_eq!(qpn("16777215"), Ok(Qpn::new(0xff_ffff)));
        assert!(qpn("0x1000000").is_err() && qpn("12h").is_err() && qpn("-1").is_err());
    }

    #[test]
    fn pkey_has_16_bits() {
        assert_eq!((pkey("0x8001"), pkey("65535")), (Ok(PKey(0x8001)), Ok(PKey::DEFAULT)));
        for wrong in ["0x10000", "8001h", "-1", ""] {
            assert_eq!(pkey(wrong).unwrap_err(), "expected a number up to 0xffff");
        }
    }

    #[test]
    fn mtu_is_one_of_five() {
        assert_eq!(mtu("1024").map(|m| m.bytes()), Ok(1024));
        assert!(mtu("1500").is_err() && mtu("1k").is_err());
    }
}
