//! Users at both ends of a Unix socket.
//!
//! In a user namespace the kernel reports every user without a number there as the overflow uid. Two users with that
//! uid may be different.

use std::fs;

/// Overflow uid of kernels with the default configuration.
const DEFAULT_OVERFLOW_UID: u32 = 65_534;

/// Returns whether the reported user of a peer is certainly `own`, the user of this process.
pub(crate) fn is_same(own: u32, peer: u32) -> bool {
    own == peer && is_certain(own, overflow_uid(), || fs::read_to_string("/proc/self/uid_map").ok())
}

/// Returns whether only one user can have the number `uid`: it is not the overflow uid, or the namespace, with the map
/// that `read_map` returns, maps all users.
fn is_certain(uid: u32, overflow_uid: u32, read_map: impl FnOnce() -> Option<String>) -> bool {
    uid != overflow_uid || read_map().is_some_and(|map| maps_all_users(&map))
}

fn overflow_uid() -> u32 {
    let told = fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    told.and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT_OVERFLOW_UID)
}

/// Returns whether a uid map (`user_namespaces(7)`) maps all numbers, as that of the initial namespace.
fn maps_all_users(map: &str) -> bool {
    let mut lines = map.lines();
    let first = lines.next().unwrap_or_default().split_ascii_whitespace();
    // The last number belongs to no user.
    lines.next().is_none() && first.eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    const INITIAL: &str = "         0          0 4294967295\n";

    #[test]
    fn overflow_uid_is_ambiguous_if_the_namespace_maps_not_all_users() {
        let certain = |uid, map: &str| is_certain(uid, 65_534, || Some(map.to_owned()));
        for map in [INITIAL, "", "0 1000 1\n", "0 100000 65536\n"] {
            assert!(certain(0, map) && certain(1000, map), "{map:?}");
        }
        assert!(certain(65_534, INITIAL));
        for map in ["", "0 1000 1\n", "0 100000 65536\n", "0 0 65536\n", "0 0 1\n1 1 4294967294\n"]
        {
            assert!(!certain(65_534, map), "{map:?}");
        }
        assert!(!is_certain(65_534, 65_534, || None), "the map cannot be read");
    }

    #[test]
    fn users_with_different_numbers_are_different() {
        assert!(is_same(1000, 1000));
        assert!(!is_same(1000, 1001));
        assert!(!is_same(0, overflow_uid()));
    }
}
