//! Verbs on two hosts, what befalls the packets between them, and packets of strangers.

#![no_main]

use libfuzzer_sys::fuzz_target;
use softroce_fuzz::hosts::play;

fuzz_target!(|input: &[u8]| play(input));
