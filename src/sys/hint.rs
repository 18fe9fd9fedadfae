//! Hints to the processor and the compiler, which affect only the speed.

/// Prefetches all cache lines of a value at once. With more values than the cache holds, each field would otherwise be
/// waited for one after the other. Does nothing on other architectures.
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

/// Returns the same word, hidden from the compiler: it stays in a register of its own, and is not combined with others
/// into a vector.
#[inline]
#[must_use]
pub(crate) fn opaque_word(word: u64) -> u64 {
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
