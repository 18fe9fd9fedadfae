//! Impairments as text: `loss=0.02,dup=0.01,delay=1ms,seed=1`.

use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::io::chance::Faults;

/// What an [`Impair`](super::Impair) does to datagrams. Probabilities are of 0 to 1, for each
/// datagram.
///
/// As text it is a list of `key=value` with commas between, each key at most once:
///
/// | key | value | |
/// |---|---|---|
/// | `loss` | probability | it never arrives |
/// | `dup` | probability | it arrives twice |
/// | `reorder` | probability | it is held back, and others overtake it |
/// | `corrupt` | probability | one of its bits is turned |
/// | `delay` | time | it arrives later |
/// | `jitter` | time | and up to this much later than that |
/// | `seed` | number | what chance follows from; 0 when not given |
/// | `dir` | `rx`, `tx` or `both` | which datagrams; `both` when not given |
///
/// A time is a number with `ns`, `us`, `ms` or `s`.
///
/// ```
/// use softroce::io::impair::Impairments;
///
/// let impairments: Impairments = "loss=0.02,delay=1ms,seed=7".parse()?;
/// assert_eq!((impairments.loss, impairments.seed), (0.02, 7));
///
/// let error = "los=0.02".parse::<Impairments>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "unknown impairment `los`: expected loss, dup, reorder, corrupt, delay, jitter, seed or dir"
/// );
/// # Ok::<(), softroce::io::impair::SpecError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Impairments {
    /// It never arrives.
    pub loss: f64,
    /// It arrives twice.
    pub duplicate: f64,
    /// It is held back, by up to twice [`delay`](Self::delay) and by up to 200 µs at least, and
    /// those that come meanwhile overtake it. The others keep their order.
    pub reorder: f64,
    /// One of its bits is turned, of those that the ICRC covers.
    pub corrupt: f64,
    /// How much later it arrives.
    pub delay: Duration,
    /// How much later than that at most, evenly spread.
    pub jitter: Duration,
    /// What chance follows from, together with the port's address: so that the two ends of a
    /// connection, given the same seed, do not lose in step.
    pub seed: u64,
    /// Which datagrams it does this to.
    pub side: Side,
}

/// Which datagrams are impaired.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Side {
    /// What is received.
    Receive,
    /// What is sent.
    Transmit,
    /// What is received and what is sent.
    #[default]
    Both,
}

/// Why a text is not [`Impairments`].
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SpecError {
    /// There is no such key.
    #[error("unknown impairment `{0}`: expected {KEYS}")]
    UnknownKey(String),
    /// The key has no value.
    #[error("`{0}` has no value: expected {expected}", expected = value_of(.0))]
    NoValue(String),
    /// The value is not one of this key's.
    #[error("bad value in `{key}={value}`: expected {expected}", expected = value_of(.key))]
    BadValue {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// The key was there before.
    #[error("`{0}` is given twice")]
    Twice(String),
}

const KEYS: &str = "loss, dup, reorder, corrupt, delay, jitter, seed or dir";

/// What the value of a key looks like; `None` when there is no such key.
fn values(key: &str) -> Option<&'static str> {
    match key {
        "loss" | "dup" | "reorder" | "corrupt" => Some("a probability, 0 to 1"),
        "delay" | "jitter" => Some("a time, such as 50us or 1ms"),
        "seed" => Some("a number"),
        "dir" => Some("rx, tx or both"),
        _ => None,
    }
}

fn value_of(key: &str) -> &'static str {
    values(key).unwrap_or("a value")
}

impl FromStr for Impairments {
    type Err = SpecError;

    fn from_str(spec: &str) -> Result<Self, SpecError> {
        let mut impairments = Self::default();
        let mut seen = Vec::new();
        for item in spec.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (key, value) = item.split_once('=').unwrap_or((item, ""));
            if values(key).is_none() {
                return Err(SpecError::UnknownKey(key.to_owned()));
            }
            if value.is_empty() {
                return Err(SpecError::NoValue(key.to_owned()));
            }
            if seen.contains(&key) {
                return Err(SpecError::Twice(key.to_owned()));
            }
            seen.push(key);
            let bad = || SpecError::BadValue { key: key.to_owned(), value: value.to_owned() };
            impairments.set(key, value).ok_or_else(bad)?;
        }
        Ok(impairments)
    }
}

impl Impairments {
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "loss" => self.loss = probability(value)?,
            "dup" => self.duplicate = probability(value)?,
            "reorder" => self.reorder = probability(value)?,
            "corrupt" => self.corrupt = probability(value)?,
            "delay" => self.delay = time(value)?,
            "jitter" => self.jitter = time(value)?,
            "seed" => self.seed = value.parse().ok()?,
            "dir" => self.side = side(value)?,
            _ => return None,
        }
        Some(())
    }

    pub(super) fn faults(&self) -> Faults {
        Faults {
            loss: self.loss,
            duplicate: self.duplicate,
            reorder: self.reorder,
            corrupt: self.corrupt,
            delay: self.delay,
            jitter: self.jitter,
            hold: (self.delay * 2).max(Duration::from_micros(200)),
        }
    }
}

fn probability(text: &str) -> Option<f64> {
    text.parse().ok().filter(|p| (0.0..=1.0).contains(p))
}

fn side(text: &str) -> Option<Side> {
    match text {
        "rx" => Some(Side::Receive),
        "tx" => Some(Side::Transmit),
        "both" => Some(Side::Both),
        _ => None,
    }
}

/// A time of at most an hour: longer is a slip, and sums stay in range.
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

    #[test]
    fn every_key_is_read() {
        let spec = "loss=0.02, dup=0.01,reorder=1,corrupt=0,delay=1.5ms,jitter=50us,seed=9,dir=rx";
        let expected = Impairments {
            loss: 0.02,
            duplicate: 0.01,
            reorder: 1.0,
            corrupt: 0.0,
            delay: Duration::from_micros(1500),
            jitter: Duration::from_micros(50),
            seed: 9,
            side: Side::Receive,
        };
        assert_eq!(spec.parse(), Ok(expected));
        assert_eq!("".parse(), Ok(Impairments::default()));
    }

    #[test]
    fn mistakes_are_named() {
        let error = |spec: &str| spec.parse::<Impairments>().unwrap_err().to_string();
        assert_eq!(
            error("loss=0.1,speed=3"),
            "unknown impairment `speed`: expected loss, dup, reorder, corrupt, delay, jitter, seed \
             or dir"
        );
        assert_eq!(error("loss=2"), "bad value in `loss=2`: expected a probability, 0 to 1");
        assert_eq!(error("dup=NaN"), "bad value in `dup=NaN`: expected a probability, 0 to 1");
        for time in ["1", "ms", "1.2.3ms", "-1ms", "1h", "2000000s"] {
            assert_eq!(
                error(&format!("delay={time}")),
                format!("bad value in `delay={time}`: expected a time, such as 50us or 1ms")
            );
        }
        assert_eq!(error("seed=x"), "bad value in `seed=x`: expected a number");
        assert_eq!(error("dir=up"), "bad value in `dir=up`: expected rx, tx or both");
        assert_eq!(error("loss"), "`loss` has no value: expected a probability, 0 to 1");
        assert_eq!(error("loss=0,loss=1"), "`loss` is given twice");
    }
}
