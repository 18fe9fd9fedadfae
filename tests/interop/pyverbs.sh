#!/usr/bin/env bash
# The tests of rdma-core 44 on kernel rxe in a guest: those that `tools/ci.sh dropin` runs on softroce, from
# the same packages of Debian, to stand beside them.
#
#   tests/interop/pyverbs.sh [KERNEL]             6.1 unless named; 6.12 or newest
#
# A line a test: how it ended, which it is, and why it was skipped; after them how many there were of each. A
# module has a minute. A test that is under way then, or when it takes its process or the guest with it, is
# `broken`, and what the module has behind it is not run. It says nothing about softroce, and so passes
# whatever rxe does.
set -euo pipefail
cd "$(dirname "$0")/../.."

kernel=${1:-6.1}
vm=tools/rxe-vm/rxe-vm
tests=tools/tests/dropin
export RXE_VM_CACHE=${RXE_VM_CACHE:-${CARGO_TARGET_DIR:-target}/rxe-vm}
# Python, pyverbs and all that they need: a system of their own, which the guest unpacks and changes to.
python=$RXE_VM_CACHE/python
# Seconds for one module.
LIMIT=60

# Packages come as those of the guests do, from where `rxe-vm` looks for them; the tests with pyverbs.
fetch() {
    [ -e "$python/system.tar" ] && return
    # Of Debian 12.
    "$vm" build -k 6.1
    local APT_CONFIG package
    APT_CONFIG=$(realpath "$RXE_VM_CACHE/apt-bookworm/apt.conf")
    export APT_CONFIG
    rm -rf "$python"
    mkdir -p "$python"/{archives/partial,tree/{dev,proc,sys,tmp}}
    apt-get -qq update
    apt-get -qq -y --download-only -o Dir::Cache::archives="$(realpath "$python/archives")" \
        install python3-pyverbs python3-minimal iproute2 coreutils dash >/dev/null
    for package in "$python"/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -x -C "$python/tree" --no-same-owner \
            --keep-directory-symlink --exclude './usr/share/man/*' --exclude './usr/share/locale/*'
    done
    mkdir "$python/tree/tests"
    mv "$python/tree/usr/share/doc/rdma-core/tests" "$python/tree/tests/tests"
    gunzip "$python"/tree/tests/tests/*.gz
    rm -r "$python/tree/usr/share/doc"
    tar -c -C "$python/tree" -f "$python/system.part" .
    mv "$python/system.part" "$python/system.tar"
    rm -r "$python"/{tree,archives}
}

boot() {
    # The unpacked system is in its memory.
    "$vm" up a -k "$kernel" -M 1200 >/dev/null
    "$vm" put a "$python/system.tar" "$tests/rdma_core.py"
    "$vm" run -t 120 a 'mkdir /tmp/python && cd /tmp/python && tar -xf /share/bin/system.tar &&
        cp /share/bin/rdma_core.py tests && for part in dev proc sys; do mount --rbind /$part $part; done &&
        rm /share/bin/system.tar'
}

# Runs a module. The GID with index 1 is that of the address of IPv4.
run() {
    "$vm" run -t $LIMIT a chroot /tmp/python /usr/bin/python3 /tests/rdma_core.py rxe0 1 /tests "$@" 2>&1 || :
}

results=$(mktemp)
trap '"$vm" down a; rm -f "$results"' EXIT

module() {
    local test said
    said=$(run "$1")
    grep '^ended' <<<"$said" >>"$results" || :
    # What has begun and not ended hangs, or has ended the process or the guest.
    grep '^begun' <<<"$said" | cut -f 2 | while read -r test; do
        grep -qP "^ended\t[^\t]*\t\Q$test\E(\t|$)" <<<"$said" ||
            printf 'ended\tbroken\t%s\t%s\n' "$test" "$(tail -n 1 <<<"$said")" >>"$results"
    done
}

fetch
boot
while read -r name; do
    if ! "$vm" run -t 20 a true; then
        "$vm" down a
        boot
    fi
    module "$name"
done <"$tests/rdma_core.modules"

"$vm" run a 'uname -r'
cut -f 2- "$results"
cut -f 2 "$results" | sort | uniq -c
