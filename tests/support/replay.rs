//! Replay of a seed from the environment.

use std::env;
use std::fmt::Debug;
use std::str::FromStr;

/// Returns the number in a variable, hexadecimal with `0x`, or `other` when it is not set.
#[track_caller]
pub fn seed(other: u64) -> u64 {
    env::var("SEED").map_or(other, |text| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
        None => text.parse().unwrap(),
    })
}

/// Returns the value of a variable, or `other` when it is not set.
#[track_caller]
pub fn value<T: FromStr<Err: Debug>>(name: &str, other: T) -> T {
    env::var(name).map_or(other, |text| text.parse().unwrap())
}
