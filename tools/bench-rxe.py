#!/usr/bin/env python3
"""The same perftest over kernel rxe and on softroce, on the same processors: those of a guest.

    cargo build --release
    tools/bench-rxe.py
    tools/bench-rxe.py --kernel 6.12 --rounds 3 --only send-lat

perftest runs over rxe, and under `roce run` over the loopback interface and through shared memory, alternately in one
guest with two emulated processors, so only ratios are meaningful. Rows are medians. Under `roce run` it has its own
network namespace, because rxe owns UDP port 4791 in that of the guest. Options are perftest's defaults but for size, MTU
and duration: one request a call. docs/PERFORMANCE.md has the results.
"""

import statistics
import sys
from dataclasses import dataclass

import guests
from benchmark import ROCE, TARGET, Table, Turns, built, built_roce, fail, parser, publish, run
from guests import vm

GUEST = "a"
ADDRESS = "10.77.0.2"
# Ports of `roce run`.
PORTS = ("udp", "shm")
# The tables in docs/results.json by the unit of their rows, the unit as a page has it, and its digits.
KINDS = {"Gbit/s": ("bandwidths", "Gbit/s", 2), "M/s": ("rates", "M/s", 3), "us": ("latencies", "µs", 1)}


@dataclass
class Test:
    """A test of perftest, and which column of its row counts."""

    name: str
    verb: str
    size: int
    mtu: int
    unit: str
    # Column of perftest's row.
    column: int

    def is_latency(self):
        return self.verb.endswith("lat")


def bandwidth(verb, size, mtu):
    title = f"{verb} {size >> 10} KiB, MTU {mtu}"
    return Test(title, verb, size, mtu, "Gbit/s", 3)


TESTS = [
    bandwidth("write-bw", 65536, 1024),
    bandwidth("write-bw", 65536, 4096),
    bandwidth("read-bw", 65536, 4096),
    bandwidth("send-bw", 65536, 4096),
    Test("send-bw 64 B", "send-bw", 64, 4096, "M/s", 4),
    Test("write-bw 64 B", "write-bw", 64, 4096, "M/s", 4),
    Test("send-lat 64 B", "send-lat", 64, 4096, "us", 4),
    Test("write-lat 64 B", "write-lat", 64, 4096, "us", 4),
    Test("read-lat 64 B", "read-lat", 64, 4096, "us", 4),
]


def perftest(test, seconds, device, address, begin=""):
    """The figure of a test between two processes of the guest; `begin` stands before each of their commands."""
    amount = f"-n {seconds * 500}" if test.is_latency() else f"-D {seconds}"
    report = [] if test.is_latency() else ["--report_gbits"]
    program = begin + guests.perftest(test.verb, test.size, test.mtu, device, amount, *report)
    line = f"{program} >/dev/null & until {guests.LISTENS}; do :; done; {program} {address}; wait"
    if begin:
        line = f"unshare -n sh -c 'ip link set lo up; {line.replace(chr(39), chr(34))}'"
    said = guests.in_guest(GUEST, line)
    row = guests.row_of(said, test.size)
    if row is None:
        fail(f"{program} has printed no row:\n{said}")
    return float(row[test.column])


def under_rxe(test, seconds):
    return perftest(test, seconds, "-d rxe0 -x 1", ADDRESS)


def under_softroce(test, port, seconds):
    return perftest(test, seconds, "", "127.0.0.1", f"LD_LIBRARY_PATH=/share/bin roce run --via {port} -- ")


def main():
    turns, options = Turns([test.name for test in TESTS], 2), parser(__doc__)
    options.add_argument("--kernel", default="6.1", help="as for rxe-vm: 6.1, 6.12 or newest")
    turns.add_to(options)
    options = options.parse_args()
    names = turns.chosen(options)
    tests = [test for test in TESTS if test.name in names]

    built_roce()
    how = "cargo build --release"
    libraries = [built(TARGET / "release" / f"lib{name}.so", how) for name in ("ibverbs", "softroce_paths")]
    # Rust's standard library unwinds with it, and the guest has none.
    libraries.append(run("gcc", "-print-file-name=libgcc_s.so.1").strip())
    print(vm("up", GUEST, "-k", options.kernel, "-c", "2", "-M", "1024").strip(), file=sys.stderr)
    try:
        vm("put", GUEST, ROCE, *libraries)
        found = {test.name: [] for test in tests}
        for number in range(options.rounds):
            for test in tests:
                row = [under_rxe(test, options.seconds), *(under_softroce(test, port, options.seconds) for port in PORTS)]
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
