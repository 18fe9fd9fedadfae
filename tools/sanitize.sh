#!/usr/bin/env bash
# Tests under the sanitizers of the stable toolchain and under valgrind.
#
#   tools/sanitize.sh STEP…    asan, tsan or memcheck
#
# asan      AddressSanitizer, with LeakSanitizer at the end of each process: the tests of the library, of verbs, of some
#           models and of capi; programs in C, on a drop-in library that is instrumented too.
# tsan      ThreadSanitizer: the tests of the library, and those of verbs that have threads.
# memcheck  valgrind, without instrumentation: ibv_rc_pingpong; the tests of memory, rings and capi.
#
# Miri is not among them: it is a component of the nightly toolchain only. Of the bugs that it finds, these steps see
# accesses outside of blocks, uses of uninitialized bytes, leaks and data races. They see no wrong aliasing, provenance
# or alignment.
#
# ci.sh installs the packages.
set -euo pipefail
cd "$(dirname "$0")/.."

HOST=x86_64-unknown-linux-gnu
HOSTILE=tools/tests/dropin/hostile

# Left out of the tests of verbs: a process with too little memory for the shadow; a device that leaks a socket on
# purpose, for its descriptor belongs to other code; and a test that needs quick answers.
UNSUITABLE=(--skip process_without_memory --skip closed_socket_fails_the_device
    --skip ping_pong_uses_connected_sockets)

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
target=$(realpath "$target")
here=$PWD/tools/sanitize

# Cargo with code instrumented by a sanitizer. With a target named, build scripts and macros are as always.
instrumented() {
    local sanitizer=$1 flags=$2 command=$3
    shift 3
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=$sanitizer $flags" \
        cargo "$command" --target "$HOST" --target-dir "$target/$sanitizer" "$@"
}

# Puts `roce` beside the instrumented libraries, and prints where.
drop_in() {
    local directory=$target/$1/dropin
    mkdir -p "$directory"
    cp "$target/debug/roce" "$target/$1/$HOST/debug"/lib{ibverbs,softroce_paths}.so "$directory"
    echo "$directory"
}

# Runs a program in C, compiled with a sanitizer, on the library that is instrumented by it too. They share gcc's
# runtime, which has to come before the libraries of `roce run`.
in_c() {
    local sanitizer=$1 directory=$2 source=$3 program runtime
    shift 3
    program=$directory/$(basename "$source" .c)
    gcc -O1 -g -Wall -Wextra -Werror -pthread "-fsanitize=$sanitizer" -o "$program" "$source" -libverbs
    runtime=$(realpath "$(gcc -print-file-name="lib${sanitizer:0:1}san.so")")
    echo "-- $(basename "$program") $*"
    (
        eval "$("$directory/roce" run --env)"
        preload=$runtime:$LD_PRELOAD
        # Not into `timeout`, which has no runtime.
        unset LD_PRELOAD
        timeout 120 env "LD_PRELOAD=$preload" "$program" "$@"
    )
}

asan() {
    export ASAN_OPTIONS=detect_stack_use_after_return=1
    local packages=(--package softroce --package softroce-capi --package softroce-paths --features softroce/futures)
    # In `memory_that_has_gone` freed memory is unmapped; the runtime keeps it. Of the seeds of the mixed model, those that
    # have failed once.
    instrumented address "" test "${packages[@]}" --lib --test verbs -- "${UNSUITABLE[@]}" --skip memory_that_has_gone
    instrumented address "" test "${packages[@]}" --test models -- mixed:: srq:: windows:: --skip quarter_of_seeds
    instrumented address "" build "${packages[@]}"
    cargo build --workspace --features softroce/futures --lib --bins --examples
    local directory
    directory=$(drop_in address)
    export ASAN_OPTIONS=$ASAN_OPTIONS:strict_string_checks=1
    in_c address "$directory" "$here/closing.c"
    local name
    for name in order refusals unacknowledged drained threads "many queue-pairs" "vanishing default" \
        "vanishing handler"; do
        # shellcheck disable=SC2086
        in_c address "$directory" "$HOSTILE/${name%% *}.c" ${name#"${name%% *}"}
    done
    # Its children end without destroying anything. They fork before there are threads: the allocator of gcc's runtime
    # stays locked in a child if another thread allocates at the fork.
    ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 in_c address "$directory" "$HOSTILE/forks.c" before
}

# Compiles tsan.c for the toolchain's mangled names, and prints the flags that link it.
tsan_flags() {
    local symbols row name mangled defines=() flags=(-Cunsafe-allow-abi-mismatch=sanitizer --cfg=bytewise_copies)
    symbols=$(nm -D --defined-only "$(rustc --print sysroot)/lib/rustlib/$HOST/lib"/libstd-*.so | awk '{ print $3 }')
    for row in MUTEX_LOCK_CONTENDED=5mutex5futex.*14lock_contended \
        RWLOCK_READ_CONTENDED=6rwlock5futex.*14read_contended \
        RWLOCK_WRITE_CONTENDED=6rwlock5futex.*15write_contended \
        CONDVAR_WAIT=7condvar5futex.*7Condvar4wait \
        CONDVAR_WAIT_TIMEOUT=7condvar5futex.*12wait_timeout \
        ONCE_CALL=4once5futex.*4Once4call \
        SCOPE_DECREMENT=9ScopeData29decrement_num_running_threads; do
        name=${row%%=*}
        mangled=$(grep -E "${row#*=}\$" <<<"$symbols" || true)
        if [ "$(wc -w <<<"$mangled")" -ne 1 ]; then
            echo "sanitize.sh: expected one function of std for $name, found '$mangled'" >&2
            return 1
        fi
        defines+=("-D$name=$mangled")
        flags+=("-Clink-arg=-Wl,--wrap=$mangled")
    done
    mkdir -p "$target/thread"
    gcc -O1 -g -fPIC -Wall -Wextra -Werror "${defines[@]}" -c -o "$target/thread/tsan.o" "$here/tsan.c"
    flags+=("-Clink-arg=$target/thread/tsan.o" -Clink-arg=-Wl,--wrap=__tsan_atomic64_fetch_sub)
    echo "${flags[*]}"
}

tsan() {
    local flags
    flags=$(tsan_flags)
    export TSAN_OPTIONS=suppressions=$here/tsan.supp
    # Of the tests of verbs, those of threads; the others wait for quick answers.
    instrumented thread "$flags" test --package softroce --features futures --lib
    instrumented thread "$flags" test --package softroce --features futures --test verbs -- \
        sharing:: shards:: progress:: tasks:: completions::
}

VALGRIND=(valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite
    --errors-for-leak-kinds=definite --fair-sched=yes "--suppressions=$here/memcheck.supp")

# Two processes under valgrind, on a port that is free.
pingpong() {
    local roce=$target/debug/roce port server log=$target/memcheck-server.log
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
    local program=(timeout 120 "${VALGRIND[@]}" ibv_rc_pingpong -g 0 -n 100 -p "$port")
    "$roce" run --ip 127.97.0.1 -- "${program[@]}" >"$log" 2>&1 &
    server=$!
    until grep -q "$(printf ':%04X 0*:0000 0A' "$port")" /proc/net/tcp /proc/net/tcp6; do
        kill -0 "$server" || { cat "$log" >&2; return 1; }
    done
    "$roce" run --ip 127.97.0.2 -- "${program[@]}" 127.0.0.1
    wait "$server" || { cat "$log" >&2; return 1; }
}

memcheck() {
    # Left out: copies that a signal handler ends in the middle of an instruction, which valgrind cannot do. The library
    # finds that out, and the other tests copy by the system.
    CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=${VALGRIND[*]} \
        cargo test --workspace --features softroce/futures --lib -- mem:: port::shm sys:: runtime::queue \
        --skip sys::fault --skip sys::copies --skip missing_pages_are_an_error
    # Those of capi, from the same build.
    local program
    program=$(cargo test --workspace --features softroce/futures --lib --no-run --message-format=json |
        sed -nE 's/.*"executable":"([^"]*\/ibverbs-[^"]*)".*/\1/p')
    (cd capi && "${VALGRIND[@]}" "$program")
    cargo build --workspace --features softroce/futures --lib --bins --examples
    pingpong
}

if [ $# -eq 0 ]; then
    echo "sanitize.sh: expected steps: asan, tsan or memcheck" >&2
    exit 2
fi
for step in "$@"; do
    case $step in
    asan | tsan | memcheck) "$step" ;;
    *)
        echo "sanitize.sh: no step '$step'; there are: asan, tsan, memcheck" >&2
        exit 2
        ;;
    esac
done
