//! Names under which C finds the functions, each with the version that libibverbs gives it.
//!
//! Only the assembler can set versions. A label `name@@VERSION` jumps to the function; `build.rs` declares
//! the versions to the linker.

use std::arch::global_asm;

use crate::entry::{
    ah, channel, cq, device, events, fork, kernel, mr, pd, qp, query, rates, srq, text, unsupported,
};
use crate::{open, ucma};

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp"
    };
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! jump {
    () => {
        "b"
    };
}

/// Exports functions by name, `@@` and version; or `@` and version for names to which new programs must not
/// be linked.
macro_rules! export {
    ($($name:literal $at:literal $version:literal => $function:path,)*) => {$(
        global_asm!(
            ".pushsection .text.exports,\"ax\",@progbits",
            concat!(".globl __softroce.", $name, ".", $version),
            concat!(".type __softroce.", $name, ".", $version, ",@function"),
            concat!("__softroce.", $name, ".", $version, ":"),
            concat!(jump!(), " {function}"),
            concat!(".size __softroce.", $name, ".", $version, ", . - __softroce.", $name, ".", $version),
            concat!(".symver __softroce.", $name, ".", $version, ", ", $name, $at, $version),
            ".popsection",
            function = sym $function,
        );
    )*};
}

// Written by `build.rs`.
include!(concat!(env!("OUT_DIR"), "/exports.rs"));
