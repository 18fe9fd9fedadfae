#!/usr/bin/env bash
# Soak tests: objects created and destroyed without end, and programs killed at random moments. Resources that are
# left behind fail the test; the figures are printed.
#
#   tools/soak.sh --minutes 10 --kills 500 --seed 7
#   tools/soak.sh --seconds 40 --kills 60
#   tools/soak.sh --seconds 10 --kills 1200 --write docs/KILLS.md
#
# The time is that of all objects, half of it through the library and half through the C API; killing takes about a
# second each beside it. As many peers are killed of one process that survives them all. Of the kills, each of six pairs of
# programs gets one twelfth over UDP and one over shared memory; a sixth as many ranks of MPI jobs are killed beside them.
# With --write the page gets the table of the outcomes.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=60 kills=60 seed=$((RANDOM * 32768 + RANDOM)) page=
while [ $# -gt 1 ]; do
    case $1 in
    --minutes) seconds=$(($2 * 60)) ;;
    --seconds) seconds=$2 ;;
    --kills) kills=$2 ;;
    --seed) seed=$2 ;;
    --write) page=$2 ;;
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
output=$(mktemp)
trap 'rm -f "$output"' EXIT
# That of objects, and that of programs.
cargo test --release --workspace --features softroce/futures --test soak -- --ignored --nocapture --test-threads 1 | tee "$output"
[ -n "$page" ] || exit 0
cat >"$page" <<END
# Killed programs

Two programs that exchange messages run under \`roce run\`, on $(nproc) processors, and one of them is killed with SIGKILL at a
random moment of its life: while it starts, connects, transfers data or ends. The other must end with an error within its
time-outs, or wait for its peer if it has no request in flight. Then both start again at the same addresses, and must
succeed; no file, socket, shared memory or process may be left. \`tools/soak.sh --seconds 10 --kills $kills --seed $seed --write
docs/KILLS.md\` writes this page.

The columns are the programs that were killed; their peers by outcome: without a peer yet, about to end, ended with an error
(and the seconds that the slowest of them took), and waiting for a message; and the seconds of the slowest next start.
\`ibv_rc_pingpong\` waits so on any adapter, and \`ucx_perftest\` before it connects. For a killed \`rping\` Linux sends a DREQ;
no part of softroce outlives the process.

| programs | port | killed | without a peer | about to end | error | seconds | waits | next start, seconds |
|---|---|---|---|---|---|---|---|---|
$(grep '^| ' "$output")

$(date +%F)
END
