#!/usr/bin/env bash
# Mutation tests of the protocol: cargo-mutants changes src/transport and src/wire, one
# place at a time, and those tests run that need neither sockets nor seconds.
#
#   tools/mutants.sh               150 changes of seed 1: twenty minutes on two cores that are idle
#   tools/mutants.sh COUNT [SEED]  COUNT changes; another seed selects others
#   tools/mutants.sh --since REV   every change of the lines that differ from a revision
#
# It fails when a change survives. Results are in target/mutants.out; cargo-mutants is installed in target/tools.
set -euo pipefail
cd "$(dirname "$0")/.."

FOLDERS=(--file 'src/transport/**' --file 'src/wire/**')
# Text output is for people, and its tests are in other packages.
LEAVE_OUT=(--exclude 'src/wire/cm/**' --exclude '**/tests.rs' --exclude-re 'fmt|Display|Debug'
    # Without a run of MIDDLE packets each is built like the first, and the same packets leave.
    --exclude-re 'replace more_middles -> u32 with 0'
    # Only with the feature `runtime` memory goes away while a message arrives: tests/verbs/memory.rs.
    --exclude-re 'mark_faulted')
TESTS=(packets vectors)
# These take longer than all the others together, and look for other mistakes.
SLOW=(mem:: port:: engine::transitions is_handled are_handled random_headers random_bytes)

since=
if [ "${1:-}" = --since ]; then
    if ! git rev-parse --quiet --verify "${2:-}^{commit}" >/dev/null; then
        echo "mutants.sh: found '${2:-nothing}' behind --since, expected a revision" >&2
        exit 2
    fi
    since=$2
    shift 2
fi
count=${1:-150}
seed=${2:-1}
if ! [[ $count =~ ^[1-9][0-9]*$ && $seed =~ ^[0-9]+$ ]]; then
    echo "mutants.sh: found '$*', expected a count and a seed, such as 150 1" >&2
    exit 2
fi

target=${CARGO_TARGET_DIR:-target}
[ -x "$target/tools/bin/cargo-mutants" ] ||
    cargo install --locked --root "$target/tools" cargo-mutants
export PATH=$target/tools/bin:$PATH
# Each copy of the tree has a folder of its own for what is built: in one, two would run each other's tests.
unset CARGO_TARGET_DIR
# Most of the time goes into compiling.
export CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=0

# Prints the sample, as a configuration that names each change.
sample() {
    cargo mutants --package softroce --list --json "${FOLDERS[@]}" "${LEAVE_OUT[@]}" |
        python3 -c '
import json, random, re, sys
count, seed = int(sys.argv[1]), int(sys.argv[2])
names = sorted({mutant["name"] for mutant in json.load(sys.stdin)})
sample = sorted(random.Random(seed).sample(names, min(count, len(names))))
patterns = [json.dumps("^" + re.escape(name).replace("\\ ", " ") + "$") for name in sample]
print("examine_re = [\n  " + ",\n  ".join(patterns) + ",\n]")
print(f"{len(sample)} of {len(names)} changes, seed {seed}", file=sys.stderr)
' "$count" "$seed"
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ -n "$since" ]; then
    git diff "$since" -- src/transport src/wire >"$scratch/changed.diff"
    chosen=(--in-diff "$scratch/changed.diff")
else
    sample >"$scratch/sample.toml"
    chosen=(--config "$scratch/sample.toml")
fi

# Said to cargo, not to cargo test alone: else all the others are built too, each time.
only=(--lib "${TESTS[@]/#/--test=}")
cargo mutants --package softroce "${chosen[@]}" --output "$target" --jobs 2 --timeout 300 \
    --no-default-features "${FOLDERS[@]}" "${LEAVE_OUT[@]}" "${only[@]/#/--cargo-arg=}" \
    -- -- "${SLOW[@]/#/--skip=}"
