#!/usr/bin/env python3
"""What `roce perf` finds next to raw UDP, over the loopback interface or over a link between two hosts.

    cargo build --release --package softroce-tools
    tools/bench-udp.py
    tools/bench-udp.py --wire --rounds 7

All tests take turns, each with a measurement of raw UDP in the same shape just before it; the rows are
medians. With --wire (as root) the sides are in two network namespaces with a pair of veth interfaces
between them, of which one cuts bursts before the link and the other merges packets behind it: nothing
crosses the link as a whole, as it is between two machines. What came of it is in docs/PERFORMANCE.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
ROCE = TARGET / "release" / "roce"

# The name of a row, and its options.
TESTS = {
    "SEND of 64 bytes, one queue pair, 512 outstanding": "send-bw -s 64 -t 512 -r 2048",
    "WRITE of 64 bytes, one queue pair, 512 outstanding": "write-bw -s 64 -t 512",
    "SEND of 64 bytes, 16 queue pairs, 64 outstanding each": "send-bw -s 64 -t 64 -r 256 -q 16",
    "SEND there and back, 64 bytes": "send-lat -s 64",
    "WRITE there and back, 64 bytes": "write-lat -s 64",
    "READ of 64 bytes": "read-lat -s 64",
    "Fetch and add": "atomic-lat",
    "SEND there and back, 64 bytes, asleep": "send-lat -s 64 -e",
    "WRITE of 64 KiB, MTU 4096": "write-bw -s 65536 -m 4096",
    "SEND of 64 KiB, MTU 4096": "send-bw -s 65536 -m 4096",
    "READ of 64 KiB, MTU 4096": "read-bw -s 65536 -m 4096",
    "WRITE of 1 MiB, MTU 4096": "write-bw -s 1048576 -m 4096 -t 16",
    "SEND of 1 MiB, MTU 4096": "send-bw -s 1048576 -m 4096 -t 16 -r 64",
    "READ of 1 MiB, MTU 4096": "read-bw -s 1048576 -m 4096 -t 16",
    "WRITE of 64 KiB, MTU 1024": "write-bw -s 65536 -m 1024",
    "WRITE of 1 MiB, MTU 1024": "write-bw -s 1048576 -m 1024 -t 16",
}


def fail(why):
    sys.exit(f"bench-udp: {why}")


def run(*command):
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        fail(f"{' '.join(map(str, command))}: {ended.stderr.strip() or ended.stdout.strip()}")
    return ended.stdout


class Loopback:
    """Both sides over loopback addresses of this machine."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def perf(self, options):
        return run(ROCE, "perf", *options)


class Wire:
    """Each side in a network namespace, with a link between them."""

    def __init__(self):
        name = f"bench-{uuid.uuid4().hex[:8]}"
        self.sides = [f"{name}-a", f"{name}-b"]

    def __enter__(self):
        a, b = self.sides
        for side in self.sides:
            run("ip", "netns", "add", side)
        run("ip", "link", "add", "wire", "netns", a, "mtu", "9000", "type", "veth",
            "peer", "name", "wire", "netns", b, "mtu", "9000")
        for number, side in enumerate(self.sides, 1):
            inside = ["ip", "netns", "exec", side]
            run(*inside, "ip", "address", "add", f"10.9.0.{number}/24", "dev", "wire")
            run(*inside, "ethtool", "-K", "wire", "tx-udp-segmentation", "off", "tso", "off", "gro", "on")
            run(*inside, "ip", "link", "set", "wire", "up")
            run(*inside, "ip", "link", "set", "lo", "up")
        return self

    def __exit__(self, *_):
        for side in self.sides:
            subprocess.run(["ip", "netns", "delete", side], check=False)

    def perf(self, options):
        a, b = (["ip", "netns", "exec", side, ROCE, "perf", options[0]] for side in self.sides)
        listen = [*b, "--listen", "--ip", "10.9.0.2", "--port", "0", "--announce"]
        with subprocess.Popen(listen, stdout=subprocess.PIPE, text=True) as other:
            port = other.stdout.readline().strip()
            said = run(*a, *options[1:], "--ip", "10.9.0.1", "--port", port, "10.9.0.2")
            other.wait()
        return said


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wire", action="store_true", help="between two namespaces, not over loopback")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.25, help="of each test in a round")
    parser.add_argument("--only", default="", help="tests whose name begins like this")
    options = parser.parse_args()
    tests = {name: test for name, test in TESTS.items() if name.startswith(options.only)}
    if not tests:
        fail(f"no test begins with '{options.only}': {'; '.join(TESTS)}")
    if options.rounds < 1 or options.seconds <= 0:
        fail("--rounds is at least 1, and --seconds more than 0")
    if not ROCE.exists():
        fail(f"{ROCE} is not there: cargo build --release --package softroce-tools")

    found = {name: [] for name in tests}
    with Wire() if options.wire else Loopback() as place:
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
            for name, test in tests.items():
                said = place.perf([*test.split(), "-D", str(options.seconds), "--json"])
                found[name].append(json.loads(said))

    def median(rows, *keys):
        values = []
        for row in rows:
            for key in keys:
                row = row[key]
            values.append(row)
        return statistics.median(values)

    # Of a latency, how many times raw UDP's.
    print("| | | of raw UDP |\n|---|--:|--:|")
    for name, rows in found.items():
        fraction = median(rows, "fraction_of_ceiling")
        if rows[0]["latency_us"]:
            p50, p99 = (median(rows, "latency_us", key) for key in ("p50", "p99"))
            print(f"| {name} | {p50:.1f} µs, {p99:.1f} µs | {fraction:.2f} |")
        elif rows[0]["size"] < 1024:
            print(f"| {name} | {median(rows, 'msg_per_s') / 1e6:.2f} M/s | {fraction:.2f} |")
        else:
            print(f"| {name} | {median(rows, 'gbit_per_s'):.1f} Gbit/s | {fraction:.2f} |")


if __name__ == "__main__":
    main()
