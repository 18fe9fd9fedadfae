#!/usr/bin/env bash
# Fuzzes with the stable toolchain: libFuzzer guides itself by what the compiler counts.
#
#   fuzz/run.sh [--seconds N] [--seed S] [TARGET…]     each target for N seconds (20); all without TARGET
#
# It begins with the golden captures and vectors and with what earlier runs have left in fuzz/corpus. With the same
# corpus a seed makes the same choices; which inputs are found new may differ, for hash maps have seeds
# of their own. Without --seed one is chosen, and printed.
# What breaks a target is kept in fuzz/artifacts, and `fuzz/run.sh TARGET FILE` plays it again.
#
# `cargo fuzz run TARGET` (nightly, with the address sanitizer) and `cargo fuzz run -s none TARGET`
# (stable) run the same targets.
set -euo pipefail
cd "$(dirname "$0")"

seconds=20
seed=$((RANDOM * 32768 + RANDOM))
targets=()
again=()
while [ $# -gt 0 ]; do
    case $1 in
    --seconds | --seed)
        [[ ${2-} =~ ^[0-9]+$ ]] || { echo "run.sh: $1 ${2-}: expected a number" >&2; exit 2; }
        declare "${1#--}=$2"
        shift
        ;;
    *)
        if [ -f "fuzz_targets/$1.rs" ]; then
            targets+=("$1")
        elif [ -f "$1" ]; then
            again+=("$(realpath "$1")")
        else
            echo "run.sh: $1 is no target and no file; there are: $(echo fuzz_targets/*.rs)" >&2
            exit 2
        fi
        ;;
    esac
    shift
done
if [ ${#targets[@]} -eq 0 ]; then
    for file in fuzz_targets/*.rs; do targets+=("$(basename "$file" .rs)"); done
fi

# What cargo-fuzz does without a sanitizer. Of sizes and comparisons the counters tell the fuzzer too.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0 \
-Ccodegen-units=1 --cfg fuzzing"
# With a target named, the flags are not those of what the compiler itself runs.
host=$(rustc -vV | sed -n 's/^host: //p')
cargo build --quiet --release --target "$host"
binaries=${CARGO_TARGET_DIR:-target}/$host/release

for target in "${targets[@]}"; do
    if [ ${#again[@]} -gt 0 ]; then
        "$binaries/$target" "${again[@]}"
        continue
    fi
    seeds=$(mktemp -d)
    trap 'rm -rf "$seeds"' EXIT
    case $target in
    packet | responder | requester | engine | mads)
        ./seeds.py "$target" "$seeds" ../pcap/captures/{rxe,hardware}/*.pcap \
            ../tests/vectors/vectors.json
        ;;
    words)
        # Every key of an impairment, with a value of each kind.
        for key in $(sed -n 's/^| `\([a-z-]*\)`.*/\1/p' ../docs/IMPAIRMENTS.md); do
            for value in 0.5 10 5ms 10mbit 64k both; do
                echo "$key=$value" >"$seeds/$key-$value"
            done
        done
        ;;
    *) cp ../pcap/captures/*/*.pcap "$seeds" ;;
    esac
    mkdir -p "corpus/$target" "artifacts/$target"
    echo "== $target: seed $seed, $seconds s"
    log=artifacts/$target/log
    # A capture of a few bytes may say that it needs a window of 128 MiB; more than that is too much.
    if ! "$binaries/$target" -seed="$seed" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=768 \
        -malloc_limit_mb=160 -print_final_stats=1 -artifact_prefix="artifacts/$target/" \
        "corpus/$target" "$seeds" >"$log" 2>&1; then
        cat "$log"
        exit 1
    fi
    grep '^stat::' "$log"
    rm -rf "$seeds"
done
