//! Random numbers of the system.

use std::io;

/// Returns random bytes of the system, fit for keys.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::other(error),
    })?;
    Ok(bytes)
}
