//! Capture filters: `host ADDRESS` and `qp NUMBER`, joined by `or` and `and`.

use std::net::IpAddr;

use softroce::ids::Qpn;
use softroce::runtime::control::CaptureFilter;

/// What a filter may be, for error messages.
const EXPECTED: &str =
    "expected `host ADDRESS` or `qp NUMBER`; `or` joins two of one kind, `and` the two kinds";

/// Parses a capture filter, such as `host 10.0.0.2 and qp 17 or qp 18`; an empty one selects all packets.
pub fn parse(text: &str) -> Result<CaptureFilter, String> {
    let wrong = |found: &str| format!("`{found}` in `{text}`: {EXPECTED}");
    let mut words = text.split_ascii_whitespace();
    let mut filter = CaptureFilter::default();
    let mut previous = None;
    let mut joint = None;
    while let Some(kind) = words.next() {
        let value = words.next().ok_or_else(|| wrong(kind))?;
        match kind {
            "host" | "ip" => filter.ips.push(value.parse::<IpAddr>().map_err(|_| wrong(value))?),
            "qp" => filter.qps.push(number(value).ok_or_else(|| wrong(value))?),
            _ => return Err(wrong(kind)),
        }
        let kind = if kind == "qp" { "qp" } else { "host" };
        if let (Some(previous), Some(joint)) = (previous.replace(kind), joint.take()) {
            let expected = if previous == kind { "or" } else { "and" };
            if joint != expected {
                return Err(wrong(joint));
            }
        }
        joint = words.next();
        if let Some(found) = joint.filter(|joint| !["and", "or"].contains(joint)) {
            return Err(wrong(found));
        }
    }
    match joint {
        Some(joint) => Err(wrong(joint)),
        None => Ok(filter),
    }
}

/// Parses a queue pair number, decimal or hexadecimal.
fn number(text: &str) -> Option<Qpn> {
    let number: u32 = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    Some(Qpn::new(number)).filter(|qpn| qpn.value() == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_has_hosts_and_queue_pairs() {
        let filter = parse("host 10.0.0.2 or host fd00::1 and qp 17 or qp 0x12").unwrap();
        assert_eq!(filter.qps, [17, 18].map(Qpn::new));
        assert_eq!(filter.ips, ["10.0.0.2", "fd00::1"].map(|ip| ip.parse::<IpAddr>().unwrap()));
        assert_eq!(parse(" "), Ok(CaptureFilter::default()));
    }

    #[test]
    fn invalid_filter_is_an_error_with_the_word() {
        for (text, found) in [
            ("port 4791", "port"),
            ("host", "host"),
            ("host here", "here"),
            ("qp 16777216", "16777216"),
            ("qp 1 and qp 2", "and"),
            ("qp 1 or host ::1", "or"),
            ("qp 1 qp 2", "qp"),
            ("qp 1 or", "or"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(&format!("`{found}` in `{text}`: expected")), "{error}");
        }
    }
}
