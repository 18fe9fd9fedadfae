//! Memory of the program by addresses in commands, which may be any numbers: the kernel copies, and a bad address is an
//! error.

use std::mem::MaybeUninit;
use std::ptr;

use nix::libc::{self, c_void, iovec};

use super::{Errno, Plain};

/// Direction of a copy.
#[derive(Clone, Copy)]
enum Copy {
    FromProgram,
    ToProgram,
}

/// Copies between `ours` and `address`, and fails unless all bytes are there.
///
/// # Safety
///
/// `ours` has `len` bytes, which are initialized if they are copied to the program.
unsafe fn copy(direction: Copy, ours: *mut c_void, address: u64, len: usize) -> Result<(), Errno> {
    if len == 0 {
        return Ok(());
    }
    let address = usize::try_from(address).map_err(|_| Errno::FAULT)?;
    let local = iovec { iov_base: ours, iov_len: len };
    let remote = iovec { iov_base: ptr::without_provenance_mut(address), iov_len: len };
    // SAFETY: the call takes nothing, and cannot fail.
    let process = unsafe { libc::getpid() };
    let copied = match direction {
        // SAFETY: the caller promises `len` bytes of ours; the kernel checks the address of the program.
        Copy::FromProgram => unsafe { libc::process_vm_readv(process, &local, 1, &remote, 1, 0) },
        // SAFETY: as above. The program has given the address for an answer, so no reference to it is in use.
        Copy::ToProgram => unsafe { libc::process_vm_writev(process, &local, 1, &remote, 1, 0) },
    };
    if usize::try_from(copied) == Ok(len) { Ok(()) } else { Err(Errno::FAULT) }
}

/// Reads the first `len` bytes of a value. The others are zero.
///
/// # Errors
///
/// `EFAULT` for a bad address.
pub(crate) fn read_prefix<T: Plain>(address: u64, len: usize) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::zeroed();
    let len = len.min(size_of::<T>());
    // SAFETY: `len` bytes are within the value.
    unsafe { copy(Copy::FromProgram, value.as_mut_ptr().cast(), address, len) }?;
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
pub(crate) fn write_prefix<T: Plain>(address: u64, value: &T, len: usize) -> Result<(), Errno> {
    let len = len.min(size_of::<T>());
    let from = ptr::from_ref(value).cast_mut().cast();
    // SAFETY: `len` bytes are within the value, and the kernel only reads them.
    unsafe { copy(Copy::ToProgram, from, address, len) }
}

/// Stores a value.
///
/// # Errors
///
/// `EFAULT` for a bad address.
pub(crate) fn write<T: Plain>(address: u64, value: &T) -> Result<(), Errno> {
    write_prefix(address, value, size_of::<T>())
}
