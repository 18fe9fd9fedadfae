#!/usr/bin/env bash
# Everything CI runs.
#
#   tools/ci.sh          all of it, in two lanes at once: about three quarters of an hour on two cores
#   tools/ci.sh quick    what to run before a commit: format, lints, tests
#   tools/ci.sh STEP…    single steps, by the names of the functions below
#   tools/ci.sh zoo NAME…
#                        single programs of the compatibility page; tools/zoo.py has the options for many starts and valgrind
#
# As root it installs the Debian packages it needs; otherwise it says which are missing.
set -euo pipefail
cd "$(dirname "$0")/.."

QUICK=(format lints tests)
# Two lanes, in each of which a step follows the other; while one links or waits for a guest, the other compiles. The first
# builds for debugging (or elsewhere). The second builds a release, and its later steps run the test programs of the first.
LANE_OF_TESTS=(format lints tests mutations features loom linkers examples docs memcheck asan tsan fuzz)
LANE_OF_PROGRAMS=(unprivileged rxe zoo dropin capture speed namespaces pages soak dist)
BY_NAME=(packages faults old_kernel arm64)
PACKAGES=(binutils tshark iproute2 ethtool util-linux python3 groff-base g++ valgrind)
DROPIN_PACKAGES=(binutils fio gcc ibverbs-utils infiniband-diags iproute2 libc6-dev libfabric-bin libibverbs-dev
    openmpi-bin perftest python3-mpi4py python3-pyverbs qperf rdmacm-utils ucx-utils util-linux)
PAGES_PACKAGES=("${DROPIN_PACKAGES[@]}" chromium)
SOAK_PACKAGES=("${DROPIN_PACKAGES[@]}" libmpich-dev mpich)
SANITIZER_PACKAGES=(binutils gcc ibverbs-utils libc6-dbg libc6-dev libibverbs-dev llvm python3 util-linux valgrind)
RXE_PACKAGES=(qemu-system-x86 iproute2 cpio kmod xz-utils gcc tshark util-linux perftest rdmacm-utils)

# Most steps name the whole workspace with the same features, and select among its targets: with other packages or features
# cargo would compile the library once more for each selection. So it would for `cargo build`, which takes the features of
# dev-dependencies, as `cargo test` does, only with an example among its targets.

# Where cargo puts what it builds.
built=${CARGO_TARGET_DIR:-target}

# An unprivileged user without capabilities, as most of our users are.
as_nobody() {
    if [ "$(id -u)" -eq 0 ]; then
        setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all \
            --no-new-privs "$@"
    else
        "$@"
    fi
}

# The command and the libraries beside it, and the examples, for debugging.
programs() { cargo build --workspace --features softroce/futures --lib --bins --examples; }

packages() { installed "${PACKAGES[@]}"; }

# All packages that the lanes would install, before they begin: dpkg serves one at a time.
packages_of_all() {
    # shellcheck disable=SC2046
    installed "${PACKAGES[@]}" "${PAGES_PACKAGES[@]}" "${SOAK_PACKAGES[@]}" "${SANITIZER_PACKAGES[@]}" "${RXE_PACKAGES[@]}" \
        $(tools/zoo.py --packages) $(tools/dist.sh required)
}

# Installs what is missing of these packages.
installed() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    if [ "$(id -u)" -ne 0 ]; then
        echo "ci.sh: packages are missing: ${missing[*]} (install them, or run as root)" >&2
        return 1
    fi
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
}

format() {
    cargo fmt --all --check
    cargo fmt --manifest-path fuzz/Cargo.toml --check
}

lints() {
    cargo clippy --workspace --features softroce/futures --all-targets -- -D warnings
    cargo clippy --package softroce --no-default-features --all-targets -- -D warnings
    # Its targets share tests/support with the tests, but not their dependencies.
    cargo clippy --manifest-path fuzz/Cargo.toml --target-dir "$built" -- -D warnings
}

# Every combination of features compiles without a warning: by itself, since other packages would add theirs. Each but
# the first has `runtime`.
features() {
    local set
    for set in "" runtime packet tap futures packet,{tap,futures} tap,futures packet,tap,futures; do
        echo "-- features: $set"
        cargo clippy --quiet --package softroce --no-default-features --features "$set" -- -D warnings
    done
}

tests() {
    cargo test --workspace --features softroce/futures
    # The longest message there is: it takes 2 GiB of memory.
    cargo test --workspace --features softroce/futures --test packets -- --ignored
    cargo test --package softroce --no-default-features --lib
}

# Mistakes in the protocol, which tests must notice: those that one build can contain.
mutations() { tools/mutations.py --together; }

# The interleavings of src/sync: tests/loom/src/main.rs has what a model is.
loom() { cargo run --quiet --package softroce-loom; }

# Memory, leaks and data races: tools/sanitize.sh has what each looks at.
sanitize() {
    installed "${SANITIZER_PACKAGES[@]}"
    tools/sanitize.sh "$1"
}

asan() { sanitize asan; }
tsan() { sanitize tsan; }
memcheck() { sanitize memcheck; }

# The drop-in library as GNU ld links it, where rustc brings no other linker: it exports the same.
linkers() {
    local library=$built/debug/libibverbs.so lld gnu
    exported() { objdump -T "$library" | awk '/ DF / && !/\*UND\*/ { print $NF, $(NF - 1) }' | sort; }
    SOFTROCE_LINKER=bfd programs
    gnu=$(exported)
    programs
    lld=$(exported)
    diff <(echo "$gnu") <(echo "$lld")
    [ "$(wc -l <<<"$gnu")" -gt 500 ]
}

# Every example, so that they stay true: those without a runtime, and the rest.
examples() {
    local file name
    cargo build --workspace --features softroce/futures --examples
    for file in examples/*.rs; do
        name=$(basename "$file" .rs)
        case $name in
        drive_by_hand | lossy_sim)
            cargo run --quiet --package softroce --no-default-features --example "$name"
            ;;
        *) "$built/debug/examples/$name" ;;
        esac
    done
}

docs() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps; }

# What our packets look like to tshark, and to an ICRC checker that shares no code with us.
capture() { cargo test --workspace --features softroce/futures --test tshark -- --ignored; }

# Only whether something is badly wrong: docs/PERFORMANCE.md has what it can do.
speed() {
    tools/tests/results.py
    cargo bench --quiet --bench instructions
    cargo build --release --package softroce-tools --package softroce-capi --package softroce-paths
    cargo build --release --workspace --features softroce/futures --example generate
    tools/bench-captures.py --bytes 64000000 --at-least 5
}

# To find what a change has broken: one seed, from the golden captures on. What is new takes longer.
fuzz() { fuzz/run.sh --seconds 20 --seed 1; }

# Paths that are as bad as a test needs them, between network namespaces.
namespaces() {
    cargo test --workspace --features softroce/futures --lib --test verbs --test namespaces -- --ignored
}

# The main command of the README, as its reader runs it.
unprivileged() {
    cargo build --release --package softroce-tools --package softroce-capi --package softroce-paths
    local bin
    bin=$(mktemp -d)
    trap 'rm -rf "$bin"' RETURN
    cp "$built/release/roce" "$bin"
    chmod -R a+rX "$bin"
    as_nobody "$bin/roce" perf write-bw
    as_nobody "$bin/roce" devinfo -v
}

# Programs of Debian's packages, unchanged, on our libibverbs.
dropin() {
    installed "${DROPIN_PACKAGES[@]}"
    programs
    cargo test --workspace --features softroce/futures --test dropin -- --ignored
    local bin
    bin=$(mktemp -d)
    trap 'rm -rf "$bin"' RETURN
    cp "$built"/debug/{roce,lib{ibverbs,softroce_paths}.so} "$bin"
    chmod -R a+rX "$bin"
    as_nobody "$bin/roce" run -- ibv_devinfo -v
}

# Programs of other projects, each with its own verification: docs/COMPATIBILITY.md. A few minutes. "ci.sh zoo PROGRAM…"
# runs single programs, "ci.sh zoo nightly" those that need minutes or gigabytes, and "ci.sh zoo --memcheck" all under
# valgrind.
zoo() {
    # shellcheck disable=SC2046
    installed gcc iproute2 python3 valgrind $(tools/zoo.py --packages "$@")
    cargo build --release --package softroce-tools --package softroce-capi --package softroce-paths
    tools/zoo.py --roce "$built"/release/roce --write docs/COMPATIBILITY.md "$@"
}

# The console blocks of the pages, which must print what the pages show, and the page of `roce analyze` in a browser.
pages() {
    installed "${PAGES_PACKAGES[@]}"
    programs
    cargo test --workspace --features softroce/futures --test pages --test browser -- --ignored --nocapture
}

# Objects that come and go and programs that are killed, for less than two minutes: nothing is left of them.
soak() {
    installed "${SOAK_PACKAGES[@]}"
    tools/soak.sh --seconds 40 --kills 60
}

# The packages of a release, each tried in a clean place, and the examples of ci/ with them. The binaries are those of the
# short build: tools/dist.sh test alone tries what a release contains.
dist() { CARGO_PROFILE=release tools/dist.sh test; }

# System calls that fail: docs/FAULTS.md. Not among all: which call of a thread fails depends on the machine.
faults() {
    installed strace ibverbs-utils perftest
    cargo build --release --package softroce-tools --package softroce-capi --package softroce-paths
    cargo build --release --workspace --features softroce/futures --example life
    cargo test --release --workspace --features softroce/futures --test faults -- --ignored
}

# Kernel rxe at the other end, in two Debian guests one after the other: about fifteen minutes, of which
# two are the first download.
rxe() {
    if [ "$(id -u)" -eq 0 ]; then installed "${RXE_PACKAGES[@]}"; fi
    tests/interop/rxe.sh
}

# `roce run` on Linux 5.10, in a guest. Not among all: rxe boots two newer kernels.
old_kernel() {
    if [ "$(id -u)" -eq 0 ]; then installed "${RXE_PACKAGES[@]}"; fi
    tests/interop/old_kernel.sh 5.10
}

# All crates compile for arm64, and their tests pass under qemu-user. Not among all: it downloads 500 MB of compilers, and
# takes half an hour.
arm64() {
    installed debootstrap
    tools/arm64.sh
}

# Runs steps one after the other, and prints the output of each when it has ended.
lane() {
    local step log status
    for step in "$@"; do
        log=$logs/$step.log status=0
        tools/ci.sh "$step" >"$log" 2>&1 || status=$?
        flock "$logs" cat "$log"
        [ "$status" -eq 0 ] || { echo "ci.sh: step '$step' failed: exit status $status" >&2; return "$status"; }
    done
}

# Runs both lanes. The first failure ends the other lane.
both_lanes() {
    local lanes=()
    logs=$(mktemp -d)
    # Each in a process group of its own.
    set -m
    lane "${LANE_OF_TESTS[@]}" </dev/null &
    lanes+=($!)
    lane "${LANE_OF_PROGRAMS[@]}" </dev/null &
    lanes+=($!)
    set +m
    # shellcheck disable=SC2064
    trap "kill -- -${lanes[0]} -${lanes[1]} 2>/dev/null || true; rm -rf '$logs'" EXIT
    trap "exit 1" INT TERM
    wait -n
    wait -n
}

# Arguments of the step.
of_step=()
case "${1:-all}" in
all) steps=(packages_of_all both_lanes) ;;
quick) steps=("${QUICK[@]}") ;;
zoo) steps=(zoo) of_step=("${@:2}") ;;
*) steps=("$@") ;;
esac
# Whatever the caller calls itself: what is not run here has not passed. Before a commit it is reported.
if [ "${1:-all}" != quick ]; then
    export CI=true
    # What is built once needs no notes for the next time.
    export CARGO_INCREMENTAL=0
fi

for step in "${steps[@]}"; do
    if ! declare -F "$step" >/dev/null; then
        echo "ci.sh: no step '$step'; there are: ${LANE_OF_TESTS[*]} ${LANE_OF_PROGRAMS[*]} ${BY_NAME[*]}" >&2
        exit 2
    fi
    echo "==== $step"
    start=$SECONDS
    "$step" "${of_step[@]}"
    echo "==== $step: $((SECONDS - start)) s"
done
