//! Paths that lead into the tree.

use std::ffi::CStr;

/// Maximum length of a path, with the zero at its end.
const PATH_MAX: usize = 4096;

/// Directories that the tree replaces.
const FOLDERS: [&str; 4] = [
    "/sys/class/infiniband",
    "/sys/class/infiniband_verbs",
    "/sys/class/misc/rdma_cm",
    "/dev/infiniband",
];

/// The character device of the connection manager.
const RDMA_CM: &str = "/dev/infiniband/rdma_cm";

/// Returns whether the tree replaces the path.
pub(crate) fn is_in_folders(path: &[u8]) -> bool {
    FOLDERS.iter().any(|folder| {
        path.strip_prefix(folder.as_bytes()).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    })
}

/// Directories of the system that are no symbolic links, so that `..` leads from each to the one above.
const DIRECTORIES: [&str; 8] = [
    "/sys",
    "/sys/class",
    "/sys/class/infiniband",
    "/sys/class/infiniband_verbs",
    "/sys/class/misc",
    "/sys/class/misc/rdma_cm",
    "/dev",
    "/dev/infiniband",
];

/// Returns whether a path may lead to one of [`FOLDERS`], or away from it, by `.`, `..` or empty components.
fn is_indirect(path: &[u8]) -> bool {
    path.first() == Some(&b'/')
        && path.windows(2).any(|pair| matches!(pair, b"/." | b"//"))
        && [&b"infiniband"[..], b"rdma_cm"]
            .iter()
            .any(|name| path.windows(name.len()).any(|part| part == *name))
}

/// A path on the stack: functions of libc are called in signal handlers too, and between `fork` and `exec`.
pub(crate) struct TreePath {
    bytes: [u8; PATH_MAX],
    /// Start of the path.
    start: usize,
}

impl TreePath {
    /// Returns the target of `path`: in the tree at `root`, or outside of it by `..`. `None` if the path stays as it
    /// is, or is too long.
    pub(crate) fn of(root: &[u8], path: &[u8]) -> Option<Self> {
        match (is_indirect(path), is_in_folders(path)) {
            (true, _) => Self::resolve(root, path),
            (false, true) => Self::join(root, path),
            (false, false) => None,
        }
    }

    fn join(root: &[u8], path: &[u8]) -> Option<Self> {
        let mut tree_path = Self { bytes: [0; PATH_MAX], start: 0 };
        let mut end = 0;
        tree_path.append(&mut end, root)?;
        tree_path.append(&mut end, path)?;
        Some(tree_path)
    }

    /// Resolves `.`, `..` and empty components, as long as no component before `..` can be a symbolic link.
    fn resolve(root: &[u8], path: &[u8]) -> Option<Self> {
        let mut tree_path = Self { bytes: [0; PATH_MAX], start: 0 };
        let mut end = 0;
        tree_path.append(&mut end, root)?;
        let mut was_ours = false;
        for part in path.split(|byte| *byte == b'/') {
            let before = tree_path.bytes.get(root.len()..end)?;
            let ours = is_in_folders(before);
            was_ours |= ours;
            match part {
                b"" | b"." => {}
                b".." if DIRECTORIES.iter().any(|plain| plain.as_bytes() == before) => {
                    end = root.len() + before.iter().rposition(|byte| *byte == b'/')?;
                }
                // A component before it may be a symbolic link. Below the directories, the kernel resolves it in the
                // tree.
                b".." if !ours => return None,
                _ => {
                    tree_path.append(&mut end, b"/")?;
                    tree_path.append(&mut end, part)?;
                }
            }
        }
        let ours = is_in_folders(tree_path.bytes.get(root.len()..end)?);
        if path.last() == Some(&b'/') {
            tree_path.append(&mut end, b"/")?;
        }
        *tree_path.bytes.get_mut(end)? = 0;
        tree_path.start = if ours { 0 } else { root.len() };
        (ours || was_ours).then_some(tree_path)
    }

    /// Appends `part` at `end`. The last byte of the buffer stays zero.
    fn append(&mut self, end: &mut usize, part: &[u8]) -> Option<()> {
        let len = *end + part.len();
        let room = self.bytes.get_mut(*end..len).filter(|_| len < PATH_MAX)?;
        room.copy_from_slice(part);
        *end = len;
        Some(())
    }

    /// Returns whether it is the character device of the connection manager.
    pub(crate) fn is_rdma_cm(&self) -> bool {
        self.start == 0
            && self.as_c_str().is_some_and(|path| path.to_bytes().ends_with(RDMA_CM.as_bytes()))
    }

    /// Returns the path.
    pub(crate) fn as_c_str(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(self.bytes.get(self.start..)?).ok()
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
            ("/sys/class/misc/rdma_cm/abi_version", true),
            ("/sys/class/misc/hpet", false),
            ("/sys/class/infiniband_mad/umad0", false),
            ("/sys/class/net/lo", false),
            ("/dev/infinibands", false),
            ("dev/infiniband", false),
            ("/", false),
            ("", false),
        ] {
            assert_eq!(is_in_folders(path.as_bytes()), expected, "{path}");
        }
    }

    fn tree_path(path: &str) -> Option<String> {
        let tree_path = TreePath::of(b"/tmp/tree", path.as_bytes())?;
        Some(tree_path.as_c_str().unwrap().to_str().unwrap().to_owned())
    }

    #[test]
    fn replaced_path_is_below_the_root() {
        assert_eq!(tree_path("/dev/infiniband").unwrap(), "/tmp/tree/dev/infiniband");
        assert_eq!(tree_path("/sys/class/net/lo"), None);
    }

    #[test]
    fn only_one_path_is_the_connection_manager() {
        let is_rdma_cm =
            |path: &str| TreePath::of(b"/tmp/tree", path.as_bytes()).unwrap().is_rdma_cm();
        assert!(is_rdma_cm("/dev/infiniband/rdma_cm") && is_rdma_cm("/dev//infiniband/./rdma_cm"));
        assert!(!is_rdma_cm("/dev/infiniband/rdma_cm2") && !is_rdma_cm("/sys/class/misc/rdma_cm"));
    }

    #[test]
    fn dots_lead_into_the_tree_and_out_of_it() {
        for (path, expected) in [
            ("/sys/class/../class/infiniband/a", Some("/tmp/tree/sys/class/infiniband/a")),
            ("//sys/./class//infiniband/", Some("/tmp/tree/sys/class/infiniband/")),
            ("/dev/../sys/class/infiniband", Some("/tmp/tree/sys/class/infiniband")),
            ("/dev/infiniband/../infiniband/a", Some("/tmp/tree/dev/infiniband/a")),
            ("/sys/class/infiniband/../net/lo", Some("/sys/class/net/lo")),
            ("/sys/class/infiniband/..", Some("/sys/class")),
            // The kernel resolves paths that stay in the tree.
            ("/sys/class/infiniband/a/../b", Some("/tmp/tree/sys/class/infiniband/a/../b")),
            // A component may be a symbolic link.
            ("/sys/class/net/lo/../../infiniband", None),
            ("/tmp/../sys/class/infiniband", None),
            ("/sys/class/net/../net/lo", None),
            ("/../infiniband", None),
        ] {
            assert_eq!(tree_path(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn too_long_path_is_not_replaced() {
        for path in ["/dev/infiniband", "/dev/../dev/infiniband"] {
            let room = PATH_MAX - 1 - "/dev/infiniband".len();
            assert!(TreePath::of(&vec![b'a'; room], path.as_bytes()).is_some());
            assert!(TreePath::of(&vec![b'a'; room + 1], path.as_bytes()).is_none());
        }
    }
}
