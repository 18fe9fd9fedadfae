#!/usr/bin/env python3
"""Softroce and kernel rxe on the same processors: those of a guest.

    tools/bench-rxe.py
    tools/bench-rxe.py --kernel 6.12 --rounds 3 --only send-lat

perftest over rxe and `roce perf`, over the loopback interface and through shared memory, run alternately in one
guest with two emulated processors, so only ratios are meaningful. Rows are medians. `roce` is linked statically,
and runs in its own network namespace, because rxe owns UDP port 4791 in that of the guest. docs/PERFORMANCE.md has
the results.

environment: ROCE  the command to measure, linked statically, instead of the one that cargo builds
"""

import json
import statistics
import sys
from dataclasses import dataclass

import guests
from benchmark import Table, Turns, fail, parser, publish
from guests import static_roce, vm

GUEST = "a"
ADDRESS = "10.77.0.2"
# Ports of `roce perf`.
PORTS = ("udp", "shm")
# The tables in docs/results.json by the unit of their rows, the unit as a page has it, and its digits.
KINDS = {"Gbit/s": ("bandwidths", "Gbit/s", 2), "M/s": ("rates", "M/s", 3), "us": ("latencies", "µs", 1)}


@dataclass
class Test:
    """A test that both have, and which column of its row counts."""

    name: str
    verb: str
    size: int
    mtu: int
    unit: str
    # Column of perftest's row, and keys of the JSON of `roce perf`.
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


def perftest(test, seconds):
    amount = f"-n {seconds * 500}" if test.is_latency() else f"-D {seconds}"
    report = [] if test.is_latency() else ["--report_gbits"]
    program = guests.perftest(test.verb, test.size, test.mtu, amount, *report)
    said = guests.in_guest(
        GUEST, f"{program} >/dev/null & until {guests.LISTENS}; do :; done; {program} {ADDRESS}; wait"
    )
    row = guests.row_of(said, test.size)
    if row is None:
        fail(f"{program} has printed no row:\n{said}")
    return float(row[test.column])


def ours(test, port, seconds):
    amount = f"-n {seconds * 500}" if test.is_latency() else f"-D {seconds} -t 128 -l 16"
    said = guests.in_guest(
        GUEST,
        "unshare -n sh -c 'ip link set lo up && "
        f"roce perf {test.verb} -s {test.size} -m {test.mtu} {amount} --via {port} --no-ceiling --json'",
    )
    value = json.loads(said)
    for key in test.ours:
        value = value[key]
    return value / 1e6 if test.unit == "M/s" else value


def main():
    turns, options = Turns([test.name for test in TESTS], 2), parser(__doc__)
    options.add_argument("--kernel", default="6.1", help="as for rxe-vm: 6.1, 6.12 or newest")
    turns.add_to(options)
    options = options.parse_args()
    names = turns.chosen(options)
    tests = [test for test in TESTS if test.name in names]

    roce = static_roce()
    print(vm("up", GUEST, "-k", options.kernel, "-c", "2", "-M", "1024").strip(), file=sys.stderr)
    try:
        vm("put", GUEST, roce)
        found = {test.name: [] for test in tests}
        for number in range(options.rounds):
            for test in tests:
                row = [perftest(test, options.seconds), *(ours(test, port, options.seconds) for port in PORTS)]
                found[test.name].append(row)
                print(f"{number + 1}: {test.name}:", *(f"{value:.3f}" for value in row), file=sys.stderr)
    finally:
        vm("down", GUEST)

    tables = {}
    for test in tests:
        kind, unit, digits = KINDS[test.unit]
        table = tables.setdefault(f"rxe-{kind}", Table(
            (f"rxe, {unit}", digits), (f"UDP sockets, {unit}", digits), ("ratio", 2),
            (f"shared memory, {unit}", digits), ("ratio", 2)))
        rxe, *softroce = map(statistics.median, zip(*found[test.name], strict=True))
        ratios = [rxe / value if test.is_latency() else value / rxe for value in softroce]
        table.add(test.name, rxe, *(cell for pair in zip(softroce, ratios, strict=True) for cell in pair))
    for table in tables.values():
        table.print()
    if options.publish:
        publish(tables, options.rounds, "guest with 2 emulated CPUs", f"Linux {options.kernel}")


if __name__ == "__main__":
    main()
