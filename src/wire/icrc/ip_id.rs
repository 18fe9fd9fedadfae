//! Recovery of the IPv4 identification, which the ICRC covers and a UDP socket does not report.
//!
//! The CRC is affine: over packets of one length, changing the identification by a pattern of bits
//! changes the CRC by a pattern that depends on nothing else. With `n` bytes between identification
//! and ICRC, an identification polynomial `I(x)` of degree 15 contributes `I(x)·x^(8n+32) mod P`.
//!
//! So a change of the identification determines the change of the ICRC. In the other direction, the difference
//! between the received CRC and the CRC for an assumed identification, multiplied by `x^-(8n+32)`, is the difference
//! of the identifications. If it has more than 16 bits, other bytes have changed too, and the packet is corrupt. A
//! corrupt packet passes with probability 2^-16 instead of 2^-32; a packet with a single flipped bit never passes, at
//! any length in use.

use crate::wire::encap::{IPV4_LEN, UDP_LEN};
use crate::wire::packet::ICRC_LEN;

/// Maximum length of a UDP payload: the maximum of IPv4's 16-bit total length, without headers.
pub(super) const MAX_DATAGRAM_BYTES: usize = 0xffff - IPV4_LEN - UDP_LEN;

/// Changes the ICRC of datagrams of one length to another IPv4 identification.
///
/// It does not apply to FLUSH packets in [rxe's variant](super::Flow::set_rxe_flush_icrc), or over IPv6, which has no
/// identification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcrcIdPatch {
    len: usize,
    /// Contribution of each bit of the identification, the lowest first.
    deltas: [u32; 16],
}

impl IcrcIdPatch {
    /// Returns the patch for datagrams of `len` bytes, including the ICRC.
    pub fn for_len(len: usize) -> Self {
        let after = bytes_after(len.min(MAX_DATAGRAM_BYTES));
        let mut power = multiply(FORWARD_256[after >> 8], FORWARD[after & 0xff]);
        let mut deltas = [0; 16];
        for degree in 0..deltas.len() {
            // The low byte is the last, and the top bit is the first of each byte.
            deltas[degree ^ 7] = power;
            power = times_x(power);
        }
        Self { len, deltas }
    }

    /// Returns the length of the datagrams in bytes.
    pub fn datagram_len(&self) -> usize {
        self.len
    }

    /// Changes the ICRC of a datagram to an identification that differs in these bits. An invalid ICRC remains
    /// invalid.
    ///
    /// Does nothing to a datagram of another length.
    pub fn apply(&self, bits: u16, datagram: &mut [u8]) {
        if datagram.len() != self.len {
            return;
        }
        let sum = |sum, (bit, delta): (usize, &u32)| {
            // Masks instead of branches, because the bits are random.
            sum ^ delta & u32::from(bits >> bit & 1).wrapping_neg()
        };
        let difference = self.deltas.iter().enumerate().fold(0, sum);
        if let Some(icrc) = datagram.last_chunk_mut::<ICRC_LEN>() {
            *icrc = (u32::from_le_bytes(*icrc) ^ difference).to_le_bytes();
        }
    }
}

/// Returns the difference in the IPv4 identification that changes the ICRC by `difference`, in a packet with a
/// datagram of `len` bytes including the ICRC; `None` when no identification does.
pub(super) fn id_difference(difference: u32, len: usize) -> Option<u16> {
    if len > MAX_DATAGRAM_BYTES {
        return None;
    }
    let after = bytes_after(len);
    let back = multiply(BACK_256[after >> 8], BACK[after & 0xff]);
    // The coefficient of x^0 is the top bit, so the lowest 16 coefficients are the upper half, with the last byte
    // first.
    match multiply(difference, back).to_be_bytes() {
        [low, high, 0, 0] => Some(u16::from_be_bytes([high, low])),
        _ => None,
    }
}

/// Returns the number of bytes after the identification, including the ICRC. The 32 in `x^(8n+32)` is its four bytes.
fn bytes_after(len: usize) -> usize {
    IPV4_LEN - 6 + UDP_LEN + len
}

/// Polynomial P of the CRC, without x^32; the coefficient of x^0 is the top bit.
pub(super) const POLYNOMIAL: u32 = 0xedb8_8320;

/// Polynomial 1.
pub(super) const ONE: u32 = 1 << 31;

/// Polynomial x^8.
const BYTE: u32 = ONE >> 8;

/// `x^(-8n) mod P`.
static BACK: [u32; 256] = powers(back_by_one_byte());

/// `x^(-8·256n) mod P`.
static BACK_256: [u32; 256] = powers(power_256(back_by_one_byte()));

/// `x^(8n) mod P`.
static FORWARD: [u32; 256] = powers(BYTE);

/// `x^(8·256n) mod P`.
static FORWARD_256: [u32; 256] = powers(power_256(BYTE));

/// `x^-8 mod P`.
pub(super) const fn back_by_one_byte() -> u32 {
    let mut power = ONE;
    let mut i = 0;
    while i < 8 {
        // Division by x: a coefficient of x^0 is removed by adding P; its x^32 becomes the x^31 that is shifted in.
        power = if power & ONE == 0 { power << 1 } else { (power ^ POLYNOMIAL) << 1 | 1 };
        i += 1;
    }
    power
}

/// `base^n mod P`.
pub(super) const fn powers(base: u32) -> [u32; 256] {
    let mut powers = [ONE; 256];
    let mut n = 1;
    while n < powers.len() {
        powers[n] = multiply(powers[n - 1], base);
        n += 1;
    }
    powers
}

/// `base^256 mod P`.
const fn power_256(base: u32) -> u32 {
    multiply(powers(base)[255], base)
}

/// Returns `a·b mod P`. It is faster the lower the degree of `a`.
pub(super) const fn multiply(mut a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    while a != 0 {
        // Masks instead of branches, because the bits are random.
        product ^= b & (a >> 31).wrapping_neg();
        b = times_x(b);
        a <<= 1;
    }
    product
}

/// `a·x mod P`.
const fn times_x(a: u32) -> u32 {
    a >> 1 ^ POLYNOMIAL & (a & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::super::{Flow, Verdict};
    use super::*;

    fn flow() -> Flow {
        Flow::new("10.0.0.1:49443".parse().unwrap(), "10.0.0.2:4791".parse().unwrap())
    }

    /// Multiplication by `x^-8` and by `x^8` cancel.
    #[test]
    fn moving_back_and_forward_by_bytes_cancels() {
        let (back, on) = (back_by_one_byte(), BYTE);
        assert_eq!(multiply(back, on), ONE);
        let mut power = ONE;
        for (n, found) in powers(back).into_iter().enumerate() {
            assert_eq!(found, power, "x^-{}", 8 * n);
            power = multiply(power, back);
        }
    }

    #[test]
    fn patched_icrc_equals_a_computed_one() {
        for len in (4..300).chain([4124, 65_000, MAX_DATAGRAM_BYTES]) {
            let mut bytes = vec![0x5a; len];
            for (from, to) in [(0, 0), (0, 1), (0, 0x8100), (0, 0xbeef), (0xffff, 2)] {
                flow().seal(to, &mut bytes);
                let wanted = bytes.clone();
                flow().seal(from, &mut bytes);
                IcrcIdPatch::for_len(len).apply(from ^ to, &mut bytes);
                assert_eq!(bytes, wanted, "{len} bytes from {from} to {to}");
            }
        }
    }

    #[test]
    fn patch_keeps_an_invalid_icrc_invalid() {
        let mut bytes = vec![0x5a; 84];
        flow().seal(0, &mut bytes);
        bytes[40] ^= 1;
        IcrcIdPatch::for_len(84).apply(0xbeef, &mut bytes);
        assert_eq!(flow().check(None, 0, &bytes), Verdict::Bad);
        IcrcIdPatch::for_len(84).apply(0xbeef, &mut bytes);
        bytes[40] ^= 1;
        assert_eq!(flow().check(None, 0, &bytes), Verdict::Good);
    }

    #[test]
    fn patch_ignores_datagrams_of_another_length() {
        for (len, of) in [(0, 0), (3, 3), (84, 80)] {
            let mut bytes = vec![7; len];
            IcrcIdPatch::for_len(of).apply(1, &mut bytes);
            assert_eq!(bytes, vec![7; len]);
        }
        IcrcIdPatch::for_len(usize::MAX).apply(1, &mut [0; 84]);
    }
}
