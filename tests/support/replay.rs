//! One seed again, as the environment says.

use std::env;
use std::fmt::Debug;
use std::str::FromStr;

/// The number in a variable, in hexadecimal after `0x`; `other` when it is not set.
#[track_caller]
pub fn seed(other: u64) -> u64 {
    env::var("SEED").map_or(other, |text| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
        None => text.parse().unwrap(),
    })
}

/// The value of a variable; `other` when it is not set.
#[track_caller]
pub fn value<T: FromStr<Err: Debug>>(name: &str, other: T) -> T {
    env::var(name).map_or(other, |text| text.parse().unwrap())
}
