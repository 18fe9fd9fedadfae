#!/usr/bin/env bash
# Tries the packages in clean places: Debian roots without network, without Rust and without this source tree.
#
# tools/dist.sh runs it, as root, with the variables DIST, NAME, VERSION and TAR_NAME. Arguments: single packages, by the
# names of the functions below.
set -euo pipefail
cd "$(dirname "$0")/../.."

# Programs that the CI examples need, on top of the image's.
TOOLS=(cmake g++ libibverbs-dev make pkg-config python3-pytest python3-pyverbs python3-venv)

# Runs a script in a copy of the Debian root, without network. $1: `plain`, or `tools` for a root with TOOLS.
# Below /mnt the script finds the packages, and below /src the examples.
clean() {
    local layers=$DIST/debian place script=$2
    [ "$1" = plain ] || layers=$DIST/debian-tools:$layers
    place=$(mktemp -d "$DIST/clean.XXXXXX")
    mkdir "$place"/{upper,work,root}
    LAYERS=$layers PLACE=$place CI_DIR=$PWD/ci SCRIPT=$script \
        VIOLATION=$PWD/pcap/captures/rxe/k612_awrite_misaligned.pcap timeout 300 \
        unshare --mount --net --pid --ipc --uts --fork --kill-child bash -euc '
            mount -t overlay overlay -o "lowerdir=$LAYERS,upperdir=$PLACE/upper,workdir=$PLACE/work" "$PLACE/root"
            cd "$PLACE/root"
            mount -t proc proc proc
            mount -t tmpfs tmpfs dev
            mkdir dev/shm mnt/packages src
            cp "$VIOLATION" mnt/violation.pcapng
            chmod 1777 dev/shm
            for device in null zero full random urandom; do
                touch "dev/$device"
                mount --bind "/dev/$device" "dev/$device"
            done
            ln -s /proc/self/fd dev/fd
            mount --bind "$DIST" mnt/packages
            mount --bind "$CI_DIR" src
            mount -o remount,ro,bind mnt/packages
            mount -o remount,ro,bind src
            ip link set lo up
            exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/home/user TMPDIR=/tmp VERSION="$VERSION" \
                TAR_NAME="$TAR_NAME" chroot . /bin/bash -euc "
                    useradd --create-home --uid 1000 user
                    cd /home/user
                    $SCRIPT"
        '
    rm -rf "$place"
}

# As the user without privileges of a clean place.
AS_USER='setpriv --reuid=1000 --regid=1000 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs'

# Two programs of perftest find each other, and write.
TRANSFER='
transfer() {
    "$@" ib_write_bw -n 500 >server.txt 2>&1 &
    for attempt in $(seq 50); do
        if "$@" ib_write_bw -n 500 localhost >client.txt 2>&1; then
            wait $!
            grep "^ 65536  *500 " client.txt
            return
        fi
        sleep 0.2
    done
    kill $!
    cat server.txt client.txt
    return 1
}
'

deb() {
    lintian --fail-on error "$DIST/$NAME"_*.deb
    clean plain "
        dpkg --install /mnt/packages/${NAME}_*.deb >/dev/null
        $AS_USER bash -euc '$TRANSFER transfer roce run --'
        [ \"\$(roce --version)\" = 'roce $VERSION' ]
        [ -e /usr/share/man/man1/roce-run.1.gz ] || [ -e /etc/dpkg/dpkg.cfg.d ]
        dpkg --purge $NAME >/dev/null
        [ -z \"\$(find / -xdev -iname '*softroce*' -not -path '/mnt/*' -not -path '/src/*' -not -path '/tmp/*' \
            -not -path '/home/*' -not -path '/var/log/*')\" ]"
}

tarball() {
    # It runs wherever it lies.
    clean plain "
        $AS_USER bash -euc '
            $TRANSFER
            tar -xf /mnt/packages/$TAR_NAME.tar.gz
            transfer ./$TAR_NAME/bin/roce run --
            mv $TAR_NAME elsewhere
            PATH=\$PWD/elsewhere/bin:\$PATH
            transfer roce run --
            eval \"\$(roce run --env)\"
            transfer env
        '"
}

wheel() {
    clean tools "
        $AS_USER bash -euc '
            $TRANSFER
            python3 -m venv --system-site-packages venv
            venv/bin/pip install --quiet --no-index /mnt/packages/$NAME-*.whl
            PATH=\$PWD/venv/bin:\$PATH
            transfer roce run --
            transfer python3 -m softroce run --
            python3 -c \"
import os, subprocess, softroce
env = {**os.environ, **softroce.env(ip=[\\\"127.0.0.9\\\"], impair=\\\"loss=0.01\\\")}
assert env[\\\"SOFTROCE_IP\\\"] == \\\"127.0.0.9\\\", env
listed = subprocess.run([\\\"ibv_devices\\\"], env=env, check=True, stdout=subprocess.PIPE, text=True)
assert \\\"softroce0\\\" in listed.stdout, listed
try:
    softroce.env(impair=\\\"loss=2\\\")
except subprocess.CalledProcessError as error:
    assert \\\"loss\\\" in error.stderr, error.stderr
else:
    raise AssertionError(\\\"refused nothing\\\")
\"
            cp -r /src/samples/pytest sample
            cd sample
            python3 -m pytest -q -p no:cacheprovider
        '"
}

# Runs a command in the image, as a user without privileges and without network. Leading options are those of bwrap.
contained() {
    local options=()
    while [[ $1 == --* ]]; do
        options+=("$1" "$2")
        shift 2
    done
    bwrap --unshare-all --uid 1000 --gid 1000 --ro-bind "$DIST/image" / --proc /proc --dev /dev --tmpfs /tmp \
        --clearenv --setenv PATH /usr/bin:/bin --chdir /tmp "${options[@]}" "$@"
}

image() {
    local root=$DIST/image layer
    rm -rf "$root"
    mkdir "$root"
    python3 - "$DIST/$NAME-oci" >"$DIST/layers.txt" <<'EOF'
import hashlib, json, pathlib, sys
blobs = pathlib.Path(sys.argv[1]) / "blobs" / "sha256"
index = json.loads((blobs.parent.parent / "index.json").read_text())
def blob(descriptor):
    path = blobs / descriptor["digest"].removeprefix("sha256:")
    data = path.read_bytes()
    assert hashlib.sha256(data).hexdigest() == path.name and len(data) == descriptor["size"], path
    return path, data
manifest = json.loads(blob(index["manifests"][0])[1])
blob(manifest["config"])
for layer in manifest["layers"]:
    print(blob(layer)[0])
EOF
    while read -r layer; do tar --directory "$root" -xzf "$layer"; done <"$DIST/layers.txt"
    contained bash -euc "$TRANSFER transfer roce run --"
    # Under the default profiles of Podman and Docker, and with the gaps of an old kernel and of a sandbox.
    local profile
    for profile in /usr/share/containers/seccomp.json "$DIST/docker.json" tools/dist/seccomp/{linux-4.18,sandbox}.json; do
        echo "-- $profile"
        /usr/bin/python3 tools/dist/seccomp/bpf.py "$profile" >"$DIST/seccomp.bpf"
        contained --seccomp 9 bash -euc \
            "$TRANSFER transfer roce run -- && transfer roce run --via shm -- && roce doctor" 9<"$DIST/seccomp.bpf"
    done
    rm -rf "$root" "$DIST/layers.txt"
}

# The steps of ci/, as the runners of GitHub and GitLab carry them out.
examples() {
    clean tools "
        $AS_USER bash -euc '
            cp -r /src/samples/cmake project
            export SOFTROCE_PACKAGE=/mnt/packages/$TAR_NAME.tar.gz SOFTROCE_DIR=\$PWD/softroce
            export GITHUB_ENV=\$PWD/github.env GITHUB_PATH=\$PWD/github.path SOFTROCE_CHECK=true
            bash /src/setup.sh >setup.log
            # The runner puts both files into the environment of the next step.
            PATH=\$(cat github.path):\$PATH
            while IFS= read -r line; do export \"\$line\"; done <github.env
            cmake -S project -B build >cmake.log
            cmake --build build >>cmake.log
            ctest --test-dir build --output-on-failure
            bash /src/check.sh
            # A capture with a violation fails the job, with an annotation.
            cp /mnt/violation.pcapng softroce/captures/1.pcapng
            if bash /src/check.sh >check.log; then exit 1; fi
            grep \"^::error title=softroce::\" check.log
        '"
}

# The root with TOOLS: a layer over the image's.
tools_root() {
    [ -d "$DIST/debian-tools" ] && return
    local place
    place=$(mktemp -d "$DIST/tools.XXXXXX")
    mkdir "$place"/{upper,work,root}
    PLACE=$place unshare --mount --fork bash -euc '
        mount -t overlay overlay -o "lowerdir=$DIST/debian,upperdir=$PLACE/upper,workdir=$PLACE/work" "$PLACE/root"
        mount -t proc proc "$PLACE/root/proc"
        chroot "$PLACE/root" apt-get update -q
        DEBIAN_FRONTEND=noninteractive chroot "$PLACE/root" apt-get install -q -y --no-install-recommends "$@" 2>&1
        chroot "$PLACE/root" apt-get clean
    ' tools "${TOOLS[@]}" >"$DIST/tools.log"
    mv "$place/upper" "$DIST/debian-tools"
    rm -rf "$place"
}

tools_root
[ $# -gt 0 ] || set -- deb tarball wheel image examples
for package in "$@"; do
    start=$SECONDS
    "$package"
    echo "dist: $package: $((SECONDS - start)) s"
done
