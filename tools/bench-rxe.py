#!/usr/bin/env python3
"""The same perftest and cmtime over kernel rxe and on softroce, on the same processors: those of a guest.

    cargo build --release
    cargo build --release --package softroce-tools --example datagrams
    tools/bench-rxe.py
    tools/bench-rxe.py --kernel 6.12 --rounds 3 --only send-lat
    tools/bench-rxe.py --only cmtime

perftest runs over rxe, and under `roce run` over the loopback interface and through shared memory, alternately in one
guest with two emulated processors, so only ratios are meaningful. Rows are medians. Under `roce run` it has its own
network namespace, because rxe owns UDP port 4791 in that of the guest. Options are perftest's defaults but for size, MTU
and duration: one request a call. cmtime makes and ends a thousand connections by the connection manager; their rate is
that of all its steps together. Next to it stands the rate of their datagrams alone (bench-rxe-datagrams.c), and next to
latencies bare UDP with the same datagrams (the example `datagrams`): a limit for UDP sockets.
docs/PERFORMANCE.md has the results.
"""

import re
import shlex
import statistics
import sys
from dataclasses import dataclass

import guests
from benchmark import ROCE, ROOT, TARGET, Table, Turns, built, built_roce, fail, parser, publish, run
from guests import vm

GUEST = "a"
ADDRESS = "10.77.0.2"
ROCE_IN_GUEST = "/share/bin/roce"
# Ports of `roce run`.
PORTS = ("udp", "shm")
# The tables in docs/results.json by the unit of their rows, the unit as a page has it, and its digits.
KINDS = {
    "Gbit/s": ("bandwidths", "Gbit/s", 2), "M/s": ("rates", "M/s", 3), "us": ("latencies", "µs", 1),
    "1/s": ("connections", "connections a second", 0),
}


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
    # As the example `datagrams` takes them: sizes of UDP payloads.
    exchange: str = ""

    def is_latency(self):
        return self.verb.endswith("lat")

    def has_limit(self):
        return bool(self.exchange)

    def limit(self, seconds):
        said = in_guest(f"/share/bin/datagrams {seconds} {shlex.quote(self.exchange)}", True)
        return float(said)

    def under_rxe(self, seconds):
        return perftest(self, seconds, "-d rxe0 -x 1", ADDRESS)

    def under_softroce(self, port, seconds):
        return perftest(self, seconds, "", "127.0.0.1", under_roce(port))


@dataclass
class Connections:
    """Connections of cmtime."""

    name: str
    count: int
    unit: str = "1/s"

    def is_latency(self):
        return False

    def has_limit(self):
        return True

    def limit(self, _):
        return float(guests.in_guest(GUEST, f"connection-datagrams {self.count}"))

    def under_rxe(self, seconds):
        return cmtime(self.count, ADDRESS, "rdma resource show cm_id | grep -q LISTEN")

    def under_softroce(self, port, seconds):
        listens = f"{ROCE_IN_GUEST} top --once --json | grep -q 'listeners.:.{{'"
        return cmtime(self.count, "127.0.0.1", listens, under_roce(port))


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
    Test("send-lat 64 B", "send-lat", 64, 4096, "us", 4, "80"),
    Test("write-lat 64 B", "write-lat", 64, 4096, "us", 4, "96"),
    Test("read-lat 64 B", "read-lat", 64, 4096, "us", 4, "32; 84"),
    Connections("cmtime, 1000 connections", 1000),
]


def perftest(test, seconds, device, address, begin=""):
    """The figure of a test between two processes of the guest; `begin` stands before each of their commands."""
    amount = f"-n {seconds * 500}" if test.is_latency() else f"-D {seconds}"
    report = [] if test.is_latency() else ["--report_gbits"]
    program = begin + guests.perftest(test.verb, test.size, test.mtu, device, amount, *report)
    line = f"{program} >/dev/null & until {guests.LISTENS}; do :; done; {program} {address}; wait"
    said = in_guest(line, bool(begin))
    row = guests.row_of(said, test.size)
    if row is None:
        fail(f"{program} has printed no row:\n{said}")
    return float(row[test.column])


def cmtime(count, address, listens, begin=""):
    """Connections a second that cmtime makes and ends in the guest."""
    program = f"{begin}cmtime -c {count}"
    server = f"{program} -b {address} >/dev/null 2>&1 & server=$!"
    line = f"{server}; until {listens}; do :; done; {program} -s {address} || :; kill $server || :"
    said = in_guest(line, bool(begin))
    # A step and its total in milliseconds, and more. Of rdma-core 56: a step, its mean and its total in microseconds, in a
    # first table of several.
    milliseconds = [float(total) for total in re.findall(r"^[a-z][a-z ]*:\s+([\d.]+)", said, re.M)]
    steps = re.findall(r"^(full connect|disconnect|destroy id|destroy qp) +\d+ +(\d+)", said, re.M)
    milliseconds += [int(total) / 1000 for total in dict(reversed(steps)).values()]
    if not milliseconds:
        fail(f"{program} has printed no times:\n{said}")
    return count / (sum(milliseconds) / 1000)


def in_guest(line, has_namespace):
    """Runs a line of sh in the guest, possibly in a network namespace of its own. Returns its output."""
    if has_namespace:
        line = f"unshare -n sh -c {shlex.quote(f'ip link set lo up; {line}')}"
    return guests.in_guest(GUEST, line)


def under_roce(port):
    return f"LD_LIBRARY_PATH=/share/bin {ROCE_IN_GUEST} run --via {port} -- "


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
    example = built(TARGET / "release/examples/datagrams", "cargo build --release --package softroce-tools --example datagrams")
    # Rust's standard library unwinds with it, and the guest has none.
    libraries.append(run("gcc", "-print-file-name=libgcc_s.so.1").strip())
    print(vm("up", GUEST, "-k", options.kernel, "-c", "2", "-M", "1024").strip(), file=sys.stderr)
    try:
        vm("put", GUEST, ROCE, example, *libraries)
        vm("cc", GUEST, "connection-datagrams", ROOT / "tools/bench-rxe-datagrams.c")
        found = {test.name: [] for test in tests}
        for number in range(options.rounds):
            for test in tests:
                row = [test.under_rxe(options.seconds), *(test.under_softroce(port, options.seconds) for port in PORTS)]
                row += [test.limit(options.seconds)] if test.has_limit() else []
                found[test.name].append(row)
                print(f"{number + 1}: {test.name}:", *(f"{value:.3f}" for value in row), file=sys.stderr)
    finally:
        vm("down", GUEST)

    tables = {}
    for test in tests:
        kind, unit, digits = KINDS[test.unit]
        columns = ["UDP sockets", "shared memory", "datagrams alone" if kind == "connections" else "bare UDP"]
        rxe, *others = map(statistics.median, zip(*found[test.name], strict=True))
        ratios = [rxe / value if test.is_latency() else value / rxe for value in others]
        titles = [(f"{column}, {unit}", digits) for column, _ in zip(columns, others, strict=False)]
        pairs = [pair for title in titles for pair in (title, ("ratio", 2))]
        table = tables.setdefault(f"rxe-{kind}", Table((f"rxe, {unit}", digits), *pairs))
        table.add(test.name, rxe, *(cell for pair in zip(others, ratios, strict=True) for cell in pair))
    for table in tables.values():
        table.print()
    if options.publish:
        publish(tables, options.rounds, "guest with 2 emulated CPUs", f"Linux {options.kernel}")


if __name__ == "__main__":
    main()
