#!/usr/bin/env bash
# Installs softroce in a CI job, and exports the environment with which later steps use it.
#
# On GitHub's runners the variables go to the files GITHUB_ENV and GITHUB_PATH. Elsewhere:
#
#   eval "$(ci/setup.sh)"
#
# Variables that it reads:
#
#   SOFTROCE_PACKAGE   tarball of tools/dist.sh, a file or a URL; default: builds from this source tree with cargo
#   SOFTROCE_DIR       directory of the installation; default: softroce in RUNNER_TEMP or in the project
#   SOFTROCE_OPTIONS   options of roce run, such as --impair loss=0.01,seed=7
#   SOFTROCE_CHECK     true: all packets are captured, and ci/check.sh checks them at the end of the job
set -euo pipefail

source=$(cd "$(dirname "$0")/.." && pwd)
directory=${SOFTROCE_DIR:-${RUNNER_TEMP:-${CI_PROJECT_DIR:-$PWD}}/softroce}
mkdir -p "$directory"

case ${SOFTROCE_PACKAGE:-} in
'')
    (cd "$source" && cargo build --release --locked --target-dir "$directory/target") >&2
    bin=$directory/target/release
    ;;
http://* | https://*)
    curl --fail --silent --show-error --location "$SOFTROCE_PACKAGE" | tar -xz --directory "$directory" --strip-components 1
    bin=$directory/bin
    ;;
*)
    tar -xzf "$SOFTROCE_PACKAGE" --directory "$directory" --strip-components 1
    bin=$directory/bin
    ;;
esac

options=()
[ -z "${SOFTROCE_OPTIONS:-}" ] || read -ra options <<<"$SOFTROCE_OPTIONS"
if [ "${SOFTROCE_CHECK:-}" = true ]; then
    mkdir -p "$directory/captures"
    # One file for each process.
    options+=(--pcap "$directory/captures/%p.pcapng")
fi
exports=$("$bin/roce" run --env "${options[@]}")
if [ -n "${GITHUB_ENV:-}" ]; then
    echo "$bin" >>"$GITHUB_PATH"
    echo "SOFTROCE_DIR=$directory" >>"$GITHUB_ENV"
    # From export NAME='value' to NAME=value.
    (eval "$exports" && for name in $(sed -n 's/^export \([A-Z_]*\)=.*/\1/p' <<<"$exports"); do
        echo "$name=${!name}"
    done) >>"$GITHUB_ENV"
else
    echo "export PATH='$bin':\"\$PATH\" SOFTROCE_DIR='$directory'"
    echo "$exports"
fi
