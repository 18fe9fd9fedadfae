#!/usr/bin/env bash
# Soak tests: objects created and destroyed without end, and programs killed at random moments. Resources that are
# left behind fail the test; the figures are printed.
#
#   tools/soak.sh --minutes 10 --kills 500 --seed 7
#   tools/soak.sh --seconds 40 --kills 60
#
# The time is that of all objects, half of it through the library and half through the C API; killing takes about a
# second each beside it. As many peers are killed of one process that survives them all.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=60 kills=60 seed=$((RANDOM * 32768 + RANDOM))
while [ $# -gt 1 ]; do
    case $1 in
    --minutes) seconds=$(($2 * 60)) ;;
    --seconds) seconds=$2 ;;
    --kills) kills=$2 ;;
    --seed) seed=$2 ;;
    *) break ;;
    esac
    shift 2
done
if [ $# -gt 0 ]; then
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi

export SOAK_SECONDS=$((seconds / 2)) SOAK_KILLS=$kills SOAK_SEED=$seed
cargo build --release --package softroce-tools --package softroce-capi --package softroce-paths
cargo test --release --package softroce --test soak -- --ignored --nocapture --test-threads 1
cargo test --release --package softroce-tools --test soak -- --ignored --nocapture --test-threads 1
