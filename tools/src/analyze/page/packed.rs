//! Series of numbers as text that a browser unpacks quickly: variable-length integers in base64.

use serde_json::{Value, json};
use softroce_pcap::analyze::{Bins, Trace};

/// Returns the points of a trace: four integers each, of which the first two are differences from the point before.
///
/// | integer | |
/// |---|---|
/// | time | nanoseconds |
/// | lowest value | may decrease |
/// | highest value | less the lowest |
/// | points | number of points that it stands for |
pub(super) fn trace(trace: &Trace) -> Value {
    let mut bytes = Vec::with_capacity(trace.cells().len() * 6);
    let (mut at, mut low) = (0, 0);
    for cell in trace.cells() {
        append(&mut bytes, u128::from(cell.at - at));
        append(&mut bytes, signed(cell.low, low));
        append(&mut bytes, u128::from(cell.high - cell.low));
        append(&mut bytes, u128::from(cell.points));
        (at, low) = (cell.at, cell.low);
    }
    json!({ "bin_ns": trace.bin(), "count": trace.cells().len(), "points": base64(&bytes) })
}

/// Returns bytes over time.
pub(super) fn bins(bins: &Bins) -> Value {
    let mut bytes = Vec::with_capacity(bins.values().len() * 3);
    for value in bins.values() {
        append(&mut bytes, u128::from(*value));
    }
    let values = base64(&bytes);
    json!({ "start_ns": bins.start(), "bin_ns": bins.width(), "count": bins.values().len(), "bytes": values })
}

/// Appends an integer: seven bits a byte, the lowest first; the highest bit is set in all bytes but the last.
fn append(bytes: &mut Vec<u8>, mut value: u128) {
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            return bytes.push(low & 0x7f);
        }
        bytes.push(low | 0x80);
    }
}

/// Returns a difference as an integer without sign: twice its size, and 1 more if it is negative.
fn signed(value: u64, before: u64) -> u128 {
    2 * u128::from(value.abs_diff(before)) + u128::from(value < before)
}

/// Returns bytes as base64 (RFC 4648, section 4).
pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let index = bits >> (18 - 6 * digit) & 0x3f;
            // `group` of n bytes has n + 1 digits.
            text.push(if digit > group.len() { '=' } else { char::from(DIGITS[index as usize]) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_the_test_vectors_of_rfc_4648() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (bytes, text) in vectors {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn small_integers_take_one_byte_and_large_ones_as_many_as_they_need() {
        let bytes = |value| {
            let mut bytes = Vec::new();
            append(&mut bytes, value);
            bytes
        };
        assert_eq!(bytes(0), [0]);
        assert_eq!(bytes(127), [127]);
        assert_eq!(bytes(300), [0xac, 2]);
        assert_eq!(bytes(2 * u128::from(u64::MAX)).len(), 10);
    }

    #[test]
    fn differences_keep_their_sign() {
        assert_eq!(signed(7, 5), 4);
        assert_eq!(signed(5, 7), 5);
        assert_eq!(signed(u64::MAX, 0), 2 * u128::from(u64::MAX));
    }
}
