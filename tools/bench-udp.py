#!/usr/bin/env python3
"""`roce perf` and raw UDP, over the loopback interface or over a link between two hosts.

    cargo build --release --package softroce-tools
    tools/bench-udp.py
    tools/bench-udp.py --wire --rounds 7
    tools/bench-udp.py --via shm

All tests run alternately, each with a measurement of raw UDP with the same datagrams just before it; rows are
medians. With --via shm the sides use shared memory, and raw UDP stays the same.
With --wire (as root) the sides are in two network namespaces with a pair of veth interfaces between them, of
which one segments bursts before the link and the other merges packets after it, so no burst crosses the link, as
between two machines. docs/PERFORMANCE.md has the results.
"""

import json
import os
import statistics
import sys

from benchmark import ROCE, Hosts, Table, Turns, both_sides, built_roce, parser, publish, run

# The name of a row, and its options. Lists (-l) are as long as what usually completes at once.
TESTS = {
    "SEND of 64 bytes, one queue pair, 512 outstanding": "send-bw -s 64 -t 512 -r 2048 -l 64 -Q 16",
    "WRITE of 64 bytes, one queue pair, 512 outstanding": "write-bw -s 64 -t 512 -l 64 -Q 16",
    "SEND of 64 bytes, 16 queue pairs, 64 outstanding each": "send-bw -s 64 -t 64 -r 256 -q 16 -l 64",
    "SEND there and back, 64 bytes": "send-lat -s 64",
    "WRITE there and back, 64 bytes": "write-lat -s 64",
    "READ of 64 bytes": "read-lat -s 64",
    "Fetch and add": "atomic-lat",
    "SEND there and back, 64 bytes, asleep": "send-lat -s 64 -e",
    "SEND there and back, 64 bytes, asleep, on any CPU": "send-lat -s 64 -e",
    "WRITE of 64 KiB, MTU 4096": "write-bw -s 65536 -m 4096 -l 16",
    "SEND of 64 KiB, MTU 4096": "send-bw -s 65536 -m 4096 -l 16",
    "READ of 64 KiB, MTU 4096": "read-bw -s 65536 -m 4096 -l 16",
    "WRITE of 1 MiB, MTU 4096": "write-bw -s 1048576 -m 4096 -t 16 -l 4",
    "SEND of 1 MiB, MTU 4096": "send-bw -s 1048576 -m 4096 -t 16 -r 64 -l 4",
    "READ of 1 MiB, MTU 4096": "read-bw -s 1048576 -m 4096 -t 16 -l 4",
    "WRITE of 64 KiB, MTU 1024": "write-bw -s 65536 -m 1024 -l 16",
    "WRITE of 1 MiB, MTU 1024": "write-bw -s 1048576 -m 1024 -t 16 -l 4",
    "UC, SEND of 4 KiB, MTU 4096": "send-bw -c UC -s 4096 -m 4096 -l 16",
    "UD, SEND of 4 KiB, MTU 4096": "send-bw -c UD -s 4096 -m 4096 -l 16",
}


# In other tests each side has its own CPU, with all of its threads.
ANYWHERE = "on any CPU"


def on_cpu(number, name):
    """What pins a side for the test with this name."""
    cpus = sorted(os.sched_getaffinity(0))
    return [] if name.endswith(ANYWHERE) else ["taskset", "-c", str(cpus[number % len(cpus)])]


class Loopback:
    """Both sides over loopback addresses of this machine."""

    ips = ["127.0.0.1", "127.0.0.2"]
    # What the command lines of the sides begin with.
    begin = [[], []]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Wire(Hosts):
    """Each side on a host of its own, with a link between them that carries no burst."""

    def lay(self, begin, ip):
        run(*begin, "ip", "address", "add", f"{ip}/24", "dev", "wire")
        run(*begin, "ethtool", "-K", "wire", "tx-udp-segmentation", "off", "tso", "off", "gro", "on")
        run(*begin, "ip", "link", "set", "wire", "up")


def perf(place, port, name, options):
    """Runs a test between the two sides of a place, by ports of a kind."""
    a, b = ([*side, *on_cpu(number, name), ROCE, "perf", options[0], "--via", port, "--ip", ip]
            for number, (side, ip) in enumerate(zip(place.begin, place.ips)))
    return both_sides([*a, *options[1:]], b, place.ips[1])


def main():
    turns, options = Turns(TESTS, 0.25), parser(__doc__)
    options.add_argument("--wire", action="store_true", help="between two namespaces, not over loopback")
    options.add_argument("--via", default="udp", help="the port, as for roce perf [udp]")
    turns.add_to(options)
    options = options.parse_args()
    found = {name: [] for name in turns.chosen(options)}
    built_roce()

    with Wire() if options.wire else Loopback() as place:
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
            for name in found:
                said = perf(place, options.via, name, [*TESTS[name].split(), "-D", str(options.seconds), "--json"])
                found[name].append(json.loads(said))

    def median(rows, *keys):
        values = []
        for row in rows:
            for key in keys:
                row = row[key]
            values.append(row)
        return statistics.median(values)

    rates = Table(("million messages a second", 2), ("of raw UDP", 2))
    bandwidths = Table(("Gbit/s", 1), ("of raw UDP", 2))
    latencies = Table(("median, µs", 1), ("99 %, µs", 1), ("× raw UDP", 2))
    for name, rows in found.items():
        fraction = median(rows, "fraction_of_ceiling")
        if rows[0]["latency_us"]:
            latencies.add(name, *(median(rows, "latency_us", key) for key in ("p50", "p99")), fraction)
        elif rows[0]["size"] < 1024:
            rates.add(name, median(rows, "msg_per_s") / 1e6, fraction)
        else:
            bandwidths.add(name, median(rows, "gbit_per_s"), fraction)

    place = "wire" if options.wire else "loopback" if options.via == "udp" else options.via
    tables = {f"{place}-rates": rates, f"{place}-bandwidths": bandwidths, f"{place}-latencies": latencies}
    for table in tables.values():
        table.print()
    if options.publish:
        publish(tables, options.rounds)


if __name__ == "__main__":
    main()
