//! The CRC-32 of bytes: by `crc32fast` where the processor can multiply without carries or has instructions for it,
//! and where not by shifts and XORs alone.
//!
//! Modulo P a bit that is followed by many others may be replaced by bits further on: by those of a
//! multiple of P without its first term. Where the multiple has few terms that is little work, and it is
//! done for a word at once. This one has five, the fewest that any multiple below degree 3000 has:
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
//! What is left in the end, some words more than the multiple is long, goes through tables. Tables
//! alone take a load from memory for each byte, this takes one for each eight.
//!
//! The idea is that of Sam Russell's "Chorba: A novel CRC32 implementation" (arXiv 2412.16398).

use crc32fast::Hasher;

use crate::sys::by_itself;

/// How many bits after it a bit is replaced by others.
const LATER: [usize; 4] = [145, 183, 211, 300];

/// Words that the last of these reaches ahead.
const REACH: usize = LATER[3] / WORD_BITS + 1;

const WORD_BITS: usize = 64;
const WORD: usize = WORD_BITS / 8;

/// Bytes that are replaced in a round.
const ROUND: usize = 4 * WORD;

/// Bytes from which on shifts are faster than tables: on an emulated processor from a quarter of this on.
const WORTHWHILE: usize = 512;

/// The CRC-32 of Ethernet and zlib that goes on from `crc` over `bytes`, as fast as this processor computes it.
///
/// ```
/// use softroce::wire::icrc::crc32;
///
/// let crc = crc32(0, b"1234");
/// assert_eq!(crc32(crc, b"56789"), 0xcbf4_3926);
/// ```
// In one place, so that it has in it what finds out how the processor does so.
#[inline(never)]
pub fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    if bytes.len() >= WORTHWHILE && !has_instructions() {
        by_shifts(crc, bytes)
    } else {
        by_crc32fast(crc, bytes)
    }
}

/// Whether this processor has the instructions that `crc32fast` needs to do without tables.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn has_instructions() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("pclmulqdq") && has!("sse2") && has!("ssse3") && has!("sse4.1")
}

/// Whether this processor has the instructions that `crc32fast` needs to do without tables.
#[cfg(target_arch = "aarch64")]
fn has_instructions() -> bool {
    std::arch::is_aarch64_feature_detected!("crc")
}

/// Whether this processor has the instructions that `crc32fast` needs to do without tables.
#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
fn has_instructions() -> bool {
    false
}

/// As [`crc32`], by shifts and XORs: what that does on a processor that cannot multiply without carries.
///
/// ```
/// use softroce::wire::icrc::by_shifts;
///
/// assert_eq!(by_shifts(0, b"123456789"), 0xcbf4_3926);
/// ```
// Out of line, so that who does not need it has no more to do than to see that.
#[inline(never)]
pub fn by_shifts(crc: u32, bytes: &[u8]) -> u32 {
    let Some(replaceable) = bytes.len().checked_sub(REACH * WORD) else {
        return by_crc32fast(crc, bytes);
    };
    let (rounds, _) = bytes[..replaceable].as_chunks::<ROUND>();
    // What is to be added to the words that come next.
    let mut ahead = [0; REACH];
    ahead[0] = u64::from(!crc);
    for round in rounds {
        for word in round.as_chunks::<WORD>().0 {
            ahead = replace(u64::from_le_bytes(*word), ahead);
        }
    }
    let (next, rest) = bytes[rounds.as_flattened().len()..].split_at(REACH * WORD);
    let mut left = [0; REACH * WORD];
    let words = next.as_chunks::<WORD>().0.iter().zip(ahead);
    for (to, (word, added)) in left.as_chunks_mut::<WORD>().0.iter_mut().zip(words) {
        *to = (u64::from_le_bytes(*word) ^ added).to_le_bytes();
    }
    // All that was before has become zeros, over which nothing goes on.
    by_crc32fast(by_crc32fast(!0, &left), rest)
}

/// Replaces a word; what is to be added to it and to those behind it becomes what is to be added to those behind.
#[inline]
fn replace(word: u64, ahead: [u64; REACH]) -> [u64; REACH] {
    let [added, a, b, c, d] = ahead;
    let word = word ^ added;
    let mut ahead = [a, b, c, d, 0];
    for later in LATER {
        let (words, bits) = (later / WORD_BITS - 1, later % WORD_BITS);
        ahead[words] ^= word << bits;
        ahead[words + 1] ^= word >> (WORD_BITS - bits);
    }
    // In vectors of two words each, as the compiler would have them, it takes twice as long, and on an emulated
    // processor three times as long: one of them has to meet the other all the time.
    ahead.map(by_itself)
}

fn by_crc32fast(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::hidden::{ONE, back_by_one_byte, multiply, powers};
    use super::*;

    /// `x^-n mod P`.
    fn back(n: usize) -> u32 {
        let bytes = n.div_ceil(8);
        // Some bits too far, and on again.
        multiply(powers(back_by_one_byte())[bytes], ONE >> (8 * bytes - n))
    }

    /// What stands for a bit is worth as much as it modulo P: `x^-145 + x^-183 + x^-211 + x^-300 = 1`.
    #[test]
    fn a_bit_and_what_it_is_replaced_by_are_a_multiple_of_the_polynomial() {
        assert_eq!(multiply(back(1), ONE >> 1), ONE, "x^-1 · x = 1");
        let sum = LATER.into_iter().fold(0, |sum, later| sum ^ back(later));
        assert_eq!(sum, ONE);
        for later in LATER {
            assert_ne!(sum ^ back(later) ^ back(later + 1), ONE, "{later} counts");
        }
    }

    #[test]
    fn any_length_at_any_place_has_the_crc_that_it_has_from_tables() {
        let bytes: Vec<u8> =
            (0..4200_u32).map(|i| i.wrapping_mul(0x9e37_79b1).to_be_bytes()[2]).collect();
        for len in (0..700).chain(4090..4150) {
            for (from, crc) in
                [0, u32::MAX, 1, 0xdebb_20e3, 7, 0x8000_0000, 3, 5].into_iter().enumerate()
            {
                let bytes = &bytes[from..][..len];
                assert_eq!(
                    by_shifts(crc, bytes),
                    by_crc32fast(crc, bytes),
                    "{len} bytes at {from}"
                );
            }
        }
    }

    /// Each bit alone, so that none is replaced by others than the rest.
    #[test]
    fn each_bit_of_a_block_and_its_neighbours_counts() {
        let mut bytes = [0; 4 * REACH * WORD + 3];
        let nothing = by_shifts(0, &bytes);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] = 1 << (bit % 8);
            let found = by_shifts(0, &bytes);
            assert_eq!(found, by_crc32fast(0, &bytes), "bit {bit}");
            assert_ne!(found, nothing, "bit {bit}");
            bytes[bit / 8] = 0;
        }
    }

    proptest! {
        #[test]
        fn random_bytes_have_the_crc_that_they_have_from_tables(
            crc: u32,
            bytes in prop::collection::vec(any::<u8>(), 0..1500),
            cut in 0..1500_usize,
        ) {
            prop_assert_eq!(by_shifts(crc, &bytes), by_crc32fast(crc, &bytes));
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(by_shifts(by_shifts(crc, first), second), by_crc32fast(crc, &bytes));
        }
    }
}
