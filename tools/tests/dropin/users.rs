//! Programs of two users on one machine. These tests need root, to become the users.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::text;
use crate::roce::{alone, copy_command};

/// Two sides of `ib_write_bw`, of the users 1001 and 1002, in a network namespace. `$1` is a directory that both may read,
/// and `$2` the option that names the port. The server does not listen at once.
const PAIR: &str = r#"
ip link set lo up
side() {
    user=$1
    shift
    env -i PATH="$PATH" HOME=/nonexistent setpriv --reuid=$user --regid=$user --clear-groups --inh-caps=-all \
        "$directory/roce" run $via -- timeout 60 ib_write_bw -F -n 200 "$@"
}
directory=$1 via=$2
side 1001 > "$directory/server" 2>&1 & server=$!
for attempt in $(seq 200); do
    if side 1002 127.0.0.1 > "$directory/client" 2>&1; then
        wait $server
        grep '^ 65536 ' "$directory/client"
        exit
    fi
    kill -0 $server
    sleep 0.05
done
cat "$directory/server" "$directory/client"
exit 1
"#;

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn programs_of_two_users_reach_each_other() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_roce")).parent().unwrap();
    copy_command(&folder.path().join("roce"));
    for file in ["libibverbs.so", "libsoftroce_paths.so"] {
        fs::copy(built.join(file), folder.path().join(file)).unwrap();
    }
    // Shared memory is for programs of one user. Those of two users fall back to UDP sockets.
    for via in ["--via=udp", "--via=shm"] {
        let mut pair = Command::new("unshare");
        let ended = pair.args(["-n", "bash", "-e", "-c", PAIR, "-"]).arg(folder.path()).arg(via);
        let ended = ended.output().unwrap();
        let said = text(&ended.stdout) + &text(&ended.stderr);
        assert!(ended.status.success(), "{via}, as root only: {said}");
        assert!(said.contains(" 65536 "), "{via}: {said}");
    }
}
