//! Verbs on two hosts, network faults between them, and foreign packets.

#![no_main]

use libfuzzer_sys::fuzz_target;
use softroce_fuzz::hosts::play;

fuzz_target!(|input: &[u8]| play(input));
