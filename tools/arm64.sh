#!/usr/bin/env bash
# The crates for arm64, checked by Debian's compilers.
#
#   tools/arm64.sh            all steps
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

[ $# -gt 0 ] || set -- check
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
