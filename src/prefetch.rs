//! A hint to the processor: what will be needed soon.

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
