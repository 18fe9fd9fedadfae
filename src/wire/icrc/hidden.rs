//! The IPv4 identification, which a UDP socket does not show and the ICRC covers.
//!
//! The CRC is affine: over packets of one length, changing the identification by a pattern of bits
//! changes the CRC by a pattern that depends on nothing else. With `n` bytes between identification
//! and ICRC, an identification polynomial `I(x)` of degree 15 contributes `I(x)·x^(8n+32) mod P`.
//!
//! So who knows by which bits an identification will be another knows by which the ICRC will. And the
//! difference between the CRC found and the CRC computed with an assumed identification, multiplied
//! by `x^-(8n+32)`, is the difference of the identifications; if that has more than 16 bits,
//! something else has changed too, and the packet is bad. A corrupt packet passes once in 2^16
//! times instead of once in 2^32; one with a single flipped bit never does, at any length in use.

use crate::wire::encap::{IPV4_LEN, UDP_LEN};
use crate::wire::packet::ICRC_LEN;

/// The longest UDP payload there is: what IPv4's 16-bit total length leaves.
pub(super) const MAX_DATAGRAM: usize = 0xffff - IPV4_LEN - UDP_LEN;

/// What an IPv4 identification adds to the ICRCs of datagrams of one length.
///
/// Not for a FLUSH that is [sealed twice](super::Flow::seal_twice), nor over IPv6, where there is no
/// identification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renumbering {
    len: usize,
    /// What each bit adds, the lowest first.
    added: [u32; 16],
}

impl Renumbering {
    /// For datagrams of `len` bytes, ICRC included.
    pub fn of(len: usize) -> Self {
        let after = bytes_after(len.min(MAX_DATAGRAM));
        let mut power = multiply(ON_256[after >> 8], ON[after & 0xff]);
        let mut added = [0; 16];
        for degree in 0..added.len() {
            // The low byte comes last, and of each byte its top bit.
            added[degree ^ 7] = power;
            power = times_x(power);
        }
        Self { len, added }
    }

    /// Bytes of the datagrams.
    pub fn datagram_len(&self) -> usize {
        self.len
    }

    /// Has the ICRC of a sealed datagram hold for an identification of which these bits are others. The ICRC
    /// of a damaged datagram holds as little as before.
    ///
    /// A datagram of another length is left alone.
    pub fn apply(&self, bits: u16, datagram: &mut [u8]) {
        if datagram.len() != self.len {
            return;
        }
        let sum = |sum, (bit, added): (usize, &u32)| {
            // Masks instead of branches: the bits are as good as random.
            sum ^ added & u32::from(bits >> bit & 1).wrapping_neg()
        };
        let difference = self.added.iter().enumerate().fold(0, sum);
        if let Some(icrc) = datagram.last_chunk_mut::<ICRC_LEN>() {
            *icrc = (u32::from_le_bytes(*icrc) ^ difference).to_le_bytes();
        }
    }
}

/// The bits of the IPv4 identification that must differ for the ICRC to differ by `difference`, in
/// a packet with a datagram of `len` bytes, ICRC included; `None` when other bits must differ too.
pub(super) fn id_difference(difference: u32, len: usize) -> Option<u16> {
    if len > MAX_DATAGRAM {
        return None;
    }
    let after = bytes_after(len);
    let back = multiply(BACK_256[after >> 8], BACK[after & 0xff]);
    // The polynomial's coefficient of x^0 is the top bit, so its lowest 16 are the upper half, and
    // bytes come last first.
    match multiply(difference, back).to_be_bytes() {
        [low, high, 0, 0] => Some(u16::from_be_bytes([high, low])),
        _ => None,
    }
}

/// Bytes after the identification of a packet, ICRC included: the 32 in `x^(8n+32)` is its four bytes.
fn bytes_after(len: usize) -> usize {
    IPV4_LEN - 6 + UDP_LEN + len
}

/// The polynomial P of the CRC, without x^32; the coefficient of x^0 is the top bit.
pub(super) const POLYNOMIAL: u32 = 0xedb8_8320;

/// The polynomial 1.
pub(super) const ONE: u32 = 1 << 31;

/// The polynomial x^8.
const BYTE: u32 = ONE >> 8;

/// `x^(-8n) mod P`.
static BACK: [u32; 256] = powers(back_by_one_byte());

/// `x^(-8·256n) mod P`.
static BACK_256: [u32; 256] = powers(power_256(back_by_one_byte()));

/// `x^(8n) mod P`.
static ON: [u32; 256] = powers(BYTE);

/// `x^(8·256n) mod P`.
static ON_256: [u32; 256] = powers(power_256(BYTE));

/// `x^-8 mod P`.
pub(super) const fn back_by_one_byte() -> u32 {
    let mut power = ONE;
    let mut i = 0;
    while i < 8 {
        // Division by x. Where there is a coefficient of x^0, adding P (its x^32 becomes the x^31
        // that is shifted in) takes it away.
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

/// `a·b mod P`. The lower the degree of `a`, the sooner it is done.
pub(super) const fn multiply(mut a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    while a != 0 {
        // Masks instead of branches: the bits are as good as random.
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

    /// A byte back and a byte on is where it began: `x^-8 · x^8 = 1`.
    #[test]
    fn what_goes_back_by_bytes_is_undone_by_going_on() {
        let (back, on) = (back_by_one_byte(), BYTE);
        assert_eq!(multiply(back, on), ONE);
        let mut power = ONE;
        for (n, found) in powers(back).into_iter().enumerate() {
            assert_eq!(found, power, "x^-{}", 8 * n);
            power = multiply(power, back);
        }
    }

    #[test]
    fn what_is_renumbered_is_as_if_sealed_so() {
        for len in (4..300).chain([4124, 65_000, MAX_DATAGRAM]) {
            let mut bytes = vec![0x5a; len];
            for (from, to) in [(0, 0), (0, 1), (0, 0x8100), (0, 0xbeef), (0xffff, 2)] {
                flow().seal(to, &mut bytes);
                let wanted = bytes.clone();
                flow().seal(from, &mut bytes);
                Renumbering::of(len).apply(from ^ to, &mut bytes);
                assert_eq!(bytes, wanted, "{len} bytes from {from} to {to}");
            }
        }
    }

    #[test]
    fn what_is_damaged_stays_so_whatever_its_number() {
        let mut bytes = vec![0x5a; 84];
        flow().seal(0, &mut bytes);
        bytes[40] ^= 1;
        Renumbering::of(84).apply(0xbeef, &mut bytes);
        assert_eq!(flow().check(None, 0, &bytes), Verdict::Bad);
        Renumbering::of(84).apply(0xbeef, &mut bytes);
        bytes[40] ^= 1;
        assert_eq!(flow().check(None, 0, &bytes), Verdict::Good);
    }

    #[test]
    fn what_has_no_icrc_or_another_length_is_left_alone() {
        for (len, of) in [(0, 0), (3, 3), (84, 80)] {
            let mut bytes = vec![7; len];
            Renumbering::of(of).apply(1, &mut bytes);
            assert_eq!(bytes, vec![7; len]);
        }
        Renumbering::of(usize::MAX).apply(1, &mut [0; 84]);
    }
}
