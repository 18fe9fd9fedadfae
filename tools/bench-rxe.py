#!/usr/bin/env python3
"""How fast softroce is next to kernel rxe, on the same processors: those of a guest.

    tools/bench-rxe.py
    tools/bench-rxe.py --kernel 6.12 --rounds 3 --only send-lat

perftest over rxe and `roce perf` over the loopback interface take turns in one guest with two processors,
which are emulated: only the ratios mean something. The rows are medians. `roce` is linked statically for
it, and runs in a network namespace of its own, for rxe has UDP port 4791 in the guest's.
What came of it is in docs/PERFORMANCE.md.

environment: ROCE  the command to measure, linked statically, instead of the one that cargo builds
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
VM = ROOT / "tools/rxe-vm/rxe-vm"
TRIPLE = "x86_64-unknown-linux-gnu"
GUEST = "a"
ADDRESS = "10.77.0.2"
PORT = 18515


@dataclass
class Test:
    """A test that both have, and which column of its row counts."""

    name: str
    verb: str
    size: int
    mtu: int
    unit: str
    # Of the numbers in perftest's row, and of an object of ours.
    column: int
    ours: tuple

    def is_latency(self):
        return self.verb.endswith("lat")


def bandwidth(verb, size, mtu):
    title = f"{verb} {size >> 10} KiB, MTU {mtu}"
    return Test(title, verb, size, mtu, "Gbit/s", 3, ("gbit_per_s",))


TESTS = [
    bandwidth("write-bw", 65536, 1024),
    bandwidth("write-bw", 65536, 4096),
    bandwidth("read-bw", 65536, 4096),
    bandwidth("send-bw", 65536, 4096),
    Test("send-bw 64 B", "send-bw", 64, 4096, "M/s", 4, ("msg_per_s",)),
    Test("write-bw 64 B", "write-bw", 64, 4096, "M/s", 4, ("msg_per_s",)),
    Test("send-lat 64 B", "send-lat", 64, 4096, "us", 4, ("latency_us", "p50")),
    Test("write-lat 64 B", "write-lat", 64, 4096, "us", 4, ("latency_us", "p50")),
    Test("read-lat 64 B", "read-lat", 64, 4096, "us", 4, ("latency_us", "p50")),
]


def fail(why):
    sys.exit(f"bench-rxe: {why}")


def run(*command, **more):
    ended = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if ended.returncode != 0:
        fail(f"{' '.join(map(str, command))}: {ended.stderr.strip() or ended.stdout.strip()}")
    return ended.stdout


def vm(*command):
    return run(VM, *command, env=os.environ | {"RXE_VM_CACHE": str(TARGET / "rxe-vm")})


def in_guest(line):
    return vm("run", "-t", "300", GUEST, line)


def static_roce():
    """`roce` with all its libraries in it."""
    if given := os.environ.get("ROCE"):
        return Path(given)
    target = TARGET / "static"
    command = ["cargo", "build", "--release", "--package=softroce-tools", "--bin=roce", f"--target={TRIPLE}"]
    flags = os.environ | {"RUSTFLAGS": "-C target-feature=+crt-static", "CARGO_TARGET_DIR": str(target)}
    if subprocess.run(command, cwd=ROOT, env=flags, check=False).returncode != 0:
        fail("roce was not built")
    return target / TRIPLE / "release" / "roce"


def perftest(test, seconds):
    amount = f"-n {seconds * 500}" if test.is_latency() else f"-D {seconds}"
    program = f"ib_{test.verb.replace('-', '_')} -F -d rxe0 -x 1 -s {test.size} -m {test.mtu} {amount}"
    if not test.is_latency():
        program += " --report_gbits"
    listens = f"grep -q ':{PORT:04X} .* 0A ' /proc/net/tcp"
    said = in_guest(f"{program} >/dev/null & until {listens}; do :; done; {program} {ADDRESS}; wait")
    rows = [line.split() for line in said.splitlines() if line.split()[:1] == [str(test.size)]]
    if len(rows) != 1:
        fail(f"{program} has printed no row:\n{said}")
    return float(rows[0][test.column])


def ours(test, seconds):
    amount = f"-n {seconds * 500}" if test.is_latency() else f"-D {seconds} -t 128"
    said = in_guest(
        "unshare -n sh -c 'ip link set lo up && "
        f"roce perf {test.verb} -s {test.size} -m {test.mtu} {amount} --no-ceiling --json'"
    )
    value = json.loads(said)
    for key in test.ours:
        value = value[key]
    return value / 1e6 if test.unit == "M/s" else value


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernel", default="6.1", help="as for rxe-vm: 6.1, 6.12 or newest")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=2, help="of each bandwidth test in a round")
    parser.add_argument("--only", default="", help="tests whose name begins like this")
    options = parser.parse_args()
    tests = [test for test in TESTS if test.name.startswith(options.only)]
    if not tests:
        fail(f"no test begins with '{options.only}': {', '.join(test.name for test in TESTS)}")
    if options.rounds < 1 or options.seconds < 1:
        fail("rounds and seconds are at least 1")

    roce = static_roce()
    print(vm("up", GUEST, "-k", options.kernel, "-c", "2", "-M", "1024").strip(), file=sys.stderr)
    try:
        vm("put", GUEST, roce)
        found = {test.name: ([], []) for test in tests}
        for number in range(options.rounds):
            for test in tests:
                rxe, softroce = found[test.name]
                rxe.append(perftest(test, options.seconds))
                softroce.append(ours(test, options.seconds))
                print(f"{number + 1}: {test.name}: {rxe[-1]:.3f} {softroce[-1]:.3f}", file=sys.stderr)
    finally:
        vm("down", GUEST)

    print("| | rxe | softroce | ratio |\n|---|--:|--:|--:|")
    for test in tests:
        rxe, softroce = map(statistics.median, found[test.name])
        ratio = rxe / softroce if test.is_latency() else softroce / rxe
        print(f"| {test.name} | {rxe:.3g} {test.unit} | {softroce:.3g} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
