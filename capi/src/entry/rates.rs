//! `ibv_rate`: data rates of InfiniBand links. RoCE does not use them; programs print them.

use std::ffi::{c_int, c_uint};

/// A rate: its number, its multiple of 2.5 Gb/s, and Mb/s.
struct Rate {
    number: c_uint,
    multiple: c_int,
    mbps: c_int,
}

const fn rate(number: c_uint, multiple: c_int, mbps: c_int) -> Rate {
    Rate { number, multiple, mbps }
}

/// The multiple of rates that are no multiple of 2.5 Gb/s.
const NONE: c_int = -1;

const RATES: [Rate; 23] = [
    rate(2, 1, 2_500),
    rate(5, 2, 5_000),
    rate(3, 4, 10_000),
    rate(6, 8, 20_000),
    rate(4, 12, 30_000),
    rate(7, 16, 40_000),
    rate(8, 24, 60_000),
    rate(9, 32, 80_000),
    rate(10, 48, 120_000),
    rate(11, NONE, 14_062),
    rate(12, NONE, 56_250),
    rate(13, NONE, 112_500),
    rate(14, NONE, 168_750),
    rate(15, NONE, 25_781),
    rate(16, NONE, 103_125),
    rate(17, NONE, 206_250),
    rate(18, NONE, 309_375),
    rate(19, 11, 28_125),
    rate(20, 20, 53_125),
    rate(21, 160, 425_000),
    rate(22, 240, 637_500),
    rate(23, 320, 850_000),
    rate(24, 480, 1_275_000),
];

/// `IBV_RATE_MAX`.
const MAX: c_uint = 0;

pub(crate) extern "C" fn rate_to_mult(number: c_uint) -> c_int {
    RATES.iter().find(|rate| rate.number == number).map_or(NONE, |rate| rate.multiple)
}

pub(crate) extern "C" fn mult_to_rate(multiple: c_int) -> c_uint {
    let found = RATES.iter().find(|rate| rate.multiple == multiple && multiple != NONE);
    found.map_or(MAX, |rate| rate.number)
}

pub(crate) extern "C" fn rate_to_mbps(number: c_uint) -> c_int {
    RATES.iter().find(|rate| rate.number == number).map_or(NONE, |rate| rate.mbps)
}

pub(crate) extern "C" fn mbps_to_rate(mbps: c_int) -> c_uint {
    RATES.iter().find(|rate| rate.mbps == mbps).map_or(MAX, |rate| rate.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_is_found_by_each_of_its_numbers() {
        for Rate { number, multiple, mbps } in RATES {
            assert_eq!((rate_to_mbps(number), mbps_to_rate(mbps)), (mbps, number));
            assert_eq!(rate_to_mult(number), multiple);
            assert_eq!(mult_to_rate(multiple), if multiple == NONE { MAX } else { number });
        }
        assert_eq!((rate_to_mult(1), rate_to_mbps(MAX), mbps_to_rate(1)), (NONE, NONE, MAX));
    }
}
