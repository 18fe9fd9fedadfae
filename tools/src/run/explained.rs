//! `roce run --explain`: after a program that has failed, a paragraph on the first refused call or failed completion.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use tempfile::NamedTempFile;

/// A cause of failures that a report of the library shows.
struct Cause {
    /// Words in the report of the library.
    words: &'static str,
    why: &'static str,
    remedy: &'static str,
}

/// The causes, most special first. docs/guides/troubleshooting.md has the same table.
const CAUSES: [Cause; 16] = [
    Cause {
        words: "is_global is 0",
        why: "The program uses no GID, and an address on Ethernet is a GID.",
        remedy: "Give it a GID index: `-g 0` (ibverbs-utils), `-x 0` (perftest), `NCCL_IB_GID_INDEX=0`, `UCX_IB_GID_INDEX=0`.",
    },
    Cause {
        words: "is not in the GID table",
        why: "The GID index of the program is larger than the table.",
        remedy: "Use an index that `roce devinfo` lists; 0 to 3 always exist.",
    },
    Cause {
        words: "not of one IP version",
        why: "One side uses an IPv4 address and the other an IPv6 address.",
        remedy: "Choose GID indices of one IP version, or start both sides with `--ip` and one address each.",
    },
    Cause {
        words: "the device has port 1",
        why: "The program uses a port number other than 1.",
        remedy: "Choose port 1 (`-i 1` with ibverbs-utils and perftest), or leave the default.",
    },
    Cause {
        words: "is held by",
        why: "Another process has the address of the device.",
        remedy: "Omit `--ip`, choose another address, or end that process; `rdma link delete rxe0` frees the port that kernel rxe holds.",
    },
    Cause {
        words: "is not an address of this machine",
        why: "No interface has the address of the device.",
        remedy: "Choose an address that `ip -br addr` lists.",
    },
    Cause {
        words: "CAP_NET_",
        why: "The port of the device needs a privilege.",
        remedy: "Use UDP sockets, which need none: omit `--via`.",
    },
    Cause {
        words: "has forked this one",
        why: "The program opened the device, forked, and uses it in the child process. A device belongs to one process.",
        remedy: "Open the device after the fork, as a daemon does after it has gone to the background.",
    },
    Cause {
        words: "has been destroyed",
        why: "The program uses an object after it has destroyed it.",
        remedy: "It is a mistake of the program: look at the order in which it ends.",
    },
    Cause {
        words: "EBUSY",
        why: "The program destroys an object that others still use.",
        remedy: "Destroy queue pairs before completion queues, and both before protection domains.",
    },
    Cause {
        words: "EFAULT",
        why: "The program registers memory that it may not access as it asks.",
        remedy: "Look at the address, the length and the access flags of the call.",
    },
    Cause {
        words: "RNR_RETRY_EXC_ERR",
        why: "The peer has posted no receive request.",
        remedy: "Post receive requests before the connection is made, or let the peer post more.",
    },
    Cause {
        words: "RETRY_EXC_ERR",
        why: "The peer does not acknowledge: a firewall, a path MTU, or the end of the peer.",
        remedy: "`roce doctor HOST` examines the path; UDP port 4791 must be open in both directions. Look at the last message of the peer.",
    },
    Cause {
        words: "REM_ACCESS_ERR",
        why: "The rkey, the address range or the access flags of the peer's region do not allow the operation.",
        remedy: "`SOFTROCE_LOG=debug` on the side of the peer names the reason.",
    },
    Cause {
        words: "REM_INV_REQ_ERR",
        why: "The peer rejects the request: its receive buffer is too short, or both sides use different MTUs.",
        remedy: "Give both sides the same message size and MTU (`-s`, `-m`).",
    },
    Cause {
        words: "LOC_",
        why: "The request does not fit the memory of this side: a wrong lkey, range or access flag, or a receive buffer that is too short.",
        remedy: "Compare the scatter/gather elements of the request with the registered regions.",
    },
];

/// The file in which programs report.
pub(super) struct Reports(NamedTempFile);

impl Reports {
    /// Creates the file, and lets the program report there.
    pub(super) fn of(command: &mut Command) -> anyhow::Result<Self> {
        let file = tempfile::Builder::new().prefix("roce-explain-").tempfile()?;
        command.env("SOFTROCE_EXPLAIN", file.path());
        Ok(Self(file))
    }

    /// Returns the explanation after the program has failed.
    pub(super) fn explanation(&self) -> String {
        let reports = fs::read(self.0.path()).unwrap_or_default();
        explanation(&String::from_utf8_lossy(&reports))
    }
}

/// Returns the explanation for the reports of the processes of the program.
fn explanation(reports: &str) -> String {
    let first = |kind: &str| reports.lines().find_map(|line| line.strip_prefix(kind));
    let (refused, completed) = (first("refused "), first("completed "));
    let mut text = match (refused, completed) {
        (Some(call), _) => format!("the program has failed, and the first refused call is {call}."),
        (None, Some(completion)) => {
            format!("the program has failed, and the first failed completion is {completion}.")
        }
        (None, None) if first("opened ").is_some() => {
            return "the program has failed, but no call was refused and no completion had an error: the cause is \
                    not in softroce's libibverbs. SOFTROCE_LOG=info prints answers to questions for features, too."
                .to_owned();
        }
        (None, None) => {
            return "the program has failed without opening the device. Perhaps it did not load softroce's libibverbs \
                    (statically linked, set-user-ID, or with file capabilities), or a script between resets the \
                    environment. docs/guides/troubleshooting.md has more."
                .to_owned();
        }
    };
    let report = refused.or(completed).unwrap_or_default();
    if let Some(cause) = CAUSES.iter().find(|cause| report.contains(cause.words)) {
        let _ = write!(text, " {} {}", cause.why, cause.remedy);
    }
    if let (Some(_), Some(completion)) = (refused, completed) {
        let _ = write!(text, " Later a completion failed: {completion}.");
    }
    text.push_str(" docs/guides/troubleshooting.md has more.");
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn page_on_troubleshooting_has_every_cause() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides/troubleshooting.md");
        let page = fs::read_to_string(page).unwrap();
        let row =
            |cause: &Cause| format!("| `{}` | {} | {} |", cause.words, cause.why, cause.remedy);
        let expected: Vec<_> = CAUSES.iter().map(row).collect();
        let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(rows, expected, "expected rows:\n{}\n", expected.join("\n"));
    }

    #[test]
    fn first_refused_call_is_explained() {
        let text = explanation(
            "opened softroce0\nrefused ibv_create_ah EINVAL: no GID (is_global is 0)\n\
             refused ibv_dealloc_pd EBUSY: in use\n",
        );
        assert_eq!(
            text,
            "the program has failed, and the first refused call is ibv_create_ah EINVAL: no GID (is_global is 0). \
             The program uses no GID, and an address on Ethernet is a GID. Give it a GID index: `-g 0` \
             (ibverbs-utils), `-x 0` (perftest), `NCCL_IB_GID_INDEX=0`, `UCX_IB_GID_INDEX=0`. \
             docs/guides/troubleshooting.md has more."
        );
    }

    #[test]
    fn failed_completion_is_explained() {
        let text = explanation("opened a\ncompleted RNR_RETRY_EXC_ERR queue pair 0x000011\n");
        assert!(
            text.contains("completion is RNR_RETRY_EXC_ERR queue pair 0x000011. The peer has"),
            "{text}"
        );
        assert!(
            explanation("opened a\ncompleted RETRY_EXC_ERR queue pair 1\n")
                .contains("does not acknowledge")
        );
    }

    #[test]
    fn program_without_device_is_told_apart() {
        assert!(explanation("").contains("without opening the device"));
        assert!(explanation("opened softroce0\n").contains("no call was refused"));
    }
}
