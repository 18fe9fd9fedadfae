//! Figures as people read them: three digits and a unit.

use std::fmt;

/// Nanoseconds: `12.3 µs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span(pub u64);

/// Bytes: `48 KiB`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub u64);

/// Gbit/s, in the unit that fits: `335 Mbit/s`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate(pub f64);

/// How many of something there are: `1 packet`, `2 packets`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count(pub u64, pub &'static str);

/// A share of one: `71 %`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Share(pub f64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, scale) = match self.0 {
            0..1_000 => return f.pad(&format!("{} ns", self.0)),
            1_000..1_000_000 => ("µs", 1e3),
            1_000_000..1_000_000_000 => ("ms", 1e6),
            _ => ("s", 1e9),
        };
        f.pad(&format!("{} {unit}", Digits(self.0 as f64 / scale)))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, shift) = match self.0 {
            0..0x400 => return f.pad(&format!("{} B", self.0)),
            0x400..0x10_0000 => ("KiB", 10),
            0x10_0000..0x4000_0000 => ("MiB", 20),
            _ => ("GiB", 30),
        };
        f.pad(&format!("{} {unit}", Digits(self.0 as f64 / (1_u64 << shift) as f64)))
    }
}

impl Rate {
    /// The rate of so many bytes in so many nanoseconds; `None` when no time has passed.
    pub fn of(bytes: u64, nanoseconds: u64) -> Option<Self> {
        (nanoseconds > 0).then(|| Self(bytes as f64 * 8.0 / nanoseconds as f64))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, scale) = match self.0 {
            rate if rate >= 1.0 => ("Gbit/s", 1.0),
            rate if rate >= 1e-3 => ("Mbit/s", 1e3),
            rate if rate > 0.0 => ("kbit/s", 1e6),
            _ => return f.pad("0 Gbit/s"),
        };
        f.pad(&format!("{} {unit}", Digits(self.0 * scale)))
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.0, self.1, if self.0 == 1 { "" } else { "s" })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        let digits = if percent > 0.0 && percent < 9.95 { 1 } else { 0 };
        f.pad(&format!("{percent:.digits$} %"))
    }
}

/// A number with three digits, or all there are before the point.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Digits(pub f64);

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = match self.0.abs() {
            size if size >= 99.95 => 0,
            size if size >= 9.995 => 1,
            _ => 2,
        };
        let text = format!("{:.digits$}", self.0);
        // 48 rather than 48.0, but 1.50 as measured.
        let whole = text.strip_suffix(".00").or(text.strip_suffix(".0"));
        f.pad(whole.unwrap_or(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        for (nanoseconds, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_234, "1.23 µs"),
            (65_221_000, "65.2 ms"),
            (999_600_000, "1000 ms"),
            (2_000_000_000, "2 s"),
            (123_456_000_000, "123 s"),
        ] {
            assert_eq!(Span(nanoseconds).to_string(), text);
        }
        for (bytes, text) in
            [(1023, "1023 B"), (49_152, "48 KiB"), (1_572_864, "1.50 MiB"), (5 << 30, "5 GiB")]
        {
            assert_eq!(Size(bytes).to_string(), text);
        }
        for (rate, text) in [
            (0.0, "0 Gbit/s"),
            (0.000_000_5, "0.50 kbit/s"),
            (0.335, "335 Mbit/s"),
            (1.0, "1 Gbit/s"),
        ] {
            assert_eq!(Rate(rate).to_string(), text);
        }
        assert_eq!(Rate::of(125, 1000).unwrap().to_string(), "1 Gbit/s");
        assert_eq!(Rate::of(125, 0), None);
        for (share, text) in [(0.0, "0 %"), (0.004, "0.4 %"), (0.714, "71 %"), (1.0, "100 %")] {
            assert_eq!(Share(share).to_string(), text);
        }
    }
}
