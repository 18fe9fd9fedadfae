//! Impairments as text: `loss=0.02,dup=0.01,delay=1ms,seed=1`.

use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::port::shared::conditions::Conditions;

/// Configuration of an [`Impair`](super::Impair) port.
///
#[doc = include_str!("../../../../docs/IMPAIRMENTS.md")]
///
/// ```
/// use softroce::port::impair::Impairments;
///
/// let impairments: Impairments = "loss=0.02,delay=1ms,seed=7".parse()?;
/// assert_eq!((impairments.conditions.loss, impairments.seed), (0.02, 7));
///
/// let error = "rate=fast".parse::<Impairments>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "bad value in `rate=fast`: expected bits a second, such as 100mbit or 10gbit"
/// );
/// # Ok::<(), softroce::port::impair::SpecError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Impairments {
    /// Conditions of each direction.
    pub conditions: Conditions,
    /// Seed of all random decisions, together with the address of the port: with the same seed, the two ends of a
    /// connection lose different packets.
    pub seed: u64,
    /// Directions to impair.
    pub side: Side,
}

/// Directions to impair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Side {
    /// Received datagrams.
    Receive,
    /// Sent datagrams.
    Transmit,
    /// Both.
    #[default]
    Both,
}

/// Error for a string that is no [`Impairments`].
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SpecError {
    /// The key is unknown.
    #[error("unknown impairment `{0}`: expected {keys}", keys = keys())]
    UnknownKey(String),
    /// The key has no value.
    #[error("`{0}` has no value: expected {expected}", expected = value_of(.0))]
    NoValue(String),
    /// The value is invalid for this key.
    #[error("bad value in `{key}={value}`: expected {expected}", expected = value_of(.key))]
    BadValue {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// The key appears twice.
    #[error("`{0}` is given twice")]
    Twice(String),
}

/// Form and parser of the value of a key.
struct Value {
    looks: &'static str,
    read: fn(&mut Impairments, &str) -> Option<()>,
}

const PROBABILITY: &str = "a probability, 0 to 1";
const TIME: &str = "a time, such as 50us or 1ms";
const BYTES: &str = "bytes, such as 1500 or 64k";

/// Every key.
const KEYS: [(&str, Value); 19] = {
    /// The value of a field: its form and its parser.
    macro_rules! field {
        ($looks:expr, $read:ident, $($field:ident).+) => {
            Value {
                looks: $looks,
                read: |all, text| {
                    all.$($field).+ = $read(text)?.into();
                    Some(())
                },
            }
        };
    }
    const RATE: &str = "bits a second, such as 100mbit or 10gbit";
    [
        ("loss", field!(PROBABILITY, probability, conditions.loss)),
        ("burst", field!(PROBABILITY, probability, conditions.bursts.begin)),
        (
            "burst-len",
            field!("a number of datagrams, at least 1", length, conditions.bursts.length),
        ),
        ("burst-loss", field!(PROBABILITY, probability, conditions.bursts.loss)),
        ("outage", field!(TIME, time, conditions.outages.length)),
        ("every", field!(TIME, time, conditions.outages.every)),
        ("dup", field!(PROBABILITY, probability, conditions.duplicate)),
        ("reorder", field!(PROBABILITY, probability, conditions.reorder)),
        ("corrupt", field!(PROBABILITY, probability, conditions.corrupt)),
        ("truncate", field!(PROBABILITY, probability, conditions.truncate)),
        ("mark", field!(PROBABILITY, probability, conditions.mark)),
        ("delay", field!(TIME, time, conditions.delay)),
        ("jitter", field!(TIME, time, conditions.jitter)),
        ("rate", field!(RATE, rate, conditions.rate_bits_per_s)),
        ("queue", field!(BYTES, bytes, conditions.queue_bytes)),
        ("mark-above", field!(BYTES, bytes, conditions.mark_above_bytes)),
        ("refuse", field!(PROBABILITY, probability, conditions.refuse_send)),
        ("seed", field!("a number", number, seed)),
        ("dir", field!("rx, tx or both", side, side)),
    ]
};

/// Returns the value of a key; `None` for an unknown key.
fn value(key: &str) -> Option<&'static Value> {
    KEYS.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
}

fn keys() -> String {
    let names = KEYS.map(|(name, _)| name);
    let [names @ .., last] = &names;
    format!("{} or {last}", names.join(", "))
}

fn value_of(key: &str) -> &'static str {
    value(key).map_or("a value", |value| value.looks)
}

impl FromStr for Impairments {
    type Err = SpecError;

    fn from_str(spec: &str) -> Result<Self, SpecError> {
        let mut impairments = Self::default();
        let mut seen = Vec::new();
        for item in spec.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (key, text) = item.split_once('=').unwrap_or((item, ""));
            let value = value(key).ok_or_else(|| SpecError::UnknownKey(key.to_owned()))?;
            if text.is_empty() {
                return Err(SpecError::NoValue(key.to_owned()));
            }
            if seen.contains(&key) {
                return Err(SpecError::Twice(key.to_owned()));
            }
            seen.push(key);
            let bad = || SpecError::BadValue { key: key.to_owned(), value: text.to_owned() };
            (value.read)(&mut impairments, text).ok_or_else(bad)?;
        }
        Ok(impairments)
    }
}

fn probability(text: &str) -> Option<f64> {
    text.parse().ok().filter(|p| (0.0..=1.0).contains(p))
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// Parses a number of datagrams, at least one.
fn length(text: &str) -> Option<f64> {
    text.parse().ok().filter(|n| (1.0..=1e9).contains(n))
}

fn rate(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 3] = [("kbit", 1_000), ("mbit", 1_000_000), ("gbit", 1_000_000_000)];
    let (number, unit) = scaled(text, &UNITS)?;
    number.checked_mul(unit).filter(|rate| *rate > 0)
}

fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = scaled(text, &[("k", 1 << 10), ("m", 1 << 20), ("", 1)])?;
    number.checked_mul(unit)
}

/// Parses an integer with a unit; returns it and the factor of the unit.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<(u64, u64)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let scale = units.iter().find(|(name, _)| *name == unit)?.1;
    Some((number.parse().ok()?, scale))
}

fn side(text: &str) -> Option<Side> {
    match text {
        "rx" => Some(Side::Receive),
        "tx" => Some(Side::Transmit),
        "both" => Some(Side::Both),
        _ => None,
    }
}

/// Parses a time of at most an hour, so that sums stay in range.
fn time(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(unit);
    let seconds = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    let time = number.parse::<f64>().ok()? * seconds;
    Duration::try_from_secs_f64(time).ok().filter(|time| *time <= Duration::from_secs(3600))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::shared::conditions::{BurstLoss, Outages};

    #[test]
    fn every_key_is_read() {
        let spec = "loss=0.02, dup=0.01,reorder=1,corrupt=0,delay=1.5ms,jitter=50us,seed=9,dir=rx,\
                    burst=0.001,burst-len=30,burst-loss=0.5,outage=20ms,every=2s,truncate=0.03,\
                    mark=0.04,rate=10gbit,queue=64k,mark-above=1500,refuse=0.05";
        let conditions = Conditions {
            loss: 0.02,
            bursts: BurstLoss { begin: 0.001, length: 30.0, loss: 0.5 },
            outages: Outages { length: Duration::from_millis(20), every: Duration::from_secs(2) },
            duplicate: 0.01,
            reorder: 1.0,
            corrupt: 0.0,
            truncate: 0.03,
            mark: 0.04,
            delay: Duration::from_micros(1500),
            jitter: Duration::from_micros(50),
            rate_bits_per_s: Some(10_000_000_000),
            queue_bytes: Some(64 << 10),
            mark_above_bytes: Some(1500),
            refuse_send: 0.05,
        };
        let expected = Impairments { conditions, seed: 9, side: Side::Receive };
        assert_eq!(spec.parse(), Ok(expected));
        assert_eq!(spec.matches('=').count(), KEYS.len());
        assert_eq!("".parse(), Ok(Impairments::default()));
    }

    #[test]
    fn the_documentation_has_every_key() {
        let table = include_str!("../../../../docs/IMPAIRMENTS.md");
        let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let rows: Vec<_> = rows.map(|(key, _)| key).collect();
        assert_eq!(rows, KEYS.map(|(key, _)| key));
    }

    #[test]
    fn mistakes_are_named() {
        let error = |spec: &str| spec.parse::<Impairments>().unwrap_err().to_string();
        assert_eq!(
            error("loss=0.1,speed=3"),
            "unknown impairment `speed`: expected loss, burst, burst-len, burst-loss, outage, every, \
             dup, reorder, corrupt, truncate, mark, delay, jitter, rate, queue, mark-above, refuse, \
             seed or dir"
        );
        assert_eq!(error("loss=2"), "bad value in `loss=2`: expected a probability, 0 to 1");
        assert_eq!(error("dup=NaN"), "bad value in `dup=NaN`: expected a probability, 0 to 1");
        for time in ["1", "ms", "1.2.3ms", "-1ms", "1h", "2000000s"] {
            assert_eq!(
                error(&format!("delay={time}")),
                format!("bad value in `delay={time}`: expected a time, such as 50us or 1ms")
            );
        }
        for rate in ["10", "gbit", "0mbit", "1.5gbit", "99999999999999gbit"] {
            assert_eq!(
                error(&format!("rate={rate}")),
                format!(
                    "bad value in `rate={rate}`: expected bits a second, such as 100mbit or 10gbit"
                )
            );
        }
        for bytes in ["k", "-1", "1kb", "99999999999999999m"] {
            assert_eq!(
                error(&format!("queue={bytes}")),
                format!("bad value in `queue={bytes}`: expected bytes, such as 1500 or 64k")
            );
        }
        let datagrams = "expected a number of datagrams, at least 1";
        assert_eq!(error("burst-len=0"), format!("bad value in `burst-len=0`: {datagrams}"));
        assert_eq!(error("seed=x"), "bad value in `seed=x`: expected a number");
        assert_eq!(error("dir=up"), "bad value in `dir=up`: expected rx, tx or both");
        assert_eq!(error("loss"), "`loss` has no value: expected a probability, 0 to 1");
        assert_eq!(error("loss=0,loss=1"), "`loss` is given twice");
    }
}
