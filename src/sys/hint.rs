//! Hints to the processor and to the compiler. Without them everything is as it is, but slower.

/// Asks for all that a value occupies to be brought into the cache at once. To use one field after the other
/// would wait for each, where there are more values than a cache holds. Does nothing on processors of another
/// architecture.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = std::ptr::from_ref(value).cast::<i8>();
        for at in (0..size_of::<T>()).step_by(64) {
            // SAFETY: a hint, to which any address may be given.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(at)) };
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

/// The same word, of which the compiler knows nothing: it stays in a register of its own, and is not made part of
/// a vector together with others.
#[inline]
#[must_use]
pub(crate) fn by_itself(word: u64) -> u64 {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    {
        let mut word = word;
        // SAFETY: no instruction, which reads and writes nothing.
        unsafe {
            std::arch::asm!("/* {0} */", inout(reg) word, options(pure, nomem, nostack, preserves_flags));
        }
        word
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    word
}
