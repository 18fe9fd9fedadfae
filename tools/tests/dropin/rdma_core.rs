//! The Python tests of rdma-core, from Debian's `python3-pyverbs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use super::namespace::namespace;
use super::{output, text};
use crate::roce::{alone, scratch};

/// Tests that are not for one kind of hardware.
const GENERIC: &str = include_str!("rdma_core.modules");

/// Copies the tests to a directory, from where the package installs them, or out of the package if documentation was
/// not installed.
const UNPACK: &str = "
    set -e; rm -rf \"$1\"; mkdir -p \"$1\"; cd \"$1\"
    installed=/usr/share/doc/rdma-core/tests
    if [ -d $installed ]; then cp -r $installed tests
    else apt-get -q download python3-pyverbs; dpkg-deb -x *.deb .; cp -r .$installed tests; fi
    gunzip tests/*.gz";

/// Runs the tests of librdmacm in a namespace. Their sides need 127.0.0.1, and a process keeps the address of its device, so
/// another test may have it.
const RDMACM: &str = r#"
ip link set lo up
"$0" run -- timeout 90 /usr/bin/python3 "$1/rdma_core.py" softroce0 0 "$1" rdmacm
"#;

/// Returns the first column of the tables of `docs/DROPIN.md` below a heading.
fn listed(heading: &str) -> Vec<String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/DROPIN.md");
    let docs = fs::read_to_string(docs).unwrap();
    let lines = docs.lines().skip_while(|line| *line != heading).skip(1);
    let rows = lines.skip_while(|line| !line.starts_with('|')).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('|').nth(1).unwrap().trim().trim_matches('`').to_owned()).collect()
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn tests_of_rdma_core_pass() {
    let _alone = alone();
    let place = scratch("pyverbs");
    let place = place.to_str().unwrap();
    let unpacked = Command::new("sh").args(["-c", UNPACK, "sh", place]).output().unwrap();
    assert!(unpacked.status.success(), "{}", text(&unpacked.stderr));

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dropin/rdma_core.py");
    let program = ["/usr/bin/python3", script.to_str().unwrap(), "softroce0", "0", place];
    let modules = GENERIC.lines().filter(|module| *module != "rdmacm");
    let said = output(&program.into_iter().chain(modules).collect::<Vec<_>>());
    fs::copy(&script, Path::new(place).join("rdma_core.py")).unwrap();
    let rdmacm = namespace(RDMACM).arg(place).output().unwrap();
    let said = said + &text(&rdmacm.stdout) + &text(&rdmacm.stderr);
    let mut ends: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for line in said.lines() {
        if let ["ended", how, test, why] = line.split('\t').collect::<Vec<_>>()[..] {
            ends.entry(how).or_default().insert(test, why);
        }
    }
    let of = |how| ends.get(how).cloned().unwrap_or_default();

    let failed: BTreeSet<_> = of("failed").into_keys().map(str::to_owned).collect();
    assert_eq!(failed, listed("### Tests that fail").into_iter().collect(), "{said}");
    let reasons = listed("### Why tests are skipped");
    let is_known = |why: &&str| reasons.iter().any(|reason| why.starts_with(reason.as_str()));
    let unknown: Vec<_> = of("skipped").into_iter().filter(|(_, why)| !is_known(why)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let passed = of("ok").len();
    assert!(passed >= 137, "{passed} passed: {said}");
}
