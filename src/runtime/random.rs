//! Random numbers of the system.

use std::io;
use std::sync::PoisonError;

use crate::sync::Mutex;
use crate::sys::PerProcess;

/// Number of words that one system call reads.
const WORDS: usize = 64;

/// Random words that are not taken yet. A child of `fork` has none.
static POOL: PerProcess<Mutex<Vec<u32>>> = PerProcess::new(|_| Mutex::default());

/// Returns a random number of the system for one connection, such as a PSN. Each is returned once; a system call reads
/// many.
pub(crate) fn random_word() -> io::Result<u32> {
    let mut pool = POOL.get().lock().unwrap_or_else(PoisonError::into_inner);
    if pool.is_empty() {
        let bytes: [u8; WORDS * size_of::<u32>()] = random()?;
        pool.extend(bytes.as_chunks().0.iter().copied().map(u32::from_ne_bytes));
    }
    Ok(pool.pop().unwrap_or_default())
}

/// Returns random bytes of the system, fit for keys.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::other(error),
    })?;
    Ok(bytes)
}
