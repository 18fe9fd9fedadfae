//! Waiting for expected events: after a limit the test fails, with the name of the event.

use std::thread;
use std::time::Duration;

use softroce::runtime::now;

/// Time limit, sufficient on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Polls until `look` returns a value.
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

/// Polls until `is_so` returns true.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    found(what, || is_so().then_some(()));
}
