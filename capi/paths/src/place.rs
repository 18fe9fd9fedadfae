//! Which paths are answered from the tree, and where in it.

use std::ffi::CStr;

/// The longest path that the system takes, with the zero at its end.
const PATH_MAX: usize = 4096;

/// The folders that the tree stands for.
const FOLDERS: [&str; 3] =
    ["/sys/class/infiniband", "/sys/class/infiniband_verbs", "/dev/infiniband"];

/// Whether the tree is asked, and not the system.
pub(crate) fn is_ours(path: &[u8]) -> bool {
    FOLDERS.iter().any(|folder| {
        path.strip_prefix(folder.as_bytes()).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    })
}

/// A path into the tree, kept on the stack: functions of libc are called in signal handlers too, and
/// between `fork` and `exec`.
pub(crate) struct Place([u8; PATH_MAX]);

impl Place {
    /// Where `path` is in the tree at `root`; `None` when that is too long for a path.
    pub(crate) fn new(root: &[u8], path: &[u8]) -> Option<Self> {
        let mut bytes = [0; PATH_MAX];
        let len = root.len() + path.len();
        // The last byte stays zero.
        let room = bytes.get_mut(..len).filter(|_| len < PATH_MAX)?;
        let (first, second) = room.split_at_mut(root.len());
        first.copy_from_slice(root);
        second.copy_from_slice(path);
        Some(Self(bytes))
    }

    /// The path.
    pub(crate) fn as_c_str(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.0).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_devices_are_ours_and_nothing_else() {
        for (path, expected) in [
            ("/sys/class/infiniband", true),
            ("/sys/class/infiniband/", true),
            ("/sys/class/infiniband/softroce0/ports/1/state", true),
            ("/sys/class/infiniband_verbs/uverbs0/ibdev", true),
            ("/dev/infiniband/uverbs0", true),
            ("/sys/class/infiniband_mad/umad0", false),
            ("/sys/class/net/lo", false),
            ("/dev/infinibands", false),
            ("dev/infiniband", false),
            ("/", false),
            ("", false),
        ] {
            assert_eq!(is_ours(path.as_bytes()), expected, "{path}");
        }
    }

    #[test]
    fn a_place_is_below_the_root() {
        let place = Place::new(b"/tmp/tree", b"/dev/infiniband").unwrap();
        assert_eq!(place.as_c_str(), Some(c"/tmp/tree/dev/infiniband"));
    }

    #[test]
    fn what_is_too_long_has_no_place() {
        let room = PATH_MAX - 1 - "/dev/infiniband".len();
        assert!(Place::new(&vec![b'a'; room], b"/dev/infiniband").is_some());
        assert!(Place::new(&vec![b'a'; room + 1], b"/dev/infiniband").is_none());
    }
}
