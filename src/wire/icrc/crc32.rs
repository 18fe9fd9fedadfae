//! CRC-32, computed by `crc32fast` on processors with carry-less multiplication or CRC instructions, and otherwise by
//! shifts and XORs.
//!
//! Modulo the polynomial P, a bit that many others follow can be replaced by later bits: those of a multiple of P
//! without its first term. With a multiple of few terms this takes little work, and one step handles a whole word.
//! This multiple has five terms, the minimum below degree 3000:
//!
//! ```text
//!   x^300 = x^155 + x^117 + x^89 + 1   (mod P), for each bit of a word n:
//!
//!   n       n+1     n+2     n+3     n+4     n+5
//!   ▒▒▒▒▒▒▒▒
//!                     ▒▒▒▒▒▒▒▒                        145 bits later
//!                          ▒▒▒▒▒▒▒▒                   183 bits later
//!                             ▒▒▒▒▒▒▒▒                211 bits later
//!                                         ▒▒▒▒▒▒▒▒    300 bits later
//! ```
//!
//! Tables process the last words, which are some more than the degree of the multiple. Tables need a load per byte;
//! this method needs one per eight bytes.
//!
//! The method is from Sam Russell, "Chorba: A novel CRC32 implementation" (arXiv 2412.16398).

use crc32fast::Hasher;

use crate::sys::opaque_word;

/// Distances in bits from a bit to those that replace it.
const REPLACEMENT_OFFSETS: [usize; 4] = [145, 183, 211, 300];

/// Number of following words that a replacement changes.
const WORDS_AHEAD: usize = REPLACEMENT_OFFSETS[3] / WORD_BITS + 1;

const WORD_BITS: usize = 64;
const WORD_BYTES: usize = WORD_BITS / 8;

/// Number of bytes replaced per iteration.
const ROUND_BYTES: usize = 4 * WORD_BYTES;

/// Minimum length in bytes for which shifts are faster than tables. On an emulated processor a quarter of it is
/// sufficient.
const MIN_BYTES_FOR_SHIFTS: usize = 512;

/// Continues the CRC-32 of Ethernet and zlib from `crc` over `bytes`, with the fastest method of this processor.
///
/// ```
/// use softroce::wire::icrc::crc32;
///
/// let crc = crc32(0, b"1234");
/// assert_eq!(crc32(crc, b"56789"), 0xcbf4_3926);
/// ```
// Not inlined, so the detection of processor features exists once.
#[inline(never)]
pub fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    if bytes.len() >= MIN_BYTES_FOR_SHIFTS && !has_instructions() {
        crc32_by_shifts(crc, bytes)
    } else {
        by_crc32fast(crc, bytes)
    }
}

/// Returns whether this processor has the instructions with which `crc32fast` needs no tables.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn has_instructions() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("pclmulqdq") && has!("sse2") && has!("ssse3") && has!("sse4.1")
}

/// Returns whether this processor has the instructions with which `crc32fast` needs no tables.
#[cfg(target_arch = "aarch64")]
fn has_instructions() -> bool {
    std::arch::is_aarch64_feature_detected!("crc")
}

/// Returns whether this processor has the instructions with which `crc32fast` needs no tables.
#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
fn has_instructions() -> bool {
    false
}

/// Computes [`crc32`] by shifts and XORs, as on processors without carry-less multiplication.
///
/// ```
/// use softroce::wire::icrc::crc32_by_shifts;
///
/// assert_eq!(crc32_by_shifts(0, b"123456789"), 0xcbf4_3926);
/// ```
// Not inlined, so other processors execute only the check.
#[inline(never)]
pub fn crc32_by_shifts(crc: u32, bytes: &[u8]) -> u32 {
    let Some(replaceable) = bytes.len().checked_sub(WORDS_AHEAD * WORD_BYTES) else {
        return by_crc32fast(crc, bytes);
    };
    let (rounds, _) = bytes[..replaceable].as_chunks::<ROUND_BYTES>();
    // Values to add to the next words.
    let mut ahead = [0; WORDS_AHEAD];
    ahead[0] = u64::from(!crc);
    for round in rounds {
        for word in round.as_chunks::<WORD_BYTES>().0 {
            ahead = replace(u64::from_le_bytes(*word), ahead);
        }
    }
    let (next, rest) = bytes[rounds.as_flattened().len()..].split_at(WORDS_AHEAD * WORD_BYTES);
    let mut left = [0; WORDS_AHEAD * WORD_BYTES];
    let words = next.as_chunks::<WORD_BYTES>().0.iter().zip(ahead);
    for (to, (word, added)) in left.as_chunks_mut::<WORD_BYTES>().0.iter_mut().zip(words) {
        *to = (u64::from_le_bytes(*word) ^ added).to_le_bytes();
    }
    // All earlier bytes are now zeros, which do not change a CRC of zero.
    by_crc32fast(by_crc32fast(!0, &left), rest)
}

/// Replaces a word. `ahead` contains the values to add to it and to the words after it.
#[inline]
fn replace(word: u64, ahead: [u64; WORDS_AHEAD]) -> [u64; WORDS_AHEAD] {
    let [added, a, b, c, d] = ahead;
    let word = word ^ added;
    let mut ahead = [a, b, c, d, 0];
    for later in REPLACEMENT_OFFSETS {
        let (words, bits) = (later / WORD_BITS - 1, later % WORD_BITS);
        ahead[words] ^= word << bits;
        ahead[words + 1] ^= word >> (WORD_BITS - bits);
    }
    // Without `opaque_word`, the compiler uses vectors of two words, which takes twice as long, and on an emulated
    // processor three times, because of their dependencies.
    ahead.map(opaque_word)
}

fn by_crc32fast(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::ip_id::{ONE, back_by_one_byte, multiply, powers};
    use super::*;

    /// `x^-n mod P`.
    fn back(n: usize) -> u32 {
        let bytes = n.div_ceil(8);
        // Some bits too far back, and then forward.
        multiply(powers(back_by_one_byte())[bytes], ONE >> (8 * bytes - n))
    }

    /// The replacement bits equal the bit modulo P: `x^-145 + x^-183 + x^-211 + x^-300 = 1`.
    #[test]
    fn replacement_bits_are_a_multiple_of_the_polynomial() {
        assert_eq!(multiply(back(1), ONE >> 1), ONE, "x^-1 · x = 1");
        let sum = REPLACEMENT_OFFSETS.into_iter().fold(0, |sum, later| sum ^ back(later));
        assert_eq!(sum, ONE);
        for later in REPLACEMENT_OFFSETS {
            assert_ne!(sum ^ back(later) ^ back(later + 1), ONE, "{later} counts");
        }
    }

    #[test]
    fn crc_by_shifts_equals_crc_by_tables_at_any_length_and_offset() {
        let bytes: Vec<u8> =
            (0..4200_u32).map(|i| i.wrapping_mul(0x9e37_79b1).to_be_bytes()[2]).collect();
        for len in (0..700).chain(4090..4150) {
            for (from, crc) in
                [0, u32::MAX, 1, 0xdebb_20e3, 7, 0x8000_0000, 3, 5].into_iter().enumerate()
            {
                let bytes = &bytes[from..][..len];
                assert_eq!(
                    crc32_by_shifts(crc, bytes),
                    by_crc32fast(crc, bytes),
                    "{len} bytes at {from}"
                );
            }
        }
    }

    /// Tests each bit alone, so that none has a wrong replacement.
    #[test]
    fn each_bit_of_a_block_changes_the_crc() {
        let mut bytes = [0; 4 * WORDS_AHEAD * WORD_BYTES + 3];
        let nothing = crc32_by_shifts(0, &bytes);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] = 1 << (bit % 8);
            let found = crc32_by_shifts(0, &bytes);
            assert_eq!(found, by_crc32fast(0, &bytes), "bit {bit}");
            assert_ne!(found, nothing, "bit {bit}");
            bytes[bit / 8] = 0;
        }
    }

    proptest! {
        #[test]
        fn random_bytes_have_the_same_crc_by_shifts_and_tables(
            crc: u32,
            bytes in prop::collection::vec(any::<u8>(), 0..1500),
            cut in 0..1500_usize,
        ) {
            prop_assert_eq!(crc32_by_shifts(crc, &bytes), by_crc32fast(crc, &bytes));
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(crc32_by_shifts(crc32_by_shifts(crc, first), second), by_crc32fast(crc, &bytes));
        }
    }
}
