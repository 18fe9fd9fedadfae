#!/usr/bin/env bash
# Checks the packets of all programs of a CI job, after ci/setup.sh with SOFTROCE_CHECK=true. Exits with 1 after a
# violation of the protocol. On GitHub each violation is an annotation of the step.
set -euo pipefail

# roce itself needs no library of the job.
unset LD_PRELOAD SOFTROCE_PCAP
directory=${SOFTROCE_DIR:-${RUNNER_TEMP:-${CI_PROJECT_DIR:-$PWD}}/softroce}
roce=$directory/bin/roce
[ -x "$roce" ] || roce=$directory/target/release/roce
status=0
for capture in "$directory"/captures/*.pcapng; do
    [ -e "$capture" ] || continue
    report=$("$roce" check "$capture") && continue
    status=1
    echo "$report"
    if [ -n "${GITHUB_ENV:-}" ]; then
        # A line feed within an annotation is %0A.
        echo "::error title=softroce::${report//$'\n'/%0A}"
    fi
done
exit "$status"
