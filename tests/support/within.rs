//! Waiting for what must come: a test that waits in vain fails, and says for what.

use std::thread;
use std::time::Duration;

use softroce::runtime::now;

/// Longer than anything takes that is waited for, on a machine with other things to do.
const LIMIT: Duration = Duration::from_secs(60);

/// Looks again and again until it finds something.
#[track_caller]
pub(crate) fn found<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(now() - start < LIMIT, "waited {LIMIT:?} in vain for {what}");
        thread::yield_now();
    }
}

/// Looks again and again until it is so.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    found(what, || is_so().then_some(()));
}
