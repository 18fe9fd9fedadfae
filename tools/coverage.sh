#!/usr/bin/env bash
# Line coverage of src/wire, src/transport and src/engine by the tests of the library, without the tests in those
# folders. It fails when a folder has less than 95 %.
#
#   tools/coverage.sh            a table of folders and files
#   tools/coverage.sh --missing  also the lines that no test reaches
#
# It installs what it needs: the toolchain's llvm-tools, and cargo-llvm-cov in target/tools.
set -euo pipefail
cd "$(dirname "$0")/.."

AT_LEAST=95
FOLDERS=(src/wire src/transport src/engine)

target=${CARGO_TARGET_DIR:-target}
tools=$target/tools
report=$target/coverage.lcov

case "${1:-}" in
'' | --missing) ;;
*)
    echo "coverage.sh: found '$1', expected --missing or nothing" >&2
    exit 2
    ;;
esac

rustup component add llvm-tools
[ -x "$tools/bin/cargo-llvm-cov" ] || cargo install --locked --root "$tools" cargo-llvm-cov
PATH=$tools/bin:$PATH cargo llvm-cov --package softroce --lcov --output-path "$report"

python3 - "$report" "$AT_LEAST" "${1:-}" "${FOLDERS[@]}" <<'PYTHON'
import os
import sys

report, at_least, missing, *folders = sys.argv[1:]


def product(path):
    """The number of the last line before the tests of a file."""
    with open(path) as source:
        lines = source.read().splitlines()
    tests = [n for n, line in enumerate(lines) if line == "#[cfg(test)]"]
    return tests[-1] if tests and lines[tests[-1] + 1] == "mod tests {" else len(lines)


files, path = {}, None
for line in open(report):
    kind, _, value = line.rstrip().partition(":")
    if kind == "SF":
        path = os.path.relpath(value)
        wanted = any(path.startswith(folder + "/") for folder in folders)
        wanted = wanted and not path.endswith("/tests.rs")
        end = product(path) if wanted else 0
    elif kind == "DA" and wanted:
        number, count = (int(field) for field in value.split(",")[:2])
        if number <= end:
            files.setdefault(path, {})[number] = count

failed = False
for folder in folders:
    total = reached = 0
    for path, lines in sorted(files.items()):
        if not path.startswith(folder + "/"):
            continue
        hit = sum(1 for count in lines.values() if count)
        total, reached = total + len(lines), reached + hit
        print(f"{100 * hit / len(lines):6.2f} %  {hit:5} of {len(lines):5}  {path}")
        if missing:
            for number in sorted(number for number, count in lines.items() if not count):
                print(f"          {path}:{number}")
    if total == 0:
        sys.exit(f"coverage.sh: the report has no lines of {folder}")
    share = 100 * reached / total
    failed |= share < float(at_least)
    print(f"{share:6.2f} %  {reached:5} of {total:5}  {folder}\n")
if failed:
    sys.exit(f"coverage.sh: less than {at_least} % of a folder is reached")
PYTHON
