//! Memory of the program by addresses in commands, which may be any numbers: a bad address is an error.

use std::mem::MaybeUninit;
use std::{ptr, slice};

use softroce::runtime::{read_program, write_program};

use super::{Errno, Plain};

/// Returns an address of a command as a pointer has it.
fn address(number: u64) -> Result<usize, Errno> {
    usize::try_from(number).map_err(|_| Errno::FAULT)
}

/// Reads the first `len` bytes of a value. The others are zero.
///
/// # Errors
///
/// `EFAULT` for a bad address.
pub(crate) fn read_prefix<T: Plain>(from: u64, len: usize) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::zeroed();
    let len = len.min(size_of::<T>());
    // SAFETY: `len` bytes are within the value, and they are zeros.
    let bytes = unsafe { slice::from_raw_parts_mut(value.as_mut_ptr().cast(), len) };
    // SAFETY: the program has given the address to be read.
    unsafe { read_program(address(from)?, bytes) }.map_err(|_| Errno::FAULT)?;
    // SAFETY: initialized by zeros and by bytes of the program, of which every pattern is a value.
    Ok(unsafe { value.assume_init() })
}

/// Reads a value.
///
/// # Errors
///
/// `EFAULT` for a bad address.
pub(crate) fn read<T: Plain>(address: u64) -> Result<T, Errno> {
    read_prefix(address, size_of::<T>())
}

/// Stores the first `len` bytes of a value, all of which are initialized: its type has no padding without a name.
///
/// # Errors
///
/// `EFAULT` for a bad address.
pub(crate) fn write_prefix<T: Plain>(to: u64, value: &T, len: usize) -> Result<(), Errno> {
    let len = len.min(size_of::<T>());
    // SAFETY: `len` bytes are within the value, and all are initialized.
    let bytes = unsafe { slice::from_raw_parts(ptr::from_ref(value).cast(), len) };
    // SAFETY: the program has given the address for an answer, so no reference to it is in use.
    unsafe { write_program(address(to)?, bytes) }.map_err(|_| Errno::FAULT)
}

/// Stores a value.
///
/// # Errors
///
/// `EFAULT` for a bad address.
pub(crate) fn write<T: Plain>(address: u64, value: &T) -> Result<(), Errno> {
    write_prefix(address, value, size_of::<T>())
}
