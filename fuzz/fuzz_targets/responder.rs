//! Arbitrary packets to a responder.

#![no_main]

use libfuzzer_sys::fuzz_target;
use softroce_fuzz::side::{Role, play};

fuzz_target!(|input: &[u8]| play(Role::Responder, input));
