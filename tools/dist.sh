#!/usr/bin/env bash
# The packages of a release, and their trial in clean places.
#
#   tools/dist.sh             all packages, in target/dist
#   tools/dist.sh test        the same, then each is tried in a Debian root or a Python environment of its own (root)
#   tools/dist.sh reproduce   builds twice, in two directories, and compares the bytes
#   tools/dist.sh STEP…       single steps, by the names of the functions below
#
# CARGO_PROFILE names the profile of the binaries: dist (the default), or release for those of an ordinary build.
# SOURCE_DATE_EPOCH is the time of all files in the packages; by default that of the last commit.
set -euo pipefail
cd "$(dirname "$0")/.."

NAME=softroce
VERSION=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
PROFILE=${CARGO_PROFILE:-dist}
ARCH=$(uname -m)
BUILT=${CARGO_TARGET_DIR:-target}
DIST=$BUILT/dist-packages
# Files as they are installed below a prefix, such as /usr.
STAGE=$DIST/stage
TAR_NAME=$NAME-$VERSION-$ARCH-linux-gnu

export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export LC_ALL=C TZ=UTC
umask 022

PACKAGES=(binutils dpkg-dev gzip python3 xz-utils)
TEST_PACKAGES=(bubblewrap debootstrap golang-github-containers-common iproute2 lintian python3-seccomp util-linux)

# A tar archive whose bytes depend on names, modes and contents alone.
tar_sorted() {
    tar --sort=name --format=posix --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime \
        --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner "$@"
}

# The binaries: without paths of this machine, so that two places build the same bytes.
build() {
    local packages=(--package softroce-tools --package softroce-capi --package softroce-paths)
    if [ "$PROFILE" = release ]; then
        cargo build --locked --release "${packages[@]}"
        return
    fi
    local home=${CARGO_HOME:-$HOME/.cargo}
    RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$PWD=$NAME --remap-path-prefix=$home=cargo" \
        CARGO_TARGET_DIR="$BUILT/packages" cargo build --locked --profile "$PROFILE" "${packages[@]}"
}

# The tree that all packages contain.
stage() {
    local binaries=$BUILT/packages/$PROFILE file
    [ "$PROFILE" != release ] || binaries=$BUILT/release
    rm -rf "$STAGE"
    install -d "$STAGE"/{bin,lib/$NAME,share/man/man1,share/doc/$NAME}
    install -m 755 "$binaries/roce" "$STAGE/bin/roce"
    install -m 644 "$binaries"/lib{ibverbs,softroce_paths}.so "$STAGE/lib/$NAME"
    strip --strip-all "$STAGE/bin/roce"
    strip --strip-unneeded "$STAGE/lib/$NAME"/*.so
    "$STAGE/bin/roce" man "$STAGE/share/man/man1"
    install -d "$STAGE"/share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
    "$STAGE/bin/roce" completions bash >"$STAGE/share/bash-completion/completions/roce"
    "$STAGE/bin/roce" completions zsh >"$STAGE/share/zsh/vendor-completions/_roce"
    "$STAGE/bin/roce" completions fish >"$STAGE/share/fish/vendor_completions.d/roce.fish"
    for file in LICENSE-APACHE LICENSE-MIT README.md CHANGELOG.md; do
        install -m 644 "$file" "$STAGE/share/doc/$NAME"
    done
    python3 tools/dist/crates.py licences >"$STAGE/share/doc/$NAME/THIRD-PARTY"
    python3 tools/dist/crates.py sbom >"$DIST/$NAME-$VERSION.cdx.json"
}

# The newest version of glibc that a symbol of the binaries needs.
glibc() {
    objdump -T "$STAGE/bin/roce" "$STAGE/lib/$NAME"/*.so |
        sed -n 's/.*[( ]GLIBC_\([0-9.]*\).*/\1/p' | sort -uV | tail -1
}

tarball() {
    tar_sorted --directory "$STAGE" --transform "s,^\.,$TAR_NAME," --create . |
        gzip -9n >"$DIST/$TAR_NAME.tar.gz"
}

# A Debian package without a build system of its own: the tree below /usr, and its control file.
deb() {
    local root=$DIST/deb arch
    arch=$(dpkg --print-architecture)
    rm -rf "$root"
    install -d "$root/DEBIAN"
    cp -r "$STAGE" "$root/usr"
    local doc=$root/usr/share/doc/$NAME
    gzip -9n "$root"/usr/share/man/man1/*.1
    gzip -9n "$doc/THIRD-PARTY"
    mv "$doc/CHANGELOG.md" "$doc/changelog"
    gzip -9n "$doc/changelog"
    rm "$doc"/LICENSE-*
    {
        printf 'softroce (%s-1) unstable; urgency=medium\n\n' "$VERSION"
        printf '  * Release %s: changelog.gz has its changes.\n\n' "$VERSION"
        printf ' -- %s  %s\n' "$MAINTAINER" "$(date -R -d "@$SOURCE_DATE_EPOCH")"
    } | gzip -9n >"$doc/changelog.Debian.gz"
    cat tools/dist/copyright LICENSE-MIT >"$doc/copyright"
    sed -e "s/@VERSION@/$VERSION-1/; s/@ARCH@/$arch/; s/@MAINTAINER@/$MAINTAINER/" \
        -e "s/@GLIBC@/$(glibc)/; s/@SIZE@/$(du -sk --apparent-size "$root/usr" | cut -f1)/" \
        tools/dist/control >"$root/DEBIAN/control"
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build "$root" "$DIST/${NAME}_$VERSION-1_$arch.deb" >/dev/null
}
MAINTAINER="The softroce developers <softroce@users.noreply.github.com>"

wheel() { python3 tools/dist/wheel.py "$STAGE" "$VERSION" "$(glibc)" "$ARCH" "$DIST"; }

# Root file system of an image: Debian's smallest, with the programs of perftest and rdma-core.
debian_root() {
    [ -d "$DIST/debian" ] && return
    installed debootstrap
    rm -rf "$DIST/debian.part"
    # It mounts `/proc` there. In a mount namespace of its own the mount ends with it, also if it is interrupted.
    unshare --mount debootstrap --variant=minbase --include=perftest,ibverbs-utils,iproute2 bookworm "$DIST/debian.part" \
        "$(mirror)" >"$DIST/debootstrap.log"
    chroot "$DIST/debian.part" apt-get clean
    printf '127.0.0.1 localhost\n::1 localhost\n' >"$DIST/debian.part/etc/hosts"
    rm -rf "$DIST"/debian.part/var/{lib/apt/lists,log,cache/ldconfig,cache/debconf}/*
    mv "$DIST/debian.part" "$DIST/debian"
}

# Where this machine takes Debian's packages from.
mirror() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | head -1
}

# An image in the layout of the Open Container Initiative, for `skopeo copy oci:…` and `podman pull oci:…`.
oci() {
    debian_root
    local layers=$DIST/layers
    rm -rf "$layers"
    install -d "$layers"
    tar_sorted --directory "$DIST/debian" --exclude='./proc/*' --exclude='./sys/*' --exclude='./dev/*' --create . \
        >"$layers/0-debian.tar"
    tar_sorted --directory "$STAGE" --transform 's,^\.,./usr,' --create . >"$layers/1-softroce.tar"
    rm -rf "$DIST/$NAME-oci"
    python3 tools/dist/oci.py "$layers" "$VERSION" "$ARCH" "$DIST/$NAME-oci"
    rm -rf "$layers"
}

# The default seccomp profile of Docker, out of the Debian package of its sources.
docker_profile() {
    local package=golang-github-docker-docker-dev
    [ -s "$DIST/docker.json" ] && return
    (cd "$DIST" && rm -f "$package"_*.deb && apt-get download -q "$package" >/dev/null)
    dpkg-deb --fsys-tarfile "$DIST/$package"_*.deb |
        tar --extract --to-stdout --wildcards '*/docker/docker/profiles/seccomp/default.json' >"$DIST/docker.json.part"
    rm "$DIST/$package"_*.deb
    mv "$DIST/docker.json.part" "$DIST/docker.json"
}

sums() {
    (cd "$DIST" && sha256sum -- *.tar.gz *.deb *.whl *.cdx.json >SHA256SUMS && cat SHA256SUMS)
}

packages() {
    build
    stage
    tarball
    deb
    wheel
    sums
}

# Installs what is missing of these packages.
installed() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    [ "$(id -u)" -eq 0 ] || { echo "dist.sh: packages are missing: ${missing[*]}" >&2; return 1; }
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" >/dev/null
}

# Names the Debian packages that it installs.
required() { echo "${PACKAGES[@]}" "${TEST_PACKAGES[@]}"; }

reproduce() {
    local first second place
    place=$(mktemp -d)
    packages >/dev/null
    first=$(cd "$DIST" && cat SHA256SUMS)
    git clone -q . "$place/elsewhere"
    CARGO_TARGET_DIR=$place/target "$place/elsewhere/tools/dist.sh" packages >/dev/null
    second=$(cat "$place/target/dist-packages/SHA256SUMS")
    rm -rf "$place"
    diff <(echo "$first") <(echo "$second")
    echo "two builds give the same bytes"
}

test() {
    installed "${PACKAGES[@]}" "${TEST_PACKAGES[@]}"
    packages
    local bytes
    bytes=$(cd "$DIST" && cat SHA256SUMS)
    stage && tarball && deb && wheel && sums >/dev/null
    diff <(echo "$bytes") "$DIST/SHA256SUMS"
    oci
    docker_profile
    DIST=$(realpath "$DIST") NAME=$NAME VERSION=$VERSION TAR_NAME=$TAR_NAME tools/dist/test.sh
}

[ $# -gt 0 ] || set -- packages oci
mkdir -p "$DIST"
for step in "$@"; do
    if ! declare -F "$step" >/dev/null; then
        echo "dist.sh: no step '$step'" >&2
        exit 2
    fi
    "$step"
done
