#!/usr/bin/env bash
# The crates for arm64, checked by Debian's compilers, and their tests under qemu-user.
#
#   tools/arm64.sh            all steps: check, then test
#   tools/arm64.sh STEP…      single steps, by the names of the functions below
#
# Needs root, debootstrap and the network: the first run makes a Debian root with compilers in target/arm64 (1.5 GB).
set -euo pipefail
cd "$(dirname "$0")/.."

TARGET=aarch64-unknown-linux-gnu
# The release of Debian with a compiler that is new enough.
SUITE=sid
PACKAGES=(cargo gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)
# For the architecture of the target.
TARGET_PACKAGES=(libstd-rust-dev libgcc-s1)

# Parts of the names of tests that qemu-user cannot run.
NOT_EMULATED=(
    # It has no process_vm_readv(2): memory with missing pages, and mapped files.
    mem::pageable::
    answered_read_holds_no_memory
    memory::advice_requires_memory_that_a_request_may_use
    memory::implicit_region_serves_every_operation
    memory::local_request_with_unmapped_memory_fails
    memory::log_in_a_mapped_file_is_written_flushed_and_committed
    memory::message_into_partly_unmapped_memory_fails_both_sides
    memory::request_for_unmapped_memory_is_a_remote_access_error
    # It has no SO_ATTACH_REUSEPORT_CBPF: devices with several shards.
    shards::
    port::udp::steer::
    of_several_sockets_at_an_address_the_fullest_counts
    # It has no SO_TIMESTAMPING: connected flows.
    port::udp::connected_flows::
    ping_pong_uses_connected_sockets_without_loss
    # Its SO_MEMINFO returns only the first number: counters of datagrams that the kernel dropped.
    datagrams_without_room_are_counted
    port::udp::filter::
    # It does not pass the routes of rtnetlink(7) on.
    sys::rtnetlink::
    loopback_addresses_are_routed_by_the_kernel
    the_way_to_this_machine_is_its_loopback_interface
    the_link_mtu_is_the_interface_s
    # Tests that start themselves in another process: the kernel does not start a program of arm64 (no binfmt_misc).
    all_tests_pass_with_
    datagrams_among_three_processes_reach_their_destinations
    faults::closed_socket_fails_the_device
    faults::device_without_free_descriptors_works_and_refuses_channels
    faults::process_without_memory_gets_an_alloc_error_and_an_overrun
    faults::stopped_peer_resumes_after_its_timeouts
    lifetime::open_error_names_the_process_that_holds_the_address
    lifetime::process_exit_sends_pending_acknowledgements
    listener_is_closed_while_there_is_no_descriptor_for_a_connection
    name_conflict::
    process_that_ends_disconnects
    processes_of_one_host_join_one_group
)

built=${CARGO_TARGET_DIR:-target}
mkdir -p "$built/arm64"
place=$(realpath "$built/arm64")
root=$place/root
home=${CARGO_HOME:-$HOME/.cargo}

# Where this machine takes Debian's packages from.
mirror() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | head -1
}

debian_root() {
    [ -d "$root" ] && return
    command -v debootstrap >/dev/null || apt-get install -q -y --no-install-recommends debootstrap >/dev/null
    local part=$root.part
    rm -rf "$part"
    debootstrap --variant=minbase "$SUITE" "$part" "$(mirror)" >"$place/debootstrap.log"
    {
        chroot "$part" dpkg --add-architecture arm64
        # A mirror may be a few weeks behind.
        echo 'Acquire::Check-Valid-Until "false";' >"$part/etc/apt/apt.conf.d/mirror"
        chroot "$part" apt-get update -q
        DEBIAN_FRONTEND=noninteractive chroot "$part" apt-get install -q -y --no-install-recommends \
            "${PACKAGES[@]}" "${TARGET_PACKAGES[@]/%/:arm64}"
        chroot "$part" apt-get clean
    } >"$place/apt.log"
    mv "$part" "$root"
}

# Runs cargo of the Debian root on this source tree. Crates come from this machine's cargo, so the root needs no network.
foreign_cargo() {
    mkdir -p "$root/source" "$root/built" "$root/cargo" "$place/built"
    ROOT=$root SOURCE=$PWD BUILT=$place/built CRATES=$home TRIPLE=$TARGET unshare --mount --net bash -euc '
        ip link set lo up
        mount --bind "$SOURCE" "$ROOT/source"
        mount -o remount,ro,bind "$ROOT/source"
        mount --bind "$BUILT" "$ROOT/built"
        mount --bind "$CRATES" "$ROOT/cargo"
        mount -t proc proc "$ROOT/proc"
        mount -t tmpfs -o mode=1777 tmpfs "$ROOT/tmp"
        mount --rbind /dev "$ROOT/dev"
        exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root CARGO_HOME=/cargo CARGO_TARGET_DIR=/built \
            CARGO_BUILD_TARGET="$TRIPLE" CARGO_NET_OFFLINE=true RUSTFLAGS="${RUSTFLAGS:-}" \
            CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
            CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64 \
            chroot "$ROOT" bash -euc "cd /source && exec cargo \"\$@\"" cargo "$@"
    ' bash "$@"
}

prepare() {
    cargo fetch --locked
    debian_root
    foreign_cargo --version
}

# Every crate and every test compiles without a warning.
check() {
    RUSTFLAGS="-D warnings" foreign_cargo check --locked --workspace --features softroce/futures --all-targets
}

# Tests of the library and of captures, each program run by qemu-aarch64: another processor on this machine's kernel.
test() {
    local file tests=()
    for file in tests/*.rs; do
        case $file in
        # They read the sources.
        */compliance.rs | */honest_tests.rs | */language.rs | */layering.rs | */pages.rs) ;;
        *) tests+=(--test "$(basename "$file" .rs)") ;;
        esac
    done
    foreign_cargo test --locked --no-fail-fast --package softroce --features futures --lib "${tests[@]}" \
        -- "${NOT_EMULATED[@]/#/--skip=}"
    foreign_cargo test --locked --no-fail-fast --package softroce-pcap --lib --tests
}

[ $# -gt 0 ] || set -- check test
prepare
for step in "$@"; do
    if ! declare -F "$step" >/dev/null; then
        echo "arm64.sh: no step '$step'" >&2
        exit 2
    fi
    start=$SECONDS
    "$step"
    echo "arm64.sh: $step: $((SECONDS - start)) s"
done
